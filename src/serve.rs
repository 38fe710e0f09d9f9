//! What others read: HTTP, metrics, and the types of the JSON API.
//!
//! Owns no state: it answers with what was published last and never waits for CouchDB.

pub mod http;
pub mod report;
