//! A path that carries names as percent-encoded segments, or rejects them.

use couchdb_names::encode_part;
use std::fmt::Write as _;

/// A name that no request can carry safely.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unaddressable {
    /// A path segment would be empty, `.` or `..`.
    #[error(
        "{whole:?} cannot be addressed: a URL cannot carry {segment:?} as a path segment, so recliner sends no such request"
    )]
    Segment {
        /// The segment.
        segment: String,
        /// The name that the segment is part of.
        whole: String,
    },
    /// A design document's id does not begin with `_design/`.
    #[error("{0:?} is not the id of a design document: it does not begin with _design/")]
    NotADesignDocument(String),
    /// The path and query are longer than the URI of an HTTP request can be.
    #[error(
        "a path and query of {bytes} bytes cannot be addressed: the limit is {} bytes",
        Self::MAX_BYTES
    )]
    TooLong {
        /// Their length, in bytes.
        bytes: usize,
    },
    /// The URL library would send another path than the one intended.
    #[error(
        "{intended:?} cannot be addressed: it would be sent as {sent:?}, so recliner sends no such request"
    )]
    Rewritten {
        /// The intended path.
        intended: String,
        /// The path that would be sent.
        sent: String,
    },
}

impl Unaddressable {
    /// The longest URI that the `http` crate sends, in bytes.
    pub(crate) const MAX_BYTES: usize = 65_534;
}

/// A path of percent-encoded segments, with a query.
#[derive(Debug)]
pub(super) struct Path(String);

impl Path {
    /// A path that contains no name.
    pub(super) fn of(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// Path and query as they are sent.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// The path below `/_node/{node}`.
    pub(super) fn node(node: &str) -> Result<Self, Unaddressable> {
        let mut path = Self(String::with_capacity(128));
        path.0.push_str("/_node");
        path.push(node, node)?;
        Ok(path)
    }

    /// The path of a clustered database.
    pub(super) fn db(db: &str) -> Result<Self, Unaddressable> {
        let mut path = Self(String::with_capacity(128));
        path.push(db, db)?;
        Ok(path)
    }

    /// Adds `segment`, which is (part of) the name `whole`.
    fn push(&mut self, segment: &str, whole: &str) -> Result<(), Unaddressable> {
        if matches!(segment, "" | "." | "..") {
            return Err(Unaddressable::Segment {
                segment: segment.to_owned(),
                whole: whole.to_owned(),
            });
        }
        self.0.push('/');
        self.0.extend(encode_part(segment));
        Ok(())
    }

    /// Adds a name.
    pub(super) fn and(mut self, segment: &str) -> Result<Self, Unaddressable> {
        self.push(segment, segment)?;
        Ok(self)
    }

    /// Adds segments that contain no name.
    pub(super) fn fixed(mut self, text: &'static str) -> Self {
        self.0.push_str(text);
        self
    }

    /// Adds `_design` and the name of the design document as one segment.
    pub(super) fn design(self, ddoc: &str) -> Result<Self, Unaddressable> {
        self.fixed("/_design").design_name(ddoc)
    }

    /// Adds the name of the design document, without `_design/`, as one segment.
    pub(super) fn design_name(mut self, ddoc: &str) -> Result<Self, Unaddressable> {
        let name = ddoc
            .strip_prefix("_design/")
            .ok_or_else(|| Unaddressable::NotADesignDocument(ddoc.to_owned()))?;
        self.push(name, ddoc)?;
        Ok(self)
    }

    /// Adds a numeric parameter to a query that has begun.
    pub(super) fn number(mut self, name: &'static str, value: u64) -> Self {
        // Writing to a String cannot fail.
        let _written = write!(self.0, "&{name}={value}");
        self
    }

    /// Adds a text parameter to a query that has begun.
    pub(super) fn value(mut self, name: &'static str, text: &str) -> Self {
        // Writing to a String cannot fail.
        let _written = write!(self.0, "&{name}=");
        self.encoded(text)
    }

    /// Appends a text to the last value of the query.
    pub(super) fn encoded(mut self, text: &str) -> Self {
        self.0.extend(encode_part(text));
        self
    }

    /// Adds paging to a listing of documents.
    pub(super) fn page(mut self, from: Option<&str>, limit: usize) -> Self {
        self.0.push_str("?include_docs=true&");
        self.rows(from, limit)
    }

    /// Adds paging after a `?` or `&`; `from` is sent as a JSON string, as CouchDB expects keys.
    pub(super) fn rows(mut self, from: Option<&str>, limit: usize) -> Self {
        // Writing to a String cannot fail.
        let _written = write!(self.0, "limit={limit}");
        if let Some(from) = from {
            let key = serde_json::Value::from(from).to_string();
            self.0.push_str("&startkey=");
            self.0.extend(encode_part(&key));
        }
        self
    }
}
