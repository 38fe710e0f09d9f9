//! `[smoosh.ignore]`: names that no channel of smoosh takes (`smoosh_utils:ignore_db/1`).
//!
//! A key is the exact name of a shard file, which covers the file and its views; for the index
//! cleanup it is the name of a clustered database.

use crate::{NodeConfig, Severity, finding::Findings};
use couchdb_names::ShardName;
use std::collections::BTreeSet;

const SECTION: &str = "smoosh.ignore";
/// Node-local databases; no clustered database can have one of these names.
const NODE_LOCAL: [&str; 2] = ["_dbs", "_nodes"];

/// The targets that a node ignores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Names of database files without `.couch`; neither these files nor their views are compacted.
    pub files: BTreeSet<String>,
    /// Clustered databases whose index files are not cleaned up.
    pub cleanups_of: BTreeSet<String>,
}

/// Reads a node's ignore list.
pub(crate) fn read(node: &NodeConfig, findings: &mut Findings) -> Ignored {
    let mut ignored = Ignored::default();
    for (name, value) in node.sections.get(SECTION).into_iter().flatten() {
        let mut find = |severity, message: &str| {
            findings.add(severity, SECTION, Some(name), message.to_owned());
        };
        if value != "true" {
            find(
                if value == "false" { Severity::Note } else { Severity::Warning },
                "does nothing: a name is ignored only where its value is exactly \"true\"",
            );
        } else if name.is_empty() {
            find(Severity::Warning, "does nothing: no file has an empty name");
        } else if name.ends_with(".couch") {
            find(
                Severity::Warning,
                "does nothing: smoosh knows files by their names without .couch",
            );
        } else if ShardName::split(name).is_some() || NODE_LOCAL.contains(&name.as_str()) {
            ignored.files.insert(name.clone());
        } else {
            ignored.cleanups_of.insert(name.clone());
            find(
                Severity::Warning,
                "is not the name of a shard file, so it only stops smoosh from cleaning up that database's index files (and from compacting a database that only this node has): write shards/RANGE/db.SUFFIX to ignore a shard",
            );
        }
    }
    ignored
}
