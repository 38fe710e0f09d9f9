//! Why a file says nothing.
//!
//! Owns the errors of this module and their words. Never decides what follows from them.

use super::Place;
use std::io;

/// Why a file's newest header could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The operating system refused.
    #[error("cannot read {length} bytes at offset {at}: {why}")]
    Read {
        /// Where.
        at: u64,
        /// How many bytes.
        length: usize,
        /// What it said; `UnexpectedEof` where the file shrank meanwhile.
        #[source]
        why: io::Error,
    },
    /// No block of the file is a valid header.
    #[error("no valid header: of {rejected} blocks that are marked as one, no checksum holds")]
    NoValidHeader {
        /// Blocks that are marked as headers and are none.
        rejected: u32,
    },
    /// The search ended before the file's begin.
    #[error("no valid header in the last {searched} bytes; there may be one further back")]
    NoHeaderWithin {
        /// Bytes that were looked at.
        searched: u64,
        /// Blocks among them that are marked as headers and are none.
        rejected: u32,
    },
    /// More overlapping false headers than damage explains.
    #[error("gave up after {rejected} false headers that overlap: this is no CouchDB file")]
    TooManyFalseHeaders {
        /// Blocks that were tried.
        rejected: u32,
    },
    /// The checksum holds, and what it covers is no header.
    #[error("the header at offset {} is valid and cannot be decoded: {why}", .place.at)]
    UndecodableHeader {
        /// Which header.
        place: Place,
        /// What is wrong with it.
        why: Undecodable,
    },
    /// A database file of a version that is not known.
    #[error("disk version {version} in the header at offset {}: only 4 to 8 are known", .place.at)]
    UnknownDiskVersion {
        /// Which header.
        place: Place,
        /// The version it gives.
        version: u64,
    },
}

impl Unreadable {
    /// The word in JSON and metric labels.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read_failed",
            Self::NoValidHeader { .. } => "no_valid_header",
            Self::NoHeaderWithin { .. } => "no_header_within",
            Self::TooManyFalseHeaders { .. } => "too_many_false_headers",
            Self::UndecodableHeader { .. } => "undecodable_header",
            Self::UnknownDiskVersion { .. } => "unknown_disk_version",
        }
    }

    /// Where the header is that could not be used.
    #[must_use]
    pub const fn place(&self) -> Option<Place> {
        match self {
            Self::UndecodableHeader { place, .. } | Self::UnknownDiskVersion { place, .. } => {
                Some(*place)
            }
            Self::Read { .. }
            | Self::NoValidHeader { .. }
            | Self::NoHeaderWithin { .. }
            | Self::TooManyFalseHeaders { .. } => None,
        }
    }
}

/// What is wrong with a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// It is not in Erlang's external term format.
    #[error("it does not begin as an Erlang term does")]
    NoTerm,
    /// It ends before it is whole.
    #[error("it is cut short")]
    CutShort,
    /// It has a tag that headers do not have.
    #[error("it holds a term of the unknown kind {0}")]
    UnknownTag(u8),
    /// It is a term, but of neither a database nor a view.
    #[error("it is neither a database's nor a view's")]
    NoHeader,
    /// One of its fields is not what it should be.
    #[error("its {0} is not of the right form")]
    Field(&'static str),
}
