//! Reads `from` and `to` like smoosh and the compaction daemon (`smoosh_utils:parse_time/2`,
//! `in_allowed_window/2`): hours and minutes whose range is not checked, compared as pairs.

use crate::number::integer;
use std::fmt;

/// Hour and minute, without any limit on either.
pub(crate) type HourMinute = (i128, i128);

/// The beginning of a day.
pub(crate) const DAY_BEGINS: HourMinute = (0, 0);
pub(crate) const DAY_ENDS: HourMinute = (24, 0);

/// Reads `HH:MM`; empty parts are ignored, so that `:20:00:` is read too.
pub(crate) fn hour_minute(text: &str) -> Option<HourMinute> {
    let mut parts = text.split(':').filter(|part| !part.is_empty());
    match (parts.next(), parts.next(), parts.next()) {
        (Some(hour), Some(minute), None) => Some((integer(hour)?, integer(minute)?)),
        _ => None,
    }
}

/// When jobs may start during a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Opening {
    /// At any time.
    #[default]
    Always,
    /// At no time.
    Never,
    /// Between two times of each day.
    Daily(Window),
}

/// The time from one time of day up to, but not including, another. The two are never equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Opening time, in minutes since midnight, below 1440.
    pub from: u16,
    /// Closing time, in minutes since midnight, below 1440. If it is not after `from`, the window
    /// spans midnight.
    pub to: u16,
}

impl fmt::Display for Window {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(out, "{:02}:{:02} to {:02}:{:02}", from / 60, from % 60, to / 60, to % 60)
    }
}

const MINUTES_OF_A_DAY: u16 = 24 * 60;

/// When `from` and `to` allow jobs to start.
///
/// The rule is evaluated for each minute of a day; the open minutes always form a single span,
/// which may include midnight. This keeps odd pairs, such as 20:75 or 24:01, exact.
pub(crate) fn daily(from: HourMinute, to: HourMinute) -> Opening {
    let open = |minute: u16| {
        let now = (i128::from(minute / 60), i128::from(minute % 60));
        if from < to { from <= now && now < to } else { from <= now || now < to }
    };
    let before = |minute: u16| minute.checked_sub(1).unwrap_or(MINUTES_OF_A_DAY - 1);
    let mut minutes = 0..MINUTES_OF_A_DAY;
    let opens = minutes.clone().find(|minute| open(*minute) && !open(before(*minute)));
    let closes = minutes.find(|minute| !open(*minute) && open(before(*minute)));
    match (opens, closes) {
        (Some(from), Some(to)) => Opening::Daily(Window { from, to }),
        _ if open(0) => Opening::Always,
        _ => Opening::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn opening_text(from: &str, to: &str) -> String {
        let read = |text| hour_minute(text).unwrap();
        match daily(read(from), read(to)) {
            Opening::Always => "always".to_owned(),
            Opening::Never => "never".to_owned(),
            Opening::Daily(window) => window.to_string(),
        }
    }

    #[test]
    fn windows_open_at_the_same_times_as_in_smoosh() {
        for (from, to, open) in [
            ("20:00", "06:00", "20:00 to 06:00"),
            ("1:20", "3:29", "01:20 to 03:29"),
            ("06:00", "24:00", "06:00 to 00:00"),
            ("20:00", "00:00", "20:00 to 00:00"),
            ("00:00", "24:00", "always"),
            ("06:00", "06:00", "always"),
            ("24:00", "24:01", "never"),
            ("24:00", "06:00", "00:00 to 06:00"),
            ("20:00", "30:00", "20:00 to 00:00"),
            ("20:75", "22:00", "21:00 to 22:00"),
            ("20:75", "20:61", "always"),
            ("-1:00", "25:00", "always"),
        ] {
            assert_eq!(opening_text(from, to), open, "{from} to {to}");
        }
    }

    #[test]
    fn refuses_texts_that_are_not_times() {
        for text in ["", "20", "20:00:00", "X:Y", "9.5:00", "20: 00", ":"] {
            assert_eq!(hour_minute(text), None, "{text}");
        }
        assert_eq!(hour_minute(":20:00:"), Some((20, 0)));
    }

    proptest! {
        #[test]
        fn window_is_open_exactly_when_from_and_to_allow(
            from in (-1_i128..27, -1_i128..80),
            to in (-1_i128..27, -1_i128..80),
            minute in 0_u16..1440,
        ) {
            let now = (i128::from(minute / 60), i128::from(minute % 60));
            let rule = if from < to { now >= from && now < to } else { now >= from || now < to };
            let open = match daily(from, to) {
                Opening::Always => true,
                Opening::Never => false,
                Opening::Daily(Window { from, to }) if from < to => from <= minute && minute < to,
                Opening::Daily(Window { from, to }) => from <= minute || minute < to,
            };
            prop_assert_eq!(open, rule);
        }
    }
}
