use super::*;
use crate::{
    channel::Channels,
    clock::{Clock, Moment},
    facts::{Facts, Known, Measured, Source},
    journal::{self, EventsQuery, Identity, InMemory},
    plan::{Conditions, Queues, Rules},
    snapshot::{DbName, Draft},
};
use tokio::task::JoinSet;

const NOW: Moment = Moment::from_unix(1_795_222_440);

/// A plan that advises, for so many bloated shards.
fn planned(targets: usize) -> Arc<Plan> {
    let mut draft = Draft::new(5);
    let node = draft.node("couchdb@a");
    draft.change_node(node, |node| node.member = true);
    for at in 0..targets {
        let db = draft.db(DbName { db: &format!("db{at:04}"), suffix: "" });
        let ix = draft.db_target(node, db, None);
        let facts = Facts {
            file: Known::new(100 << 20),
            active: Known::new(1 << 20),
            // Too old to act upon.
            measured_at: Some(Measured { at: Moment::from_unix(7), by: Source::Http }),
            ..Facts::default()
        };
        draft.set_facts(ix, facts);
    }
    let mut queues = Queues::new(Arc::<Channels>::default());
    let snapshot = draft.publish(NOW);
    queues.follow(&snapshot, NOW);
    let rules = Arc::new(Rules { fresh_for: Duration::from_secs(60), ..Rules::default() });
    Arc::new(queues.publish(&snapshot, &Conditions::default(), &rules, NOW))
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_written_down_once_and_never_too_much_of_it() {
    let settings = watch::channel(journal::Settings::default()).1;
    let (keeps, journal) = journal::Task::open(InMemory, Clock::anchored(NOW), settings).unwrap();
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(keeps.run(stop.clone()));
    let nodes = ["couchdb@a".to_owned()].into();
    journal.claim(Identity { nodes, ..Identity::default() }).await.unwrap();
    let (plans, reader) = watch::channel(Arc::default());
    tasks.spawn(Task::new(reader, journal.clone()).run(stop.clone()));

    let since = async |seq: u64| {
        let query = EventsQuery { since: Some(seq), limit: 10_000, ..EventsQuery::default() };
        let page = journal.events(query).await.unwrap();
        page.entries.into_iter().map(|(_, event)| event.what).collect::<Vec<_>>()
    };
    let id = |db: &str| format!("db:couchdb@a/{db}").parse().unwrap();
    let channel = || "ratio_dbs".to_owned();
    for _ in 0..4 {
        plans.send_replace(planned(1));
        time::sleep(LOOK).await;
    }
    let reason = "stale".to_owned();
    let expected = [
        What::Queued { target: id("db0000"), channel: channel() },
        What::Refused { target: id("db0000"), channel: channel(), reason },
    ];
    assert_eq!(since(0).await, expected);

    let seq = journal.health().borrow().last_seq;
    plans.send_replace(planned(5_000));
    time::sleep(LOOK).await;
    let told = since(seq).await;
    assert_eq!(told.len(), BURST + 1, "{told:?}");
    let more = What::Omitted { of: "queued".into(), targets: 4_999 - BURST as u64 };
    assert_eq!(told.last(), Some(&more));
    stop.cancel();
}
