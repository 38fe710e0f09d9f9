use super::*;
use tokio::time::Instant;

/// The lines of a piece as JSON; an empty line gives null.
fn lines(piece: &str) -> Vec<Value> {
    let line = |line: &str| if line.is_empty() { Value::Null } else { line.parse().unwrap() };
    piece.lines().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn normal_feed_returns_latest_event_of_each_type() {
    let fixture = Fixture::with_defaults().await;
    let nothing = fixture.open("").await.rest().await;
    assert!(nothing.starts_with("{\"results\":[\n\n],\n\"last_seq\":\"0-"), "{nothing:?}");
    assert!(nothing.ends_with("\"}\n"), "{nothing:?}");
    let created = |db: &str| EventDetails::Created { db: db.into() };
    let deleted = |db: &str| EventDetails::Deleted { db: db.into() };
    fixture.record(vec![created("a"), updated("a"), created("b"), updated("a")]).await;
    fixture.record(vec![deleted("b"), created("b")]).await;
    let whole = fixture.open("").await.object().await;
    let expected = [(1, "created", "a"), (4, "updated", "a"), (5, "deleted", "b")];
    let mut expected: Vec<_> =
        expected.into_iter().map(|(seq, kind, db)| (seq, kind.into(), db.into())).collect();
    expected.push((6, "created".into(), "b".into()));
    assert_eq!((rows(&whole["results"]), number(&whole["last_seq"])), (expected.clone(), 6));

    let last = |seq: u64| whole["results"][usize::try_from(seq).unwrap()]["seq"].clone();
    let (first, second) = (last(0), last(1));
    for (query, from, to, seq) in [
        ("limit=0".to_owned(), 0, 0, 0),
        ("limit=2".to_owned(), 0, 2, 4),
        ("limit=4".to_owned(), 0, 4, 6),
        ("limit=5".to_owned(), 0, 4, 6),
        ("since=now".to_owned(), 0, 0, 6),
        (format!("since={}", first.as_str().unwrap()), 1, 4, 6),
        (format!("since=\"{}\"&limit=1", second.as_str().unwrap()), 2, 3, 5),
        (format!("since={}&limit=0", second.as_str().unwrap()), 0, 0, 4),
    ] {
        let part = fixture.open(&query).await.object().await;
        assert_eq!(rows(&part["results"]), expected[from..to], "{query}");
        assert_eq!(number(&part["last_seq"]), seq, "{query}");
    }
    expected.reverse();
    for (query, count, seq) in [
        ("descending=true", 4, 1),
        ("descending=true&limit=3", 3, 4),
        ("descending=true&limit=0", 0, 6),
        ("descending=true&since=now", 4, 1),
        ("feed=longpoll&descending=true", 4, 1),
    ] {
        let part = fixture.open(query).await.object().await;
        assert_eq!(rows(&part["results"]), expected[..count], "{query}");
        assert_eq!(number(&part["last_seq"]), seq, "{query}");
    }
    let reversed = fixture.open("feed=continuous&descending=true").await.rest().await;
    let reversed = lines(&reversed);
    assert_eq!(reversed.len(), 5);
    assert_eq!((number(&reversed[0]["seq"]), number(&reversed[4]["last_seq"])), (6, 1));
}

#[tokio::test(start_paused = true)]
async fn a_response_longer_than_a_page_is_complete() {
    let fixture = Fixture::with_defaults().await;
    let count = 2_500_u64;
    fixture.record((0..count).map(|number| updated(&format!("d{number}"))).collect()).await;
    let numbers = |list: &Value| rows(list).into_iter().map(|row| row.0).collect::<Vec<_>>();
    let whole = fixture.open("").await.object().await;
    assert_eq!(numbers(&whole["results"]), (1..=count).collect::<Vec<_>>());
    let whole = fixture.open("descending=true").await.object().await;
    assert_eq!(numbers(&whole["results"]), (1..=count).rev().collect::<Vec<_>>());
    let part = fixture.open("limit=1700&feed=longpoll").await.object().await;
    assert_eq!((rows(&part["results"]).len(), number(&part["last_seq"])), (1700, 1700));
    let text = fixture.open("feed=continuous&timeout=10").await.rest().await;
    assert_eq!(lines(&text).len(), 2_501);
}

#[tokio::test(start_paused = true)]
async fn longpoll_waits_for_the_first_event_or_its_timeout() {
    let fixture = Fixture::with_defaults().await;
    fixture.record(vec![updated("old")]).await;
    let begun = Instant::now();
    let nothing = fixture.open("feed=longpoll&since=now&timeout=500").await.object().await;
    assert_eq!((begun.elapsed(), nothing["results"].clone()), (millis(500), Value::Array(vec![])));
    assert_eq!(number(&nothing["last_seq"]), 1);

    let mut waits = fixture.open("feed=longpoll&since=now&heartbeat=400").await;
    assert_eq!(waits.piece().await.unwrap(), "{\"results\":[\n");
    for _ in 0..300 {
        let before = Instant::now();
        assert_eq!(waits.piece().await.unwrap(), "\n");
        assert_eq!(before.elapsed(), millis(400));
    }
    fixture.record_own_event().await;
    time::sleep(millis(300)).await;
    fixture.record(vec![updated("a"), updated("b")]).await;
    let text = "{\"results\":[\n".to_owned() + &waits.rest().await;
    let whole: Value = text.parse().unwrap();
    assert_eq!((rows(&whole["results"]).len(), number(&whole["last_seq"])), (2, 4));
    // Existing events are returned at once.
    let begun = Instant::now();
    let there = fixture.open("feed=longpoll&limit=1").await.object().await;
    assert_eq!((begun.elapsed(), rows(&there["results"]).len()), (millis(0), 1));
    let none = fixture.open("feed=longpoll&limit=0&since=now").await.object().await;
    assert_eq!((begun.elapsed(), number(&none["last_seq"])), (millis(0), 4));
}

#[tokio::test(start_paused = true)]
async fn continuous_feed_ends_when_silent_unless_it_has_heartbeats() {
    let fixture = Fixture::with_defaults().await;
    let mut quiet = fixture.open("feed=continuous&timeout=1000").await;
    let mut beats = fixture.open("feed=continuous&heartbeat=400&timeout=1000&limit=3").await;
    let begun = Instant::now();
    for round in 0..3_u64 {
        time::sleep(millis(700)).await;
        fixture.record(vec![updated("a")]).await;
        // Silence counts from the last event.
        let line = lines(&quiet.piece().await.unwrap());
        assert_eq!((line.len(), number(&line[0]["seq"])), (1, round + 1));
    }
    let end = lines(&quiet.rest().await);
    assert_eq!((end.len(), number(&end[0]["last_seq"])), (1, 3));
    assert!(begun.elapsed() >= millis(3100) && begun.elapsed() < millis(3500));
    // The other feed was not read in the meantime, and returns only the latest event.
    let all = lines(&beats.rest().await);
    let events: Vec<_> = all.iter().filter(|line| !line.is_null()).collect();
    assert_eq!(events.len(), 4, "{all:?}");
    assert_eq!(number(&events[3]["last_seq"]), 3);
}

#[tokio::test(start_paused = true)]
async fn an_event_source_stays_open_with_heartbeats_and_sends_its_position() {
    let fixture = Fixture::with_defaults().await;
    fixture.record(vec![updated("old")]).await;
    let mut source = fixture.open("feed=eventsource&since=now&heartbeat=400").await;
    let position = source.piece().await.unwrap();
    assert!(position.starts_with("id: \"1-") && position.ends_with("\"\n\n"), "{position:?}");
    for round in 2..20 {
        for _ in 0..5 {
            assert_eq!(source.piece().await.unwrap(), "event: heartbeat\ndata: \n\n");
        }
        fixture.record(vec![updated("a")]).await;
        let event = source.piece().await.unwrap();
        let (data, id) = event.split_once('\n').unwrap();
        let data: Value = data.strip_prefix("data: ").unwrap().parse().unwrap();
        assert_eq!(number(&data["seq"]), round);
        assert_eq!(id, format!("id: {}\n\n", data["seq"]));
    }
    let mut whole = fixture.open("feed=eventsource&timeout=10").await;
    assert_eq!(whole.rest().await.matches("data: ").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_all_feeds_in_a_valid_state() {
    let fixture = Fixture::with_defaults().await;
    fixture.record(vec![updated("a")]).await;
    let mut open = Vec::new();
    for (kind, end) in [
        ("continuous", "{\"last_seq\":\"1-"),
        ("longpoll", "{\"results\":[\n\n],\n\"last_seq\":\"1-"),
        ("eventsource", "id: \"1-"),
    ] {
        let query = format!("feed={kind}&since=now&heartbeat=true");
        open.push((fixture.open(&query).await, end));
    }
    assert_eq!(fixture.feed.subscribers(), 3);
    fixture.stop.cancel();
    let begun = Instant::now();
    for (reading, end) in &mut open {
        let rest = reading.rest().await;
        assert!(rest.starts_with(*end), "{rest:?}");
    }
    assert_eq!(begun.elapsed(), millis(0));
    drop(open);
    assert_eq!(fixture.feed.subscribers(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_waiting_readers_is_limited() {
    let fixture = Fixture::new(work::JournalRetention::default(), 2).await;
    let one = fixture.open("feed=continuous").await;
    let _two = fixture.open("feed=longpoll&since=now").await;
    let refused = fixture.try_open("feed=eventsource").await.err();
    assert_eq!(refused, Some(FeedOpenError::TooManyReaders(TooManyReaders(2))));
    // A feed that does not wait needs no slot.
    fixture.open("").await.object().await;
    drop(one);
    fixture.open("feed=eventsource&timeout=0").await.rest().await;
}

#[tokio::test(start_paused = true)]
async fn slow_reader_gets_fewer_events_but_always_the_latest() {
    let fixture = Fixture::with_defaults().await;
    let mut slow = fixture.open("feed=continuous&heartbeat=true").await;
    let mut quick = fixture.open("feed=continuous&heartbeat=true").await;
    let rounds = 100_u64;
    let mut lines_of_quick = 0;
    for _ in 0..rounds {
        fixture.record((0..50).map(|number| updated(&format!("d{number}"))).collect()).await;
        lines_of_quick += lines(&quick.piece().await.unwrap()).len();
    }
    assert_eq!(lines_of_quick, 5_000);
    let mut lines_of_slow = Vec::new();
    while lines_of_slow.last().is_none_or(|line: &Value| number(&line["seq"]) < 50 * rounds) {
        lines_of_slow.extend(lines(&slow.piece().await.unwrap()));
    }
    // At most one event per database from the table, plus the chunks shared at the time.
    assert!(lines_of_slow.len() <= 50 + 16 * 50, "{}", lines_of_slow.len());
    let last: Vec<u64> = lines_of_slow.iter().rev().take(50).map(|it| number(&it["seq"])).collect();
    assert_eq!(last, (4_951..=5_000).rev().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn unknown_sequence_restarts_feed_and_reports_reset() {
    let fixture = Fixture::with_defaults().await;
    fixture.record(vec![updated("a"), updated("b")]).await;
    let era =
        fixture.open("limit=1").await.object().await["last_seq"].as_str().unwrap()[2..].to_owned();
    for (since, reset, count) in [
        (format!("1-{era}"), None, 1),
        (format!("2-{era}"), None, 0),
        // Beyond the newest number: from a later lifetime of this file, or made up.
        (format!("3-{era}"), Some(ResetReason::UnknownSequence), 2),
        ("1-0123456789abcdef".to_owned(), Some(ResetReason::UnknownSequence), 2),
        ("0-0123456789abcdef".to_owned(), None, 2),
        ("9-g1AAAACReJzLYWBgYMpgTmGQTM4vTc5ISdJNS01NKUpNczA0MtczAELDHJCSRIak-v___2dlMCey5QIF2M0tDIwtzM3waSTC2DwWIMnQAKT-g0xPZMgCAE2aKPQ".to_owned(), Some(ResetReason::UnknownSequence), 2),
        ("0".to_owned(), None, 2),
    ] {
        for kind in ["normal", "longpoll&timeout=0", "continuous&timeout=0"] {
            let mut reading = fixture.open(&format!("since={since}&feed={kind}")).await;
            assert_eq!(reading.reset, reset, "{since} {kind}");
            let text = reading.rest().await;
            assert_eq!(text.matches("db_name").count(), count, "{since} {kind}: {text}");
        }
    }
}
