//! The text form of a target's identity.

use super::{CLUSTER_NODE, TargetKind};
use crate::text::Label;
use couchdb_names::{Engine, ParseSignatureError, ShardName, Signature, encode_part};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, str::FromStr};

/// A target's identity: `db:<node>/<shard name>`, `view:<node>/<db>/<signature>`,
/// `cleanup:<db>`, `search:<db>/<engine>/<design document>/<index>`, each part
/// percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum TargetId {
    /// One copy of a database shard.
    Db {
        /// The node of the copy.
        node: String,
        /// The name of the shard file or of a node-local database.
        shard: String,
    },
    /// A view index.
    View {
        /// The node, or [`CLUSTER_NODE`].
        node: String,
        /// The database with its instance suffix.
        db: String,
        /// The signature.
        signature: Signature,
    },
    /// A database's stale index files.
    Cleanup {
        /// The clustered database.
        db: String,
    },
    /// A search index.
    Search {
        /// The clustered database.
        db: String,
        /// The engine that builds it.
        engine: Engine,
        /// The design document's id, with `_design/`.
        design: String,
        /// Its name in the design document.
        index: String,
    },
}

impl TargetId {
    /// The database that it belongs to.
    pub fn database(&self) -> &str {
        match self {
            Self::Db { shard: name, .. } | Self::View { db: name, .. } => database_of(name),
            Self::Cleanup { db } | Self::Search { db, .. } => db,
        }
    }

    /// The name for people, next to a column of nodes: `orders 80-9f`, `orders/_design/clients`, `index files of
    /// orders`. A view's id does not contain its design document; without `design`, the signature is used.
    pub fn name(&self, design: Option<&str>) -> String {
        match self {
            Self::Db { shard, .. } => file_name(shard, None),
            Self::View { db, signature, .. } => {
                let name = design.map_or_else(
                    || {
                        // Eight characters distinguish the views of one database.
                        let signature: String = signature.to_string().chars().take(8).collect();
                        format!("view {signature} of {}", database_of(db))
                    },
                    |design| format!("{}/{design}", database_of(db)),
                );
                with_range(name, db)
            }
            Self::Cleanup { db } => format!("index files of {db}"),
            Self::Search { db, engine, design, index } => {
                format!("{} index {db}/{design}/{index}", engine.label())
            }
        }
    }

    /// Like [`Self::name`], with the node if the target is on one node: `orders 80-9f on
    /// couchdb@couch-a`.
    pub fn title(&self, design: Option<&str>) -> String {
        match self.node() {
            Some(node) => format!("{} on {node}", self.name(design)),
            None => self.name(design),
        }
    }

    /// The node of a target that is a single file on one node.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Db { node, .. } | Self::View { node, .. } => {
                Some(node.as_str()).filter(|node| *node != CLUSTER_NODE)
            }
            Self::Cleanup { .. } | Self::Search { .. } => None,
        }
    }

    /// The kind of this target.
    pub const fn kind(&self) -> TargetKind {
        match self {
            Self::Db { .. } => TargetKind::Db,
            Self::View { .. } => TargetKind::View,
            Self::Cleanup { .. } => TargetKind::Cleanup,
            Self::Search { .. } => TargetKind::Search,
        }
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Db { node, shard } => {
                write!(out, "db:{}/{}", encode_part(node), encode_part(shard))
            }
            Self::View { node, db, signature } => {
                write!(out, "view:{}/{}/{signature}", encode_part(node), encode_part(db))
            }
            Self::Cleanup { db } => write!(out, "cleanup:{}", encode_part(db)),
            Self::Search { db, engine, design, index } => {
                let [db, design, index] = [db, design, index].map(|part| encode_part(part));
                write!(out, "search:{db}/{}/{design}/{index}", engine.label())
            }
        }
    }
}

impl From<TargetId> for String {
    fn from(id: TargetId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for TargetId {
    type Error = ParseTargetError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Why a text is not a target id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseTargetError {
    /// It does not begin with a kind and a colon.
    #[error("{0:?} is not a target id; ids start with db:, view:, cleanup: or search:")]
    Kind(String),
    /// It has too few or too many parts.
    #[error(
        "{0:?} is not a target id: write db:<node>/<shard name>, view:<node>/<db>/<signature>, cleanup:<db> or search:<db>/<engine>/<design document>/<index>, with every / inside a part as %2F"
    )]
    Parts(String),
    /// A part is not percent-encoded UTF-8.
    #[error("{0:?} is not a target id: one of its parts is not percent-encoded UTF-8")]
    Encoding(String),
    /// The signature is malformed.
    #[error("{0:?} is not a target id: it must end with a view's signature, 32 hex digits")]
    Signature(String, #[source] ParseSignatureError),
}

impl FromStr for TargetId {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, rest) = text
            .split_once(':')
            .and_then(|(kind, rest)| Some((TargetKind::from_label(kind)?, rest)))
            .ok_or_else(|| ParseTargetError::Kind(text.to_owned()))?;
        let parts = rest
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8().map(Cow::into_owned))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| ParseTargetError::Encoding(text.to_owned()))?;
        if parts.iter().any(String::is_empty) {
            return Err(ParseTargetError::Parts(text.to_owned()));
        }
        match (kind, <[String; 1]>::try_from(parts)) {
            (TargetKind::Cleanup, Ok([db])) => Ok(Self::Cleanup { db }),
            (TargetKind::Db, Err(parts)) => match <[String; 2]>::try_from(parts) {
                Ok([node, shard]) => Ok(Self::Db { node, shard }),
                Err(_) => Err(ParseTargetError::Parts(text.to_owned())),
            },
            (TargetKind::View, Err(parts)) => match <[String; 3]>::try_from(parts) {
                Ok([node, db, signature]) => Ok(Self::View {
                    node,
                    db,
                    signature: signature
                        .parse()
                        .map_err(|why| ParseTargetError::Signature(text.to_owned(), why))?,
                }),
                Err(_) => Err(ParseTargetError::Parts(text.to_owned())),
            },
            (TargetKind::Search, Err(parts)) => match <[String; 4]>::try_from(parts) {
                Ok([db, engine, design, index]) => match Engine::from_label(&engine) {
                    Some(engine) => Ok(Self::Search { db, engine, design, index }),
                    None => Err(ParseTargetError::Parts(text.to_owned())),
                },
                Err(_) => Err(ParseTargetError::Parts(text.to_owned())),
            },
            _ => Err(ParseTargetError::Parts(text.to_owned())),
        }
    }
}

/// The name for people of a shard's file, or of the file of an index on it, with the range if the
/// shard is one of several: `orders 80-9f`, `orders/_design/clients 80-9f`.
#[must_use]
pub fn file_name(shard: &str, design: Option<&str>) -> String {
    let db = database_of(shard);
    with_range(design.map_or_else(|| db.to_owned(), |design| format!("{db}/{design}")), shard)
}

fn with_range(name: String, file: &str) -> String {
    match ShardName::split(file).filter(|shard| !shard.range.is_whole()) {
        Some(shard) => format!("{name} {}", shard.range.short()),
        None => name,
    }
}

/// The database that a shard file, or an instance of a database, belongs to. Database names cannot
/// contain a dot.
pub fn database_of(name: &str) -> &str {
    if let Some(shard) = ShardName::split(name) {
        return shard.db;
    }
    match name.rsplit_once('.') {
        Some((db, _)) if !db.is_empty() => db,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_have_the_documented_form() {
        let id = TargetId::Db {
            node: "couchdb@a".into(),
            shard: "shards/00000000-7fffffff/app/orders.17".into(),
        };
        assert_eq!(id.to_string(), "db:couchdb@a/shards%2F00000000-7fffffff%2Fapp%2Forders.17");
        for bad in [
            "",
            "db",
            "db:",
            "db:a",
            "db:a/b/c",
            "shard:a/b",
            "cleanup:a/b",
            "view:a/b/c",
            "cleanup:%ff",
            "search:a/lucene/_design%2Fx/i",
            "search:a/nouveau/i",
        ] {
            assert!(bad.parse::<TargetId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn ids_with_any_names_round_trip(node in ".+", name in ".+", signature: [u8; 16]) {
            let ids = [
                TargetId::Db { node: node.clone(), shard: name.clone() },
                TargetId::View { node, db: name.clone(), signature: Signature(signature) },
                TargetId::Search {
                    db: name.clone(),
                    engine: Engine::Nouveau,
                    design: name.clone(),
                    index: name.clone(),
                },
                TargetId::Cleanup { db: name },
            ];
            for id in ids {
                prop_assert_eq!(id.to_string().parse::<TargetId>(), Ok(id));
            }
        }
    }
}
