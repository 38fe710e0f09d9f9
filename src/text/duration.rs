//! Durations: parsing them and formatting them for people.
//!
//! The notation is `humantime`'s without months and years. Those have no fixed length, and
//! nobody configures `1year 1month 4days 7h 26m 24s`.

use std::{fmt::Write as _, time::Duration};

/// Units from largest to smallest, each with its length in nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Rounding steps in nanoseconds: durations below the first number are rounded to a multiple of
/// the second number.
const ROUNDING_STEPS: [(u128, u128); 6] = [
    (1_000_000_000, 1_000_000),
    (10_000_000_000, 100_000_000),
    (3_600_000_000_000, 1_000_000_000),
    (86_400_000_000_000, 60_000_000_000),
    (864_000_000_000_000, 3_600_000_000_000),
    (u128::MAX, 86_400_000_000_000),
];

/// Parses a duration such as `30s`, `2h`, `7d` or `1h 30m`; `None` if the text is not a duration.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    humantime::parse_duration(text.trim()).ok()
}

/// Formats a duration exactly, in the notation that [`parse`] accepts: `400d`, `1h 30m`, `25ms`.
pub(crate) fn format_exact(span: Duration) -> String {
    format_nanos(span.as_nanos())
}

/// Formats a duration for people, rounded to at most two units: `340ms`, `2.3s`, `12m 30s`, `4d
/// 7h`, `400d`.
pub(crate) fn format_rounded(span: Duration) -> String {
    let nanos = span.as_nanos();
    let rounded = ROUNDING_STEPS.iter().find_map(|(below, grain)| {
        let rounded = (nanos + grain / 2) / grain * grain;
        (rounded < *below).then_some(rounded)
    });
    let rounded = rounded.unwrap_or(nanos);
    let second = 1_000_000_000;
    match (rounded / second, rounded % second) {
        (1..=9, tenths @ 1..) => format!("{}.{}s", rounded / second, tenths / (second / 10)),
        _ => format_nanos(rounded),
    }
}

/// Formats a duration for a sentence, rounded to one unit: `11 minutes`, `45 hours`, `1 day`.
pub(crate) fn in_words(span: Duration) -> String {
    let seconds = span.as_secs();
    let (unit, length) = match seconds {
        0..60 => ("second", 1),
        60..7_200 => ("minute", 60),
        7_200..172_800 if seconds != 86_400 => ("hour", 3_600),
        _ => ("day", 86_400),
    };
    let count = seconds.saturating_add(length / 2) / length;
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

fn format_nanos(mut nanos: u128) -> String {
    if nanos == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in UNITS {
        let count = nanos / size;
        nanos %= size;
        if count > 0 {
            let gap = if text.is_empty() { "" } else { " " };
            let written = write!(text, "{gap}{count}{unit}");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rounds_displayed_durations() {
        const DAY: u64 = 86_400;
        for (span, expected) in [
            (Duration::ZERO, "0s"),
            (Duration::from_micros(300), "0s"),
            (Duration::from_millis(340), "340ms"),
            (Duration::from_millis(999), "999ms"),
            (Duration::from_micros(999_700), "1s"),
            (Duration::from_millis(2_345), "2.3s"),
            (Duration::from_millis(9_960), "10s"),
            (Duration::from_secs(30), "30s"),
            (Duration::from_secs(750), "12m 30s"),
            (Duration::from_millis(3_599_600), "1h"),
            (Duration::from_secs(3_600 * 3 + 12 * 60 + 29), "3h 12m"),
            (Duration::from_secs(DAY), "1d"),
            (Duration::from_secs(4 * DAY + 7 * 3_600 + 1_799), "4d 7h"),
            (Duration::from_secs(7 * DAY), "7d"),
            (Duration::from_secs(400 * DAY), "400d"),
            (Duration::from_secs(400 * DAY + 50_000), "401d"),
        ] {
            assert_eq!(format_rounded(span), expected, "{span:?}");
        }
    }

    #[test]
    fn duration_in_words_has_one_unit() {
        for (seconds, expected) in [
            (0, "0 seconds"),
            (59, "59 seconds"),
            (60, "1 minute"),
            (678, "11 minutes"),
            (7_199, "120 minutes"),
            (18_000, "5 hours"),
            (86_400, "1 day"),
            (45 * 3_600, "45 hours"),
            (48 * 3_600, "2 days"),
            (u64::MAX, "213503982334601 days"),
        ] {
            assert_eq!(in_words(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn formats_settings_in_usual_notation() {
        for text in ["400d", "7d", "1h 30m", "20m", "25ms", "1s 500ms", "0s"] {
            assert_eq!(format_exact(parse(text).unwrap()), text);
        }
        assert_eq!(format_exact(parse("36h").unwrap()), "1d 12h");
        assert_eq!(parse("yesterday"), None);
    }

    proptest! {
        #[test]
        fn exact_duration_parses_back(seconds in 0_u64..100 * 366 * 86_400, nanos in 0_u32..1_000_000_000) {
            let span = Duration::new(seconds, nanos);
            prop_assert_eq!(parse(&format_exact(span)), Some(span));
        }

        #[test]
        fn rounded_duration_is_within_ten_percent(seconds in 1_u64..1_000_000_000) {
            let span = Duration::from_secs(seconds);
            let text = format_rounded(span);
            prop_assert!(text.split(' ').count() <= 2, "{}", text);
            let read = parse(&text).unwrap().as_secs_f64();
            let off = (read - span.as_secs_f64()).abs() / span.as_secs_f64();
            prop_assert!(off < 0.1, "{} for {:?}", text, span);
        }
    }
}
