//! What others read: HTTP, metrics, the types of the JSON API, and the console.
//!
//! Owns no state: it answers with what was published last and never waits for CouchDB.

mod console;
pub mod http;
pub mod report;
