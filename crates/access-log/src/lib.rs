#![doc = include_str!("../README.md")]

mod format;
mod json;
mod line;
mod lines;
mod path;
mod sums;
mod time;

pub use format::read_line;
pub use lines::{LineReader, MAX_LINE_BYTES};
pub use sums::{Day, DayReads, LogReads, MAX_DAY_USES, Source, UseKey};

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A request with its time.
    Request(Request<'a>),
    /// Anything else, or a truncated line.
    Other,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its time, in seconds since 1970. A time without a zone is taken as UTC.
    pub at: u64,
    /// The node that answered, if it is a line of CouchDB's own log.
    pub node: Option<Cow<'a, str>>,
    /// The index or design document that it used; `None` if none, or if the request was not answered.
    pub used: Option<Used<'a>>,
}

/// What a request used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used<'a> {
    /// The database.
    pub db: Cow<'a, str>,
    /// The design document, by id (`_design/x`); empty for [`How::Find`].
    pub design: Cow<'a, str>,
    /// The view; for a search index, `_search/x` or `_nouveau/x`. Empty if the request names or reads none.
    pub view: Cow<'a, str>,
    /// How it was used.
    pub how: How,
    /// Whose request it was.
    pub class: Class,
}

/// How a request used a design document or a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It read a view or a search index.
    Read,
    /// A Mango query; logs do not name its index.
    Find,
    /// It ran another function of the design document: a filter, an update or a show function.
    Function,
    /// It shows that the design document exists.
    Seen,
    /// It wrote or deleted the design document.
    Written,
    /// It asked for a view or a function that is not there.
    Refused,
}

/// A coarse class of clients, by their user agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The log does not say.
    Unknown,
    /// A browser.
    Browser,
    /// CouchDB's replicator.
    Replicator,
    /// A library or a program.
    Library,
}

impl Class {
    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Browser => "browser",
            Self::Replicator => "replicator",
            Self::Library => "library",
        }
    }
}

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Client(Class),
    /// recliner itself, which is no reader.
    Own,
}

impl Agent {
    const UNKNOWN: Self = Self::Client(Class::Unknown);

    /// The class of a user agent, as it names itself.
    fn of(agent: &[u8]) -> Self {
        let starts = |start: &[u8]| agent.starts_with(start);
        if agent.is_empty() || agent == b"-" {
            Self::UNKNOWN
        } else if starts(b"recliner/") {
            Self::Own
        } else if starts(b"CouchDB-Replicator") {
            Self::Client(Class::Replicator)
        } else if starts(b"Mozilla/") || starts(b"Opera/") {
            Self::Client(Class::Browser)
        } else {
            Self::Client(Class::Library)
        }
    }

    /// The class from headers that a proxy captured, in unknown order.
    fn among(captured: &[u8]) -> Self {
        let mut all = captured.split(|byte| *byte == b'|').map(Self::of);
        let is_known = |it: &Self| !matches!(it, Self::Client(Class::Unknown | Class::Library));
        all.find(is_known).unwrap_or(Self::UNKNOWN)
    }
}

/// A request's parts, as every format has them.
#[derive(Clone, Copy, Debug)]
struct Parts<'a> {
    at: u64,
    node: Option<&'a str>,
    method: &'a [u8],
    /// The path as it was sent, with its query.
    path: &'a [u8],
    status: u16,
    agent: Agent,
}

impl<'a> Parts<'a> {
    fn request(self) -> Request<'a> {
        let used = || path::used(self.method, self.path, self.agent);
        let used = match self.status {
            200..=299 | 304 => used(),
            404 => used().filter(|it| matches!(it.how, How::Read | How::Function)).map(|used| {
                let view = Cow::Borrowed("");
                Used { view, how: How::Refused, ..used }
            }),
            _ => None,
        };
        Request { at: self.at, node: self.node.map(Cow::Borrowed), used }
    }
}
