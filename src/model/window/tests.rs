use super::*;
use proptest::prelude::*;

fn at(text: &str) -> Moment {
    let stamp: Timestamp = text.parse().unwrap();
    Moment::from_unix(stamp.as_second().try_into().unwrap())
}

fn next_change(windows: &[Window], now: Moment) -> Option<Moment> {
    Openings::of(windows, now).next_change(now)
}

fn window(days: &str, from: &str, to: &str, zone_name: &str) -> Window {
    Window {
        days: days.split(", ").map(|day| day.parse().unwrap()).fold(Days::NONE, Days::union),
        from: parse_time(from, WindowEnd::From).unwrap(),
        to: parse_time(to, WindowEnd::To).unwrap(),
        zone: parse_zone(zone_name).unwrap(),
    }
}

#[test]
fn window_across_midnight_belongs_to_the_day_it_opens() {
    let nights = window("mon-fri", "20:00", "06:00", "Europe/Berlin");
    for (moment, open) in [
        // Friday 20 November 2026, winter time: one hour ahead of UTC.
        ("2026-11-20T18:59:59Z", false),
        ("2026-11-20T19:00:00Z", true),
        ("2026-11-20T23:30:00Z", true),
        ("2026-11-21T04:59:59Z", true),
        ("2026-11-21T05:00:00Z", false),
        // No window begins on Saturday evening, so Sunday and Monday mornings have none.
        ("2026-11-21T20:00:00Z", false),
        ("2026-11-22T03:00:00Z", false),
        ("2026-11-23T03:00:00Z", false),
        ("2026-11-23T19:00:00Z", true),
    ] {
        assert_eq!(nights.is_open_at(at(moment)), open, "{moment}");
    }
}

#[test]
fn finds_next_change_across_midnight_and_weekends() {
    let nights = [window("mon-fri", "20:00", "06:00", "Europe/Berlin")];
    for (moment, change) in [
        ("2026-11-20T18:00:00Z", "2026-11-20T19:00:00Z"),
        ("2026-11-20T19:00:00Z", "2026-11-21T05:00:00Z"),
        ("2026-11-21T05:00:00Z", "2026-11-23T19:00:00Z"),
    ] {
        assert_eq!(next_change(&nights, at(moment)), Some(at(change)), "{moment}");
    }
}

#[test]
fn adjacent_windows_are_merged() {
    let two = [window("sat", "10:00", "24:00", "UTC"), window("sun", "00:00", "08:00", "UTC")];
    assert_eq!(next_change(&two, at("2026-11-21T11:00:00Z")), Some(at("2026-11-22T08:00:00Z")));
    let all_day = [window("mon-sun", "00:00", "24:00", "UTC")];
    assert!(any_open_at(&all_day, at("2026-11-21T00:00:00Z")));
    assert_eq!(next_change(&all_day, at("2026-11-21T11:00:00Z")), None);
    assert!(any_open_at(&[], at("2026-11-21T11:00:00Z")));
    assert_eq!(next_change(&[], at("2026-11-21T11:00:00Z")), None);
}

#[test]
fn daylight_saving_moves_skips_and_repeats_a_window() {
    let night = [window("mon-sun", "02:15", "02:45", "Europe/Berlin")];
    // 29 March 2026: 02:00 becomes 03:00, so that night has no such time.
    assert_eq!(next_change(&night, at("2026-03-28T12:00:00Z")), Some(at("2026-03-30T00:15:00Z")));
    // 25 October 2026: 03:00 becomes 02:00, so the time occurs twice.
    assert_eq!(next_change(&night, at("2026-10-24T22:00:00Z")), Some(at("2026-10-25T00:15:00Z")));
    assert_eq!(next_change(&night, at("2026-10-25T00:15:00Z")), Some(at("2026-10-25T00:45:00Z")));
    assert_eq!(next_change(&night, at("2026-10-25T00:45:00Z")), Some(at("2026-10-25T01:15:00Z")));
    // A window with an end inside the gap closes at the jump.
    let early = [window("mon-sun", "01:00", "02:30", "Europe/Berlin")];
    assert_eq!(next_change(&early, at("2026-03-29T00:30:00Z")), Some(at("2026-03-29T01:00:00Z")));
}

#[test]
fn parses_and_formats_days() {
    for (texts, shown) in [
        (&["mon-fri"][..], "mon-fri"),
        (&["Mon", "TUE", "wed", "sun"], "mon-wed, sun"),
        (&["fri-mon"], "mon, fri-sun"),
        (&["sun"], "sun"),
    ] {
        let days = texts.iter().map(|day| day.parse().unwrap()).fold(Days::NONE, Days::union);
        assert_eq!(days.to_string(), shown, "{texts:?}");
    }
    for bad in ["", "monday", "mon-", "-", "mon-fri-sun", "1"] {
        assert_eq!(
            bad.parse::<Days>().unwrap_err().to_string(),
            format!(
                "{bad:?} is not a day; write mon, tue, wed, thu, fri, sat or sun, or a range such as mon-fri"
            )
        );
    }
}

#[test]
fn parses_times_strictly() {
    assert_eq!(parse_time("24:00", WindowEnd::To), Ok(civil::Time::midnight()));
    assert_eq!(format_time(civil::Time::midnight(), WindowEnd::To), "24:00");
    assert_eq!(format_time(civil::Time::midnight(), WindowEnd::From), "00:00");
    for bad in ["", "24:00", "7:00", "07:0", "25:00", "12:60", "+1:00", "12:00:00", "12", "ab:cd"] {
        assert!(parse_time(bad, WindowEnd::From).is_err(), "{bad}");
    }
    assert!(parse_time("24:01", WindowEnd::To).is_err());
}

#[test]
fn finds_zones_by_name_and_suggests_the_nearest() {
    assert_eq!(zone_name(&parse_zone("europe/berlin").unwrap()), "Europe/Berlin");
    assert_eq!(zone_name(&parse_zone("UTC").unwrap()), "UTC");
    assert_eq!(
        parse_zone("Europe/Berln").unwrap_err().to_string(),
        "\"Europe/Berln\" is not a time zone; write a name of the IANA database, such as Europe/Berlin"
    );
    assert!(parse_zone("").is_err());
    assert!(parse_zone("../../etc/passwd").is_err());
}

#[test]
fn longest_opening_joins_adjacent_windows() {
    let time = |hour| civil::Time::new(hour, 0, 0, 0).unwrap();
    let window = |days, from, to| Window {
        days,
        from: time(from),
        to: time(to),
        zone: parse_zone("UTC").unwrap(),
    };
    // A Wednesday, shortly after midnight.
    let now = Moment::from_unix(1_770_163_300);
    let hours = |windows: &[Window]| {
        Openings::of(windows, now).longest(now).map(|span| span.as_secs() / 3_600)
    };
    assert_eq!(hours(&[]), None);
    assert_eq!(hours(&[window(Days::ALL, 7, 7)]), None);
    assert_eq!(hours(&[window(Days::ALL, 20, 6)]), Some(10));
    assert_eq!(hours(&[window(Days::ALL, 20, 0), window(Days::ALL, 0, 6)]), Some(10));
    assert_eq!(hours(&[window("sat".parse().unwrap(), 1, 5), window(Days::ALL, 2, 4)]), Some(4));
}

prop_compose! {
    fn any_window()(
        bits in 1u8..128,
        from in 0i8..48,
        to in 0i8..48,
        zone_name in prop::sample::select(vec![
            "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata",
        ]),
    ) -> Window {
        let days = DAY_NAMES
            .iter()
            .enumerate()
            .filter(|(place, _)| bits & (1 << place) != 0)
            .map(|(_, day)| day.parse().unwrap())
            .fold(Days::NONE, Days::union);
        let time = |half_hours: i8| civil::Time::new(half_hours / 2, half_hours % 2 * 30, 0, 0).unwrap();
        Window { days, from: time(from), to: time(to), zone: parse_zone(zone_name).unwrap() }
    }
}

proptest! {
    #[test]
    fn next_change_agrees_with_stepping_through_time(
        windows in prop::collection::vec(any_window(), 0..3),
        start in 1_770_000_000u64..1_800_000_000,
    ) {
        let now = Moment::from_unix(start / 60 * 60);
        let open = any_open_at(&windows, now);
        // Every zone above changes its offset on a half hour.
        let walked = (1..15 * 48)
            .map(|step| Moment::from_unix(start / 1_800 * 1_800 + step * 1_800))
            .find(|moment| any_open_at(&windows, *moment) != open);
        prop_assert_eq!(next_change(&windows, now), walked);
        // The next change is also the last change, from its own moment until the one after it.
        if let Some(next) = walked {
            let before = Moment::from_unix(next.unix() - 1);
            for openings in [Openings::of(&windows, now), Openings::of(&windows, next)] {
                prop_assert_eq!(openings.last_change(next), Some(next));
                prop_assert_eq!(openings.last_change(next.plus(Duration::from_secs(30))), Some(next));
                prop_assert!(openings.last_change(before) < Some(next));
            }
        }
    }

    #[test]
    fn openings_stay_correct_for_two_weeks(
        windows in prop::collection::vec(any_window(), 0..4),
        start in 1_770_000_000u64..1_800_000_000,
        later in 0u64..15 * 86_400,
    ) {
        let (begin, now) = (Moment::from_unix(start), Moment::from_unix(start + later));
        let (earlier, fresh) = (Openings::of(&windows, begin), Openings::of(&windows, now));
        prop_assert!(earlier.covers(now));
        prop_assert!(!earlier.covers(begin.plus(HORIZON * 2)));
        prop_assert_eq!(earlier.is_open_at(now), any_open_at(&windows, now));
        prop_assert_eq!(fresh.is_open_at(now), any_open_at(&windows, now));
        prop_assert_eq!(earlier.next_change(now), fresh.next_change(now));
        prop_assert_eq!(earlier.last_change(now), fresh.last_change(now));
    }

    #[test]
    fn days_round_trip(window in any_window()) {
        let read = window.days.ranges().iter().map(|day| day.parse().unwrap()).fold(Days::NONE, Days::union);
        prop_assert_eq!(read, window.days);
    }

    #[test]
    fn parsing_days_times_and_zones_never_panics(text in ".{0,12}") {
        let read = (text.parse::<Days>(), parse_time(&text, WindowEnd::To), parse_zone(&text));
        drop(read);
    }
}
