use super::{
    answers::{encoded, failure},
    *,
};
use crate::{
    model::{
        records::{
            JobOwner, JobResult, Outcome, StateChange, StateStore as _, Suspension, SuspensionScope,
        },
        settings::work,
    },
    serve::report::{Events, Hours, Outcomes},
    store::journal::{ClusterIdentity, EventDetails, InMemory, Journal, JournalTask},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A journal in memory, and its task.
pub(super) fn opened() -> (JournalTask, Journal) {
    let settings = watch::channel(work::JournalRetention::default()).1;
    JournalTask::open(InMemory::default(), STOPPED, settings).unwrap()
}

/// A journal whose task runs as long as `tasks` exists.
pub(super) async fn journal(tasks: &mut JoinSet<()>) -> Journal {
    let (task, journal) = opened();
    tasks.spawn(task.run(CancellationToken::new()));
    let cluster =
        ClusterIdentity { nodes: ["couchdb@a".to_owned()].into(), ..ClusterIdentity::default() };
    journal.claim(cluster).await.unwrap();
    journal
}

fn outcome(number: u64) -> Outcome {
    Outcome {
        target: format!("db:couchdb@a/d{number}").parse().unwrap(),
        kind: crate::model::target::TargetKind::Db,
        node: "couchdb@a".into(),
        design: None,
        channel: Some("ratio_dbs".into()),
        owner: JobOwner::Recliner,
        ordered_by: None,
        started_at: Moment::from_unix(NOW.unix() + number),
        ended_after: None,
        charged_bytes: None,
        ended_at: Moment::from_unix(NOW.unix() + number + 60),
        before_bytes: Some(10 * MIB),
        after_bytes: Some(MIB),
        predicted_bytes: Some(2 * MIB),
        ending: if number.is_multiple_of(2) { JobResult::Freed } else { JobResult::Failed },
        why: None,
    }
}

/// A surface whose journal has four outcomes and a suspension.
pub(super) async fn surface(tasks: &mut JoinSet<()>) -> Surface {
    let mut surface = Surface::new();
    let journal = journal(tasks).await;
    for number in 0..4 {
        let change = StateChange::JobEnded { outcome: outcome(number), closes: None };
        journal.store(vec![change]).await.unwrap();
    }
    let suspension = Suspension { since: NOW, by: Some("ann".into()), why: Some("backup".into()) };
    journal.store(vec![StateChange::Suspend(SuspensionScope::All, suspension)]).await.unwrap();
    surface.state.journal = Some(journal);
    surface
}

fn outcome_numbers(page: &Outcomes) -> Vec<u64> {
    page.outcomes.iter().map(|outcome| outcome.seq).collect()
}

fn event_numbers(page: &Events) -> Vec<u64> {
    page.events.iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn pages_history_from_newest_to_oldest() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let first: Outcomes = surface.answer("/api/v1/history?limit=3").await;
    assert_eq!(outcome_numbers(&first), [7, 5, 3]);
    assert_eq!(first.next_before, Some(3));
    let rest: Outcomes = surface.answer("/api/v1/history?limit=3&before=3").await;
    assert_eq!((outcome_numbers(&rest), rest.next_before), (vec![1], None));
    // The JSON itself: unknown values are null.
    let rest = surface.data("/api/v1/history?limit=3&before=3").await;
    assert_eq!(
        rest["outcomes"][0],
        json!({
            "seq": 1, "target": "db:couchdb@a/d0", "kind": "db", "node": "couchdb@a",
            "ddoc": null, "channel": "ratio_dbs", "owner": "recliner", "ordered_by": null,
            "started_at": "2026-11-21T00:54:00Z", "ended_after": null, "ended_at": "2026-11-21T00:55:00Z",
            "duration_seconds": 60, "before_bytes": 10 * MIB, "after_bytes": MIB,
            "predicted_bytes": 2 * MIB, "freed_bytes": 9 * MIB, "estimate_ratio": 0.5,
            "result": "freed", "why": null,
        })
    );
    for (query, expected) in [
        ("result=failed", &[7, 3][..]),
        ("target=db:couchdb@a%2Fd2", &[5]),
        ("node=couchdb@b", &[]),
        ("since=2026-11-21T00:55:02Z", &[7, 5]),
        ("since=1795222503", &[7]),
    ] {
        let data: Outcomes = surface.answer(&format!("/api/v1/history?{query}")).await;
        assert_eq!(outcome_numbers(&data), expected, "{query}");
    }
}

#[tokio::test]
async fn sums_freed_and_written_bytes_by_hour() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let data: Hours = surface.answer("/api/v1/history/hours?since=2h").await;
    // The jobs ended in the current hour or, a minute later, in the next one.
    let sums = data.hours.iter().map(|hour| (hour.compactions, hour.freed_bytes));
    let sums: Vec<_> = sums.collect();
    assert_eq!((data.hours.len(), data.complete), (3, true));
    assert_eq!(data.hours[0].from, "2026-11-20T22:00:00Z");
    assert_eq!(sums, [(0, 0), (0, 0), (4, 36 * MIB)]);
    assert_eq!(data.hours[2].rewritten_bytes, 4 * MIB);
    // If not all jobs are counted, the list begins with the first complete hour.
    let late =
        |hour| Outcome { ended_at: Moment::from_unix(NOW.unix() - hour * 3_600), ..outcome(hour) };
    let jobs: Vec<_> = (0..4).map(|hour| (9 - hour, late(hour))).collect();
    let since = Moment::from_unix(NOW.unix() - 9 * 3_600);
    let some = Hours::of(&jobs, false, since, NOW);
    assert_eq!((some.hours.len(), some.complete), (3, false));
    assert!(some.hours.iter().all(|hour| hour.compactions == 1), "{some:?}");
    assert_eq!(Hours::of(&jobs, true, since, NOW).hours.len(), 10);
}

#[tokio::test]
async fn lists_events_in_order_and_filters_by_type() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let all: Events = surface.answer("/api/v1/events").await;
    assert_eq!((event_numbers(&all), all.last_seq), (vec![2, 4, 6, 8, 9], 9));
    // The JSON itself: a field without meaning for the type is absent.
    let all = surface.data("/api/v1/events").await;
    assert_eq!(
        all["events"][4],
        json!({
            "seq": 9, "at": "2026-11-21T00:54:00Z", "type": "suspended", "scope": "all",
            "by": "ann", "why": "backup",
        })
    );
    for (query, expected, more) in [
        ("limit=2", &[8, 9][..], false),
        ("since=2&limit=2", &[4, 6], true),
        ("since=9", &[], false),
        ("types=suspended,resumed", &[9], false),
    ] {
        let data: Events = surface.answer(&format!("/api/v1/events?{query}")).await;
        assert_eq!((event_numbers(&data), data.more), (expected.to_vec(), more));
    }
}

#[tokio::test]
async fn events_request_waits_for_the_first_event() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let journal = surface.state.journal.clone().unwrap();
    let write = |db: &str| journal.record_batch(vec![EventDetails::Updated { db: db.to_owned() }]);

    let waiting = surface.answer::<Events>("/api/v1/events?since=9&types=updated,resumed&wait=60s");
    let writing = async {
        // An event of another type ends no wait, and is skipped for good.
        journal.record_batch(vec![EventDetails::Deleted { db: "a".to_owned() }]);
        tokio::task::yield_now().await;
        write("a");
    };
    let (found, ()) = tokio::join!(waiting, writing);
    assert_eq!((event_numbers(&found), found.last_seq), (vec![11], 11));

    let since = tokio::time::Instant::now();
    for (query, expected, last) in [
        ("since=9&wait=60s", &[10, 11][..], 11),
        ("since=11&wait=10ms", &[], 11),
        // A number from another journal gets an immediate response, so that its reader notices.
        ("since=400&wait=60s", &[], 11),
    ] {
        let data: Events = surface.answer(&format!("/api/v1/events?{query}")).await;
        assert_eq!((event_numbers(&data), data.last_seq), (expected.to_vec(), last));
    }
    let waiting = surface.answer::<Events>("/api/v1/events?since=11&wait=60s");
    let (found, ()) = tokio::join!(waiting, async { surface.state.stop.cancel() });
    assert_eq!(event_numbers(&found), Vec::<u64>::new());
    assert!(since.elapsed() < Duration::from_secs(30), "a request waited for its full time");
}

#[tokio::test]
async fn waiting_requests_do_not_block_others() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let router = surface.router();
    for _ in 0..100 {
        let path = "/api/v1/events?since=9&wait=60s";
        let router = router.clone();
        tasks.spawn(async move {
            ask(router, Method::GET, path, &[]).await;
        });
    }
    tokio::task::yield_now().await;
    let answer = ask(router, Method::GET, "/api/v1/events?since=9", &[]).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn names_the_invalid_journal_parameter() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    for (path, named) in [
        (
            "history?result=fine",
            "result: \"fine\" is not one of freed, nothing_freed, grew, unmeasured, failed, lost",
        ),
        (
            "history?since=yesterday",
            "since=\"yesterday\" is not a valid time (try 2h or 2026-11-21T00:00:00Z)",
        ),
        ("history?limit=10001", "limit 10001"),
        ("history?offset=1", "offset"),
        ("events?types=started,x", "\"x\" is not one of queued, "),
        ("events?since=x", "since=\"x\" is not a valid time"),
        ("events?since=1&wait=61s", "wait=\"61s\" is not a duration from 0s to 60s"),
        ("events?since=1&wait=soon", "wait=\"soon\" is not a duration from 0s to 60s"),
        ("events?wait=30s", "wait needs since= with the number of the event to continue after"),
        ("events?since=1h&wait=30s", "wait needs since="),
    ] {
        let (status, failed) = failure(&surface, &format!("/api/v1/{path}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert!(failed.error.contains(named), "{path}: {failed:?}");
    }
    for path in ["history?target=ordrs", "events?target=ordrs"] {
        let (status, failed) = failure(&surface, &format!("/api/v1/{path}")).await;
        let says = "no database, view or shard matches \"ordrs\"; did you mean \"orders\"?";
        assert_eq!((status, failed.error.as_str()), (StatusCode::NOT_FOUND, says));
    }
}

#[tokio::test]
async fn history_and_events_accept_all_target_names_and_times() {
    let mut tasks = JoinSet::new();
    let surface = surface(&mut tasks).await;
    let journal = surface.state.journal.clone().unwrap();
    let shard = "db:couchdb@a/shards%2F00000000-7fffffff%2Forders.17";
    let view = format!("view:_cluster/orders.17/{}", "01".repeat(16));
    for (number, (target, design)) in
        [(shard, None), (&view, Some("_design/clients"))].into_iter().enumerate()
    {
        let outcome = Outcome {
            target: target.parse().unwrap(),
            design: design.map(Into::into),
            started_at: Moment::from_unix(NOW.unix() - 7_200),
            ended_after: None,
            ended_at: Moment::from_unix(NOW.unix() - 3_600 * (2 - number as u64)),
            ..outcome(0)
        };
        journal.store(vec![StateChange::JobEnded { outcome, closes: None }]).await.unwrap();
    }
    for (query, outcomes, events) in [
        ("target=orders", &[12, 10][..], &[11, 13][..]),
        ("target=shards/00000000-7fffffff/orders.17", &[10], &[11]),
        ("target=orders/_design/clients", &[12], &[13]),
        // Both design documents share one view.
        ("target=orders/_design/customers", &[12], &[13]),
        (&format!("target={}", encoded(shard)), &[10], &[11]),
        // An id as printed, pasted without another layer of encoding.
        (&format!("target={shard}"), &[10], &[11]),
        (&format!("target={view}"), &[12], &[13]),
        // Only the journal still knows this target.
        ("target=db:couchdb@a%2Fd2", &[5], &[6]),
        ("target=d2", &[5], &[6]),
    ] {
        let data: Outcomes = surface.answer(&format!("/api/v1/history?{query}")).await;
        assert_eq!(outcome_numbers(&data), outcomes, "{query}");
        let data: Events = surface.answer(&format!("/api/v1/events?{query}")).await;
        assert_eq!(event_numbers(&data), events, "{query}");
    }
    for (since, outcomes) in [
        ("90m", &[12, 7, 5, 3, 1][..]),
        ("2026-11-21", &[7, 5, 3, 1]),
        ("2026-11-20T23:00:00Z", &[12, 7, 5, 3, 1]),
        ("3d", &[12, 10, 7, 5, 3, 1]),
    ] {
        let data: Outcomes = surface.answer(&format!("/api/v1/history?since={since}")).await;
        assert_eq!(outcome_numbers(&data), outcomes, "{since}");
    }
    for (since, events) in [("1h", 7), ("2026-11-21T00:54:01Z", 0), ("9", 2)] {
        let data: Events = surface.answer(&format!("/api/v1/events?since={since}")).await;
        assert_eq!(data.events.len(), events, "{since}");
    }
}

#[tokio::test]
async fn missing_and_closed_journals_return_errors() {
    let surface = Surface::new();
    for path in ["/api/v1/history", "/api/v1/events"] {
        let (status, failed) = failure(&surface, path).await;
        assert_eq!((status, failed.error_type.as_ref()), (StatusCode::NOT_FOUND, "not_found"));
    }
    let mut tasks = JoinSet::new();
    let with = self::surface(&mut tasks).await;
    let metrics = with.get("/metrics").await;
    for line in ["recliner_journal_last_seq 9", "recliner_journal_dropped_total 0"] {
        assert!(metrics.text().lines().any(|it| it == line), "{}", metrics.text());
    }
    tasks.shutdown().await;
    let (status, failed) = failure(&with, "/api/v1/history").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(failed.error, "the journal is closed: recliner is stopping");
}

#[tokio::test]
async fn long_lists_are_complete_across_internal_pages() {
    let mut tasks = JoinSet::new();
    let mut surface = Surface::new();
    let journal = journal(&mut tasks).await;
    let mut changes: Vec<StateChange> = Vec::new();
    for number in 0..1_700 {
        changes.push(StateChange::JobEnded { outcome: outcome(number), closes: None });
    }
    journal.store(changes).await.unwrap();
    surface.state.journal = Some(journal);
    // Each outcome is reported by an event whose number is one higher.
    let outcomes: Vec<u64> = (0..1_700).rev().map(|number| 2 * number + 1).collect();
    let events: Vec<u64> = (0..1_700).map(|number| 2 * number + 2).collect();
    let all: Outcomes = surface.answer("/api/v1/history?limit=10000").await;
    assert_eq!((outcome_numbers(&all), all.next_before), (outcomes.clone(), None));
    for limit in [0, 1, 499, 500, 501, 1_000, 1_699, 1_700] {
        let part: Outcomes = surface.answer(&format!("/api/v1/history?limit={limit}")).await;
        assert_eq!(outcome_numbers(&part), outcomes[..limit], "{limit}");
        let next = outcomes[..limit].last().filter(|_| limit < 1_700);
        assert_eq!(part.next_before.as_ref(), next, "{limit}");
        let newest: Events = surface.answer(&format!("/api/v1/events?limit={limit}")).await;
        assert_eq!(event_numbers(&newest), events[1_700 - limit..], "{limit}");
        assert_eq!((newest.more, newest.last_seq), (false, 3_400));
        let behind: Events = surface.answer(&format!("/api/v1/events?since=2&limit={limit}")).await;
        assert_eq!(event_numbers(&behind), events[1..(1 + limit).min(1_700)], "{limit}");
        assert_eq!((behind.more, behind.limit), (limit < 1_699, limit));
    }
    let failed: Outcomes = surface.answer("/api/v1/history?limit=900&result=failed").await;
    assert_eq!(outcome_numbers(&failed).len(), 850);
    let none: Events = surface.answer("/api/v1/events?types=suspended&limit=1000").await;
    assert_eq!((none.events.len(), none.last_seq), (0, 3_400));
}
