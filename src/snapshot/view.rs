//! What a view index is, beside its measurements.

use crate::target::Signature;
use std::sync::Arc;

/// A view index of the cluster: known by database and signature; the rest are attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The MD5 that names its files.
    pub signature: Signature,
    /// The design documents that share it, by id (`_design/x`), sorted.
    pub designs: Arc<[Arc<str>]>,
    /// The language its functions are written in.
    pub language: Arc<str>,
    /// The collator versions one copy of it names (3.3 and later).
    pub collators: Arc<[Arc<str>]>,
    /// The design document's own range, where one copy was read exactly; else its sizes
    /// are the cluster's sum divided by the number of ranges.
    pub exact_range: bool,
    /// What to query so that CouchDB builds it; none where its documents say that only
    /// readers' queries shall (`autoupdate`), and until they were read.
    pub built_by: Option<Query>,
}

/// A view of a design document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The document's id.
    pub design: Arc<str>,
    /// The view's name.
    pub view: Arc<str>,
}
