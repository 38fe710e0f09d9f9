//! The sources of facts: CouchDB over HTTP, the node's files, and other recliners.
//!
//! Owns the reads. Keeps nothing: the results go to `scan` as observations.

pub(crate) mod couchdb;
pub(crate) mod fetch;
pub mod inventory;
pub mod request_metrics;
pub mod smoosh_settings;
