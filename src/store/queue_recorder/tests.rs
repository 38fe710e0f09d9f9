use super::*;
use crate::{
    model::{channel::Channels, facts::Facts},
    plan::{Conditions, Queues, Rules},
    store::journal::{self, ClusterIdentity, EventsQuery, InMemory},
    table::{DbName, Draft},
};
use tokio::task::JoinSet;
use wall_clock::{Clock, Moment};

const NOW: Moment = Moment::from_unix(1_795_222_440);

/// A plan in advise mode with the given number of bloated shards on each node.
fn planned(nodes: usize, each: usize) -> Arc<Plan> {
    let mut draft = Draft::new(5);
    for at in 0..nodes * each {
        let node = draft.get_or_add_node(&format!("couchdb@{}", at / each));
        draft.update_node(node, |node| node.is_member = true);
        let db = draft.get_or_add_db(DbName { db: &format!("db{at:04}"), suffix: "" });
        let ix = draft.get_or_add_shard(node, db, None);
        // Too old to act on.
        let facts = Facts::read(100 << 20, 1 << 20, Moment::from_unix(7));
        draft.set_facts(ix, facts);
    }
    let mut queues = Queues::new(Arc::<Channels>::default());
    let snapshot = draft.publish(NOW);
    queues.apply_snapshot(&snapshot, NOW);
    let rules = Arc::new(Rules { fresh_for: Duration::from_secs(60), ..Rules::default() });
    Arc::new(queues.make_plan(&snapshot, &Conditions::default(), &rules, NOW))
}

#[tokio::test(start_paused = true)]
async fn queue_events_are_recorded_once_and_bounded() {
    let settings = watch::channel(journal::JournalSettings::default()).1;
    let clock = Clock::anchored(NOW);
    let (keeps, journal) =
        journal::JournalTask::open(InMemory::default(), clock, settings).unwrap();
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(keeps.run(stop.clone()));
    let nodes = ["couchdb@0".to_owned()].into();
    journal.claim(ClusterIdentity { nodes, ..ClusterIdentity::default() }).await.unwrap();
    let (plans, reader) = watch::channel(Arc::default());
    tasks.spawn(RecorderTask::new(clock, reader, journal.clone()).run(stop.clone()));

    let since = async |seq: u64| {
        let query = EventsQuery { after_seq: Some(seq), limit: 10_000, ..EventsQuery::default() };
        let page = journal.events(query).await.unwrap();
        page.entries.into_iter().map(|(_, event)| event.details).collect::<Vec<_>>()
    };
    let id = |db: &str| format!("db:couchdb@0/{db}").parse().unwrap();
    let channel = || "ratio_dbs".to_owned();
    plans.send_replace(planned(1, 1));
    // The plan does not change; persisting reasons are recorded anyway.
    time::sleep(COMPARE_INTERVAL + UNCHANGED_INTERVAL + COMPARE_INTERVAL).await;
    let summary = EventSummary::default;
    let refused = |summary| EventDetails::Refused {
        target: id("db0000"),
        channel: channel(),
        reason: "stale".to_owned(),
        summary,
    };
    let queued =
        |summary| EventDetails::Queued { target: id("db0000"), channel: channel(), summary };
    assert_eq!(since(0).await, [queued(summary()), refused(summary())]);

    // Changes of many targets of a queue are one entry.
    let seq = journal.health().borrow().last_seq;
    plans.send_replace(planned(1, 24));
    time::sleep(COMPARE_INTERVAL * 2).await;
    let written = since(seq).await;
    let [EventDetails::Queued { target, summary, .. }] = &written[..] else {
        panic!("{written:?}")
    };
    assert_eq!((target, summary.targets), (&id("db0001"), Some(23)));
    let named: Vec<_> = (2..24).map(|at| id(&format!("db{at:04}"))).collect();
    assert_eq!(summary.also, named);

    // Recurrences are recorded at the end of the hour with their count.
    let seq = journal.health().borrow().last_seq;
    for _ in 0..5 {
        for targets in [0, 1, 1, 1] {
            plans.send_replace(planned(1, targets));
            time::sleep(COMPARE_INTERVAL).await;
        }
    }
    time::sleep(Duration::from_secs(3600)).await;
    let written = since(seq).await;
    let again: Vec<_> = written
        .iter()
        .filter_map(|what| {
            let (EventDetails::Queued { target, summary, .. }
            | EventDetails::Refused { target, summary, .. }) = what
            else {
                return None;
            };
            Some((target.to_string(), what.event_type(), summary.count?, summary.last? > NOW))
        })
        .collect();
    let of = |kind| ("db:couchdb@0/db0000".to_owned(), kind, 5, true);
    assert_eq!(again[..2], [of(EventType::Queued), of(EventType::Refused)], "{written:?}");

    let seq = journal.health().borrow().last_seq;
    plans.send_replace(planned(5_000, 1));
    time::sleep(COMPARE_INTERVAL).await;
    let written = since(seq).await;
    assert_eq!(written.len(), EVENT_BURST + 1, "{written:?}");
    let more = EventDetails::Omitted { of: "queued".into(), targets: 4_999 - EVENT_BURST as u64 };
    assert_eq!(written.last(), Some(&more));
    stop.cancel();
}
