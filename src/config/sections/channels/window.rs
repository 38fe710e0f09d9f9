//! `channels[].windows`: when a channel may start compactions.

use crate::{
    config_format::{
        form::{Form, keys, list, section},
        output::{Output, text as written},
        section::Section,
    },
    model::window::{
        DAY_NAMES, Days, Window, WindowEnd, format_time, parse_time, parse_zone, zone_name,
    },
};
use jiff::{civil::Time, tz::TimeZone};
use serde_json::json;

pub(super) fn form() -> Form<Window> {
    let keys = keys!(Window {
        /// The days on which the window opens, such as [mon-fri, sun]; default every day.
        "days" => days, Live, days();
        /// When the window opens, such as 20:00.
        "from" => from, Live, time_of_day(WindowEnd::From);
        /// When the window closes; if not after its opening, on the next day.
        "to" => to, Live, time_of_day(WindowEnd::To);
        /// The IANA name of the time zone.
        "zone" => zone, Live, time_zone();
    });
    let midnight = Time::midnight();
    section(keys, check).starting_from(Window {
        days: Days::ALL,
        from: midnight,
        to: midnight,
        zone: TimeZone::UTC,
    })
}

fn check(window: &mut Window, section: &mut Section<'_, '_>) {
    if section.value_at("days").is_some() && window.days == Days::NONE {
        section.refuse_key("days", "found no day; omit the key for every day");
    }
    if window.is_always_open() {
        let says = format!(
            "always open, because it opens and closes every day at {}",
            format_time(window.from, WindowEnd::From)
        );
        section.report.note(section.at, &section.path, says);
    }
}

/// A list of days and ranges of days, left out if it has every day.
fn days() -> Form<Days> {
    let any_case = |day: &str| -> String {
        day.chars().map(|letter| format!("[{letter}{}]", letter.to_ascii_uppercase())).collect()
    };
    let names = DAY_NAMES.map(any_case).join("|");
    let pattern = format!(r"^\s*({names})\s*(-\s*({names})\s*)?$");
    let item = Form::scalar(
        |text| text.parse::<Days>().map_err(|why| why.to_string()),
        |days: &Days| written(&days.ranges().join(", ")),
        json!({"type": "string", "pattern": pattern}),
    );
    let texts = list(item);
    let schema = texts.schema(None);
    Form::new(
        move |report, node, path, _| {
            let days = texts.read(report, node, path, None)?;
            Some(days.into_iter().fold(Days::NONE, Days::union))
        },
        |days| {
            let texts = || days.ranges().iter().map(|day| written(day)).collect();
            (*days != Days::ALL).then(|| Output::List(texts()))
        },
        move |_| schema.clone(),
    )
    .with_schema(json!({"minItems": 1}))
}

fn time_of_day(edge: WindowEnd) -> Form<Time> {
    let end = if edge == WindowEnd::To { "|24:00" } else { "" };
    let pattern = format!("^(([01][0-9]|2[0-3]):[0-5][0-9]{end})$");
    Form::scalar(
        move |text| parse_time(text, edge).map_err(|why| why.to_string()),
        move |time| written(&format_time(*time, edge)),
        json!({"type": "string", "pattern": pattern}),
    )
}

fn time_zone() -> Form<TimeZone> {
    Form::scalar(
        |text| parse_zone(text).map_err(|why| why.to_string()),
        |zone| written(zone_name(zone)),
        json!({"type": "string", "minLength": 1}),
    )
}
