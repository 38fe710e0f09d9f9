//! CouchDB's action when it next opens a file, and the values that it reports differently from the
//! header.
//!
//! Owns the rules of `couch_bt_engine:init`, `couch_mrview_index:open` and the compactor for good
//! and bad headers, as of CouchDB 3.5. Pure: it never opens a file and never decides what an
//! operator should do.

use super::{
    DbHeader, DecodeError, FileHeader, Header, HeaderError, IndexForm, TreeSize, db::PurgeRoot,
};
use couchdb_names::Signature;
use std::fmt;

/// The role of a file, by the suffix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A database: a shard or a node-local database.
    Db,
    /// The data that a database's compaction has copied so far.
    CompactData,
    /// The file in which such a compaction sorts ids.
    CompactMeta,
    /// The result of a compaction, about to replace the database.
    Compacted,
    /// A view index; its file name is a signature.
    View(Option<Signature>),
    /// The file that the compaction of a view index writes.
    CompactView(Option<Signature>),
    /// Not a CouchDB name; files in `.delete` have such names.
    Unnamed,
}

impl Role {
    /// The role of a file with this name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let named = |ending| name.strip_suffix(ending);
        if name.ends_with(".couch") {
            Self::Db
        } else if name.ends_with(".couch.compact.data") {
            Self::CompactData
        } else if name.ends_with(".couch.compact.meta") {
            Self::CompactMeta
        } else if name.ends_with(".couch.compact") {
            Self::Compacted
        } else if let Some(name) = named(".compact.view") {
            Self::CompactView(name.parse().ok())
        } else if let Some(name) = named(".view") {
            Self::View(name.parse().ok())
        } else {
            Self::Unnamed
        }
    }

    /// The label in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Db => "db",
            Self::CompactData => "compact_data",
            Self::CompactMeta => "compact_meta",
            Self::Compacted => "compacted",
            Self::View(_) => "view",
            Self::CompactView(_) => "compact_view",
            Self::Unnamed => "unnamed",
        }
    }
}

/// What CouchDB 3.5 does with a file when it opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAction {
    /// It opens the file without changes.
    Opens,
    /// It continues from a header with bytes after it.
    Recovers {
        /// Bytes after the header.
        bytes_after: u64,
    },
    /// It appends a header in its own format.
    Upgrades {
        /// The disk version before; `None` for a view index, which has none.
        from: Option<u8>,
    },
    /// It appends an empty header: the old data is still in the file but unreachable.
    Resets,
    /// It empties the file and rebuilds the index.
    Rebuilds,
    /// It does not open the file.
    Refuses,
    /// The database's next compaction continues it.
    Continues,
    /// It uses the file as the database if that is missing.
    Adopts,
    /// The next compaction empties it.
    Discards,
    /// It ignores files with this name.
    Ignores,
}

impl OpenAction {
    /// The action for a file with this role and this reading.
    #[must_use]
    pub fn of(role: Role, read: &Result<FileHeader, HeaderError>) -> Self {
        match role {
            Role::Unnamed => Self::Ignores,
            Role::CompactView(_) => Self::Discards,
            Role::CompactData | Role::CompactMeta => match read {
                Ok(FileHeader { header: Header::Db(_) | Header::Compaction(_), .. }) => {
                    Self::Continues
                }
                _ => Self::Discards,
            },
            Role::Compacted => {
                let opening = Self::of(Role::Db, read);
                let bad = matches!(opening, Self::Resets | Self::Refuses);
                if bad { opening } else { Self::Adopts }
            }
            Role::Db => match read {
                Ok(FileHeader { header: Header::Db(db), position: place, .. }) => {
                    if db.fields > NEWEST_FIELDS {
                        Self::Refuses
                    } else if db.disk_version < NEWEST_DISK_VERSION {
                        Self::Upgrades { from: Some(db.disk_version) }
                    } else {
                        Self::continues_after(place.bytes_after)
                    }
                }
                Err(HeaderError::NoValidHeader { .. }) => Self::Resets,
                Ok(_) | Err(_) => Self::Refuses,
            },
            Role::View(named) => match read {
                Ok(FileHeader { header: Header::View(view), position: place, .. }) => {
                    if named.is_some_and(|named| named != view.signature) {
                        return Self::Rebuilds;
                    }
                    match view.committed.as_ref().map(|index| index.form) {
                        None | Some(IndexForm::Current) => Self::continues_after(place.bytes_after),
                        Some(IndexForm::Plain | IndexForm::V2) => Self::Upgrades { from: None },
                        Some(IndexForm::V1_2) => Self::Refuses,
                    }
                }
                // Any header that is not a view's counts as one with a different signature.
                Ok(_)
                | Err(
                    HeaderError::NoValidHeader { .. }
                    | HeaderError::UnknownDiskVersion { .. }
                    | HeaderError::UndecodableHeader { why: DecodeError::NotAHeader, .. },
                ) => Self::Rebuilds,
                Err(_) => Self::Refuses,
            },
        }
    }

    const fn continues_after(tail: u64) -> Self {
        if tail == 0 { Self::Opens } else { Self::Recovers { bytes_after: tail } }
    }

    /// The label in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Opens => "opens",
            Self::Recovers { .. } => "recovers",
            Self::Upgrades { .. } => "upgrades",
            Self::Resets => "resets",
            Self::Rebuilds => "rebuilds",
            Self::Refuses => "refuses",
            Self::Continues => "continues",
            Self::Adopts => "adopts",
            Self::Discards => "discards",
            Self::Ignores => "ignores",
        }
    }
}

/// CouchDB's action, as a sentence.
impl fmt::Display for OpenAction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Opens => "opens it as it is",
            Self::Recovers { bytes_after: tail } => {
                return write!(
                    out,
                    "continues from this header; the {tail} bytes after it are either being \
                     written now, or were left by a crash and are lost"
                );
            }
            Self::Upgrades { from: Some(from) } => {
                return write!(
                    out,
                    "appends a header of its own format to one of disk version {from}, and keeps all \
                     data"
                );
            }
            Self::Upgrades { from: None } => "appends a header of its own format, and keeps all data",
            Self::Resets => {
                "appends an empty header and deletes the compaction's files: the data seems lost; \
                 copy the file before anything opens it"
            }
            Self::Rebuilds => "empties it and rebuilds the index from the documents",
            Self::Refuses => "does not open it and answers with an error",
            Self::Continues => "does not serve it; the next compaction of its database continues it",
            Self::Adopts => "uses it as the database if that file is missing",
            Self::Discards => "does not serve it; the next compaction starts over",
            Self::Ignores => "ignores files with this name",
        })
    }
}

/// The disk version that CouchDB 3 writes. It reports older files as this one as soon as it opens them
/// (`couch_bt_engine_header:upgrade_disk_version/1`), so only files from before 1.0 are ever reported with an
/// older one.
pub const NEWEST_DISK_VERSION: u8 = 8;
/// Number of fields that CouchDB 3.5 knows.
const NEWEST_FIELDS: usize = 16;

/// Whether CouchDB reports the same values for a database as its header.
///
/// One difference is not visible in any header: after `_purged_infos_limit` was set, CouchDB's
/// update sequence is one ahead until the next commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportMatch {
    /// It may report different values, or none.
    #[default]
    Different,
    /// It reports the same values, but may know of a compaction that the header does not contain.
    ExceptCompactedSeq,
    /// It reports the same values.
    Identical,
}

impl ReportMatch {
    /// The comparison for a database with this header.
    #[must_use]
    pub fn of(db: &DbHeader) -> Self {
        let sized = db.active.is_some() && db.external.is_some();
        let counted = db.docs.is_some() && db.deleted_docs.is_some();
        if db.disk_version < NEWEST_DISK_VERSION || db.fields > NEWEST_FIELDS || !sized || !counted
        {
            Self::Different
        } else if may_lag(db) {
            Self::ExceptCompactedSeq
        } else {
            Self::Identical
        }
    }
}

/// Whether a compaction may have ended without a trace in the header: without `_local` documents
/// its swap commits nothing.
fn may_lag(db: &DbHeader) -> bool {
    db.compacted_seq < db.update_seq && db.trees.local == TreeSize::Empty
}

/// Values that a header lacks or that CouchDB reports differently, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The names of the values in JSON.
    pub facts: &'static [&'static str],
    /// The reason, as a sentence.
    pub why: &'static str,
}

impl Difference {
    /// Every expected difference for a file with this role and this reading.
    #[must_use]
    pub fn of(role: Role, read: &Result<FileHeader, HeaderError>) -> Vec<Self> {
        let mut all = from_action(OpenAction::of(role, read), read);
        if let Ok(headed) = read {
            match &headed.header {
                Header::Db(db) | Header::Compaction(db) => {
                    if role == Role::CompactMeta {
                        all.push(SCRATCH);
                    } else if role == Role::CompactData {
                        all.push(UNFINISHED);
                    } else if may_lag(db) {
                        all.push(COMPACTED_SEQ);
                    }
                    if db.active.is_none() {
                        all.push(UNSIZED);
                    }
                    if let Some(PurgeRoot::List { .. }) = db.purge_root {
                        all.push(PURGES_UPGRADED);
                    }
                    if db.purge_seq.is_none() {
                        all.push(PURGE_SEQ);
                    }
                }
                Header::View(view) => {
                    match &view.committed {
                        None => all.push(NEVER_COMMITTED),
                        Some(index) if index.empty_groups > 0 => all.push(EMPTY_GROUPS),
                        Some(_) => {}
                    }
                    if headed.position.bytes_after > 0 {
                        all.push(NOT_COMMITTED);
                    }
                }
            }
        }
        all
    }
}

fn from_action(opening: OpenAction, read: &Result<FileHeader, HeaderError>) -> Vec<Difference> {
    let of_view = matches!(read, Ok(FileHeader { header: Header::View(_), .. }));
    match opening {
        OpenAction::Upgrades { from: None } => vec![UPGRADED_VIEW],
        OpenAction::Upgrades { from: Some(_) } => vec![UPGRADED_DB],
        OpenAction::Resets => vec![RESET],
        OpenAction::Rebuilds if of_view => vec![WRONG_SIGNATURE, REBUILT],
        OpenAction::Rebuilds => vec![REBUILT],
        OpenAction::Refuses => vec![REFUSED],
        OpenAction::Opens
        | OpenAction::Recovers { .. }
        | OpenAction::Continues
        | OpenAction::Adopts
        | OpenAction::Discards
        | OpenAction::Ignores => Vec::new(),
    }
}

/// Every value of a file.
const ALL_FACTS: &[&str] = &[
    "file_bytes",
    "active_bytes",
    "external_bytes",
    "update_seq",
    "compacted_seq",
    "purge_seq",
    "docs",
    "deleted_docs",
    "disk_version",
    "uuid",
    "signature",
    "collator_versions",
];

const COMPACTED_SEQ: Difference = Difference {
    facts: &["compacted_seq"],
    why: "without _local documents, a compaction's sequence is written only with the next commit: \
        HTTP may show a newer one",
};
const UNSIZED: Difference = Difference {
    facts: ALL_FACTS,
    why: "CouchDB before 1.2 did not count the bytes of trees: HTTP answers with an error",
};
const PURGE_SEQ: Difference =
    Difference { facts: &["purge_seq"], why: "the tree of purges cannot be read" };
const PURGES_UPGRADED: Difference = Difference {
    facts: &["active_bytes"],
    why: "HTTP counts the trees that CouchDB builds from the list of purges",
};
const UPGRADED_DB: Difference = Difference {
    facts: &["file_bytes", "disk_version", "uuid"],
    why: "HTTP shows the file with the appended header, and a new uuid if it had none",
};
const UPGRADED_VIEW: Difference = Difference {
    facts: &["file_bytes", "collator_versions"],
    why: "HTTP shows the file with the appended header, which names a collator",
};
const RESET: Difference =
    Difference { facts: ALL_FACTS, why: "HTTP shows an empty database with a new uuid" };
const REBUILT: Difference =
    Difference { facts: ALL_FACTS, why: "HTTP shows the index while it is being rebuilt" };
const WRONG_SIGNATURE: Difference = Difference {
    facts: &["signature"],
    why: "the signature differs from the file's name: the file is a copy of another index, or was renamed",
};
const REFUSED: Difference = Difference { facts: ALL_FACTS, why: "HTTP answers with an error" };
const SCRATCH: Difference = Difference {
    facts: &["active_bytes", "external_bytes"],
    why: "the trees that its header refers to are in the .compact.data file",
};
const UNFINISHED: Difference = Difference {
    facts: &["active_bytes", "external_bytes", "docs", "deleted_docs"],
    why: "a compaction copies bodies first and the tree of ids last: until then nothing is counted \
     by id",
};
const NEVER_COMMITTED: Difference = Difference {
    facts: &["external_bytes", "purge_seq", "collator_versions"],
    why: "nothing is committed: HTTP counts a few bytes for each view, and the database's purge_seq",
};
const EMPTY_GROUPS: Difference = Difference {
    facts: &["external_bytes"],
    why: "views without rows count 2 bytes here; HTTP counts more if they have reduces",
};
const NOT_COMMITTED: Difference = Difference {
    facts: &["active_bytes", "external_bytes", "update_seq", "purge_seq", "collator_versions"],
    why: "CouchDB commits an index five seconds after a change: HTTP may show newer values, and a \
        crash loses the difference",
};
