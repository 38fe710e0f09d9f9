//! Who reads the indexes: access logs are read and followed, and what other recliners read of theirs is fetched.
//!
//! Owns the files and how far each was read, and the form in which one recliner tells another. The sums and what they
//! cover are [`crate::model::reads`].

mod answer;
mod follower;
mod log_file;
mod pipes;
mod task;

pub use answer::{LogSource, LogUse, ReadsAnswer};
pub use log_file::{ReadLog, read_stream};
pub use task::{ReadsInputs, ReadsTask, TaskSettings};
