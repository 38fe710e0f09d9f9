//! Finds series that a text contains twice.
//!
//! Owns a check for tests: Prometheus 2 silently drops the second of two equal series without
//! counting it, and no other tool checks for them. Included by path, so that the tests of several crates
//! can use it.

use std::collections::HashSet;

/// The series that occur more than once in a text of either format, once for each extra
/// occurrence. A label with an empty value equals a missing label, and the order of labels does
/// not matter.
pub(crate) fn duplicate_series(text: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    samples.map(normalized_series).filter(|series| !seen.insert(series.clone())).collect()
}

/// A line's series with its labels sorted, still escaped.
fn normalized_series(line: &str) -> String {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    while let Some((label, value)) = rest.split_once("=\"") {
        let Some(end) = closing_quote(value) else { break };
        let (value, after) = value.split_at(end);
        if !value.is_empty() {
            labels.push(format!("{}=\"{value}\"", label.trim_start_matches(['{', ',', ' '])));
        }
        rest = after.strip_prefix('"').unwrap_or(after);
        if rest.starts_with('}') {
            break;
        }
    }
    labels.sort_unstable();
    format!("{name}{{{}}}", labels.join(","))
}

/// The position of the quote that ends a label's value.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}
