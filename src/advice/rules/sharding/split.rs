//! The request that splits a range.

use crate::advice::Remedy;
use couchdb_names::Range;
use serde_json::json;

/// The request that splits a range of a database in two, in all its copies; without a range, it splits
/// all of them.
pub(super) fn split(says: &str, db: &str, range: Option<Range>) -> Remedy {
    let body = match range {
        Some(range) => json!({ "type": "split", "db": db, "range": range.text().as_str() }),
        None => json!({ "type": "split", "db": db }),
    };
    Remedy::couchdb(says, "POST", &["_reshard", "jobs"], Some(&body))
}

/// The request that shows how far splits are.
pub(super) fn split_progress() -> Remedy {
    Remedy::get("See its progress:", &["_reshard", "jobs"])
}
