//! Formatting and parsing of small values: sizes, durations, name patterns, and escaping of
//! characters that a terminal would interpret.
//!
//! Knows nothing about targets and does no I/O.

pub mod duration;
pub mod escape;
pub mod pattern;
pub mod size;
