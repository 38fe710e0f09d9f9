//! Notifications and commands that arrive at the same moment.

use super::*;
use crate::{
    jobs::{NodePoll, RunningTask as Shown},
    model::{
        facts::{FactSource as Measurer, Facts, Measurement, OptionalU64},
        records::{InMemoryStore, JobResult},
        settings::ServedNodes,
        share::Share,
    },
    sources::inventory::{ActiveTask, SilentSource, Source, TaskKind},
    table::{DbName, Draft, NodeIx, ShardMapEntry, TargetIx, View},
};
use couchdb_names::{Range, Signature};
use std::collections::BTreeMap;
use tokio::task::JoinSet;
use wall_clock::Moment;

const NODE: &str = "couchdb@a";
const SHARD: &str = "shards/00000000-ffffffff/orders.1";

/// A node with one database, and a job state task that receives everything from the test.
struct Fixture {
    draft: Draft,
    node: NodeIx,
    db: TargetIx,
    snapshots: watch::Sender<Arc<Snapshot>>,
    running: watch::Sender<Arc<Running>>,
    shared: watch::Sender<Option<Granted>>,
    follower: JobStateHandle,
    clock: Clock,
    _open: (scan::ScanTask, watch::Sender<Arc<JobStateSettings>>, JoinSet<()>),
}

/// A store that can report a failure without an attempt to write.
#[derive(Debug, Default)]
struct FullStore(InMemoryStore, std::sync::atomic::AtomicBool);

impl FullStore {
    fn fill(&self, full: bool) {
        self.1.store(full, std::sync::atomic::Ordering::Relaxed);
    }
}

impl StateStore for FullStore {
    fn store(
        &self,
        changes: Vec<crate::model::records::StateChange>,
    ) -> futures::future::BoxFuture<'static, Result<(), StoreError>> {
        self.0.store(changes)
    }

    fn failure(&self) -> Option<(Moment, JournalFailure)> {
        let full = self.1.load(std::sync::atomic::Ordering::Relaxed);
        let why = JournalFailure::NotWritable("the disk is full".to_owned());
        full.then_some((Moment::from_unix(1_007), why))
    }
}

impl Fixture {
    fn new() -> Self {
        Self::with_store(Arc::new(InMemoryStore::default()))
    }

    fn with_store(keeper: Arc<dyn StateStore>) -> Self {
        Self::with_state(keeper, RecoveredState::default())
    }

    fn with_state(keeper: Arc<dyn StateStore>, recovered: RecoveredState) -> Self {
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let mut draft = Draft::new(5);
        let node = draft.get_or_add_node(NODE);
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
        let db = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
        let (snapshots, snapshots_rx) = watch::channel(draft.publish(clock.now()));
        let (running, running_rx) = watch::channel(Arc::default());
        let source = watch::channel(Arc::new(SilentSource) as Arc<dyn Source>).1;
        let asks = watch::channel(Arc::new(scan::ScanSettings {
            interval: TICK_INTERVAL,
            interval_followed: TICK_INTERVAL,
            reread_after: TICK_INTERVAL,
            poll: TICK_INTERVAL,
            nodes: ServedNodes::default(),
            views: false,
            parts: false,
            top: 0,
        }));
        let (scanner, mut told) = scan::ScanTask::new(clock, source, asks.1);
        (told.snapshots, told.running) = (snapshots_rx, running_rx);
        let (settings, settings_rx) = watch::channel(Arc::new(JobStateSettings {
            failure: FailureSettings::default(),
            headroom_factor: 2.0,
            channels: Arc::default(),
            acting: true,
        }));
        let (task, follower) = JobStateTask::new(clock, told, settings_rx, keeper);
        let (shared, shared_rx) = watch::channel(None);
        let task = task.bounded_by(shared_rx);
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(Recovery::from(recovered), CancellationToken::new()));
        let open = (scanner, settings, tasks);
        Self { draft, node, db, snapshots, running, shared, follower, clock, _open: open }
    }

    /// Publishes fresh facts of the database, whose last compaction was at `compacted_seq`.
    fn publish_facts(&mut self, compacted_seq: u64) {
        let now = self.clock.now();
        let facts = Facts {
            update_seq: OptionalU64::new(50),
            compacted_seq: OptionalU64::new(compacted_seq),
            measured_at: Some(Measurement { at: now, source: Measurer::Http }),
            ..Facts::sized(900, 100)
        };
        self.draft.set_facts(self.db, facts);
        self.snapshots.send_replace(self.draft.publish(now));
    }

    /// Publishes a poll in which the node shows this many compactions of the database.
    async fn publish_tasks(&mut self, count: usize) {
        let seen = ActiveTask::bare(TaskKind::Compacts, SHARD.into());
        self.publish(vec![Shown::new(self.node, Some(self.db), seen); count]).await;
    }

    /// Publishes a poll in which the node shows these tasks.
    async fn publish(&mut self, tasks: Vec<Shown>) {
        let polled = NodePoll { asked_at: self.clock.now(), tasks: Some(tasks) };
        let polls = self.running.borrow().poll_count + 1;
        let running = Running { poll_count: polls, nodes: [(self.node, polled)].into() };
        self.running.send_replace(Arc::new(running));
        let polled =
            |jobs: &Arc<Jobs>| jobs.polled_nodes.iter().any(|(_, at)| *at == self.clock.now());
        let reaction = time::timeout(TICK_INTERVAL, self.follower.jobs.wait_for(polled));
        reaction.await.expect("the task reacts within a tick").expect("the task runs");
    }
}

impl Fixture {
    fn intent(&self) -> Intent {
        let target = self.draft.current().target(self.db).expect("it exists");
        Intent {
            target: target.id(),
            node: NODE.into(),
            shard: Some(SHARD.into()),
            design: None,
            channel: "ratio_dbs".into(),
            ordered_by: None,
            run: None,
            at: self.clock.now(),
            file_bytes: Some(900),
            active_bytes: Some(100),
            update_seq: Some(50),
            compacted_seq: Some(10),
            predicted_bytes: Some(100),
            fitted_bytes: None,
            peak_bytes: 0,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failing_journal_is_reported_before_any_start() {
    let store = Arc::new(FullStore::default());
    let mut site = Fixture::with_store(Arc::<FullStore>::clone(&store));
    site.publish_facts(10);
    for full in [false, true, false] {
        store.fill(full);
        time::sleep(TICK_INTERVAL * 2).await;
        let failure = site.follower.constraints.borrow().journal_failure.clone();
        let since = full.then_some(Moment::from_unix(1_007));
        assert_eq!(failure.map(|(since, _)| since), since);
    }
}

#[tokio::test(start_paused = true)]
async fn start_is_checked_by_target_id_not_plan_position() {
    let mut site = Fixture::new();
    site.publish_facts(10);
    let (intent, now) = (site.intent(), site.clock.now());
    let until = now.plus(Duration::from_secs(600));
    let ordered = CompactionOrder { at: now, until, by: "ann".into(), force: true, run: None };
    let follower = site.follower.clone();

    // When the plan was made, another target with an order had this position.
    let refused = follower.accept_start(intent.clone(), Some(ordered.clone())).await;
    assert_eq!(refused, Err(NotStarted::OrderGone));
    follower.order(intent.target.clone(), ordered.clone()).await.expect("it is stored");
    let started = follower.accept_start(intent.clone(), Some(ordered.clone())).await;
    assert_eq!(started, Ok(1), "by its own order");
    follower.report_result(intent.key(), RequestResult::Refused("HTTP 500".into())).await;

    // The start failed. A plan that does not know this yet starts nothing, and the old order no
    // longer applies.
    let refused = follower.accept_start(intent.clone(), None).await;
    assert_eq!(refused, Err(NotStarted::BackingOff("is paused after its last job")));
    let refused = follower.accept_start(intent, Some(ordered)).await;
    assert_eq!(refused, Err(NotStarted::OrderGone), "the order was already used");
}

const fn share(jobs: usize, bytes_per_hour: u64) -> Share {
    Share { jobs, bytes_per_hour }
}

#[tokio::test(start_paused = true)]
async fn start_beyond_the_granted_share_is_refused() {
    for (allowed, starts) in [
        (None, true),
        (Some(share(0, 900)), false),
        (Some(share(1, 899)), false),
        (Some(share(1, 900)), true),
    ] {
        let mut site = Fixture::new();
        site.publish_facts(10);
        site.shared.send_replace(allowed.map(Granted::stored));
        let started = site.follower.accept_start(site.intent(), None).await;
        assert_eq!(started.is_ok(), starts, "{allowed:?}: {started:?}");
        assert_eq!(matches!(started, Err(NotStarted::SharedLimits(_))), !starts);
        let used = if starts { share(1, 900) } else { Share::NONE };
        let found = site.follower.shared_use().await;
        assert_eq!(found, Some(SharedUse { used, is_lower_bound: false }), "{allowed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shared_limits_allow_no_start_until_running_jobs_are_known() {
    let (node, shard) = ("couchdb@gone", "shards/00000000-ffffffff/users.1");
    let target = format!("db:{node}/{}", shard.replace('/', "%2F")).parse().expect("it is an id");
    let other =
        Intent { target, node: node.into(), shard: Some(shard.into()), ..Fixture::new().intent() };
    let recovered = RecoveredState { intents: vec![other], ..RecoveredState::default() };
    let mut site = Fixture::with_state(Arc::new(InMemoryStore::default()), recovered);
    site.publish_facts(10);
    let found = site.follower.shared_use().await;
    assert!(found.is_some_and(|found| found.is_lower_bound), "{found:?}");
    site.shared.send_replace(Some(Granted::stored(Share::ALL)));
    let started = site.follower.accept_start(site.intent(), None).await;
    assert!(matches!(started, Err(NotStarted::SharedLimits(_))), "{started:?}");
    site.shared.send_replace(None);
    let started = site.follower.accept_start(site.intent(), None).await;
    assert!(started.is_ok(), "limits of its own need no more than is known: {started:?}");
}

#[tokio::test(start_paused = true)]
async fn facts_arriving_with_a_command_end_a_job_at_once() {
    let mut site = Fixture::new();
    site.publish_facts(10);
    site.publish_tasks(1).await;
    time::sleep(Duration::from_secs(5)).await;
    site.publish_tasks(0).await;
    assert_eq!(site.follower.jobs.borrow().list.len(), 1, "the file will show how it ended");

    site.publish_facts(50);
    site.follower.suspend(SuspensionScope::All, None, None).await.unwrap();
    let ended = site.follower.jobs.wait_for(|jobs| jobs.list.is_empty());
    let ended = time::timeout(Duration::from_millis(1), ended).await;
    assert!(ended.is_ok_and(|jobs| jobs.is_ok()), "it must not wait for the next tick");
}

#[tokio::test(start_paused = true)]
async fn does_not_wait_for_view_copies_that_others_compacted() {
    let mut site = Fixture::new();
    let db = site.draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
    site.draft.set_shard_map(db, ShardMapEntry { copies: 3, ranges: 1 }, &[]);
    let design = "_design/by_day";
    let view = View {
        signature: Signature([1; 16]),
        designs: [Arc::from(design)].into(),
        ..View::default()
    };
    let view = site.draft.add_view(db, view);
    site.publish_facts(10);
    let seen = ActiveTask::bare(TaskKind::CompactsView(design.into()), SHARD.into());
    site.publish(vec![Shown::new(site.node, Some(view), seen)]).await;
    time::sleep(Duration::from_secs(5)).await;
    site.publish(vec![]).await;
    let jobs = site.follower.jobs.wait_for(|jobs| jobs.list.is_empty());
    time::timeout(10 * TICK_INTERVAL, jobs).await.expect("it ends").expect("it runs");
    let waited_for = site.follower.constraints.borrow().partly_compacted_views.clone();
    assert_eq!(waited_for, BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn busy_period_lasts_from_start_until_poll_without_jobs() {
    let mut site = Fixture::new();
    site.publish_facts(10);
    let period =
        |site: &Fixture| site.follower.constraints.borrow().busy_periods.get(&site.node).cloned();
    site.publish_tasks(1).await;
    assert_eq!(period(&site), None, "jobs of others begin no busy period");
    site.publish_tasks(0).await;
    site.publish_facts(50);
    let over = time::timeout(TICK_INTERVAL, site.follower.jobs.wait_for(|it| it.list.is_empty()));
    over.await.expect("it ends").expect("it runs");

    time::sleep(Duration::from_secs(5)).await;
    // That job freed nothing, so the target counts as futile until it is released.
    site.follower.release(None).await.expect("it is kept");
    let (intent, began) = (site.intent(), site.clock.now());
    site.publish_facts(50);
    site.follower.accept_start(intent.clone(), None).await.expect("it may start");
    site.follower.report_result(intent.key(), RequestResult::Accepted).await;
    time::sleep(Duration::from_secs(5)).await;
    site.publish_tasks(1).await;
    let runs = period(&site).expect("it has begun");
    assert_eq!((runs.since, runs.first_ended_at, runs.ended_at), (began, None, None));
    time::sleep(Duration::from_secs(5)).await;
    site.publish_tasks(0).await;
    let now = Some(site.clock.now());
    let over = period(&site).expect("it is remembered");
    assert_eq!((over.since, over.first_ended_at, over.ended_at), (began, now, now));
    assert_eq!(site.follower.jobs.borrow().list.len(), 1, "the outcome is not known yet");
}

#[test]
fn setting_the_clock_does_not_affect_busy_periods_and_rests() {
    let at = Moment::from_unix;
    let runtime = tokio::runtime::Builder::new_current_thread().start_paused(true).build();
    let site = runtime.unwrap().block_on(async { Fixture::new() });
    let tables = site.draft.current();
    for set_to in [90_000, 500] {
        let mut state = JobState::new(RecoveredState::default(), at(1_000));
        state.detect_clock_change(at(1_000));
        let intent = Intent { at: at(1_000), ..site.intent() };
        let key = intent.key();
        state.accept_start(intent, tables, at(1_000)).expect("it may start");
        let look = |state: &mut JobState, now: u64| {
            state.detect_clock_change(at(now));
            let mut constraints = state.constraints(tables, None, at(now));
            constraints.busy_periods.remove(&site.node).expect("there is one")
        };
        look(&mut state, 1_000);
        look(&mut state, 1_040);
        let runs = look(&mut state, set_to);
        assert_eq!((runs.length(at(set_to)).as_secs(), runs.ended_at), (40, None));
        look(&mut state, set_to + 20);
        let settings = JobStateSettings {
            failure: FailureSettings::default(),
            headroom_factor: 2.0,
            channels: Arc::default(),
            acting: true,
        };
        let refused = RequestResult::Refused("HTTP 500".into());
        state.apply_request_result(&key, refused, tables, &settings, at(set_to + 20));
        let rests = look(&mut state, set_to + 20);
        assert_eq!(rests.ended_at, Some(at(set_to + 20)));
        assert_eq!(rests.length(at(set_to)).as_secs(), 60);
        look(&mut state, set_to + 30);
        let rests = look(&mut state, 200_000);
        assert_eq!(rests.ended_at, Some(at(200_000 - 10)), "ten seconds of the rest are over");
        assert_eq!(rests.length(at(200_000)).as_secs(), 60);
    }
}

/// What the journal keeps of a start of 900 bytes at time 1000, after the events in `then`.
fn journal_after(
    site: &Fixture,
    then: impl FnOnce(&mut JobState, &IntentKey, &JobStateSettings) -> Effects,
) -> RecoveredState {
    let at = Moment::from_unix;
    let mut state = JobState::new(RecoveredState::default(), at(1_000));
    let intent = Intent { at: at(1_000), ..site.intent() };
    let key = intent.key();
    let started = state.accept_start(intent, site.draft.current(), at(1_000)).expect("it starts");
    let settings = site._open.1.borrow().clone();
    let ended = then(&mut state, &key, &settings);
    let mut journal = RecoveredState::default();
    started.into_iter().chain(ended.changes).for_each(|change| journal.apply(change));
    journal
}

/// A poll at this time in which the node shows no task.
fn idle(site: &Fixture, asked_at: Moment) -> Running {
    let polled = NodePoll { asked_at, tasks: Some(Vec::new()) };
    Running { poll_count: 1, nodes: [(site.node, polled)].into() }
}

#[test]
fn sent_start_counts_against_the_hourly_budget_after_a_restart() {
    let at = Moment::from_unix;
    let runtime = tokio::runtime::Builder::new_current_thread().start_paused(true).build();
    let site = runtime.unwrap().block_on(async { Fixture::new() });
    let tables = site.draft.current();
    let sent = |state: &mut JobState, key: &IntentKey, how, settings: &JobStateSettings| {
        state.apply_request_result(key, how, tables, settings, at(1_001))
    };
    let doubt = || RequestResult::MayHaveArrived("no answer".into());
    let lost = |state: &mut JobState, settings: &JobStateSettings| {
        state.apply_poll(&idle(&site, at(1_060)), tables, settings, at(1_060));
        state.apply_facts(tables, settings, at(2_500))
    };
    type Then<'a> = Box<dyn Fn(&mut JobState, &IntentKey, &JobStateSettings) -> Effects + 'a>;
    let cases: [(&str, Then<'_>, Option<JobResult>, u64); 6] = [
        ("killed before the request", Box::new(|_, _, _| Effects::default()), None, 900),
        (
            "killed after it",
            Box::new(|state, key, settings| sent(state, key, RequestResult::Accepted, settings)),
            None,
            900,
        ),
        (
            "refused",
            Box::new(|state, key, settings| {
                sent(state, key, RequestResult::Refused("HTTP 500".into()), settings)
            }),
            Some(JobResult::Failed),
            900,
        ),
        (
            "its end not measured",
            Box::new(|state, key, settings| {
                sent(state, key, RequestResult::Accepted, settings);
                lost(state, settings)
            }),
            Some(JobResult::Lost),
            900,
        ),
        (
            "perhaps not arrived",
            Box::new(|state, key, settings| {
                sent(state, key, doubt(), settings);
                lost(state, settings)
            }),
            Some(JobResult::Lost),
            900,
        ),
        (
            "not sent",
            Box::new(|state, key, settings| {
                sent(state, key, RequestResult::NotSent("stopping".into()), settings)
            }),
            None,
            0,
        ),
    ];
    for (what, then, ending, charged) in cases {
        let journal = journal_after(&site, then);
        let endings = journal.recent_outcomes.iter().map(|it| it.ending).collect::<Vec<_>>();
        assert_eq!(endings, ending.into_iter().collect::<Vec<_>>(), "{what}");
        // The hour ends after 3,600 s; setting the clock back by a day discards nothing either.
        for (now, counts) in [(2_600, true), (4_599, true), (4_600, false), (10, true)] {
            let mut state = JobState::new(journal.clone(), at(now));
            let starts = state.constraints(tables, None, at(now)).recent_starts;
            let expected = (charged > 0 && counts).then_some((at(now.min(1_000)), charged));
            assert_eq!(starts, expected.into_iter().collect::<Vec<_>>(), "{what} at {now}");
        }
    }
}

#[test]
fn clock_change_keeps_recent_starts_in_the_hourly_budget() {
    let at = Moment::from_unix;
    let runtime = tokio::runtime::Builder::new_current_thread().start_paused(true).build();
    let site = runtime.unwrap().block_on(async { Fixture::new() });
    let tables = site.draft.current();
    for set_to in [500_000, 90_000] {
        let mut state = JobState::new(RecoveredState::default(), at(100_000));
        state.detect_clock_change(at(100_000));
        let intent = Intent { at: at(100_000), ..site.intent() };
        state.accept_start(intent, tables, at(100_000)).expect("it may start");
        state.detect_clock_change(at(100_010));
        state.detect_clock_change(at(set_to));
        let constraints = state.constraints(tables, None, at(set_to));
        assert_eq!(constraints.recent_starts, [(at(set_to - 10), 900)]);
        assert_eq!(constraints.last_start_by_node[&site.node], at(set_to - 10));
    }
}
