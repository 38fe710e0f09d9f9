//! Sums by day.

use crate::{Class, How, Request};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds of a day, and of an hour.
const DAY_SECONDS: u64 = 86_400;
const HOUR_SECONDS: u64 = 3_600;

/// The maximum number of distinct uses kept for one day of a source. Beyond it uses may be missing, so the day does not
/// count as covered.
pub const MAX_DAY_USES: usize = 50_000;

/// Days since 1970 (UTC).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Day(pub u32);

impl Day {
    /// The day of a time in seconds since 1970.
    pub fn of(at: u64) -> Self {
        Self(u32::try_from(at / DAY_SECONDS).unwrap_or(u32::MAX))
    }

    /// Its begin, in seconds since 1970.
    pub fn start(self) -> u64 {
        u64::from(self.0) * DAY_SECONDS
    }

    /// The day that is `days` earlier.
    pub const fn ago(self, days: u32) -> Self {
        Self(self.0.saturating_sub(days))
    }

    /// The whole days from another one to this one.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A kind of use, and the clients' class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UseKey {
    /// The database.
    pub db: String,
    /// The design document's id; empty for a Mango query.
    pub design: String,
    /// The view or search index; empty if the log does not name it.
    pub view: String,
    /// How it was used.
    pub how: How,
    /// By what class of clients.
    pub class: Class,
}

/// A day of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayReads {
    /// The hours with a request in the log, one bit each.
    pub hours: u32,
    /// The hours for which lines may be missing.
    pub broken: u32,
    /// Number of requests by use.
    pub uses: BTreeMap<UseKey, u64>,
}

impl DayReads {
    /// Adds another part of the same day.
    pub fn add(&mut self, other: Self) {
        self.hours |= other.hours;
        self.broken |= other.broken;
        for (key, count) in other.uses {
            self.count(key, count);
        }
    }

    fn count(&mut self, key: UseKey, count: u64) {
        if let Some(known) = self.uses.get_mut(&key) {
            *known = known.saturating_add(count);
        } else if key.how == How::Refused && self.uses.len() >= MAX_DAY_USES / 10 {
            // Any client can ask for something that does not exist; this must not crowd out what does.
        } else if self.uses.len() < MAX_DAY_USES {
            self.uses.insert(key, count);
        } else {
            self.broken = u32::MAX;
        }
    }
}

/// The totals read from logs, by source and day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReads {
    /// The days, by name of the source.
    pub days: BTreeMap<(Source, Day), DayReads>,
}

/// Whose log it is: a node's own, or that of a proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// CouchDB's own log of a node, by its name.
    Node(String),
    /// The log of a proxy, by its path.
    Proxy(String),
}

impl LogReads {
    /// Adds a request; `log` names the source of lines that do not name a node.
    pub fn add(&mut self, request: Request<'_>, log: &str) {
        let source = match request.node {
            Some(node) => Source::Node(node.into_owned()),
            None => Source::Proxy(log.to_owned()),
        };
        let day = self.days.entry((source, Day::of(request.at))).or_default();
        day.hours |= 1 << (request.at % DAY_SECONDS / HOUR_SECONDS);
        if let Some(used) = request.used {
            let key = UseKey {
                db: used.db.into_owned(),
                design: used.design.into_owned(),
                view: used.view.into_owned(),
                how: used.how,
                class: used.class,
            };
            day.count(key, 1);
        }
    }

    /// Records that lines before the first one of this log may be missing.
    pub fn break_first_hour(&mut self) {
        let mut seen = BTreeSet::new();
        for ((source, _), day) in &mut self.days {
            if seen.insert(source.clone()) && day.hours != 0 {
                day.broken |= 1 << day.hours.trailing_zeros();
            }
        }
    }

    /// Number of different uses, of each day.
    pub fn len(&self) -> usize {
        self.days.values().map(|day| day.uses.len() + 1).sum()
    }

    /// Whether no request was added.
    pub fn is_empty(&self) -> bool {
        self.days.is_empty()
    }

    /// Adds the totals of another part.
    pub fn merge(&mut self, other: Self) {
        for (key, day) in other.days {
            self.days.entry(key).or_default().add(day);
        }
    }
}
