//! The base address of links in alerts.

use std::{fmt, str::FromStr};

/// The part of a link before its path.
#[derive(Clone, Debug)]
pub(in crate::cli) struct LinkBase(String);

/// Why a text cannot begin a link.
#[derive(Clone, Debug, thiserror::Error)]
#[error("links cannot begin with it; write a URL such as http://127.0.0.1:3000")]
pub(in crate::cli) struct LinkBaseError;

impl FromStr for LinkBase {
    type Err = LinkBaseError;

    fn from_str(text: &str) -> Result<Self, LinkBaseError> {
        let base = text.trim_end_matches('/');
        let host = ["http://", "https://"].iter().find_map(|scheme| base.strip_prefix(scheme));
        // The link must be safe unquoted in YAML, before a path and a query, and within an alert template.
        let is_plain = |c: char| c.is_ascii_graphic() && !"\"'<>\\^`{|}#?".contains(c);
        match host {
            Some(host) if !host.is_empty() && host.chars().all(is_plain) => Ok(Self(base.into())),
            _ => Err(LinkBaseError),
        }
    }
}

impl fmt::Display for LinkBase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
