use super::*;
use couchdb_client::wire::DbChange;
use proptest::prelude::*;

fn update(db: &str, number: u64) -> UpdateLine {
    UpdateLine::Update {
        db: db.to_owned(),
        change: Some(DbChange::Updated),
        seq: format!("{number}-x"),
    }
}

impl UpdatesFeed {
    fn receive(&mut self, lines: Vec<UpdateLine>) -> Vec<FeedEvent> {
        self.apply_lines(lines, Moment::from_unix(200))
    }
}

fn names(events: &[FeedEvent]) -> Vec<&str> {
    events.iter().map(|event| &*event.db).collect()
}

/// A feed listening after the given number.
fn listening(number: u64) -> UpdatesFeed {
    let mut state = UpdatesFeed::new();
    state.start((format!("{number}-x"), None), None, Moment::from_unix(100));
    assert_eq!(state.step, UpdatesStep::Open(format!("{number}-x")));
    state.mark_open();
    state
}

#[tokio::test(start_paused = true)]
async fn feed_starts_from_now_and_resumes_at_last_position() {
    let mut state = listening(5);
    assert_eq!(state.state().followed_since, Some(Moment::from_unix(101)));
    assert!(state.state().connected, "nothing can be missed");
    let events = state.receive(vec![update("a", 6), update("b", 7), update("b", 7)]);
    assert_eq!(names(&events), ["a", "b"], "a repeated line is one event");
    state.handle_end();
    assert!(matches!(state.step, UpdatesStep::Pause(_)) && !state.state().connected);
    state.end_pause();
    assert_eq!(state.step, UpdatesStep::Open("7-x".to_owned()));
    state.mark_open();
    assert_eq!(names(&state.receive(vec![update("a", 9)])), ["a"]);
    assert!(!state.state().connected, "more missed rows may follow");
    assert_eq!(state.state().followed_since, Some(Moment::from_unix(101)), "nothing was missed");
    assert!(state.receive(vec![UpdateLine::Heartbeat]).is_empty());
    assert!(state.state().connected);
}

#[tokio::test(start_paused = true)]
async fn feed_counts_as_connected_once_missed_rows_are_received() {
    let stored = |seq: &str| {
        Some(FeedPosition { seq: seq.to_owned(), created_at: None, at: Moment::from_unix(90) })
    };
    let mut state = UpdatesFeed::new();
    state.start(("7-x".to_owned(), None), stored("5-x"), Moment::from_unix(100));
    assert_eq!(state.step, UpdatesStep::Open("5-x".to_owned()));
    state.mark_open();
    assert_eq!(names(&state.receive(vec![update("a", 6)])), ["a"]);
    assert!(state.missed_until.is_some() && !state.state().connected);
    assert_eq!(state.state().followed_since, None);
    // An interruption in between loses nothing.
    state.handle_end();
    state.end_pause();
    assert_eq!(state.step, UpdatesStep::Open("6-x".to_owned()));
    state.mark_open();
    assert_eq!(names(&state.receive(vec![update("b", 7), update("c", 8)])), ["b", "c"]);
    assert!(state.missed_until.is_none() && state.state().connected);
    assert_eq!(state.state().followed_since, Some(Moment::from_unix(201)));

    // If all missed rows were already received, a heartbeat ends the catch-up.
    let mut state = UpdatesFeed::new();
    state.start(("7-x".to_owned(), None), stored("5-x"), Moment::from_unix(100));
    state.mark_open();
    assert!(state.receive(vec![UpdateLine::Heartbeat]).is_empty());
    assert_eq!(state.state().followed_since, Some(Moment::from_unix(201)));

    // CouchDB rejects the position: the feed starts from now, and the position is forgotten.
    for refused in [true, false] {
        let mut state = UpdatesFeed::new();
        state.start(("7-x".to_owned(), None), stored("5-x"), Moment::from_unix(100));
        if refused {
            state.record_failure(FeedFailure::BadSequence, "400".into());
        } else {
            state.mark_open();
            assert_eq!(names(&state.receive((1..8).map(|at| update("a", at)).collect())), [""; 0]);
        }
        state.end_pause();
        assert_eq!((state.step.clone(), state.missed_until), (UpdatesStep::Begin, None));
    }
}

#[tokio::test(start_paused = true)]
async fn rewound_feed_restarts_without_reporting_replayed_rows() {
    for behind in [1, 5] {
        let mut state = listening(5);
        let replay: Vec<UpdateLine> = (behind..100).map(|at| update("a", at)).collect();
        let replay = if behind == 5 {
            // The last number with a different suffix belongs to another feed.
            vec![UpdateLine::Update { db: "a".into(), change: None, seq: "5-y".into() }]
        } else {
            replay
        };
        assert_eq!(names(&state.receive(replay)), Vec::<&str>::new());
        assert_eq!((state.report.rewinds, state.report.followed_since), (1, None));
        state.end_pause();
        assert_eq!(state.step, UpdatesStep::Begin);
    }
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_failure_is_retried_appropriately() {
    let rest = |state: &UpdatesFeed| match state.step {
        UpdatesStep::Pause(pause) => pause,
        UpdatesStep::Begin | UpdatesStep::Open(_) | UpdatesStep::Listen => Duration::ZERO,
    };
    let mut state = listening(5);
    state.record_failure(FeedFailure::Absent, "404".into());
    assert!(rest(&state) >= Duration::from_secs(60) && state.state().absent);
    state.end_pause();
    assert_eq!(state.step, UpdatesStep::Begin, "another feed may replace it");

    let mut state = listening(5);
    state.record_failure(FeedFailure::Refused, "401".into());
    assert!(rest(&state) >= Duration::from_secs(300));

    let mut state = listening(5);
    for _ in 0..MAX_FAILURES_AT_POSITION - 1 {
        state.record_failure(FeedFailure::Malformed, "?".into());
        state.end_pause();
        assert_eq!(state.step, UpdatesStep::Open("5-x".to_owned()));
    }
    state.record_failure(FeedFailure::Malformed, "?".into());
    state.end_pause();
    assert_eq!(state.step, UpdatesStep::Begin, "the feed cannot get past a malformed line");

    let mut state = listening(5);
    state.record_failure(FeedFailure::BadSequence, "400".into());
    state.end_pause();
    assert_eq!(state.step, UpdatesStep::Begin);

    let mut state = listening(5);
    let pauses: Vec<Duration> = (0..20)
        .map(|_| {
            state.record_failure(FeedFailure::Broken, "gone".into());
            rest(&state)
        })
        .collect();
    assert!(pauses.iter().all(|it| *it <= Duration::from_secs(60)), "{pauses:?}");
    assert!(pauses[19] >= Duration::from_secs(30), "{pauses:?}");
}

proptest! {
    #[test]
    fn no_event_is_reported_twice_whatever_arrives(
        numbers in proptest::collection::vec(0_u64..40, 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let reported: Vec<u64> = runtime.unwrap().block_on(async {
            let mut state = listening(0);
            let mut reported = Vec::new();
            for at in numbers {
                let events = state.receive(vec![update(&at.to_string(), at)]);
                reported.extend(events.iter().map(|event| event.db.parse::<u64>().unwrap()));
                if state.report.rewinds > 0 {
                    break;
                }
            }
            reported
        });
        prop_assert!(reported.is_sorted_by(|one, other| one < other), "{:?}", reported);
    }
}

#[test]
fn each_result_determines_the_next_step_and_reported_events() {
    let now = Moment::from_unix(200);
    let mut feed = UpdatesFeed::new();
    let mut handle = |result: UpdatesResult| {
        let (events, is_missed, state) = match feed.handle(result, now) {
            FeedStep::Updates(events, state) => (events, false, state),
            FeedStep::MissedUpdates(events, state) => (events, true, state),
            FeedStep::MapChanges(..) => panic!("the map feed is a different feed"),
        };
        (feed.step.clone(), names(&events).concat(), is_missed, state.connected)
    };
    let current = |seq: &str, stored: Option<&str>| UpdatesResult::CurrentSeq {
        seq: seq.to_owned(),
        created_at: Some("1".to_owned()),
        stored: stored.map(|seq| FeedPosition { seq: seq.to_owned(), created_at: None, at: now }),
    };
    let open = |seq: &str| UpdatesStep::Open(seq.to_owned());
    let none = String::new;
    assert_eq!(handle(current("7-x", Some("5-x"))), (open("5-x"), none(), false, false));
    assert_eq!(handle(UpdatesResult::Opened), (UpdatesStep::Listen, none(), true, false));
    let lines = |lines| UpdatesResult::Lines(lines, FeedLag::None);
    let (step, events, is_missed, _) = handle(lines(vec![update("a", 6)]));
    assert_eq!((step, events.as_str(), is_missed), (UpdatesStep::Listen, "a", true));
    // The lines with the last missed row still count as missed; the next ones do not.
    let (_, events, is_missed, connected) = handle(lines(vec![update("b", 7), update("c", 8)]));
    assert_eq!((events.as_str(), is_missed, connected), ("bc", true, true));
    let (_, events, is_missed, _) = handle(lines(vec![update("d", 9)]));
    assert_eq!((events.as_str(), is_missed), ("d", false));

    let (.., connected) = handle(UpdatesResult::Lines(vec![update("e", 10)], FeedLag::Late));
    assert!(!connected, "other databases may have changed while rows are late");
    let (.., connected) = handle(lines(vec![UpdateLine::Heartbeat]));
    assert!(connected);

    let (step, ..) = handle(UpdatesResult::Ended);
    assert!(matches!(step, UpdatesStep::Pause(_)), "{step:?}");
    let same = UpdatesResult::Paused { created_at: Some("1".to_owned()) };
    assert_eq!(handle(same).0, open("10-x"));
    // Another database is behind the feed: it starts from now, after another pause.
    handle(UpdatesResult::Ended);
    let other = UpdatesResult::Paused { created_at: Some("2".to_owned()) };
    let (step, ..) = handle(other);
    assert!(matches!(step, UpdatesStep::Pause(_)), "{step:?}");
    assert_eq!(handle(UpdatesResult::Paused { created_at: None }).0, UpdatesStep::Begin);
    assert_eq!(handle(current("3-y", None)), (open("3-y"), none(), false, false));
}

#[tokio::test(start_paused = true)]
async fn reads_at_a_limited_rate_whatever_the_name_length() {
    for name in ["n", &"n".repeat(4_000)] {
        let (begun, mut pace, mut lines, mut late) =
            (Instant::now(), FeedPace(Instant::now()), 0, 0);
        while begun.elapsed() < Duration::from_secs(60) {
            late += u64::from(pace.wait().await == FeedLag::Late);
            pace.count(&vec![update(name, lines); 100]);
            lines += 100;
        }
        let bytes = lines * (ROW_BYTES + name.len() + "100000-x".len()) as u64;
        assert!((60 << 20..=70 << 20).contains(&bytes), "{bytes} bytes in a minute");
        assert!(late > 0);
        time::sleep(Duration::from_secs(10)).await;
        assert_eq!(pace.wait().await, FeedLag::None, "after a pause there is room again");
    }
}
