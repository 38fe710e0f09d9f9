//! Why a file tells nothing.
//!
//! Owns the closed set of reasons, and their words for programs and people.

use couchdb_files::Unreadable;
use rustix::io::Errno;

/// Why something could not be read: a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// The system does not let this process read it.
    Permission,
    /// The system could not read it.
    Io,
    /// It lies deeper than CouchDB's names can reach.
    TooDeep,
    /// No block of it is a valid header.
    NoValidHeader,
    /// No valid header is near its end; there may be one further back.
    NoHeaderWithin,
    /// Its last header holds what no CouchDB writes.
    Undecodable,
    /// Its format is of a version that is not known here.
    UnknownVersion,
    /// A database file with a view's header, or the other way round.
    WrongKind,
    /// An index whose header names another signature than its file: CouchDB would empty it.
    WrongSignature,
}

impl Problem {
    /// Every problem.
    pub const ALL: [Self; 9] = [
        Self::Permission,
        Self::Io,
        Self::TooDeep,
        Self::NoValidHeader,
        Self::NoHeaderWithin,
        Self::Undecodable,
        Self::UnknownVersion,
        Self::WrongKind,
        Self::WrongSignature,
    ];

    /// The word in JSON and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Io => "read_failed",
            Self::TooDeep => "too_deep",
            Self::NoValidHeader => "no_valid_header",
            Self::NoHeaderWithin => "no_header_within",
            Self::Undecodable => "undecodable_header",
            Self::UnknownVersion => "unknown_disk_version",
            Self::WrongKind => "wrong_kind",
            Self::WrongSignature => "wrong_signature",
        }
    }

    /// What is wrong and what to do next, in a sentence about the file.
    #[must_use]
    pub const fn says(self) -> &'static str {
        match self {
            Self::Permission => {
                "the system does not let this process read it: run recliner as CouchDB's user, or \
                 give it the right to read"
            }
            Self::Io => "the system could not read it: check the disk and the directory's name",
            Self::TooDeep => "no name of CouchDB's leads so deep: look what it is",
            Self::NoValidHeader => {
                "no block of it is a valid header: recliner inspect says what CouchDB makes of it"
            }
            Self::NoHeaderWithin => {
                "no valid header is in its last gibibyte: recliner inspect looks further back"
            }
            Self::Undecodable => {
                "its last header holds what no CouchDB writes: recliner inspect says more"
            }
            Self::UnknownVersion => {
                "the disk version in its header is not known here: recliner inspect says more"
            }
            Self::WrongKind => {
                "its header is of the other kind, a view's in a database or a database's in a view: \
                 recliner inspect says more"
            }
            Self::WrongSignature => {
                "its header has another signature than its name: recliner inspect says more"
            }
        }
    }
}

impl From<Errno> for Problem {
    fn from(why: Errno) -> Self {
        if matches!(why, Errno::ACCESS | Errno::PERM) { Self::Permission } else { Self::Io }
    }
}

impl From<&Unreadable> for Problem {
    fn from(why: &Unreadable) -> Self {
        match why {
            Unreadable::Read { .. } => Self::Io,
            Unreadable::NoValidHeader { .. } | Unreadable::TooManyFalseHeaders { .. } => {
                Self::NoValidHeader
            }
            Unreadable::NoHeaderWithin { .. } => Self::NoHeaderWithin,
            Unreadable::UndecodableHeader { .. } => Self::Undecodable,
            Unreadable::UnknownDiskVersion { .. } => Self::UnknownVersion,
        }
    }
}
