//! Persistent state: the journal, the tasks that write to it, and the saved measurements.
//!
//! Holds the embedded database and its records. Makes no decisions.

pub mod deletion_recorder;
pub mod journal;
pub mod measurement_archive;
pub mod queue_recorder;
