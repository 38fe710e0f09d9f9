//! Why a file could not be read.
//!
//! Owns the closed set of reasons, their labels and their explanations.

use couchdb_files::HeaderError;
use rustix::io::Errno;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Why something could not be read. The set is closed.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadProblem {
    /// The system denies this process read access.
    Permission,
    /// The system could not read it.
    #[strum(serialize = "read_failed")]
    Io,
    /// Its path is deeper than any of CouchDB's names.
    TooDeep,
    /// None of its blocks is a valid header.
    NoValidHeader,
    /// No valid header is near its end; there may be one further back.
    NoHeaderWithin,
    /// Its last header contains data that no CouchDB writes.
    #[strum(serialize = "undecodable_header")]
    Undecodable,
    /// Its format version is unknown to recliner.
    #[strum(serialize = "unknown_disk_version")]
    UnknownVersion,
    /// A database file with a view's header, or the reverse.
    WrongKind,
    /// An index whose header has a different signature than its file name: CouchDB would empty it.
    WrongSignature,
}

impl ReadProblem {
    /// The problem and the next step, in a sentence about the file.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Permission => {
                "the system denies read access: run recliner as CouchDB's user, or \
                 grant it read access"
            }
            Self::Io => "reading it failed: check the disk",
            Self::TooDeep => "CouchDB never nests names this deep: check what it is",
            Self::NoValidHeader => {
                "it contains no valid header: recliner inspect shows what CouchDB does with it"
            }
            Self::NoHeaderWithin => {
                "its last gibibyte contains no valid header: recliner inspect searches further back"
            }
            Self::Undecodable => {
                "its last header contains data that no CouchDB version writes: recliner inspect shows details"
            }
            Self::UnknownVersion => {
                "the disk version in its header is unknown to recliner: recliner inspect shows details"
            }
            Self::WrongKind => {
                "its header is of the wrong kind, a view's in a database file or the reverse: \
                 recliner inspect shows details"
            }
            Self::WrongSignature => {
                "the signature in its header differs from its name: recliner inspect shows details"
            }
        }
    }
}

/// A directory that a user named and that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootError {
    /// The reason.
    pub problem: ReadProblem,
    /// The system's error message, without its number.
    pub cause: String,
}

impl From<Errno> for RootError {
    fn from(why: Errno) -> Self {
        let cause = why.to_string();
        let words = cause.split_once(" (os error").map(|(words, _)| words.to_owned());
        Self { problem: why.into(), cause: words.unwrap_or(cause) }
    }
}

impl From<Errno> for ReadProblem {
    fn from(why: Errno) -> Self {
        if matches!(why, Errno::ACCESS | Errno::PERM) { Self::Permission } else { Self::Io }
    }
}

impl From<&HeaderError> for ReadProblem {
    fn from(why: &HeaderError) -> Self {
        match why {
            HeaderError::Read { .. } => Self::Io,
            HeaderError::NoValidHeader { .. } | HeaderError::TooManyFalseHeaders { .. } => {
                Self::NoValidHeader
            }
            HeaderError::NoHeaderWithin { .. } => Self::NoHeaderWithin,
            HeaderError::UndecodableHeader { .. } => Self::Undecodable,
            HeaderError::UnknownDiskVersion { .. } => Self::UnknownVersion,
        }
    }
}
