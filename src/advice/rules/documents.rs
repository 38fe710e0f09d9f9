//! Documents: deleted ones, and bytes that CouchDB hides.

mod deleted_documents;
mod hidden_bytes;

use super::Family;

/// The family.
pub(super) const FAMILY: Family =
    Family { title: "Documents", rules: &[deleted_documents::RULE, hidden_bytes::RULE] };
