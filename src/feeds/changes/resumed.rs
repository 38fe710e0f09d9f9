//! Decides whether to continue `_db_updates` at the position of an earlier process.

use super::updates::number;
use crate::store::journal::{Journal, Position};
use std::time::Duration;
use tokio::time;
use wall_clock::Moment;

/// Longer gaps are not caught up: after that long, operators care about the state of databases
/// rather than single events.
const OLDEST: Duration = Duration::from_secs(24 * 3_600);

/// Maximum number of missed rows to catch up.
const MOST: u64 = 1_000_000;

/// How long to wait until the journal is claimed for this cluster.
const WITHIN: Duration = Duration::from_secs(10);

/// Interval between queries of the journal.
const AGAIN: Duration = Duration::from_millis(200);

/// Reads the position of an earlier process from the journal; `None` if unavailable.
pub(super) async fn recall(journal: Option<Journal>) -> Option<Position> {
    let journal = journal?;
    let kept = async {
        loop {
            match journal.position().await {
                Ok(kept) => return kept,
                Err(_) => time::sleep(AGAIN).await,
            }
        }
    };
    time::timeout(WITHIN, kept).await.ok().flatten()
}

/// Whether two creation times are both known and different.
pub(super) fn differ(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// The sequence to continue from, given the newest sequence of the feed and the creation time of
/// its database; `None` to start from now.
pub(super) fn resumed(
    kept: Option<Position>,
    (newest, now_made): (&str, Option<&str>),
    now: Moment,
) -> Option<String> {
    let Position { seq, made, at } = kept?;
    let (from, to) = number(&seq).zip(number(newest))?;
    let age = at.age(now);
    let begin_anew = |why: &str| {
        tracing::warn!(
            why,
            since = at.rfc3339(),
            "_db_updates restarts from now: database events since then are not in the journal"
        );
        None
    };
    if seq == newest {
        None
    } else if from >= to || differ(made.as_deref(), now_made) {
        begin_anew("it is not the same feed as before")
    } else if age > OLDEST {
        begin_anew("it was last followed too long ago")
    } else if to - from > MOST {
        begin_anew("too many changes since then")
    } else {
        tracing::info!(since = at.rfc3339(), rows = to - from, "_db_updates resumed");
        Some(seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feed_is_resumed_if_it_is_the_same_and_the_gap_is_small() {
        const DAY: u64 = 24 * 3_600;
        let now = Moment::from_unix(10 * DAY);
        for (seq, days, newest, resumes) in [
            ("5-a", 9, "9-a", true),
            ("5-a", 10, "9-a", true),
            ("5-a", 11, "9-a", true),
            ("5-a", 8, "9-a", false),
            ("5-a", 9, "5-a", false),
            ("5-a", 9, "5-b", false),
            ("5-a", 9, "4-a", false),
            ("5-a", 9, "1000005-a", true),
            ("5-a", 9, "1000006-a", false),
            ("x", 9, "9-a", false),
            ("5-a", 9, "", false),
        ] {
            let at = Moment::from_unix(days * DAY);
            let kept = Position { seq: seq.to_owned(), made: None, at };
            let found = resumed(Some(kept), (newest, None), now);
            assert_eq!(found.is_some(), resumes, "{seq} of day {days}, now {newest}");
        }
        assert_eq!(resumed(None, ("9-a", None), now), None);
        for (one, other, resumes) in [
            (None, Some("1"), true),
            (Some("1"), None, true),
            (Some("1"), Some("1"), true),
            (Some("1"), Some("2"), false),
        ] {
            let made = one.map(str::to_owned);
            let kept = Position { seq: "5-a".to_owned(), made, at: now };
            assert_eq!(resumed(Some(kept), ("9-a", other), now).is_some(), resumes);
        }
    }
}
