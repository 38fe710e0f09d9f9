//! Why a file could not be read.
//!
//! Owns the errors of this crate and their messages. Never decides on consequences.

use super::HeaderPosition;
use std::io;

/// Why a file's newest header could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The operating system returned an error.
    #[error("cannot read {length} bytes at offset {at}: {why}")]
    Read {
        /// The offset.
        at: u64,
        /// Number of bytes.
        length: usize,
        /// The error; `UnexpectedEof` if the file shrank meanwhile.
        #[source]
        why: io::Error,
    },
    /// No block of the file is a valid header.
    #[error(
        "no valid header: {rejected} blocks are marked as headers, but none has a valid checksum"
    )]
    NoValidHeader {
        /// Number of blocks that are marked as headers but are not.
        rejected: u32,
    },
    /// The search ended before the beginning of the file.
    #[error("no valid header in the last {searched} bytes; there may be one further back")]
    NoHeaderWithin {
        /// Number of bytes searched.
        searched: u64,
        /// Number of blocks among them that are marked as headers but are not.
        rejected: u32,
    },
    /// More overlapping false headers than damage can explain.
    #[error("gave up after {rejected} overlapping false headers; this is not a CouchDB file")]
    TooManyFalseHeaders {
        /// Number of blocks that were tried.
        rejected: u32,
    },
    /// The checksum is valid, but the content is not a header.
    #[error("the header at offset {} has a valid checksum but cannot be decoded: {why}", .place.at)]
    UndecodableHeader {
        /// The position of the header.
        place: HeaderPosition,
        /// The problem.
        why: DecodeError,
    },
    /// A database file with an unknown disk version.
    #[error("unknown disk version {version} in the header at offset {}; known versions are 4 to 8", .place.at)]
    UnknownDiskVersion {
        /// The position of the header.
        place: HeaderPosition,
        /// Its disk version.
        version: u64,
    },
}

impl HeaderError {
    /// The label in JSON and metric labels.
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

    /// The position of the header that could not be used.
    #[must_use]
    pub const fn position(&self) -> Option<HeaderPosition> {
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

/// Why a term cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not in Erlang's external term format.
    #[error("it does not begin like an Erlang term")]
    NotATerm,
    /// It is truncated.
    #[error("it is truncated")]
    Truncated,
    /// It contains a tag that headers do not use.
    #[error("it contains a term of the unknown kind {0}")]
    UnknownTag(u8),
    /// It is a term, but neither a database's nor a view's.
    #[error("it belongs neither to a database nor to a view")]
    NotAHeader,
    /// One of its fields has the wrong form.
    #[error("its field {0} is malformed")]
    Field(&'static str),
}
