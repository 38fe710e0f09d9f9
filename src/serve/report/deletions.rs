//! The ages of a database's deleted documents, as far as recliner recorded them.

use crate::{
    model::deletions::{DeletedThen, DeletionRecord},
    store::deletion_recorder::seen_copies,
    table::Snapshot,
    text::{capital, counted, grouped},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::iter;
use wall_clock::Moment;

/// Ages in days that the sentence mentions, besides the oldest one.
const SAID_DAYS: [u64; 4] = [90, 30, 7, 1];

/// How old the deleted documents of a database are. One copy of each range counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletionAges {
    /// The suffix of the database's files, which distinguishes it from another database of the same name.
    pub suffix: String,
    /// Current number of deleted documents; null if a range was not read.
    pub deleted: Option<u64>,
    /// The recorded times, the oldest first.
    pub times: Vec<DeletionTime>,
    /// The conclusion, in a sentence.
    pub says: String,
}

/// Deleted documents at one time.
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
    /// The ages from a database's record and its current counts; `None` if nothing is recorded of the current database
    /// of this name, or none of its documents is deleted.
    pub fn of(record: &DeletionRecord, snapshot: &Snapshot, db: &str, now: Moment) -> Option<Self> {
        let mut instances = snapshot.databases();
        let (ix, _) = instances.find(|(_, name)| name.db == db && name.suffix == record.suffix)?;
        let present = seen_copies(snapshot, ix);
        let (times, deleted) = (record.times(&present), record.deleted(&present));
        let says = says(deleted, &times, now).filter(|_| deleted != Some(0))?;
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
    let days = |time: &DeletedThen| time.at.age(now).as_secs() / 86_400;
    let first = times.first()?;
    let at_age = |least: &u64| times.iter().rev().find(|time| days(time) >= *least);
    let mut parts: Vec<String> = Vec::new();
    let mut said = 0;
    for time in iter::once(first).chain(SAID_DAYS.iter().filter_map(at_age)) {
        if days(time) == 0 || time.still_deleted <= said {
            continue;
        }
        said = time.still_deleted;
        let documents = match (parts.is_empty(), deleted) {
            (true, None) => " deleted documents",
            (true, Some(_)) | (false, _) => "",
        };
        let least = match deleted {
            Some(all) if all == said => "all".to_owned(),
            Some(_) | None => format!("at least {}", grouped(said)),
        };
        let age = counted(days(time), "day", "days");
        parts.push(format!("{least}{documents} are older than {age}"));
    }
    let (parts, since) = (parts.join(", "), first.at.date());
    Some(match (parts.is_empty(), deleted) {
        (false, Some(all)) => {
            format!("Of {} deleted documents, {parts}; recorded since {since}.", grouped(all))
        }
        (false, None) => format!("{}; recorded since {since}.", capital(&parts)),
        (true, _) if days(first) == 0 => {
            format!(
                "The age of the deletions is unknown: recliner has recorded them since {since}."
            )
        }
        (true, _) => format!(
            "The age of the deletions is unknown: recliner has recorded them since {since}, but there have been so many changes since then that each document may have been restored and deleted again."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_unix(1_795_222_440);

    #[test]
    fn sentence_states_only_ages_that_are_certain() {
        let time = |days: u64, still_deleted| DeletedThen {
            at: Moment::from_unix(NOW.unix() - days * 86_400),
            deleted: None,
            still_deleted,
        };
        let since = "recliner has recorded them since 2026-11-21";
        for (deleted, times, expected) in [
            (Some(7), &[][..], None),
            (Some(7), &[time(0, 7)], Some(format!("The age of the deletions is unknown: {since}."))),
            (
                Some(6_000),
                &[time(120, 10), time(60, 2_000), time(40, 3_000), time(2, 5_900), time(0, 6_000)],
                Some("Of 6,000 deleted documents, at least 10 are older than 120 days, at least 3,000 are older than 40 days, at least 5,900 are older than 2 days; recorded since 2026-07-24.".to_owned()),
            ),
            (
                None,
                &[time(1, 5)],
                Some("At least 5 deleted documents are older than 1 day; recorded since 2026-11-20.".to_owned()),
            ),
            (
                Some(5),
                &[time(10, 0), time(8, 5), time(3, 5)],
                Some("Of 5 deleted documents, all are older than 8 days; recorded since 2026-11-11.".to_owned()),
            ),
            (
                Some(7),
                &[time(9, 0), time(1, 0)],
                Some("The age of the deletions is unknown: recliner has recorded them since 2026-11-12, but there have been so many changes since then that each document may have been restored and deleted again.".to_owned()),
            ),
        ] {
            assert_eq!(says(deleted, times, NOW), expected);
        }
    }
}
