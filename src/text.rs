//! Formatting and parsing of small values: sizes, durations, name patterns, and escaping of
//! characters that a terminal would interpret.
//!
//! Knows nothing about targets and does no I/O.

pub(crate) mod duration;
pub(crate) mod escape;
pub(crate) mod pattern;
pub(crate) mod size;

/// `a, b and c`.
pub(crate) fn listed(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}

/// A number with its noun: `1 event`, `2 events`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
