//! Formatting and parsing of small values: sizes, durations, name patterns, and escaping of
//! characters that a terminal would interpret.
//!
//! Knows nothing about targets and does no I/O.

pub(crate) mod duration;
pub(crate) mod escape;
pub(crate) mod pattern;
pub(crate) mod size;
