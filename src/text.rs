//! Formatting and parsing of small values: sizes, durations, name patterns, and escaping of
//! characters that a terminal would interpret.
//!
//! Knows nothing about targets and does no I/O.

pub(crate) mod duration;
pub(crate) mod escape;
pub(crate) mod pattern;
pub(crate) mod size;

/// A number with its noun: `1 event`, `2 events`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
