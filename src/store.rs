//! What outlives the process: the journal, who writes to it, and what was measured.
//!
//! Owns the embedded database and its records. Decides nothing.

pub mod archive;
pub mod journal;
pub mod recorder;
