//! `from` and `to` as smoosh and the compaction daemon read them
//! (`smoosh_utils:parse_time/2`, `in_allowed_window/2`): hours and minutes whose range
//! nobody checks, compared as pairs.

use super::number::integer;
use crate::model::window::{Days, Window};
use jiff::{civil, tz::TimeZone};

/// Hour and minute, of any size.
pub(super) type HourMinute = (i128, i128);

/// The beginning of a day.
pub(super) const DAY_BEGINS: HourMinute = (0, 0);
/// The end of a day.
pub(super) const DAY_ENDS: HourMinute = (24, 0);

/// Reads `HH:MM`; empty parts do not count, so that `:20:00:` is read too.
pub(super) fn hour_minute(text: &str) -> Option<HourMinute> {
    let mut parts = text.split(':').filter(|part| !part.is_empty());
    match (parts.next(), parts.next(), parts.next()) {
        (Some(hour), Some(minute), None) => Some((integer(hour)?, integer(minute)?)),
        _ => None,
    }
}

/// When within a day something may start.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Daily {
    Always,
    Never,
    Within(Window),
}

/// The times of day between `from` and `to` in `zone`.
///
/// The rule is asked for each minute of a day; what it says is always one stretch, maybe
/// over midnight. That keeps odd pairs, such as 20:75 or 24:01, exact.
pub(super) fn daily(from: HourMinute, to: HourMinute, zone: &TimeZone) -> Daily {
    let open = |minute: i128| {
        let now = (minute.div_euclid(60), minute.rem_euclid(60));
        if from < to { from <= now && now < to } else { from <= now || now < to }
    };
    let minutes = 0..24 * 60_i128;
    let before = |minute: i128| if minute == 0 { 24 * 60 - 1 } else { minute - 1 };
    let opens = minutes.clone().find(|minute| open(*minute) && !open(before(*minute)));
    let closes = minutes.into_iter().find(|minute| !open(*minute) && open(before(*minute)));
    match (opens, closes) {
        (Some(opens), Some(closes)) => Daily::Within(Window {
            days: Days::ALL,
            from: time_of_day(opens),
            to: time_of_day(closes),
            zone: zone.clone(),
        }),
        _ if open(0) => Daily::Always,
        _ => Daily::Never,
    }
}

fn time_of_day(minute: i128) -> civil::Time {
    let part = |value: i128| i8::try_from(value).unwrap_or_default();
    civil::Time::new(part(minute.div_euclid(60)), part(minute.rem_euclid(60)), 0, 0)
        .unwrap_or(civil::Time::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wall_clock::Moment;

    fn shown(from: &str, to: &str) -> String {
        let read = |text| hour_minute(text).unwrap();
        match daily(read(from), read(to), &TimeZone::UTC) {
            Daily::Always => "always".to_owned(),
            Daily::Never => "never".to_owned(),
            Daily::Within(window) => format!("{} to {}", window.from, window.to),
        }
    }

    #[test]
    fn windows_open_as_smoosh_opens_them() {
        for (from, to, open) in [
            ("20:00", "06:00", "20:00:00 to 06:00:00"),
            ("1:20", "3:29", "01:20:00 to 03:29:00"),
            ("06:00", "24:00", "06:00:00 to 00:00:00"),
            ("20:00", "00:00", "20:00:00 to 00:00:00"),
            ("00:00", "24:00", "always"),
            ("06:00", "06:00", "always"),
            ("24:00", "24:01", "never"),
            ("24:00", "06:00", "00:00:00 to 06:00:00"),
            ("20:00", "30:00", "20:00:00 to 00:00:00"),
            ("20:75", "22:00", "21:00:00 to 22:00:00"),
            ("20:75", "20:61", "always"),
            ("-1:00", "25:00", "always"),
        ] {
            assert_eq!(shown(from, to), open, "{from} to {to}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "20", "20:00:00", "X:Y", "9.5:00", "20: 00", ":"] {
            assert_eq!(hour_minute(text), None, "{text}");
        }
        assert_eq!(hour_minute(":20:00:"), Some((20, 0)));
    }

    proptest! {
        #[test]
        fn the_window_is_open_exactly_when_the_rule_says(
            from in (-1_i128..27, -1_i128..80),
            to in (-1_i128..27, -1_i128..80),
            minute in 0_u64..1440,
        ) {
            let now = (i128::from(minute / 60), i128::from(minute % 60));
            let rule = if from < to { now >= from && now < to } else { now >= from || now < to };
            let open = match daily(from, to, &TimeZone::UTC) {
                Daily::Always => true,
                Daily::Never => false,
                Daily::Within(window) => window.is_open_at(Moment::from_unix(1_700_006_400 + minute * 60)),
            };
            prop_assert_eq!(open, rule);
        }
    }
}
