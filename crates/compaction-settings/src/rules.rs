//! The rules of CouchDB's versions: the versions in which the meaning of smoosh's settings changed.

use couchdb_names::Version;
use std::fmt;

/// The rules of one CouchDB version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules(Version);

impl Rules {
    /// The newest known rules, which are also applied to newer servers.
    pub(crate) const NEWEST: Self = Self(Version::new(3, 5, 2));

    /// The rules for the version that a server reports; `None` if the text is not a version.
    pub(crate) fn parse(version: &str) -> Option<Self> {
        version.trim().parse().ok().map(Self)
    }

    fn since(self, major: u16, minor: u16, patch: u16) -> bool {
        self.0 >= Version::new(major, minor, patch)
    }

    /// Whether this version has smoosh instead of the compaction daemon.
    pub(crate) fn runs_smoosh(self) -> bool {
        self.since(3, 0, 0)
    }

    /// Whether listed channels are added to the built-in ones and tried by name, instead of
    /// replacing them and being tried in the listed order (`smoosh_utils:channel_list/2`).
    pub(crate) fn adds_channels(self) -> bool {
        self.since(3, 3, 0)
    }

    /// Whether `key =` deletes the value from an earlier ini file.
    pub(crate) fn empty_value_deletes(self) -> bool {
        !self.since(3, 4, 0)
    }

    /// Whether lines of ini files are trimmed, instead of continuing the line before.
    pub(crate) fn trims_ini_lines(self) -> bool {
        self.since(3, 3, 0)
    }

    /// Default `min_priority` of slack channels, in bytes.
    pub(crate) fn min_slack(self) -> f64 {
        if self.since(3, 2, 0) { 536_870_912.0 } else { 16_777_216.0 }
    }

    /// Default `min_priority` of all other channels; only 3.0.0 has a different one.
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
    fn default_thresholds_depend_on_couchdb_version() {
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
