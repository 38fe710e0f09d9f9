//! Which CouchDB's rules apply: the versions between which smoosh's meaning changed.

use couchdb_names::Version;
use std::fmt;

/// The rules of one CouchDB version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules(Version);

impl Rules {
    /// The newest rules that are known; newer servers are read by them.
    pub(crate) const NEWEST: Self = Self(Version::new(3, 5, 2));

    /// The rules of the version that a server reports; `None` where that is none.
    pub(crate) fn parse(version: &str) -> Option<Self> {
        version.trim().parse().ok().map(Self)
    }

    fn since(self, major: u16, minor: u16, patch: u16) -> bool {
        self.0 >= Version::new(major, minor, patch)
    }

    /// Whether it has smoosh instead of the compaction daemon.
    pub(crate) fn runs_smoosh(self) -> bool {
        self.since(3, 0, 0)
    }

    /// Whether channels are added to the built-in ones and tried by name, instead of
    /// replacing them and being tried as written (`smoosh_utils:channel_list/2`).
    pub(crate) fn adds_channels(self) -> bool {
        self.since(3, 3, 0)
    }

    /// Whether `key =` takes away what an earlier ini file set.
    pub(crate) fn empty_value_deletes(self) -> bool {
        !self.since(3, 4, 0)
    }

    /// Whether ini files are read line by line with trimming, instead of with
    /// continuation lines.
    pub(crate) fn trims_ini_lines(self) -> bool {
        self.since(3, 3, 0)
    }

    /// `min_priority` where a slack channel sets none, in bytes.
    pub(crate) fn min_slack(self) -> f64 {
        if self.since(3, 2, 0) { 536_870_912.0 } else { 16_777_216.0 }
    }

    /// `min_priority` where any other channel sets none; 3.0.0 alone has another.
    pub(crate) fn min_ratio(self) -> f64 {
        if self.since(3, 0, 1) || !self.since(3, 0, 0) { 2.0 } else { 5.0 }
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_change_where_the_code_changed_them() {
        let defaults = |text| {
            let rules = Rules::parse(text).unwrap();
            (rules.min_ratio(), rules.min_slack(), rules.adds_channels())
        };
        assert_eq!(defaults("3.0.0"), (5.0, 16_777_216.0, false));
        assert_eq!(defaults("3.0.1"), (2.0, 16_777_216.0, false));
        assert_eq!(defaults("3.1.2"), (2.0, 16_777_216.0, false));
        assert_eq!(defaults("3.2.0"), (2.0, 536_870_912.0, false));
        assert_eq!(defaults("3.3.0"), (2.0, 536_870_912.0, true));
    }
}
