use super::*;
use crate::{
    act::warmer::{build_history::BuildResult, index_lag},
    jobs::{Job, JobKey, JobKind, JobPhase, Jobs, TargetConstraints},
    model::{
        facts::{FactSource, Facts, Measurement, OptionalU64},
        records::{JobOwner, Suspension, SuspensionScope},
        target::{TargetKind, TargetState},
    },
    plan::pressure::{NodePressure, Pressures},
    table::{DbName, Draft, ShardMapEntry, View},
    text::Label,
    text::pattern::NamePatterns,
};
use couchdb_names::{Range, Signature};
use std::sync::Arc;

const NOW: Moment = Moment::from_unix(1_795_222_440);

fn ago(seconds: u64) -> Moment {
    Moment::from_unix(NOW.unix() - seconds)
}

/// One database on two nodes, with lagging views.
struct Fixture {
    draft: Draft,
    plan: Plan,
    settings: Warmer,
    views: Vec<TargetIx>,
    shard: TargetIx,
    nodes: [NodeIx; 2],
}

impl Fixture {
    fn new(pending: &[u64]) -> Self {
        let mut draft = Draft::new(1);
        let nodes = ["couchdb@a", "couchdb@b"].map(|name| {
            let node = draft.get_or_add_node(name);
            draft.update_node(node, |node| node.is_member = true);
            node
        });
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
        draft.set_shard_map(db, ShardMapEntry { copies: 2, ranges: 1 }, &[]);
        let range = Range { from: 0, to: u32::MAX };
        let shards = nodes.map(|node| draft.get_or_add_shard(node, db, Some(range)));
        let measured = |at| Some(Measurement { at, source: FactSource::Http });
        for ix in shards {
            let facts = Facts { measured_at: measured(ago(400)), ..Facts::default() };
            draft.set_facts(ix, facts);
        }
        let views = pending
            .iter()
            .zip(1..)
            .map(|(pending, number)| {
                let design: Arc<str> = format!("_design/{number}").into();
                let query = IndexQuery { design: Arc::clone(&design), view: "v".into() };
                let view = View {
                    signature: Signature([number; 16]),
                    designs: [design].into(),
                    language: "javascript".into(),
                    collators: [].into(),
                    exact_range: true,
                    build_query: Some(query),
                    ..View::default()
                };
                let ix = draft.add_view(db, view);
                let facts = Facts {
                    update_seq: OptionalU64::new(10_000),
                    updates_pending: OptionalU64::new(*pending),
                    measured_at: measured(ago(10)),
                    ..Facts::default()
                };
                draft.set_facts(ix, facts);
                ix
            })
            .collect();
        let shard = shards[0];
        let settings = Warmer { grace: Duration::from_secs(5), ..Warmer::default() };
        Self { draft, plan: Plan::default(), settings, views, shard, nodes }
    }

    fn choose(&mut self, history: &BuildHistory) -> BuildSelection {
        self.plan.snapshot = self.draft.publish(NOW);
        let inputs = SelectionInputs {
            plan: &self.plan,
            settings: &self.settings,
            thresholds: &BTreeMap::from([(self.nodes[0], 80.0)]),
            is_enforcing: true,
            seed: 1,
            now: NOW,
        };
        select_builds(&index_lag::index_lags(&self.plan.snapshot), history, inputs)
    }

    /// The build status of each view, by its number.
    fn statuses(&mut self, history: &BuildHistory) -> Vec<BuildStatus> {
        let indexes = self.choose(history).indexes;
        let status =
            |ix: &TargetIx| indexes.iter().find(|index| index.ix == *ix).map(|index| index.status);
        self.views.iter().filter_map(status).collect()
    }

    fn only_status(&mut self) -> BuildStatus {
        self.statuses(&BuildHistory::default())[0]
    }

    /// An indexer of the first view is running.
    fn add_indexer(&mut self) {
        let job = Job {
            key: JobKey {
                node: self.nodes[0],
                shard: Arc::from("shards/00000000-ffffffff/orders.1"),
                kind: JobKind::BuildView(Arc::from("_design/1")),
            },
            target: self.views.first().copied(),
            target_kind: TargetKind::View,
            owner: JobOwner::Other,
            channel: None,
            started_at: ago(5_000),
            phase: JobPhase::Running,
            progress: None,
            last_progress_at: ago(5),
            reserved_bytes: 0,
            file_bytes: None,
            predicted_bytes: None,
        };
        self.plan.conditions.jobs = Arc::new(Jobs { list: vec![job], ..Jobs::default() });
    }
}

#[test]
fn an_index_that_lags_longer_than_the_grace_period_is_built() {
    let mut world = Fixture::new(&[3, 0]);
    let selection = world.choose(&BuildHistory::default());
    assert_eq!(selection.indexes.len(), 1, "an index without lag is not listed");
    let index = &selection.indexes[0];
    assert_eq!((index.status, index.class), (BuildStatus::Starting, BuildClass::Batch));
    assert_eq!(
        (index.db.as_str(), &*index.design, index.pending),
        ("orders", "_design/1", Some(3))
    );
    assert_eq!(selection.starts.len(), 1);
}

/// Each condition alone prevents a build and gives its own reason.
#[test]
fn each_obstacle_to_a_build_has_its_reason() {
    type Case = (BuildRefusal, fn(&mut Fixture));
    let cases: &[Case] = &[
        (BuildRefusal::Excluded, |world| {
            world.settings.ignore = NamePatterns::new(&["ord*"]).unwrap()
        }),
        (BuildRefusal::Running, Fixture::add_indexer),
        (BuildRefusal::Grace, |world| world.settings.grace = Duration::from_secs(60)),
        (BuildRefusal::Suspended, |world| {
            let suspension = Suspension { since: ago(9), by: None, why: None };
            let mut history = TargetConstraints::default();
            history.suspensions.0.insert(SuspensionScope::All, suspension);
            world.plan.conditions.constraints = Arc::new(history);
        }),
        (BuildRefusal::Maintenance, |world| {
            let node = NodePressure { maintenance_since: Some(ago(9)), ..NodePressure::default() };
            let nodes = [(world.nodes[1], node)].into();
            world.plan.conditions.pressures = Arc::new(Pressures { nodes, ..Pressures::default() });
        }),
        (BuildRefusal::Pressure, |world| {
            let held = crate::plan::pressure::PressureHold {
                signal: crate::plan::pressure::Signal::RunQueue,
                since: ago(9),
                value: 90.0,
                low: 10.0,
            };
            let node = NodePressure { hold: Some(held), ..NodePressure::default() };
            let nodes = [(world.nodes[0], node)].into();
            world.plan.conditions.pressures = Arc::new(Pressures { nodes, ..Pressures::default() });
        }),
        (BuildRefusal::Resharding, |world| {
            world.draft.set_state(world.shard, TargetState::Resharding);
        }),
        (BuildRefusal::Headroom, |world| world.plan.conditions.disks = Arc::new(disks(24))),
        (BuildRefusal::NodeLimit, |world| {
            (world.settings.batch_channels, world.settings.incremental_channels) = (0, 0);
        }),
    ];
    for (reason, change) in cases {
        let mut world = Fixture::new(&[3]);
        change(&mut world);
        assert_eq!(world.only_status(), BuildStatus::Waiting(*reason));
    }
}

/// A volume with the given number of free bytes out of a hundred, which holds the files of the
/// first node.
fn disks(available: u64) -> crate::plan::disk::Disks {
    let space =
        crate::plan::disk::VolumeSpace { available, size: Some(100), held: None, measured_at: NOW };
    crate::plan::disk::Disks {
        volumes: vec![crate::plan::disk::Volume {
            name: "a".into(),
            nodes: vec!["couchdb@a".into()],
            space: Some(space),
            is_stated: false,
            falling_since: None,
            problem: None,
        }],
    }
}

#[test]
fn a_full_disk_prevents_builds_before_couchdbs_monitor_does() {
    let mut world = Fixture::new(&[3]);
    world.plan.conditions.disks = Arc::new(disks(25));
    assert_eq!(world.only_status(), BuildStatus::Starting);
}

#[test]
fn design_documents_can_disable_automatic_builds() {
    let mut world = Fixture::new(&[3]);
    let ix = world.views[0];
    let view = world.draft.current().target(ix).and_then(|it| it.view()).cloned().unwrap();
    world.draft.set_view(ix, View { build_query: None, ..view });
    assert_eq!(world.only_status(), BuildStatus::Waiting(BuildRefusal::Excluded));
}

#[test]
fn stale_facts_are_measured_again_before_a_build() {
    let mut world = Fixture::new(&[3]);
    let ix = world.views[0];
    let mut facts = world.draft.current().target(ix).unwrap().facts();
    facts.measured_at = Some(Measurement { at: ago(300), source: FactSource::Http });
    world.draft.set_facts(ix, facts);
    let selection = world.choose(&BuildHistory::default());
    assert_eq!(selection.indexes[0].status, BuildStatus::Waiting(BuildRefusal::Stale));
    assert_eq!((selection.reread, selection.starts), (vec![ix], vec![]));
    // Measurements are not requested again while one is pending.
    let mut history = BuildHistory::default();
    let all = index_lag::index_lags(&world.plan.snapshot);
    history.update(&all.buildable, &Jobs::default(), &world.settings, NOW);
    history.record_reread(ix, NOW);
    assert_eq!(world.choose(&history).reread, vec![]);
}

#[test]
fn a_running_build_occupies_its_slots() {
    let mut world = Fixture::new(&[3, 3, 3]);
    (world.settings.batch_channels, world.settings.incremental_channels) = (1, 1);
    let all = {
        world.plan.snapshot = world.draft.publish(NOW);
        index_lag::index_lags(&world.plan.snapshot)
    };
    let mut history = BuildHistory::default();
    history.record_start(&all.buildable[0], BuildClass::Batch, NOW);
    let statuses = world.statuses(&history);
    assert_eq!(statuses[0], BuildStatus::Building);
    let starts = statuses.iter().filter(|it| **it == BuildStatus::Starting).count();
    let waits = BuildStatus::Waiting(BuildRefusal::NodeLimit);
    assert_eq!((starts, statuses.iter().filter(|it| **it == waits).count()), (1, 1));
}

#[test]
fn shuffle_order_depends_on_the_seed_alone() {
    let order = |seed: u64| {
        let mut positions: Vec<usize> = (0..20).collect();
        positions.sort_by_key(|at| shuffle_key(seed, *at));
        positions
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn indexers_without_progress_are_stalled() {
    let mut world = Fixture::new(&[3]);
    world.add_indexer();
    assert_eq!(world.choose(&BuildHistory::default()).indexes[0].stalled_since, None);
    let mut jobs = (*world.plan.conditions.jobs).clone();
    jobs.list[0].last_progress_at = ago(601);
    world.plan.conditions.jobs = Arc::new(jobs);
    assert_eq!(world.choose(&BuildHistory::default()).indexes[0].stalled_since, Some(ago(601)));
}

#[test]
fn a_failed_build_is_delayed_and_stalled() {
    let mut world = Fixture::new(&[3_000]);
    world.plan.snapshot = world.draft.publish(NOW);
    let all = index_lag::index_lags(&world.plan.snapshot);
    let mut history = BuildHistory::default();
    history.record_start(&all.buildable[0], BuildClass::Batch, ago(20));
    history.record_refusal(all.buildable[0].ix, "403", &world.settings, ago(2));
    let index = &world.choose(&history).indexes[0];
    assert_eq!(index.status, BuildStatus::Waiting(BuildRefusal::CoolDown));
    assert_eq!(index.stalled_since, Some(ago(2)));
    assert_eq!(BuildResult::labels(), ["built", "failed"]);
}

/// A search index of the same database, beside its views.
fn search(world: &mut Fixture, offered: Option<bool>, indexed: u64) -> TargetIx {
    let db = world.draft.current().target(world.shard).unwrap().db();
    let range = Range { from: 0, to: u32::MAX };
    for node in world.nodes {
        let ix = world.draft.get_or_add_shard(node, db, Some(range));
        let facts = world.draft.current().target(ix).unwrap().facts();
        world.draft.set_facts(ix, Facts { update_seq: OptionalU64::new(10_000), ..facts });
    }
    let query = IndexQuery { design: "_design/s".into(), view: "text".into() };
    let engine = couchdb_names::Engine::Nouveau;
    let search = SearchAttributes { engine, index: "text".into(), is_supported: offered };
    let view = View {
        designs: ["_design/s".into()].into(),
        build_query: Some(query),
        search_index: Some(search),
        ..View::default()
    };
    let ix = world.draft.add_view(db, view);
    let measured_at = Some(Measurement { at: ago(10), source: FactSource::Http });
    let facts = Facts { update_seq: OptionalU64::new(indexed), measured_at, ..Facts::default() };
    world.draft.set_facts(ix, facts);
    ix
}

#[test]
fn a_search_index_is_selected_like_a_view() {
    let mut world = Fixture::new(&[0]);
    let ix = search(&mut world, Some(true), 9_000);
    let selection = world.choose(&BuildHistory::default());
    let index = &selection.indexes[0];
    assert_eq!((index.ix, index.status, index.pending), (ix, BuildStatus::Starting, Some(1_000)));
    assert_eq!(index.id.to_string(), "search:orders/nouveau/_design%2Fs/text");
    assert_eq!(selection.starts.len(), 1);
    // CouchDB's monitor stops view builds there, but not search indexes.
    world.plan.conditions.disks = Arc::new(disks(24));
    assert_eq!(world.choose(&BuildHistory::default()).indexes[0].status, BuildStatus::Starting);
    world.plan.conditions.disks = Arc::new(disks(1));
    let status = world.choose(&BuildHistory::default()).indexes[0].status;
    assert_eq!(status, BuildStatus::Waiting(BuildRefusal::Headroom));
}

#[test]
fn search_index_without_its_engine_waits_and_starts_no_build() {
    for offered in [None, Some(false)] {
        let mut world = Fixture::new(&[0]);
        search(&mut world, offered, 9_000);
        let selection = world.choose(&BuildHistory::default());
        let index = &selection.indexes[0];
        assert_eq!(index.status, BuildStatus::Waiting(BuildRefusal::NotOffered));
        assert_eq!((index.pending, index.lagging_since), (None, None));
        assert_eq!((selection.starts.len(), selection.reread.len()), (0, 0));
    }
}
