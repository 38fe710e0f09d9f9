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
    /// Whether documents whose id hashes to `hash` belong to this range.
    pub const fn contains(self, hash: u32) -> bool {
        self.from <= hash && hash <= self.to
    }

    /// Whether it is the only range of its database.
    pub const fn is_whole(self) -> bool {
        self.from == 0 && self.to == u32::MAX
    }

    /// The first digits of both ends, as many as tell the ranges of a database apart: `80-9f` for up to 256 ranges.
    pub fn short(self) -> String {
        let digits = match self.to - self.from {
            0x00ff_ffff.. => 2,
            0xffff.. => 4,
            _ => 8,
        };
        let text = self.text();
        let ends = text.as_str().split('-').filter_map(|end| end.get(..digits));
        ends.collect::<Vec<_>>().join("-")
    }
}

/// A range as text.
#[derive(Clone, Copy, Debug)]
pub struct RangeText([u8; 17]);

impl RangeText {
    /// The text, `00000000-7fffffff`.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Range {
    /// Formats the range without `fmt`, which takes ten times as long: every series and every
    /// request contains a range.
    pub fn text(self) -> RangeText {
        let mut text = [b'-'; 17];
        for (part, mut hash) in text.chunks_mut(9).zip([self.from, self.to]) {
            for letter in part.iter_mut().take(8).rev() {
                let digit = (hash & 0xf) as u8;
                *letter = if digit < 10 { b'0' + digit } else { b'a' - 10 + digit };
                hash >>= 4;
            }
        }
        RangeText(text)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text().as_str())
    }
}

/// Why a text is not a shard range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a shard range: write eight hex digits twice, as in 00000000-7fffffff")]
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

/// The parts of a shard file's name: range, database, and suffix.
///
/// The database's name may contain slashes and dots; the suffix begins at the last `.` (mem3
/// appends `.<seconds of creation>`, `mem3:name/1`).
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

    /// Whether the name has a form that CouchDB gives: its only instance suffix is the last one. A
    /// name such as `db.1795222434.1` is left out of a node's `_all_dbs`, and no request can carry
    /// it.
    pub fn has_a_known_form(&self) -> bool {
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let last = self.db.rsplit_once('.').map(|(_, last)| last);
        let instance = last.is_some_and(|last| last.len() >= 10 && is_number(last));
        is_number(self.suffix.trim_start_matches('.')) && !instance
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
    use proptest::prelude::*;

    #[test]
    fn range_is_shortened_to_two_four_or_eight_digits() {
        for (range, short) in [
            ("00000000-ffffffff", "00-ff"),
            ("80000000-9fffffff", "80-9f"),
            ("ff000000-ffffffff", "ff-ff"),
            ("ff800000-ffffffff", "ff80-ffff"),
            ("00010000-0001ffff", "0001-0001"),
            ("0001f000-0001ffff", "0001f000-0001ffff"),
        ] {
            assert_eq!(range.parse::<Range>().unwrap().short(), short, "{range}");
        }
    }

    #[test]
    fn shard_names_round_trip() {
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

    proptest! {
        #[test]
        fn ranges_round_trip_and_match_fmt(one in any::<u32>(), other in any::<u32>()) {
            let range = Range { from: one.min(other), to: one.max(other) };
            prop_assert_eq!(range.to_string(), format!("{:08x}-{:08x}", range.from, range.to));
            prop_assert_eq!(range.text().as_str().parse(), Ok(range));
        }
    }

    #[test]
    fn other_file_names_are_not_shards() {
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
