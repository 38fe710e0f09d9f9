//! What can be compacted, and what it is called.
//!
//! Owns the words of the whole program for targets: kinds, states, shard ranges and
//! the one text form of an identity (`db:<node>/<shard name>`). Never knows a
//! measurement. Everyone names targets with these types.

mod id;
mod range;
mod selector;

pub use id::{ParseTargetError, TargetId, encode_part};
pub use range::{ParseRangeError, Range, RangeText, ShardName};
pub use selector::{Selector, database};

use serde::{Deserialize, Serialize};

/// The pseudo node of what belongs to the whole cluster: views and cleanups seen over HTTP.
pub const CLUSTER: &str = "_cluster";

/// What kind of thing a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One copy of a database shard, on one node; also node-local databases such as `_dbs`.
    Db,
    /// A view index, known by its database (with instance suffix) and signature.
    View,
    /// The stale index files of one database.
    Cleanup,
    /// A search index, known by its database, engine, design document and name. It has no
    /// compaction: Lucene merges its files by itself.
    Search,
}

impl Kind {
    /// Every kind, in the order tables and metrics show them.
    pub const ALL: [Self; 4] = [Self::Db, Self::View, Self::Cleanup, Self::Search];

    /// The kinds that have a compaction, and so channels.
    pub const COMPACTED: [Self; 3] = [Self::Db, Self::View, Self::Cleanup];

    /// The word in ids, JSON, configuration and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Db => "db",
            Self::View => "view",
            Self::Cleanup => "cleanup",
            Self::Search => "search",
        }
    }

    /// The kind with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }
}

/// What builds and answers search indexes beside CouchDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Of design documents' `nouveau`, since 3.4.
    Nouveau,
    /// Of design documents' `indexes`; CouchDB's side of it is called dreyfus.
    Clouseau,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 2] = [Self::Nouveau, Self::Clouseau];

    /// The word in ids and JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Nouveau => "nouveau",
            Self::Clouseau => "clouseau",
        }
    }

    /// The engine with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.label() == label)
    }
}

/// How a target stands to the shard map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// In the shard map and on disk.
    #[default]
    Ok,
    /// On disk, but no database of the shard map owns it.
    Orphan,
    /// In the shard map, but not on its node's disk.
    Missing,
    /// Being split or moved, per `_reshard` and the map's changelog.
    Resharding,
    /// It has a name that no request can carry safely, such as `_design/..`.
    Unaddressable,
}

impl State {
    /// Every state, in the order tables and metrics show them.
    pub const ALL: [Self; 5] =
        [Self::Ok, Self::Orphan, Self::Missing, Self::Resharding, Self::Unaddressable];

    /// The word in JSON and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Orphan => "orphan",
            Self::Missing => "missing",
            Self::Resharding => "resharding",
            Self::Unaddressable => "unaddressable",
        }
    }

    /// The state with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.label() == label)
    }
}

/// A view index's signature: the MD5 that names its file. Shown as 32 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(pub [u8; 16]);

impl std::fmt::Display for Signature {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl std::str::FromStr for Signature {
    type Err = ParseSignatureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseSignatureError { text: text.to_owned() };
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused());
        }
        u128::from_str_radix(text, 16).map(|value| Self(value.to_be_bytes())).map_err(|_| refused())
    }
}

/// Why a text is not a signature.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a view signature: 32 hex digits are expected")]
pub struct ParseSignatureError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_back() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_label(kind.label()), Some(kind));
        }
        for state in State::ALL {
            assert_eq!(State::from_label(state.label()), Some(state));
        }
        assert_eq!(Kind::from_label("shard"), None);
    }

    #[test]
    fn signatures_print_as_they_are_read() {
        let text = "0f045e3b41d71d93aaa32f23021ba536";
        assert_eq!(text.parse::<Signature>().unwrap().to_string(), text);
        for bad in
            ["", "0f", "zz045e3b41d71d93aaa32f23021ba536", "+f045e3b41d71d93aaa32f23021ba536"]
        {
            assert!(bad.parse::<Signature>().is_err(), "{bad}");
        }
    }
}
