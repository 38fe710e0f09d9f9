//! Hosts that an operator trusts with the login although they are known only from node names.

use std::{fmt, net::IpAddr, str::FromStr};

/// One host, or `*.` and a domain for every host below it. Case does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// The pattern in lower case.
    text: String,
}

impl HostPattern {
    /// Whether it matches `host`. An IP address matches only as a whole.
    pub fn takes(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches([']', '.']).to_ascii_lowercase();
        match self.text.strip_prefix('*') {
            None => host == self.text,
            Some(domain) => {
                let below = host.strip_suffix(domain).is_some_and(|name| !name.is_empty());
                below && host.parse::<IpAddr>().is_err()
            }
        }
    }

    /// Whether it matches every host below a single-label domain, such as `*.local`: usually nobody
    /// controls who answers for those hosts.
    pub fn is_wide(&self) -> bool {
        self.text.strip_prefix("*.").is_some_and(|domain| !domain.contains('.'))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// The text is not a host pattern.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "expected a host, or *. and a domain for every host below it, such as *.couchdb.svc.cluster.local"
)]
pub struct ParseHostPatternError;

impl FromStr for HostPattern {
    type Err = ParseHostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim_end_matches('.').to_ascii_lowercase();
        let domain = text.strip_prefix("*.").unwrap_or(&text);
        let word = |word: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            !word.is_empty() && word.bytes().all(plain)
        };
        let is_name = domain.split('.').all(word);
        // A part of an IP address does not mean a network.
        let last = domain.rsplit('.').next().unwrap_or_default();
        let number = last.bytes().all(|byte| byte.is_ascii_digit());
        let is_address = domain.parse::<IpAddr>().is_ok() && domain.len() == text.len();
        if is_address || (is_name && !number) {
            Ok(Self { text })
        } else {
            Err(ParseHostPatternError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pattern_matches_one_host_or_all_below_a_domain() {
        let cluster = "*.couchdb.svc.cluster.local";
        for (pattern, host, takes) in [
            (cluster, "couchdb-0.couchdb.svc.cluster.local", true),
            (cluster, "CouchDB-0.couchdb.svc.cluster.local.", true),
            (cluster, "a.b.couchdb.svc.cluster.local", true),
            (cluster, "couchdb.svc.cluster.local", false),
            (cluster, ".couchdb.svc.cluster.local", false),
            (cluster, "evilcouchdb.svc.cluster.local", false),
            (cluster, "couchdb-0.couchdb.svc.cluster.local.evil.example", false),
            ("*.Example.org.", "b.example.org", true),
            ("couch-b", "couch-b", true),
            ("couch-b", "couch-b.evil.example", false),
            ("couch-b", "x.couch-b", false),
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.70", false),
            ("fe80::1", "[fe80::1]", true),
            ("*.example", "10.0.0.7", false),
        ] {
            let found: HostPattern = pattern.parse().unwrap();
            assert_eq!(found.takes(host), takes, "{pattern} {host}");
        }
    }

    #[test]
    fn refuses_patterns_that_would_trust_anybody() {
        for text in [
            "",
            "*",
            "*.",
            "**.a",
            "*a.example",
            "a.*.example",
            "*.0.0.7",
            "*.10",
            "a b",
            "http://a",
            "a:5984",
            "couchdb@a",
            "a..b",
            ".a",
            "*.*",
            "*.[::1]",
            "*.::1",
            "10.0.0.0/8",
        ] {
            assert_eq!(text.parse::<HostPattern>(), Err(ParseHostPatternError), "{text}");
        }
        for (text, wide) in [("*.local", true), ("*.a.b", false), ("local", false)] {
            assert_eq!(text.parse::<HostPattern>().unwrap().is_wide(), wide, "{text}");
        }
    }

    proptest! {
        #[test]
        fn displayed_pattern_parses_back(text in "(\\*\\.)?[a-zA-Z0-9_-]{1,9}(\\.[a-zA-Z0-9-]{1,9}){0,3}\\.?") {
            if let Ok(pattern) = text.parse::<HostPattern>() {
                prop_assert_eq!(pattern.to_string().parse::<HostPattern>(), Ok(pattern));
            }
        }
    }
}
