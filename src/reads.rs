//! Who reads the indexes: reads and follows access logs, and fetches what other recliners read from theirs.
//!
//! Owns the files and the position in each, and the form in which one recliner reports to another. The sums and the
//! times that they cover are in [`crate::model::reads`].

mod answer;
mod follower;
mod log_file;
mod pipes;
mod task;

pub use answer::{LogSource, LogUse, ReadsAnswer};
pub use log_file::{ReadLog, read_stream};
pub use task::{ReadsInputs, ReadsTask, TaskSettings};
