//! Decides whether to continue `_db_updates` at the position of an earlier process.

use crate::store::journal::{FeedPosition, Journal};
use std::time::Duration;
use tokio::time;
use wall_clock::Moment;

/// Longer gaps are not caught up: after that long, operators care about the state of databases
/// rather than single events.
const MAX_GAP: Duration = Duration::from_secs(24 * 3_600);

/// Maximum number of missed rows to catch up.
const MAX_MISSED_ROWS: u64 = 1_000_000;

/// How long to wait until the journal is claimed for this cluster.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between queries of the journal.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Reads the position of an earlier process from the journal; `None` if unavailable.
pub(super) async fn load_position(journal: Option<Journal>) -> Option<FeedPosition> {
    let journal = journal?;
    let position = async {
        loop {
            match journal.feed_position().await {
                Ok(position) => return position,
                Err(_) => time::sleep(RETRY_INTERVAL).await,
            }
        }
    };
    time::timeout(JOURNAL_TIMEOUT, position).await.ok().flatten()
}

/// Whether two creation times are both known and different.
pub(super) fn known_to_differ(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// The sequence to continue from, given the newest sequence of the feed and the creation time of
/// its database; `None` to start from now.
pub(super) fn resume_seq(
    stored: Option<FeedPosition>,
    (newest, created_now): (&str, Option<&str>),
    now: Moment,
) -> Option<String> {
    let FeedPosition { seq, created_at, at } = stored?;
    let (from, to) = seq_number(&seq).zip(seq_number(newest))?;
    let age = at.age(now);
    let start_from_now = |why: &str| {
        tracing::warn!(
            why,
            since = at.rfc3339(),
            "_db_updates restarts from now: database events since then are not in the journal"
        );
        None
    };
    if seq == newest {
        None
    } else if from >= to || known_to_differ(created_at.as_deref(), created_now) {
        start_from_now("it is not the same feed as before")
    } else if age > MAX_GAP {
        start_from_now("it was last followed too long ago")
    } else if to - from > MAX_MISSED_ROWS {
        start_from_now("there were too many changes since then")
    } else {
        tracing::info!(since = at.rfc3339(), rows = to - from, "_db_updates resumed");
        Some(seq)
    }
}

/// The leading number of a clustered sequence, which grows with every row.
pub(super) fn seq_number(seq: &str) -> Option<u64> {
    seq.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumes_the_same_feed_after_a_short_gap() {
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
            let stored = FeedPosition { seq: seq.to_owned(), created_at: None, at };
            let result = resume_seq(Some(stored), (newest, None), now);
            assert_eq!(result.is_some(), resumes, "{seq} of day {days}, now {newest}");
        }
        assert_eq!(resume_seq(None, ("9-a", None), now), None);
        for (one, other, resumes) in [
            (None, Some("1"), true),
            (Some("1"), None, true),
            (Some("1"), Some("1"), true),
            (Some("1"), Some("2"), false),
        ] {
            let created_at = one.map(str::to_owned);
            let stored = FeedPosition { seq: "5-a".to_owned(), created_at, at: now };
            assert_eq!(resume_seq(Some(stored), ("9-a", other), now).is_some(), resumes);
        }
    }
}
