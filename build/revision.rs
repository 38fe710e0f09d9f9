//! The origin of a build: the revision and the date of its source.
//!
//! Owns the environment variables `RECLINER_BUILD_REVISION` and `RECLINER_BUILD_DATE` of the crate.
//! `RECLINER_REVISION` and `SOURCE_DATE_EPOCH` take precedence if they are set. Otherwise a build with
//! the release profile, or a profile that inherits it, asks git. A developer's build does not, because
//! it would be rebuilt after each commit. `tests/it/revision.rs` tests the rules.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

/// Stands for an unknown revision or date.
const UNKNOWN: &str = "unknown";

/// The number of digits of a commit's hash that are shown.
const SHOWN_DIGITS: usize = 12;

/// The commit that is checked out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// All digits of its hash.
    pub(crate) hash: String,
    /// When it was committed, in seconds since 1970.
    pub(crate) time: i64,
    /// The files that change when another commit is checked out.
    pub(crate) changing_files: Vec<PathBuf>,
}

/// The directives for cargo: the crate's variables, and the files and variables on which they
/// depend.
pub(crate) fn directives(root: &Path) -> Result<String, Box<dyn Error>> {
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = is_release.then(|| checked_out(root)).flatten();
    let mut directives = String::new();
    for name in ["RECLINER_REVISION", "SOURCE_DATE_EPOCH"] {
        writeln!(directives, "cargo::rerun-if-env-changed={name}")?;
    }
    for file in commit.iter().flat_map(|commit| &commit.changing_files) {
        writeln!(directives, "cargo::rerun-if-changed={}", file.display())?;
    }
    let revision = revision(variable("RECLINER_REVISION"), commit.as_ref())?;
    let date = date(variable("SOURCE_DATE_EPOCH"), commit.as_ref())?;
    writeln!(directives, "cargo::rustc-env=RECLINER_BUILD_REVISION={revision}")?;
    writeln!(directives, "cargo::rustc-env=RECLINER_BUILD_DATE={date}")?;
    Ok(directives)
}

/// The value of an environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The revision to show: the given one, otherwise the commit's.
pub(crate) fn revision(given: Option<String>, commit: Option<&Commit>) -> Result<String, String> {
    let Some(revision) = given.or_else(|| commit.map(|commit| commit.hash.clone())) else {
        return Ok(UNKNOWN.to_owned());
    };
    if revision.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!("RECLINER_REVISION is {revision:?}; a revision has no spaces"));
    }
    let is_hash = revision.len() > SHOWN_DIGITS && revision.bytes().all(|b| b.is_ascii_hexdigit());
    Ok(if is_hash { revision.chars().take(SHOWN_DIGITS).collect() } else { revision })
}

/// The date to show, in UTC: that of the given time, otherwise the commit's.
pub(crate) fn date(given: Option<String>, commit: Option<&Commit>) -> Result<String, String> {
    let time = match given {
        Some(seconds) => Some(seconds.parse().map_err(|_| {
            format!("SOURCE_DATE_EPOCH is {seconds:?}, and not a number of seconds since 1970")
        })?),
        None => commit.map(|commit| commit.time),
    };
    Ok(time.map_or_else(|| UNKNOWN.to_owned(), date_of))
}

/// The date in UTC of a moment in seconds since 1970. Howard Hinnant's `civil_from_days`: years
/// begin in March, so that a leap day is the last day of its year.
fn date_of(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The commit that is checked out in `root`. `None` if `root` is not a work tree of its own, or if
/// git is missing or refuses. A source unpacked inside another repository has no `.git`, and that
/// repository's commit is not its revision.
pub(crate) fn checked_out(root: &Path) -> Option<Commit> {
    if !root.join(".git").exists() {
        return None;
    }
    let hash = git(root, &["rev-parse", "--verify", "HEAD"])?;
    let time = git(root, &["log", "-1", "--no-show-signature", "--format=%ct", "HEAD"])?;
    let reference = git(root, &["rev-parse", "--symbolic-full-name", "HEAD"]);
    let names = ["HEAD", "logs/HEAD", "packed-refs"].map(str::to_owned);
    let changing_files = names
        .into_iter()
        .chain(reference)
        .filter_map(|name| git(root, &["rev-parse", "--git-path", &name]))
        // Cargo considers a build with a missing file out of date.
        .map(|path| root.join(path))
        .filter(|path| path.is_file())
        .collect();
    Some(Commit { hash, time: time.parse().ok()?, changing_files })
}

/// The line that git prints for these arguments, if it succeeds.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        // A build started by a git hook inherits the variables of the hook's repository.
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .output()
        .ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| line.trim().to_owned())
}
