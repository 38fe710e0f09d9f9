//! Formatting and parsing of small values: sizes, durations, name patterns, and external text that
//! a language or a terminal would interpret.
//!
//! Knows nothing about targets and does no I/O.

pub(crate) mod duration;
pub(crate) mod escape;
mod label;
pub(crate) mod pattern;
pub(crate) mod quote;
pub(crate) mod size;

pub use label::Label;

/// Joins parts for a sentence: `a, b and c`.
pub(crate) fn listed(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}

/// The text with its first letter capitalised.
pub(crate) fn capital(says: &str) -> String {
    let (first, rest) = says.split_at(says.chars().next().map_or(0, char::len_utf8));
    [&first.to_uppercase(), rest].concat()
}

/// A number with commas between its thousands: `30,000,047`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 event`, `2 events`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
