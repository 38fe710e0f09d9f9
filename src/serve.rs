//! What others read: HTTP, metrics, and the one JSON shape of targets and plans.
//!
//! Owns no state: it answers with what was published last and never waits for CouchDB.

pub mod http;
pub mod report;
