//! Documents: deleted and purged ones, and bytes that CouchDB hides.

mod deleted_documents;
mod hidden_bytes;
mod local_documents;
mod unprocessed_purges;

use super::Family;

/// The family.
pub(super) const FAMILY: Family = Family {
    title: "Documents",
    rules: &[
        deleted_documents::RULE,
        hidden_bytes::RULE,
        unprocessed_purges::RULE,
        local_documents::RULE,
    ],
};
