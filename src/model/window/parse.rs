//! The notation of a window's times and zone.

use jiff::{
    civil::Time,
    tz::{TimeZone, TimeZoneDatabase},
};
use std::sync::LazyLock;

/// The zones this program knows: those it carries, so that every host knows the same.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Which end of a window a time is: only a closing may be `24:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// When it opens.
    From,
    /// When it closes.
    To,
}

/// Reads `HH:MM`; `24:00` as the day's end is midnight.
///
/// # Errors
/// When the text is not two digits, a colon and two digits, or no time of a day.
pub fn time(text: &str, edge: Edge) -> Result<Time, ParseTimeError> {
    let refused = || match edge {
        Edge::From => ParseTimeError::From { text: text.to_owned() },
        Edge::To => ParseTimeError::To { text: text.to_owned() },
    };
    let number = |part: &str| {
        let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<i8>().ok().filter(|_| digits)
    };
    let (hours, minutes) = text.split_once(':').ok_or_else(refused)?;
    match (number(hours), number(minutes), edge) {
        (Some(24), Some(0), Edge::To) => Ok(Time::midnight()),
        (Some(hours), Some(minutes), _) => Time::new(hours, minutes, 0, 0).map_err(|_| refused()),
        _ => Err(refused()),
    }
}

/// A time of day as [`time`] reads it.
#[must_use]
pub fn shown_time(time: Time, edge: Edge) -> String {
    if edge == Edge::To && time == Time::midnight() {
        return "24:00".to_owned();
    }
    format!("{:02}:{:02}", time.hour(), time.minute())
}

/// The time zone of this name in the IANA database, such as `Europe/Berlin`, in any case.
///
/// # Errors
/// When there is none; names the nearest that exists.
pub fn zone(name: &str) -> Result<TimeZone, ParseZoneError> {
    if name.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    ZONES.get(name).map_err(|_| {
        let wanted = name.to_ascii_lowercase();
        let near = ZONES
            .available()
            .map(|known| {
                let known = known.as_str();
                (strsim::jaro_winkler(&wanted, &known.to_ascii_lowercase()), known.to_owned())
            })
            .filter(|(likeness, _)| *likeness > 0.85)
            .max_by(|left, right| left.0.total_cmp(&right.0))
            .map(|(_, known)| known);
        ParseZoneError { name: name.to_owned(), near }
    })
}

/// The name by which [`zone`] finds it again.
#[must_use]
pub fn zone_name(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or("UTC")
}

/// Why a text is no time of a day.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseTimeError {
    /// As an opening.
    #[error("{text:?} is no time of a day: write hours and minutes, from 00:00 to 23:59")]
    From {
        /// What was written.
        text: String,
    },
    /// As a closing.
    #[error("{text:?} is no time of a day: write hours and minutes, from 00:00 to 24:00")]
    To {
        /// What was written.
        text: String,
    },
}

/// Why there is no such time zone.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{name:?} is no time zone: write a name of the IANA database, such as {}", near.as_deref().unwrap_or("Europe/Berlin"))]
pub struct ParseZoneError {
    name: String,
    /// The nearest name that exists.
    pub near: Option<String>,
}
