//! How old the deleted documents of a database are, as far as recliner recorded.

use crate::{
    model::deletions::{DeletedThen, DeletionRecord, SeenCopies},
    text::grouped,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wall_clock::Moment;

const DAY: Duration = Duration::from_secs(86_400);

/// Ages in days that the sentence names, besides the oldest.
const SAID_DAYS: [u64; 4] = [90, 30, 7, 1];

/// How old the deleted documents of a database are. One copy of each range counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletionAges {
    /// The suffix of the database's files, which tells it from another one of the same name.
    pub suffix: String,
    /// Deleted documents now; null if a range was not read.
    pub deleted: Option<u64>,
    /// The recorded times, the oldest first.
    pub times: Vec<DeletionTime>,
    /// What follows from them, in a sentence.
    pub says: String,
}

/// Deleted documents at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletionTime {
    /// The time.
    pub at: String,
    /// Documents that were deleted by then; null if a range was not read.
    pub deleted: Option<u64>,
    /// The number of them that have stayed deleted since, at least: changes and purges since then may have brought back
    /// or removed the others.
    pub still_deleted: u64,
}

impl DeletionAges {
    /// The ages by a record and the present counts; `None` if nothing is recorded.
    pub fn of(record: &DeletionRecord, present: &SeenCopies<'_>, now: Moment) -> Option<Self> {
        let times = record.times(present);
        let deleted = record.deleted(present);
        let says = says(deleted, &times, now)?;
        let line = |it: DeletedThen| DeletionTime {
            at: it.at.rfc3339(),
            deleted: it.deleted,
            still_deleted: it.still_deleted,
        };
        let times = times.into_iter().map(line).collect();
        Some(Self { suffix: record.suffix.clone(), deleted, times, says })
    }
}

/// The sentence; `None` if nothing is recorded.
fn says(deleted: Option<u64>, times: &[DeletedThen], now: Moment) -> Option<String> {
    let days = |time: &DeletedThen| time.at.age(now).as_secs() / DAY.as_secs();
    let first = times.first()?;
    let since = first.at.date();
    let at_age = |least: u64| times.iter().rev().find(|time| days(time) >= least);
    let mut said: Vec<(u64, u64)> = Vec::new();
    for time in std::iter::once(first).chain(SAID_DAYS.iter().filter_map(|days| at_age(*days))) {
        let is_more = said.last().is_none_or(|(_, last)| time.still_deleted > *last);
        if days(time) > 0 && time.still_deleted > 0 && is_more {
            said.push((days(time), time.still_deleted));
        }
    }
    let parts: Vec<String> = said
        .iter()
        .map(|(days, still)| {
            format!("at least {} are older than {}", grouped(*still), crate::text::counted(*days, "day", "days"))
        })
        .collect();
    let all = deleted.map_or_else(String::new, |all| format!("Of {} deleted documents ", grouped(all)));
    Some(match (parts.is_empty(), days(first)) {
        (false, _) => crate::text::capital(&format!("{all}{}; recorded since {since}.", parts.join(", "))),
        (true, 0) => format!("How old the deletions are is unknown: recliner records them since {since}."),
        (true, _) => format!(
            "How old the deletions are is unknown: recliner records them since {since}, and so many changes came since then that each document may have been brought back and deleted again."
        ),
    })
}
