//! Shard file names: `shards/<range>/<db><suffix>`.

use std::{fmt, str::FromStr};

/// A shard's range of the hash ring, both ends included, as in `00000000-7fffffff`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// The first hash of the range.
    pub from: u32,
    /// The last hash of the range.
    pub to: u32,
}

impl Range {
    /// Whether a document whose id hashes to `hash` lives in this range.
    #[must_use]
    pub const fn contains(self, hash: u32) -> bool {
        self.from <= hash && hash <= self.to
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:08x}-{:08x}", self.from, self.to)
    }
}

/// Why a text is not a shard range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is not a shard range: two times eight hex digits are expected, as in 00000000-7fffffff"
)]
pub struct ParseRangeError {
    text: String,
}

impl FromStr for Range {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = |part: &str| {
            (part.len() == 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .then(|| u32::from_str_radix(part, 16).ok())
                .flatten()
        };
        text.split_once('-')
            .and_then(|(from, to)| Some(Self { from: hex(from)?, to: hex(to)? }))
            .filter(|range| range.from <= range.to)
            .ok_or_else(|| ParseRangeError { text: text.to_owned() })
    }
}

/// The parts of a shard file's name.
///
/// The database's name may hold slashes and dots; the suffix is the last `.` and what
/// follows it (mem3 appends `.<seconds of creation>`, `mem3:name/1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardName<'a> {
    /// The range of the hash ring.
    pub range: Range,
    /// The clustered database's name.
    pub db: &'a str,
    /// The instance suffix with its dot, `.1795222434`.
    pub suffix: &'a str,
}

impl<'a> ShardName<'a> {
    /// Splits a shard file's name; `None` for node-local databases such as `_dbs` and
    /// for files that do not follow the pattern.
    #[must_use]
    pub fn split(name: &'a str) -> Option<Self> {
        let (range, rest) = name.strip_prefix("shards/")?.split_once('/')?;
        let (db, suffix) = rest.split_at(rest.rfind('.')?);
        let range = range.parse().ok()?;
        (!db.is_empty() && suffix.len() > 1).then_some(Self { range, db, suffix })
    }
}

impl fmt::Display for ShardName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "shards/{}/{}{}", self.range, self.db, self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_split_and_print_back() {
        for name in [
            "shards/00000000-7fffffff/db.1795222434",
            "shards/c0000000-ffffffff/app/_design/x.1795222434",
            "shards/00000000-ffffffff/rec_app/slash+plus.5.1795225160",
        ] {
            assert_eq!(ShardName::split(name).unwrap().to_string(), name);
        }
        let split = ShardName::split("shards/00000000-7fffffff/a.b.17").unwrap();
        assert_eq!((split.db, split.suffix), ("a.b", ".17"));
    }

    #[test]
    fn other_files_are_no_shards() {
        for name in [
            "_dbs",
            "shards/x/db.1",
            "shards/00000000-7fffffff/db",
            "shards/7fffffff-00000000/db.1",
            "shards/00000000-7fffffff/.1",
        ] {
            assert_eq!(ShardName::split(name), None, "{name}");
        }
    }
}
