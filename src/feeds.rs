//! CouchDB's feeds in, recliner's feed out.
//!
//! Owns what was heard and how far. Never scores and never starts anything.

pub mod changes;
pub mod feed;
