//! The shape of CouchDB's answers.
//!
//! Owns parsing and nothing else. Every field may be missing, null or of another type
//! than expected: then it is unknown (`None`), never zero. Unknown fields are passed
//! over. What is not JSON, or not an object where one is due, is an error of the
//! request.

mod cluster;
mod design;
mod feed;
mod loose;
mod map;
mod search;
mod shard;
mod tasks;

pub use cluster::{
    DbShards, DocShards, LocalName, Membership, Refusal, Session, System, Up, UserContext, Vendor,
    Versions, Welcome,
};
pub use design::{
    Autoupdate, DesignDoc, DesignOptions, UpdatesPending, ViewIndex, ViewInfo, Views,
};
pub(crate) use design::{DesignRow, DesignRows};
pub(crate) use feed::UpdatesEnd;
pub use feed::{Change as DbChange, GLOBAL_CHANGES, MapChange, MapChanges, UpdateLine};
pub(crate) use loose::List;
pub use map::{Change, DbsDoc};
pub(crate) use map::{MapRow, MapRows};
pub use search::{SearchIndex, SearchInfo};
pub use shard::{ShardInfo, Sizes};
pub use tasks::{ActiveTask, ReshardJob, ReshardJobs, SmooshChannel, SmooshStatus, SmooshWaiting};

use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, str};

/// One section of a node's configuration: key to value.
pub type ConfigSection = BTreeMap<String, String>;

/// A node's whole configuration: section to its keys.
pub type Config = BTreeMap<String, ConfigSection>;

/// Reads one answer, or one line of a feed.
///
/// Its encoding is checked once: text by text, as `from_slice` does, takes a tenth of the
/// time of reading a shard's answer.
///
/// # Errors
/// When it is not JSON, or not what is due.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    match str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        // What is passed over may be anything.
        Err(_) => serde_json::from_slice(body),
    }
}

#[cfg(test)]
mod tests;
