//! Formatting and parsing of small values: sizes, durations, name patterns, and external text that
//! a language or a terminal would interpret.
//!
//! Knows nothing about targets and does no I/O.

pub(crate) mod document;
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

/// A number with three significant digits, or with all digits before its point: `1.80`, `12.3`,
/// `0.00554`, `1234`.
pub(crate) fn three_digits(number: f64) -> String {
    let scientific = format!("{number:.2e}");
    let exponent =
        scientific.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    match exponent {
        _ if number == 0.0 => "0".to_owned(),
        Some(exponent @ -6..=5) => {
            format!("{number:.*}", usize::try_from(2 - exponent).unwrap_or(0))
        }
        _ => scientific,
    }
}

/// Like [`three_digits`], for a sentence: without trailing zeros, `1.8`, `2`, `0.00554`.
pub(crate) fn three_digits_short(number: f64) -> String {
    let text = three_digits(number);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A number with its noun: `1 event`, `2,500 events`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        for (number, shown, short) in [
            (0.0, "0", "0"),
            (0.005_539_761_623_315_33, "0.00554", "0.00554"),
            (0.25, "0.250", "0.25"),
            (1.8, "1.80", "1.8"),
            (2.0, "2.00", "2"),
            (9.999, "10.0", "10"),
            (-12.34, "-12.3", "-12.3"),
            (1_000.4, "1000", "1000"),
            (1_234_567.0, "1.23e6", "1.23e6"),
            (1.5e-9, "1.50e-9", "1.50e-9"),
            (f64::INFINITY, "inf", "inf"),
        ] {
            assert_eq!((&*three_digits(number), &*three_digits_short(number)), (shown, short));
        }
    }
}
