//! The settings of CouchDB 2.x's compaction daemon.
//!
//! `[compactions]` has a rule for each named database and `_default` for the others
//! (`couch_compaction_daemon:get_db_config/1`). A database with a rule never falls back
//! to `_default`.

mod rule;

use crate::{
    Fault, Finding, IniProblemKind, NodeConfig, Opening, Rules, finding::Findings, lint,
    number::integer,
};
use couchdb_names::{ShardName, is_db_name};
use std::collections::BTreeSet;

const DAEMON: &str = "compaction_daemon";
const RULES: &str = "compactions";
const DEFAULT: &str = "_default";
/// Default minimum size of files to compact, in bytes.
const MIN_FILE_SIZE: u64 = 131_072;

/// The compaction daemon's settings on one node, as in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSettings {
    /// Minimum size of a file to compact, in bytes.
    pub min_file_size: u64,
    /// The readable rules, those for named databases before the default.
    pub rules: Vec<DaemonRule>,
    /// All findings, the most severe first.
    pub findings: Vec<Finding>,
}

/// A rule of `[compactions]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonRule {
    /// What the rule applies to: a clustered database, a shard, or `_default`.
    pub database: String,
    /// Minimum waste for compacting a database, in per cent; `None` and 0 mean any.
    pub db_fragmentation: Option<u32>,
    /// Minimum waste for compacting a view, in per cent; `None` and 0 mean any.
    pub view_fragmentation: Option<u32>,
    /// When jobs start, in the server's local time.
    pub opens: Opening,
    /// Whether jobs that still run when the period ends are cancelled.
    pub strict_window: bool,
    /// Whether views are compacted at the same time as their database, not after it.
    pub parallel_view_compaction: bool,
}

impl DaemonRule {
    /// Whether the rule applies to every database without a rule of its own.
    pub fn is_default(&self) -> bool {
        self.database == DEFAULT
    }
}

/// Reads one node's settings of the compaction daemon.
pub fn read_daemon(node: &NodeConfig) -> DaemonSettings {
    let mut findings = Findings::default();
    lint::lines(node, &[DAEMON, RULES], &mut findings);
    let min_file_size = min_file_size(node, &mut findings);
    unread_keys(node, &mut findings);
    if let Some(version) = Rules::parse(&node.version) {
        let misplaced = if version.runs_smoosh() { old_rules } else { lint::no_smoosh };
        misplaced(node, version, &mut findings);
    }
    let rules = rules(node, &mut findings);
    DaemonSettings { min_file_size, rules, findings: findings.sorted() }
}

fn rules(node: &NodeConfig, findings: &mut Findings) -> Vec<DaemonRule> {
    let mut rules = Vec::new();
    for (name, text) in node.sections.get(RULES).into_iter().flatten() {
        if name.starts_with('#') {
            continue;
        }
        if let Some(why) = never_found(name) {
            findings.warn(RULES, name.as_str(), why);
            continue;
        }
        match rule::parse(name, text) {
            Err(why) => {
                let message = format!("is ignored by the daemon, which cannot read it: {why}");
                findings.warn(RULES, name.as_str(), message);
            }
            Ok(rule) => rules.push(rule),
        }
    }
    rules.sort_by_key(DaemonRule::is_default);
    if !rules.last().is_some_and(DaemonRule::is_default) {
        let taken_away = IniProblemKind::TakenAway(DEFAULT.to_owned());
        let is_emptied =
            node.problems.iter().any(|it| it.section == RULES && it.kind == taken_away);
        let why = match is_emptied {
            true => "is empty, so databases without their own rule are not compacted",
            false => {
                "is missing, so databases without their own rule are not compacted; CouchDB 2.3's default.ini sets it to 70% and 60%: also name that file if it is in use"
            }
        };
        findings.warn(RULES, DEFAULT, why);
    }
    rules
}

/// Reports rules and settings of the compaction daemon on a version without it.
pub(crate) fn old_rules(node: &NodeConfig, rules: Rules, findings: &mut Findings) {
    if let Some(keys) = node.sections.get(DAEMON).filter(|keys| !keys.is_empty()) {
        let keys: Vec<&str> = keys.keys().map(String::as_str).collect();
        let message = format!(
            "does nothing: CouchDB {rules} has smoosh instead of the compaction daemon and never reads {}; smoosh has min_size in each channel's section, and checks a file when it is written to",
            keys.join(", ")
        );
        findings.add_fault(Fault::OldRules, DAEMON.to_owned(), message);
    }
    let Some(old) = node.sections.get(RULES).filter(|keys| !keys.is_empty()) else { return };
    let windows = old.iter().filter_map(|(name, text)| match rule::parse(name, text).ok()?.opens {
        Opening::Daily(window) => Some(window.to_string()),
        Opening::Always | Opening::Never => None,
    });
    let windows: BTreeSet<String> = windows.collect();
    let windows = match Vec::from_iter(windows).join(", ") {
        none if none.is_empty() => none,
        windows => format!(
            ", not even for their windows ({windows}): each smoosh channel has from and to, in UTC"
        ),
    };
    findings.add_fault(
        Fault::OldRules,
        RULES.to_owned(),
        format!(
            "does nothing: CouchDB {rules} has smoosh instead of the compaction daemon and never reads these rules{windows}"
        ),
    );
}

/// Why the daemon never finds a rule under this name.
fn never_found(name: &str) -> Option<&'static str> {
    if name == DEFAULT || is_db_name(name) || ShardName::split(name).is_some() {
        None
    } else if name != name.trim_ascii() {
        Some("does nothing: CouchDB keeps the spaces around the key as part of the key")
    } else {
        Some("does nothing: no database can have this name")
    }
}

fn min_file_size(node: &NodeConfig, findings: &mut Findings) -> u64 {
    let key = "min_file_size";
    let Some(text) = node.value(DAEMON, key) else { return MIN_FILE_SIZE };
    let Some(bytes) = integer(text) else {
        let message = "is not an integer, so the daemon crashes at every file: its default of 131072 is assumed";
        findings.error(DAEMON, key, message);
        return MIN_FILE_SIZE;
    };
    u64::try_from(bytes.max(0)).unwrap_or(u64::MAX)
}

fn unread_keys(node: &NodeConfig, findings: &mut Findings) {
    for key in node.sections.get(DAEMON).into_iter().flat_map(|keys| keys.keys()) {
        if !["min_file_size", "check_interval", "snooze_period", "snooze_period_ms"]
            .contains(&key.as_str())
        {
            findings.warn(DAEMON, key.as_str(), "does nothing: the daemon reads no such key");
        }
    }
}
