//! recliner sees a whole CouchDB cluster from outside, scores every database shard and
//! view index for compaction, and tells Prometheus what waits, what could be freed, and why.

pub mod channel;
pub mod cli;
pub mod clock;
pub mod config;
pub mod couch;
pub mod estimate;
pub mod exposition;
pub mod facts;
pub mod http;
pub mod inventory;
pub mod log;
pub mod pattern;
pub mod plan;
pub mod planner;
pub mod queue;
pub mod report;
pub mod scanner;
pub mod score;
pub mod service;
pub mod settings;
pub mod sim;
pub mod size;
pub mod smoosh;
pub mod snapshot;
pub mod target;
pub mod version;
pub mod window;
