//! CouchDB versions.
//!
//! Owns the order of versions and which features they have. Never asks a server; callers parse the
//! version from `GET /` here.

use std::{fmt, str::FromStr, sync::Arc};

/// A CouchDB version, read per node because a cluster's nodes may have different versions.
///
/// Only [`Build`] keeps the text after the three numbers (`-dev`, `-rc.1`, `-40afbcf`): builds of
/// one release compare as equal, because their code differs little and their names have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u16,
    minor: u16,
    patch: u16,
}

impl Version {
    /// The first version in which `sizes.active` leaves out the bodies of superseded revisions.
    pub const ACTIVE_WITHOUT_OLD_BODIES: Self = Self::new(3, 3, 0);
    /// The first version in which `sizes.active` leaves out attachments of superseded and deleted
    /// revisions too.
    pub const ACTIVE_WITHOUT_OLD_ATTACHMENTS: Self = Self::new(3, 4, 3);
    /// The first version that deletes stale index files by itself after a design document changed
    /// (`couch_index_cleanup`).
    pub const CLEANS_INDEXES: Self = Self::new(3, 5, 2);
    /// The first version whose compactions keep all entries about purges while a checkpoint of another copy is
    /// missing (couchdb#5827).
    pub const WAITS_FOR_PURGE_CHECKPOINTS: Self = Self::new(3, 5, 2);

    /// The version with these numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// The release series, that is the major and the minor number: 3.5 for 3.5.2.
    pub const fn series(self) -> (u16, u16) {
        (self.major, self.minor)
    }

    /// Whether this version deletes stale index files by itself, without smoosh.
    pub fn cleans_indexes(self) -> bool {
        self >= Self::CLEANS_INDEXES
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A version as a node reports it, including the text after the numbers: `3.6.0-5f6c4bd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    version: Version,
    reported: Arc<str>,
}

impl Build {
    /// The version, by which builds are compared.
    pub const fn version(&self) -> Version {
        self.version
    }
}

impl fmt::Display for Build {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.reported)
    }
}

impl From<Version> for Build {
    fn from(version: Version) -> Self {
        Self { version, reported: version.to_string().into() }
    }
}

impl FromStr for Build {
    type Err = ParseVersionError;

    /// Parses what [`Version`] parses, up to 64 bytes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > 64 {
            return Err(ParseVersionError { text: text.chars().take(64).collect() });
        }
        Ok(Self { version: text.parse()?, reported: text.into() })
    }
}

/// Why a text is not a version.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a CouchDB version: write numbers such as 3.5.0")]
pub struct ParseVersionError {
    text: String,
}

impl FromStr for Version {
    type Err = ParseVersionError;

    /// Parses texts such as `3.5.0`, `3.1`, `3.3.3-40afbcf`, `4.0.0-dev`, `3.5.0+build`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Only digits, because `parse` would also accept a sign.
        let number = |part: Option<&str>| {
            part.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
        };
        let numbers = text.split(['-', '+']).next().unwrap_or_default();
        let mut parts = numbers.split('.');
        let (major, minor) = (number(parts.next()), number(parts.next()));
        // Names of release files may lack the patch number, such as `3.1`; a server's version never
        // does.
        let patch = parts.next().map_or(Some(0), |part| number(Some(part)));
        match ((major, minor, patch), parts.next()) {
            ((Some(major), Some(minor), Some(patch)), None) => Ok(Self::new(major, minor, patch)),
            _ => Err(ParseVersionError { text: text.chars().take(64).collect() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_releases_and_builds() {
        for (text, version) in [
            ("3.5.0", Version::new(3, 5, 0)),
            ("3.3.3-40afbcf", Version::new(3, 3, 3)),
            ("4.0.0-dev", Version::new(4, 0, 0)),
            ("3.5.10-rc.1", Version::new(3, 5, 10)),
            ("3.5.1+deb12", Version::new(3, 5, 1)),
            ("3.1", Version::new(3, 1, 0)),
        ] {
            assert_eq!(text.parse(), Ok(version), "{text}");
        }
    }

    #[test]
    fn build_displays_the_version_text_as_reported() {
        let build: Build = "3.6.0-5f6c4bd".parse().unwrap();
        assert_eq!(build.version(), Version::new(3, 6, 0));
        assert_eq!(build.to_string(), "3.6.0-5f6c4bd");
        assert!(format!("3.6.0-{}", "f".repeat(64)).parse::<Build>().is_err());
    }

    #[test]
    fn refuses_texts_that_are_not_versions() {
        for text in ["", "3", "3.5.0.1", "3..0", "+3.5.0", "v3.5.0", "3.5.x", "3.5.70000", "-1.0.0"]
        {
            assert_eq!(
                text.parse::<Version>(),
                Err(ParseVersionError { text: text.to_owned() }),
                "{text}"
            );
        }
        let long = "9".repeat(1000).parse::<Version>().unwrap_err();
        assert_eq!(long.text.len(), 64, "the error quotes at most 64 characters");
    }

    #[test]
    fn orders_by_number_not_by_text() {
        let mut texts = ["3.10.0", "3.4.3", "4.0.0-dev", "3.4.12", "3.3.3", "2.3.1"];
        texts.sort_by_key(|text| text.parse::<Version>().unwrap());
        assert_eq!(texts, ["2.3.1", "3.3.3", "3.4.3", "3.4.12", "3.10.0", "4.0.0-dev"]);
    }

    #[test]
    fn version_prints_its_numbers_and_takes_8_bytes() {
        assert_eq!("3.5.2-dev".parse::<Version>().unwrap().to_string(), "3.5.2");
        assert_eq!(size_of::<Option<Version>>(), 8);
    }

    #[test]
    fn couchdb_cleans_indexes_since_3_5_2() {
        assert!(!Version::new(3, 5, 1).cleans_indexes());
        assert!(Version::new(3, 5, 2).cleans_indexes());
        assert!(Version::new(4, 0, 0).cleans_indexes());
    }
}
