//! recliner sees a whole CouchDB cluster from outside, scores every database shard and
//! view index for compaction, and tells Prometheus what waits, what could be freed, and why.

pub mod clock;
pub mod sim;
pub mod size;
pub mod target;
