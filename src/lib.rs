//! recliner sees a whole CouchDB cluster from outside, scores every database shard and
//! view index for compaction, and tells Prometheus what waits, what could be freed, and why.

pub mod channel;
pub mod clock;
pub mod config;
pub mod couch;
pub mod facts;
pub mod pattern;
pub mod settings;
pub mod size;
pub mod target;
pub mod window;
