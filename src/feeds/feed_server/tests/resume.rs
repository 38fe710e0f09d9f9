//! A reader may stop and continue anywhere, and always ends up with the latest event of each type
//! of each database.

use super::*;
use crate::{model::settings::work::Keep, store::journal::EventsQuery};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum ScenarioStep {
    /// Events of some databases in one commit.
    Events(Vec<(u8, u8)>),
    /// An event that the feed does not show, but that has a number too.
    Own,
    /// Time passes.
    Hours(u8),
    /// A reader reads one response of at most this many rows.
    Reads(usize, u8),
    /// A reader waits for events, and these arrive.
    Polls(usize, Vec<(u8, u8)>),
    /// A reader opens a feed, takes some pieces with delays in between, and leaves.
    Listens(usize, u8),
    /// One more piece is taken from a reader's open feed, while others continue.
    Takes(usize),
}

fn steps() -> impl Strategy<Value = Vec<ScenarioStep>> {
    let events = || proptest::collection::vec((0..6_u8, 0..3_u8), 1..20);
    proptest::collection::vec(
        prop_oneof![
            4 => events().prop_map(ScenarioStep::Events),
            2 => (0..3_usize, events()).prop_map(|(who, events)| ScenarioStep::Polls(who, events)),
            1 => Just(ScenarioStep::Own),
            1 => (1..12_u8).prop_map(ScenarioStep::Hours),
            2 => (0..3_usize, 0..9_u8).prop_map(|(who, limit)| ScenarioStep::Reads(who, limit)),
            2 => (0..3_usize, 0..9_u8).prop_map(|(who, pieces)| ScenarioStep::Listens(who, pieces)),
            2 => (0..3_usize).prop_map(ScenarioStep::Takes),
        ],
        1..60,
    )
}

/// The latest number of each type of each database.
type KnownEvents = BTreeMap<(String, String), u64>;

fn db_events(events: Vec<(u8, u8)>) -> Vec<EventDetails> {
    let what = |(db, kind): (u8, u8)| {
        let db = format!("d{db}");
        match kind {
            0 => EventDetails::Created { db },
            1 => EventDetails::Updated { db },
            _ => EventDetails::Deleted { db },
        }
    };
    events.into_iter().map(what).collect()
}

#[derive(Default)]
struct Reader {
    since: Option<String>,
    known: KnownEvents,
    open: Option<OpenBody>,
}

impl Reader {
    fn query(&self) -> String {
        self.since.as_ref().map_or_else(String::new, |since| format!("since={since}"))
    }

    fn restart_if_reset(&mut self, reset: Option<ResetReason>) {
        if reset.is_some() {
            self.known.clear();
        }
    }

    fn apply_row(&mut self, row: &Value) {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        let before = self.known.insert((text("db_name"), text("type")), number(&row["seq"]));
        assert!(before < Some(number(&row["seq"])), "{before:?} {row}");
        self.since = Some(text("seq"));
    }

    fn apply_piece(&mut self, piece: &str) {
        for line in piece.lines().filter(|line| !line.is_empty()) {
            let line: Value = line.parse().unwrap();
            match line["last_seq"].as_str() {
                Some(last) => self.since = Some(last.to_owned()),
                None => self.apply_row(&line),
            }
        }
    }

    async fn read_once(&mut self, fixture: &Fixture, limit: u64) -> bool {
        self.open = None;
        let mut reading = fixture.open(&format!("{}&limit={limit}", self.query())).await;
        self.restart_if_reset(reading.reset);
        self.apply_object(&reading.rest().await)
    }

    /// Applies a response; returns whether it contained any rows.
    fn apply_object(&mut self, text: &str) -> bool {
        let whole: Value = text.parse().unwrap();
        whole["results"].as_array().unwrap().iter().for_each(|row| self.apply_row(row));
        self.since = Some(whole["last_seq"].as_str().unwrap().to_owned());
        !whole["results"].as_array().unwrap().is_empty()
    }

    async fn wait_once(&mut self, fixture: &Fixture, events: Vec<(u8, u8)>) {
        self.open = None;
        let mut reading =
            fixture.open(&format!("{}&feed=longpoll&timeout=900", self.query())).await;
        self.restart_if_reset(reading.reset);
        let first = reading.piece().await.unwrap();
        fixture.record(db_events(events)).await;
        assert!(self.apply_object(&(first + &reading.rest().await)), "events came in time");
    }

    async fn open_feed(&mut self, fixture: &Fixture) {
        let reading = fixture.open(&format!("{}&feed=continuous", self.query())).await;
        self.restart_if_reset(reading.reset);
        self.open = Some(reading);
    }

    async fn take_piece(&mut self) {
        let Some(open) = &mut self.open else { return };
        let piece = time::timeout(millis(300), open.pieces.next()).await;
        match piece {
            Err(_) => {}
            Ok(None) => self.open = None,
            Ok(Some(piece)) => {
                let piece = String::from_utf8(piece.unwrap().to_vec()).unwrap();
                self.apply_piece(&piece);
            }
        }
    }
}

/// The latest event of one type of one database.
#[derive(Clone, Copy)]
struct LatestEvent {
    seq: u64,
    at: u64,
    /// The database was deleted long ago, so readers need not know the event.
    optional: bool,
}

#[derive(Default)]
struct ExpectedState {
    up_to_seq: u64,
    all: BTreeMap<(String, String), LatestEvent>,
}

impl ExpectedState {
    /// Applies newly recorded events.
    async fn update(&mut self, fixture: &Fixture, keep: Duration) {
        let query = EventsQuery {
            after_seq: Some(self.up_to_seq),
            limit: usize::MAX,
            ..EventsQuery::default()
        };
        for (seq, event) in fixture.journal.events(query).await.unwrap().entries {
            self.up_to_seq = seq;
            let Some((change, db)) = event.details.database_change() else { continue };
            let at = event.at.unix();
            let long = |deleted: u64| at.saturating_sub(deleted) > keep.as_secs();
            if self.deleted_since(db).is_some_and(long) {
                for ((of, _), latest) in &mut self.all {
                    latest.optional |= of == db;
                }
            }
            let key = (db.to_owned(), change.label().to_owned());
            self.all.insert(key, LatestEvent { seq, at, optional: false });
        }
    }

    /// When the database was deleted, if it has not been seen to exist since.
    fn deleted_since(&self, db: &str) -> Option<u64> {
        let of = |kind: &str| self.all.get(&(db.to_owned(), kind.to_owned()));
        let deleted = of("deleted")?;
        (of("created").is_none_or(|created| created.seq < deleted.seq)
            && of("updated").is_none_or(|updated| updated.at <= deleted.at + 600))
        .then_some(deleted.at)
    }
}

async fn check_readers(steps: Vec<ScenarioStep>, keep: Duration) {
    let budget = Keep { keep, max_size: 1 << 30 };
    let fixture =
        Fixture::new(work::JournalRetention { events: budget, outcomes: budget }, 10).await;
    let mut truth = ExpectedState::default();
    let mut readers: [Reader; 3] = Default::default();
    for step in steps {
        match step {
            ScenarioStep::Events(events) => {
                fixture.record(db_events(events)).await;
                truth.update(&fixture, keep).await;
            }
            ScenarioStep::Polls(who, events) => {
                readers[who].wait_once(&fixture, events).await;
                truth.update(&fixture, keep).await;
            }
            ScenarioStep::Own => fixture.record_own_event().await,
            ScenarioStep::Hours(hours) => {
                time::sleep(Duration::from_secs(3600) * hours.into()).await
            }
            ScenarioStep::Reads(who, limit) => {
                readers[who].read_once(&fixture, limit.into()).await;
            }
            ScenarioStep::Listens(who, pieces) => {
                readers[who].open = None;
                readers[who].open_feed(&fixture).await;
                for _ in 0..pieces {
                    readers[who].take_piece().await;
                }
            }
            ScenarioStep::Takes(who) => readers[who].take_piece().await,
        }
    }
    for reader in &mut readers {
        while reader.read_once(&fixture, 3).await {}
        for ((db, kind), latest) in &truth.all {
            let received_seq = reader.known.get(&(db.clone(), kind.clone())).copied();
            let of = |kind: &&str| reader.known.contains_key(&(db.clone(), (*kind).to_owned()));
            let nothing = !["created", "updated", "deleted"].iter().any(of);
            let gone = truth.deleted_since(db).is_some();
            assert!(
                received_seq == Some(latest.seq)
                    || (latest.optional && received_seq.is_none())
                    || (gone && nothing),
                "{db} {kind}: {}, but {received_seq:?} is known; gone: {gone}",
                latest.seq
            );
        }
    }
}

proptest! {
    #![proptest_config(crate::cases::one_case_in(16))]
    #[test]
    fn reader_resuming_anywhere_gets_the_latest_events(
        steps in steps(),
        days in 0..3_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let keep = Duration::from_secs(days * 40_000);
        runtime.block_on(check_readers(steps, keep));
    }
}
