//! Numbers as text, the same in both formats.
//!
//! Owns the two spellings: of a sample's value, where an integer has no fraction, and of a `le` or
//! `quantile` label, which identifies a series and is therefore canonical as OpenMetrics defines
//! it: Go's shortest `%g` with `.0` after an integer.

/// Integers below this number (2^53) are exact in an `f64`.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Appends a count or a size.
pub(super) fn push_u64(out: &mut String, value: u64) {
    out.push_str(itoa::Buffer::new().format(value));
}

/// Appends a sample's value: `17`, `0.25`, `1.5e+06`, `NaN`, `+Inf`.
pub(super) fn push_f64(out: &mut String, value: f64) {
    if value.trunc() == value && value.abs() < MAX_EXACT_INTEGER {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        out.push_str(itoa::Buffer::new().format(value as i64));
    } else {
        push_canonical(out, value);
    }
}

/// Appends a number in OpenMetrics's form for labels: `0.005`, `1.0`, `1e+06`, `+Inf`.
pub(super) fn push_canonical(out: &mut String, value: f64) {
    let size = value.abs();
    if value.is_nan() {
        out.push_str("NaN");
    } else if size.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if size == 0.0 || (1e-4..1e6).contains(&size) {
        out.push_str(zmij::Buffer::new().format_finite(value));
    } else {
        push_exponent(out, value);
    }
}

/// Appends `1.5e+06`: like Go, with the exponent's sign and at least two digits.
fn push_exponent(out: &mut String, value: f64) {
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |rest| ("-", rest));
    let pad = if exponent.len() < 2 { "0" } else { "" };
    for part in [digits, "e", sign, pad, exponent] {
        out.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(value: f64) -> String {
        let mut out = String::new();
        push_canonical(&mut out, value);
        out
    }

    fn sample(value: f64) -> String {
        let mut out = String::new();
        push_f64(&mut out, value);
        out
    }

    #[test]
    fn labels_have_the_spelling_that_openmetrics_specifies() {
        let listed = [
            (1e-10, "1e-10"),
            (1e-9, "1e-09"),
            (1e-5, "1e-05"),
            (1e-4, "0.0001"),
            (0.001, "0.001"),
            (0.005, "0.005"),
            (0.1, "0.1"),
            (0.0, "0.0"),
            (1.0, "1.0"),
            (2.5, "2.5"),
            (86_400.0, "86400.0"),
            (1e5, "100000.0"),
            (1e6, "1e+06"),
            (1_500_000.0, "1.5e+06"),
            (1e10, "1e+10"),
            (1e100, "1e+100"),
            (-1e7, "-1e+07"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in listed {
            assert_eq!(canonical(value), text);
        }
    }

    #[test]
    fn integers_are_written_without_a_fraction() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (1_795_222_434.0, "1795222434"),
            (MAX_EXACT_INTEGER - 1.0, "9007199254740991"),
            (MAX_EXACT_INTEGER, "9.007199254740992e+15"),
            (0.25, "0.25"),
            (1_500_000.5, "1.5000005e+06"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(sample(value), text);
        }
    }

    proptest! {
        #[test]
        fn every_number_round_trips(value in any::<f64>(), digits in -1e7..1e7) {
            for value in [value, digits] {
                for text in [canonical(value), sample(value)] {
                    let back: f64 = text.parse().unwrap();
                    prop_assert!(back == value || (back.is_nan() && value.is_nan()), "{text}");
                }
                let text = canonical(value);
                prop_assert!(text.contains(['.', 'e', 'I', 'N']), "{text}");
            }
        }
    }
}
