//! The strict parser for the host and port of a request.
//!
//! Decides what counts as an address and what as a name. Lenient parsers disagree about
//! `[::1].evil.example` and `127.0.0.1:evil`, and an attacker can exploit such a difference. So
//! anything that is not exactly a host with an optional port is rejected.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The maximum length of a DNS name.
const MAX_NAME: usize = 253;

/// The host of a request or of an origin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Host<'a> {
    /// An IP address.
    Address(IpAddr),
    /// A name, as written.
    Name(&'a str),
}

impl PartialEq for Host<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Address(one), Self::Address(two)) => one == two,
            (Self::Name(one), Self::Name(two)) => one.eq_ignore_ascii_case(two),
            (Self::Address(_), Self::Name(_)) | (Self::Name(_), Self::Address(_)) => false,
        }
    }
}

/// A host and port: the value of `Host`, or the part of an `Origin` after its scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HostPort<'a> {
    pub(super) host: Host<'a>,
    /// `None` means the default port of the scheme.
    pub(super) port: Option<u16>,
}

impl<'a> HostPort<'a> {
    /// Parses a text; `None` if it is not exactly a host with an optional port.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            let host = Host::Address(address.parse::<Ipv6Addr>().ok()?.into());
            let port = if rest.is_empty() { None } else { Some(port(rest.strip_prefix(':')?)?) };
            return Some(Self { host, port });
        }
        let (host, port) = match text.split_once(':') {
            None => (text, None),
            Some((host, digits)) => (host, Some(port(digits)?)),
        };
        let host = match host.parse::<Ipv4Addr>() {
            Ok(address) => Host::Address(address.into()),
            Err(_) => Host::Name(name(host)?),
        };
        Some(Self { host, port })
    }

    /// Whether both are the same endpoint, given the scheme's default port.
    pub(super) fn same_endpoint(&self, other: &Self, scheme: Scheme) -> bool {
        let port = |it: &Self| it.port.unwrap_or_else(|| scheme.port());
        self.host == other.host && port(self) == port(other)
    }
}

/// The scheme of a page's origin or of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Parses an `Origin`. `null` and origins with a path are rejected.
pub(super) fn origin(text: &str) -> Option<(Scheme, HostPort<'_>)> {
    let (scheme, place) = text.split_once("://")?;
    let scheme = if scheme.eq_ignore_ascii_case("http") {
        Scheme::Http
    } else if scheme.eq_ignore_ascii_case("https") {
        Scheme::Https
    } else {
        return None;
    };
    Some((scheme, HostPort::parse(place)?))
}

/// Parses a port of digits only: `parse` would also accept a sign.
fn port(digits: &str) -> Option<u16> {
    let plain = digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// Accepts a DNS or Docker name. A name whose last label is a number is rejected, because browsers
/// read it as an IPv4 address.
fn name(text: &str) -> Option<&str> {
    let is_valid_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    let number = last.starts_with(|first: char| first.is_ascii_digit())
        && (last.bytes().all(|byte| byte.is_ascii_digit()) || last.get(..2) == Some("0x"));
    (text.len() <= MAX_NAME && text.split('.').all(is_valid_label) && !number).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_host_with_optional_port() {
        let v4 = |text: &str| Host::Address(text.parse().unwrap());
        for (text, host, port) in [
            ("127.0.0.1", v4("127.0.0.1"), None),
            ("127.0.0.1:10984", v4("127.0.0.1"), Some(10_984)),
            ("[::1]", v4("::1"), None),
            ("[::1]:80", v4("::1"), Some(80)),
            ("[::ffff:127.0.0.1]:80", v4("::ffff:127.0.0.1"), Some(80)),
            ("localhost", Host::Name("localhost"), None),
            ("Couch-A.example:443", Host::Name("couch-a.EXAMPLE"), Some(443)),
            ("recliner_1:0", Host::Name("recliner_1"), Some(0)),
            ("3com.example", Host::Name("3com.example"), None),
            ("127.0.0.1.evil.example", Host::Name("127.0.0.1.evil.example"), None),
        ] {
            assert_eq!(HostPort::parse(text), Some(HostPort { host, port }), "{text}");
        }
        for text in [
            "",
            ":80",
            "[::1].evil.example",
            "[::1].evil.example:10984",
            "[::1]evil",
            "[::1]:",
            "[::1]:evil",
            "[::1",
            "::1",
            "[127.0.0.1]",
            "[fe80::1%25eth0]",
            "127.0.0.1:evil",
            "127.0.0.1:",
            "127.0.0.1:+80",
            "127.0.0.1: 80",
            "127.0.0.1:65536",
            "127.0.0.1:000080",
            "127.0.0.1:80:80",
            "127.0.0.1:80/",
            "0177.0.0.1",
            "2130706433",
            "0x7f.1",
            "127.1",
            "localhost:10984@evil.example",
            "ann@127.0.0.1",
            "localhost ",
            "localhost,evil.example",
            "local host",
            "localhost.",
            ".localhost",
            "evil\u{e9}.example",
            "a/b",
        ] {
            assert_eq!(HostPort::parse(text), None, "{text:?}");
        }
        assert_eq!(HostPort::parse(&"a.".repeat(200)), None);
    }

    #[test]
    fn origin_requires_scheme_and_no_path() {
        for text in ["null", "", "127.0.0.1", "ftp://a", "http:/a", "http://a/", "http://", "a://"]
        {
            assert_eq!(origin(text), None, "{text:?}");
        }
        let (scheme, place) = origin("HTTPS://a.example").unwrap();
        assert_eq!(scheme, Scheme::Https);
        let other = |text| HostPort::parse(text).unwrap();
        assert!(place.same_endpoint(&other("A.example:443"), scheme));
        assert!(!place.same_endpoint(&other("a.example:80"), scheme));
        assert!(!place.same_endpoint(&other("b.example:443"), scheme));
    }
}
