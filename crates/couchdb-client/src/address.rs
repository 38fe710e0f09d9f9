//! Where a CouchDB server listens: a checked base URL without credentials.

use http::uri::Authority;
use std::{fmt, net::Ipv6Addr, str::FromStr, sync::Arc};
use url::Url;

/// The base URL of one server: `http` or `https`, host, port, and for a proxy an
/// optional path prefix. It never carries a user or a password.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The base without a trailing slash.
    base: Arc<str>,
    /// The length of scheme, host and port in `base`.
    origin: usize,
}

impl Address {
    /// The base URL, without a trailing slash.
    pub fn as_str(&self) -> &str {
        &self.base
    }

    /// The path before every route, such as `/couch`; usually empty.
    pub fn prefix(&self) -> &str {
        self.base.get(self.origin..).unwrap_or("")
    }

    /// Whether it is reached over TLS.
    pub fn is_https(&self) -> bool {
        self.base.starts_with("https:")
    }

    /// The URL of a path and query below the prefix.
    ///
    /// # Errors
    /// The path that the URL library would send, if it is another one.
    pub(super) fn url(&self, path: &str) -> Result<Url, String> {
        let mut whole = String::with_capacity(self.base.len() + path.len());
        whole.push_str(&self.base);
        whole.push_str(path);
        let url = Url::parse(&whole).map_err(|why| why.to_string())?;
        let intended = whole.get(self.origin..).unwrap_or_default();
        let query = intended.strip_prefix(url.path()).filter(|_| url.fragment().is_none());
        let same = match url.query() {
            None => query == Some(""),
            Some(sent) => query.and_then(|query| query.strip_prefix('?')) == Some(sent),
        };
        let sent =
            || url.as_str().get(url.origin().ascii_serialization().len()..).map(str::to_owned);
        if same { Ok(url) } else { Err(sent().unwrap_or_default()) }
    }

    /// Scheme, host and port.
    fn origin(&self) -> &str {
        self.base.get(..self.origin).unwrap_or(&self.base)
    }

    /// Host and port, as the `Host` header carries them.
    pub fn authority(&self) -> &str {
        self.origin().split_once("//").map_or("", |(_, authority)| authority)
    }

    /// The host without the port; an IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        let authority = self.authority();
        authority.rsplit_once(':').map_or(authority, |(host, _)| host)
    }

    /// The host of a node's name (`couchdb@host`) with this address's scheme and port.
    ///
    /// `None` when the name has no host, or a host that cannot be part of a URL.
    pub fn of_node(&self, node: &str) -> Option<Self> {
        let (_, host) = node.split_once('@')?;
        let (scheme, authority) = self.origin().split_once("://")?;
        let port = authority
            .rsplit_once(':')
            .map(|(_, port)| port)
            .filter(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.parse::<Ipv6Addr>().is_ok() {
            return format!("{scheme}://[{host}]:{port}").parse().ok();
        }
        let named = !host.is_empty() && host.bytes().all(plain);
        named.then(|| format!("{scheme}://{host}:{port}").parse().ok()).flatten()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.base)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.base, out)
    }
}

/// Why a text is not the address of a server.
///
/// The message shows only parts of the text that cannot hold credentials: no user, password, query
/// or fragment, nor anything that may be meant as one.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseAddressError {
    /// It is not a URL.
    #[error(
        "{shown} is not a URL: {reason}; write the address of a CouchDB server, such as http://couch-a:5984"
    )]
    Url {
        /// The text, or a placeholder.
        shown: String,
        /// The URL parser's words.
        reason: String,
    },
    /// The scheme is neither `http` nor `https`.
    #[error("the CouchDB URL {shown} begins with neither http:// nor https://")]
    Scheme {
        /// The text, or a placeholder.
        shown: String,
    },
    /// A user or a password is part of it.
    #[error(
        "the CouchDB URL contains a user or a password: remove them and set the login separately"
    )]
    Login,
    /// It has a query or a fragment.
    #[error("the CouchDB URL has a query or a fragment: remove what follows ? or #")]
    Query,
}

/// The text, or a placeholder if it may hold credentials. A text is shown if it has only a scheme,
/// a host and port of plain letters and digits, and a path.
fn shown(text: &str) -> String {
    const MAX_SHOWN: usize = 60;
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let authority = rest.split('/').next().unwrap_or_default();
    let port = authority.rsplit_once(']').map_or(authority, |(_, port)| port).split_once(':');
    let only_a_port = port.is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/[]".contains(&byte);
    let is_plain =
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) && rest.bytes().all(plain);
    if is_plain && only_a_port && text.len() <= MAX_SHOWN {
        format!("{text:?}")
    } else {
        "the given value (not shown because it may contain a password)".to_owned()
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(text.trim()).map_err(|reason| ParseAddressError::Url {
            shown: shown(text),
            reason: reason.to_string(),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ParseAddressError::Scheme { shown: shown(text) });
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ParseAddressError::Login);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(ParseAddressError::Query);
        }
        let port = url.port_or_known_default().unwrap_or_default();
        let authority = format!("{host}:{port}");
        let mut base = format!("{}://{authority}", url.scheme());
        let origin = base.len();
        base.push_str(url.path().trim_end_matches('/'));
        authority.parse::<Authority>().map_err(|reason| ParseAddressError::Url {
            shown: shown(text),
            reason: reason.to_string(),
        })?;
        Ok(Self { base: base.into(), origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_keep_scheme_host_port_and_prefix() {
        for (text, base, prefix, authority) in [
            ("http://couch-a:5984", "http://couch-a:5984", "", "couch-a:5984"),
            ("http://couch-a:5984/", "http://couch-a:5984", "", "couch-a:5984"),
            ("https://c.example/db/", "https://c.example:443/db", "/db", "c.example:443"),
            ("http://[::1]:5984", "http://[::1]:5984", "", "[::1]:5984"),
            ("HTTP://Couch", "http://couch:80", "", "couch:80"),
        ] {
            let address = address(text);
            assert_eq!(
                (address.as_str(), address.prefix(), address.authority()),
                (base, prefix, authority),
                "{text}"
            );
        }
    }

    #[test]
    fn a_path_that_the_url_library_would_change_is_refused() {
        let address = address("https://c.example/db/");
        for path in ["/", "/_up", "/a%2Fb?limit=1&startkey=%22x%22", "/..%2f..", "/..."] {
            let url = address.url(path).unwrap();
            assert_eq!(url.as_str(), format!("https://c.example/db{path}"));
        }
        for (path, sent) in [
            ("/a/../b", "/db/b"),
            ("/a/%2e%2E/b", "/db/b"),
            ("/a b", "/db/a%20b"),
            ("/a#b", "/db/a#b"),
            ("/a?b\tc", "/db/a?bc"),
        ] {
            assert_eq!(address.url(path).unwrap_err(), sent, "{path}");
        }
    }

    #[test]
    fn refuses_invalid_addresses_with_a_reason() {
        for (text, says) in [
            ("", "is not a URL"),
            ("couch-a:5984", "begins with neither http:// nor https://"),
            ("http://", "is not a URL"),
            ("ftp://couch-a", "begins with neither"),
            ("http://adm@couch-a:5984", "contains a user or a password"),
            ("http://couch-a:5984/?x=1", "has a query"),
            ("http://couch-a:99999", "is not a URL"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn node_host_gets_scheme_and_port_of_url() {
        let first = address("https://in.example:6984/proxy");
        for (node, base) in [
            ("couchdb@10.0.0.7", Some("https://10.0.0.7:6984")),
            ("couchdb@couch-b.internal", Some("https://couch-b.internal:6984")),
            ("couchdb@fe80::1", Some("https://[fe80::1]:6984")),
            ("nonode", None),
            ("couchdb@", None),
            ("couchdb@a/b", None),
            ("couchdb@user:secret@host", None),
        ] {
            let found = first.of_node(node);
            assert_eq!(found.as_ref().map(Address::as_str), base, "{node}");
        }
    }

    #[test]
    fn errors_never_repeat_possible_secrets() {
        for text in [
            "admin:q9zsecret@host",
            "q9zsecret@host",
            "http://q9zsecret@host:x",
            "http:/admin:q9zsecret@host",
            "//admin:q9zsecret@host",
            "admin:q9zsecret",
            "http://admin:q9zsecret",
            "host?token=q9zsecret",
            "host:5984?token=q9zsecret",
            "http://host:99999/?token=q9zsecret",
            "http://host/?token=a@q9zsecret",
            "ftp://host/#q9zsecret",
            "http://q9zsecret?word@host",
            "http://q9zsecret#word@host",
            "http://user@q9zsecret/ss@host",
            "http://ho st/;q9zsecret=1",
            "token=q9zsecret",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        for (text, says) in
            [("couch-a:5984", "\"couch-a:5984\""), ("ftp://couch-a/x", "\"ftp://couch-a/x\"")]
        {
            assert!(text.parse::<Address>().unwrap_err().to_string().contains(says), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_refused_url_never_repeats_its_password(
            scheme in "(http|https|ftp|x y|)",
            password in "[a-zA-Z][a-zA-Z0-9:/?#%]{0,6}q9zsecretz9q[a-zA-Z0-9:/?#%]{0,6}",
            rest in "(@[a-z:0-9/?#\\[]{0,12})?",
        ) {
            let text = format!("{scheme}://adm:{password}{rest}");
            if let Err(error) = text.parse::<Address>() {
                prop_assert!(!error.to_string().contains("secret"), "{error}");
                prop_assert!(!format!("{error:?}").contains("secret"), "{error:?}");
            }
        }
    }
}
