//! The interfaces for clients: HTTP, metrics, the types of the JSON API, and the console.
//!
//! Owns no state: it answers from the last published state and never waits for CouchDB.

mod console;
pub mod http;
pub mod report;

pub(crate) use console::report_document;
