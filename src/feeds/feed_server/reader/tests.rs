//! What a reader does while it waits for new events, without a runtime.

use super::*;
use crate::{
    feeds::feed_server::FeedServerTask,
    model::settings::work,
    store::journal::{FeedEntry, InMemory, JournalTask},
};
use couchdb_client::wire::DbChange;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

const ERA: &str = "0123456789abcdef";

/// A page of events with these sequence numbers.
fn page(numbers: &[u64], highest_removed_seq: u64) -> FeedPage {
    let entry = |seq: &u64| FeedEntry { seq: *seq, change: DbChange::Updated, db: "db".to_owned() };
    FeedPage {
        entries: numbers.iter().map(entry).collect(),
        more: false,
        after: 0,
        removed_at_start: 0,
        reset: None,
        newest_seq: numbers.last().copied().unwrap_or_default(),
        highest_removed_seq,
        era: ERA.to_owned(),
    }
}

/// A reader that received everything up to number 10 and may receive two more events.
fn live(feed_type: Kind, has_heartbeats: bool) -> FeedReader {
    let settings = watch::channel(work::JournalRetention::default()).1;
    let clock = Clock::anchored(Moment::from_unix(1_800_000_000));
    let (_task, journal) = JournalTask::open(InMemory::default(), clock, settings).unwrap();
    let (_task, feed) = FeedServerTask::new(journal, 1, CancellationToken::new());
    FeedReader {
        feed,
        feed_type,
        descending: false,
        max_silence: Duration::from_secs(1),
        has_heartbeats,
        position: 10,
        removed_at_start: 0,
        era: String::new(),
        remaining: 2,
        has_sent: false,
        starts_with_position: false,
        until: None,
        stage: ReaderStage::Live,
        chunks: None,
        last_sent_at: Instant::now(),
        _slot: None,
    }
}

fn received(after: u64, numbers: &[u64], up_to: u64, highest_removed_seq: u64) -> LiveEvent {
    let chunk = FeedChunk::new((after, up_to), page(numbers, highest_removed_seq));
    LiveEvent::Received(Ok(Arc::new(chunk)))
}

#[test]
fn each_live_event_determines_rows_stage_and_position() {
    use broadcast::error::RecvError;
    let (rows, heartbeat) = (|count: usize| "{".repeat(count), "\n");
    for (name, event, sent, stage, position) in [
        ("the end of all feeds", LiveEvent::Stopped, String::new(), "Closing", 10),
        (
            "the end of the task",
            LiveEvent::Received(Err(RecvError::Closed)),
            String::new(),
            "Closing",
            10,
        ),
        ("too slow", LiveEvent::Received(Err(RecvError::Lagged(3))), String::new(), "CatchUp", 10),
        ("silence", LiveEvent::Silence, heartbeat.to_owned(), "Live", 10),
        ("a new event", received(10, &[12], 12, 0), rows(1), "Live", 12),
        ("some are known", received(8, &[9, 10, 11], 11, 0), rows(1), "Live", 11),
        ("all are known", received(5, &[6, 7], 7, 0), String::new(), "Live", 10),
        ("nothing for readers", received(10, &[], 15, 0), String::new(), "Live", 15),
        ("some before it are missing", received(11, &[12], 12, 0), String::new(), "CatchUp", 10),
        ("some after it were removed", received(10, &[14], 14, 13), String::new(), "CatchUp", 10),
        ("more than the limit", received(10, &[11, 12, 13], 13, 0), rows(2), "Closing", 12),
    ] {
        let mut reader = live(Kind::Continuous, true);
        let (piece, next) = reader.handle_live(event);
        let text = std::str::from_utf8(&piece).unwrap();
        let output =
            if text == heartbeat { text.to_owned() } else { rows(text.matches('{').count()) };
        assert_eq!((output, format!("{next:?}")), (sent, stage.to_owned()), "{name}");
        assert_eq!(reader.position, position, "{name}");
    }
}

#[test]
fn response_ends_after_silence_or_the_first_longpoll_event() {
    let (piece, next) = live(Kind::Continuous, false).handle_live(LiveEvent::Silence);
    assert!(piece.is_empty() && matches!(next, ReaderStage::Closing));
    let mut reader = live(Kind::Longpoll, true);
    let (piece, next) = reader.handle_live(received(10, &[11], 11, 0));
    assert!(!piece.is_empty() && matches!(next, ReaderStage::Closing));
    assert_eq!((reader.position, reader.era.as_str()), (11, ERA));
}
