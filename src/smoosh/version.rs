//! Which CouchDB's rules apply: the versions between which smoosh's meaning changed.

use std::fmt;

/// A CouchDB version as `GET /` reports it, without what follows the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// The newest version whose rules are known; newer ones are read by them.
    pub(super) const NEWEST: Self = Self { major: 3, minor: 5, patch: 2 };

    /// Reads `3.3.3` or `3.5.0-5b2f1d7`; a missing patch is zero.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().splitn(3, '.');
        let mut next = || -> Option<u32> {
            let part = parts.next()?;
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part.get(..end)?.parse().ok()
        };
        let (major, minor) = (next()?, next()?);
        Some(Self { major, minor, patch: next().unwrap_or_default() })
    }

    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Whether it has smoosh instead of the compaction daemon.
    pub(super) fn runs_smoosh(self) -> bool {
        self >= Self::new(3, 0, 0)
    }

    /// Whether channels are added to the built-in ones and tried by name, instead of
    /// replacing them and being tried as written (`smoosh_utils:channel_list/2`).
    pub(super) fn adds_channels(self) -> bool {
        self >= Self::new(3, 3, 0)
    }

    /// Whether `key =` takes away what an earlier ini file set.
    pub(super) fn empty_value_deletes(self) -> bool {
        self < Self::new(3, 4, 0)
    }

    /// Whether ini files are read line by line with trimming, instead of with
    /// continuation lines.
    pub(super) fn trims_ini_lines(self) -> bool {
        self >= Self::new(3, 3, 0)
    }

    /// `min_priority` where a slack channel sets none, in bytes.
    pub(super) fn min_slack(self) -> f64 {
        if self >= Self::new(3, 2, 0) { 536_870_912.0 } else { 16_777_216.0 }
    }

    /// `min_priority` where any other channel sets none; 3.0.0 alone has another.
    pub(super) fn min_ratio(self) -> f64 {
        if self == Self::new(3, 0, 0) { 5.0 } else { 2.0 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_with_and_without_a_commit() {
        for (text, read) in [
            ("3.3.3", Some(Version::new(3, 3, 3))),
            ("3.5.0-5b2f1d7", Some(Version::new(3, 5, 0))),
            ("3.1", Some(Version::new(3, 1, 0))),
            ("2.3.1", Some(Version::new(2, 3, 1))),
            ("", None),
            ("main", None),
            ("3", None),
        ] {
            assert_eq!(Version::parse(text), read, "{text}");
        }
    }

    #[test]
    fn defaults_change_where_the_code_changed_them() {
        let defaults = |text| {
            let version = Version::parse(text).unwrap();
            (version.min_ratio(), version.min_slack(), version.adds_channels())
        };
        assert_eq!(defaults("3.0.0"), (5.0, 16_777_216.0, false));
        assert_eq!(defaults("3.0.1"), (2.0, 16_777_216.0, false));
        assert_eq!(defaults("3.1.2"), (2.0, 16_777_216.0, false));
        assert_eq!(defaults("3.2.0"), (2.0, 536_870_912.0, false));
        assert_eq!(defaults("3.3.0"), (2.0, 536_870_912.0, true));
    }
}
