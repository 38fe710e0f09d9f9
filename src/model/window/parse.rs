//! The notation of a window's times and zone.

use jiff::{
    civil::Time,
    tz::{TimeZone, TimeZoneDatabase},
};
use std::sync::LazyLock;

/// The bundled time zone database, so that every host has the same zones.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Which end of a window a time is: only a closing time may be `24:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEnd {
    /// When it opens.
    From,
    /// When it closes.
    To,
}

/// Parses `HH:MM`. As a closing time, `24:00` means midnight.
///
/// # Errors
///
/// If the text is not two digits, a colon and two digits, or not a time of day.
pub fn parse_time(text: &str, edge: WindowEnd) -> Result<Time, ParseTimeError> {
    let refused = || match edge {
        WindowEnd::From => ParseTimeError::From { text: text.to_owned() },
        WindowEnd::To => ParseTimeError::To { text: text.to_owned() },
    };
    let number = |part: &str| {
        let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<i8>().ok().filter(|_| digits)
    };
    let (hours, minutes) = text.split_once(':').ok_or_else(refused)?;
    match (number(hours), number(minutes), edge) {
        (Some(24), Some(0), WindowEnd::To) => Ok(Time::midnight()),
        (Some(hours), Some(minutes), _) => Time::new(hours, minutes, 0, 0).map_err(|_| refused()),
        _ => Err(refused()),
    }
}

/// A time of day in the form that [`parse_time`] accepts.
pub fn format_time(time: Time, edge: WindowEnd) -> String {
    if edge == WindowEnd::To && time == Time::midnight() {
        return "24:00".to_owned();
    }
    format!("{:02}:{:02}", time.hour(), time.minute())
}

/// The time zone with this name in the IANA database, such as `Europe/Berlin`, case-insensitively.
///
/// # Errors
///
/// If there is none; the error names the most similar zone.
pub fn parse_zone(name: &str) -> Result<TimeZone, ParseZoneError> {
    if name.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    ZONES.get(name).map_err(|_| {
        let wanted = name.to_ascii_lowercase();
        let near = ZONES
            .available()
            .map(|zone| {
                let zone = zone.as_str();
                (strsim::jaro_winkler(&wanted, &zone.to_ascii_lowercase()), zone.to_owned())
            })
            .filter(|(likeness, _)| *likeness > 0.85)
            .max_by(|left, right| left.0.total_cmp(&right.0))
            .map(|(_, zone)| zone);
        ParseZoneError { name: name.to_owned(), near }
    })
}

/// The name by which [`parse_zone`] finds this zone again.
pub fn zone_name(zone: &TimeZone) -> &str {
    zone.iana_name().unwrap_or("UTC")
}

/// Why a text is not a time of day.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseTimeError {
    /// It is not an opening time.
    #[error("{text:?} is not a time of day; write hours and minutes, from 00:00 to 23:59")]
    From {
        /// The given text.
        text: String,
    },
    /// It is not a closing time.
    #[error("{text:?} is not a time of day; write hours and minutes, from 00:00 to 24:00")]
    To {
        /// The given text.
        text: String,
    },
}

/// Why a text is not a time zone.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{name:?} is not a time zone; write a name of the IANA database, such as {}", near.as_deref().unwrap_or("Europe/Berlin"))]
pub struct ParseZoneError {
    name: String,
    /// The most similar name that exists.
    pub near: Option<String>,
}
