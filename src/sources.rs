//! Where facts come from: CouchDB over HTTP, other recliners.
//!
//! Owns the reading. Keeps nothing: what was read goes to `scan` as observations.

pub(crate) mod couchdb;
pub(crate) mod fetch;
pub mod inventory;
pub mod request_metrics;
