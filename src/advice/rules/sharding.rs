//! Shard ranges, and how they are spread over the nodes.

mod moves;
mod shard_too_large_to_compact;
mod skewed_range;
mod too_many_shards;
mod unbalanced_nodes;

use super::Family;
use crate::advice::Remedy;
use couchdb_names::Range;
use serde_json::json;

/// The family.
pub(super) const FAMILY: Family = Family {
    title: "Sharding",
    rules: &[
        shard_too_large_to_compact::RULE,
        skewed_range::RULE,
        too_many_shards::RULE,
        unbalanced_nodes::RULE,
    ],
};

/// The request that splits a range of a database in two, in all its copies; without a range, all of them.
fn split(says: &str, db: &str, range: Option<Range>) -> Remedy {
    let body = match range {
        Some(range) => json!({ "type": "split", "db": db, "range": range.text().as_str() }),
        None => json!({ "type": "split", "db": db }),
    };
    Remedy::couchdb(says, "POST", &["_reshard", "jobs"], Some(&body))
}

/// The request that shows how far splits are.
fn split_progress() -> Remedy {
    Remedy::couchdb("See how far it is:", "GET", &["_reshard", "jobs"], None)
}
