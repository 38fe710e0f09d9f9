//! Decides whether to continue `_db_updates` at the position of an earlier process.

use super::updates_feed::seq_number;
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
    let kept = async {
        loop {
            match journal.feed_position().await {
                Ok(kept) => return kept,
                Err(_) => time::sleep(RETRY_INTERVAL).await,
            }
        }
    };
    time::timeout(JOURNAL_TIMEOUT, kept).await.ok().flatten()
}

/// Whether two creation times are both known and different.
pub(super) fn known_to_differ(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// The sequence to continue from, given the newest sequence of the feed and the creation time of
/// its database; `None` to start from now.
pub(super) fn resume_seq(
    kept: Option<FeedPosition>,
    (newest, now_made): (&str, Option<&str>),
    now: Moment,
) -> Option<String> {
    let FeedPosition { seq, made, at } = kept?;
    let (from, to) = seq_number(&seq).zip(seq_number(newest))?;
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
    } else if from >= to || known_to_differ(made.as_deref(), now_made) {
        begin_anew("it is not the same feed as before")
    } else if age > MAX_GAP {
        begin_anew("it was last followed too long ago")
    } else if to - from > MAX_MISSED_ROWS {
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
            let kept = FeedPosition { seq: seq.to_owned(), made: None, at };
            let found = resume_seq(Some(kept), (newest, None), now);
            assert_eq!(found.is_some(), resumes, "{seq} of day {days}, now {newest}");
        }
        assert_eq!(resume_seq(None, ("9-a", None), now), None);
        for (one, other, resumes) in [
            (None, Some("1"), true),
            (Some("1"), None, true),
            (Some("1"), Some("1"), true),
            (Some("1"), Some("2"), false),
        ] {
            let made = one.map(str::to_owned);
            let kept = FeedPosition { seq: "5-a".to_owned(), made, at: now };
            assert_eq!(resume_seq(Some(kept), ("9-a", other), now).is_some(), resumes);
        }
    }
}
