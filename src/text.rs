//! Small values as text: sizes, spans of time, patterns of names, and what a terminal must not see.
//!
//! Owns notations alone. Knows no target and does no I/O.

pub mod duration;
pub mod escape;
pub mod pattern;
pub mod size;
