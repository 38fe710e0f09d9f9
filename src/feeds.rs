//! Reads CouchDB's change feeds, and serves recliner's own feed.
//!
//! Owns the received events and the positions in the feeds. Never scores and never starts anything.

pub mod feed_client;
pub mod feed_server;
