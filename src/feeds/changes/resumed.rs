//! Where an earlier process was with `_db_updates`, and whether this one goes on there.

use super::updates::number;
use crate::store::journal::{Journal, Position};
use std::time::Duration;
use tokio::time;
use wall_clock::Moment;

/// What is older is not made up for: whoever was away for so long looks at the databases, not
/// at what became of them one by one.
const OLDEST: Duration = Duration::from_secs(24 * 3_600);

/// Rows that are made up for at most.
const MOST: u64 = 1_000_000;

/// How long the journal is waited for: until it is known to be this cluster's.
const WITHIN: Duration = Duration::from_secs(10);

/// From one question to the journal to the next.
const AGAIN: Duration = Duration::from_millis(200);

/// What the journal says of an earlier process; none where it cannot say.
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

/// Whether two tellings of when a database was made are known to be of different ones.
pub(super) fn differ(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// The sequence to go on from where the feed is as far as `newest`, and its database was made
/// then; none where it is begun anew.
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
            "_db_updates is begun anew: what happened to databases since then is not in the journal"
        );
        None
    };
    if seq == newest {
        None
    } else if from >= to || differ(made.as_deref(), now_made) {
        begin_anew("it is not the feed that was followed before")
    } else if age > OLDEST {
        begin_anew("it was followed too long ago")
    } else if to - from > MOST {
        begin_anew("too much happened since")
    } else {
        tracing::info!(since = at.rfc3339(), rows = to - from, "_db_updates is resumed");
        Some(seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_where_that_is_of_the_same_feed_and_not_too_far_away() {
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
