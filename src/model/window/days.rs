//! Week days and their notation: names and ranges, `mon-fri`, `sun`.

use jiff::civil::Weekday;
use std::{fmt, str::FromStr};

/// The names of the days, Monday first.
pub const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Days of the week, Monday first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days([bool; 7]);

impl Days {
    /// Every day.
    pub const ALL: Self = Self([true; 7]);
    /// No day.
    pub const NONE: Self = Self([false; 7]);

    /// Whether `day` is included.
    pub fn contains(self, day: Weekday) -> bool {
        let at = usize::try_from(day.to_monday_zero_offset()).unwrap_or_default();
        self.0.get(at).copied().unwrap_or_default()
    }

    /// The union of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        let mut both = self.0;
        both.iter_mut().zip(other.0).for_each(|(day, too)| *day |= too);
        Self(both)
    }

    /// The days as written in a list, consecutive ones as a range: `mon-fri`, `sun`.
    pub fn ranges(self) -> Vec<String> {
        let mut texts = Vec::new();
        let mut run: Option<(&str, &str, usize)> = None;
        for (name, is_in) in DAY_NAMES.into_iter().zip(self.0).chain([("", false)]) {
            run = match (run, is_in) {
                (None, true) => Some((name, name, 1)),
                (Some((first, _, length)), true) => Some((first, name, length + 1)),
                (Some((first, last, length)), false) => {
                    match length {
                        1 => texts.push(first.to_owned()),
                        _ => texts.push(format!("{first}-{last}")),
                    }
                    None
                }
                (None, false) => None,
            };
        }
        texts
    }
}

impl fmt::Display for Days {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.ranges().join(", "))
    }
}

/// Parses one day (`sun`) or one range (`fri-mon` spans the weekend), case-insensitively.
impl FromStr for Days {
    type Err = ParseDaysError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseDaysError { text: text.to_owned() };
        let position = |name: &str| {
            let name = name.trim();
            DAY_NAMES.iter().position(|day| day.eq_ignore_ascii_case(name)).ok_or_else(error)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (position(first)?, position(last)?);
        let mut days = Self::NONE;
        for (at, day) in days.0.iter_mut().enumerate() {
            *day = if first <= last {
                (first..=last).contains(&at)
            } else {
                at >= first || at <= last
            };
        }
        Ok(days)
    }
}

/// Why a text is not a day or a range of days.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is not a day; write mon, tue, wed, thu, fri, sat or sun, or a range such as mon-fri"
)]
pub struct ParseDaysError {
    text: String,
}
