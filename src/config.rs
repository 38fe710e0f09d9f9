//! Turns flags and `recliner.yml` into checked [`Settings`], completely or not at all.
//!
//! Owns the shape of the file, the allowed values, the precedence of flags over the file, what a
//! reload can change, and the conversion back to YAML and JSON. Each key is described once, in
//! `model::settings` or in `sections`: reading, writing, the JSON Schema and the differences at a
//! reload all follow from that description. Collects every problem with its place and key before
//! anything starts. Never starts anything and never opens the files that settings name: only
//! [`read_file`] touches the disk. Commands call it at start, the service at reload.

mod changes;
mod flags;
mod reachability;
mod sections;
mod web;
pub(crate) mod write;

pub use changes::changes;
pub use flags::{Flags, admin_api_exposed};
pub use web::{ClientCertificates, PasswordHash, Pem, Placed, WebConfig, WebTls, read_web};
pub use write::{fleet_to_yaml, policy_to_yaml, schema, to_json, to_yaml};

pub use crate::config_format::{
    Change, When,
    problem::{Finding, Place, Problem, Problems, redact_secrets},
};

use crate::{
    config_format::{form::Form, section, tree},
    model::settings::{Settings, fleet::FleetSettings},
};
use std::path::{Path, PathBuf};

/// Maximum size of a configuration file, in bytes.
pub const MAX_FILE: usize = 1 << 20;

/// A configuration file's name and content.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// The path as given by the user; relative paths in the file start at its directory.
    pub name: &'a Path,
    /// The file's content; it must be UTF-8.
    pub bytes: &'a [u8],
}

/// Valid settings, and findings about them.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The complete settings.
    pub settings: Settings,
    /// Findings about the settings, in the order of the file.
    pub findings: Vec<Finding>,
}

/// Reads the file that `flag` names, up to one byte more than [`MAX_FILE`], so that [`load`] can
/// report a file that is too long.
///
/// # Errors
/// If the file cannot be opened or read.
pub fn read_file(path: &Path, flag: &'static str) -> Result<Vec<u8>, Problems> {
    let limit = u64::try_from(MAX_FILE).unwrap_or(u64::MAX).saturating_add(1);
    named_file::read(path, limit).map_err(|why| {
        let says = format!("cannot read the configuration named by {flag}: {why}");
        Problems::of_file(&path.display().to_string(), says)
    })
}

/// Combines flags and a file into settings, or reports every problem in both.
///
/// An explicit flag takes precedence over the file, and so does a login in the environment. For the
/// same reason `--mode=advise` is a ceiling: the file's mode is then ignored.
///
/// # Errors
/// All problems, sorted by place.
pub fn load(flags: &Flags, file: Option<File<'_>>) -> Result<Loaded, Problems> {
    let mut report = section::Report::default();
    let mut from_file = sections::FileSettings::default();
    if let Some(file) = file {
        let name = file.name.display().to_string();
        let tree = tree::read(&name, text_of(&name, file.bytes)?)?;
        report.file = name;
        report.base = file.name.parent().map(PathBuf::from).unwrap_or_default();
        let read = sections::document().read(&mut report, &tree, "", Some(&from_file));
        from_file = read.unwrap_or(from_file);
    }
    let settings = flags.complete(from_file, &mut report);
    if report.problems.is_empty() {
        report.findings.sort();
        return Ok(Loaded { settings, findings: report.findings });
    }
    Err(Problems::new(report.problems))
}

/// Reads only the policy of a file, that is the rules under which compactions start: `nodes`,
/// `mode`, `channels`, `ignore`, `limits`, `headroom`, `rent` and `views`. All other settings have
/// their defaults, whatever the file contains; it need not name a CouchDB.
///
/// # Errors
/// Every problem in the policy, sorted by place, and every unknown key.
pub fn load_policy(file: File<'_>) -> Result<Settings, Problems> {
    read_part(file, sections::keep_policy, &sections::policy())
}

/// Reads only the section `fleet` of a file; the file need not name a CouchDB.
///
/// # Errors
/// Every problem in the section, sorted by place, and every unknown key.
pub fn load_fleet(file: File<'_>) -> Result<FleetSettings, Problems> {
    Ok(read_part(file, sections::keep_fleet, &sections::fleet())?.fleet)
}

/// The section `fleet` of a file that has no other; `None` for any other file.
///
/// # Errors
/// If the file is no YAML, or the section is wrong: every problem.
pub fn load_fleet_alone(file: File<'_>) -> Result<Option<FleetSettings>, Problems> {
    let name = file.name.display().to_string();
    let tree = tree::read(&name, text_of(&name, file.bytes)?)?;
    sections::is_fleet_alone(&tree).then(|| load_fleet(file)).transpose()
}

fn read_part(
    file: File<'_>,
    keep: fn(&mut tree::Node),
    form: &Form<sections::FileSettings>,
) -> Result<Settings, Problems> {
    let name = file.name.display().to_string();
    let mut tree = tree::read(&name, text_of(&name, file.bytes)?)?;
    keep(&mut tree);
    let base = file.name.parent().map(PathBuf::from).unwrap_or_default();
    let mut report = section::Report { file: name, base, ..section::Report::default() };
    let blank = sections::FileSettings::default();
    let read = form.read(&mut report, &tree, "", Some(&blank));
    if report.problems.is_empty() {
        return Ok(read.unwrap_or(blank).settings);
    }
    Err(Problems::new(report.problems))
}

fn text_of<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a str, Problems> {
    if bytes.len() > MAX_FILE {
        return Err(Problems::of_file(
            name,
            "longer than 1 MiB, the maximum for a configuration".to_owned(),
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|why| {
        let before = bytes.get(..why.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Problems::of_file(
            name,
            format!("not UTF-8 text: line {line} has an invalid byte; save the file as UTF-8"),
        )
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
mod tests;
