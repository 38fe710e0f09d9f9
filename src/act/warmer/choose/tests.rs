use super::*;
use crate::{
    act::warmer::{look, memory::Ending},
    jobs::{History, Job, JobKey, Jobs, Phase, Work},
    model::{
        facts::{Facts, Known, Measured, Source},
        memory::{Owner, Scope, Suspension},
        target::{Kind, State},
    },
    plan::pressure::{NodePressure, Pressures},
    table::{DbMap, DbName, Draft, View},
    text::pattern::Patterns,
};
use couchdb_names::{Range, Signature};
use std::sync::Arc;

const NOW: Moment = Moment::from_unix(1_795_222_440);

fn ago(seconds: u64) -> Moment {
    Moment::from_unix(NOW.unix() - seconds)
}

/// One database on two nodes, with lagging views.
struct World {
    draft: Draft,
    plan: Plan,
    settings: Warmer,
    views: Vec<Ix>,
    shard: Ix,
    nodes: [NodeIx; 2],
}

impl World {
    fn new(pending: &[u64]) -> Self {
        let mut draft = Draft::new(1);
        let nodes = ["couchdb@a", "couchdb@b"].map(|name| {
            let node = draft.node(name);
            draft.change_node(node, |node| node.member = true);
            node
        });
        let db = draft.db(DbName { db: "orders", suffix: ".1" });
        draft.set_map(db, DbMap { copies: 2, ranges: 1 }, &[]);
        let range = Range { from: 0, to: u32::MAX };
        let shards = nodes.map(|node| draft.db_target(node, db, Some(range)));
        let measured = |at| Some(Measured { at, by: Source::Http });
        for ix in shards {
            let facts = Facts { measured_at: measured(ago(400)), ..Facts::default() };
            draft.set_facts(ix, facts);
        }
        let views = pending
            .iter()
            .zip(1..)
            .map(|(pending, number)| {
                let design: Arc<str> = format!("_design/{number}").into();
                let query = Query { design: Arc::clone(&design), view: "v".into() };
                let view = View {
                    signature: Signature([number; 16]),
                    designs: [design].into(),
                    language: "javascript".into(),
                    collators: [].into(),
                    exact_range: true,
                    built_by: Some(query),
                    ..View::default()
                };
                let ix = draft.add_view(db, view);
                let facts = Facts {
                    update_seq: Known::new(10_000),
                    updates_pending: Known::new(*pending),
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

    fn choose(&mut self, memory: &Memory) -> Chosen {
        self.plan.snapshot = self.draft.publish(NOW);
        let present = Present {
            plan: &self.plan,
            settings: &self.settings,
            thresholds: &BTreeMap::from([(self.nodes[0], 80.0)]),
            acting: true,
            luck: 1,
            now: NOW,
        };
        choose(&look::look(&self.plan.snapshot), memory, present)
    }

    /// The build status of each view, by its number.
    fn standings(&mut self, memory: &Memory) -> Vec<Standing> {
        let lines = self.choose(memory).lines;
        let of = |ix: &Ix| lines.iter().find(|line| line.ix == *ix).map(|line| line.standing);
        self.views.iter().filter_map(of).collect()
    }

    fn only(&mut self) -> Standing {
        self.standings(&Memory::default())[0]
    }

    /// An indexer of the first view is running.
    fn indexer(&mut self) {
        let job = Job {
            key: JobKey {
                node: self.nodes[0],
                shard: Arc::from("shards/00000000-ffffffff/orders.1"),
                work: Work::Build(Arc::from("_design/1")),
            },
            target: self.views.first().copied(),
            kind: Kind::View,
            owner: Owner::Other,
            channel: None,
            since: ago(5_000),
            phase: Phase::Running,
            progress: None,
            last_progress: ago(5),
            reserved: 0,
            file_bytes: None,
            predicted_bytes: None,
        };
        self.plan.conditions.jobs = Arc::new(Jobs { list: vec![job], ..Jobs::default() });
    }
}

#[test]
fn an_index_that_lags_longer_than_the_grace_period_is_built() {
    let mut world = World::new(&[3, 0]);
    let chosen = world.choose(&Memory::default());
    assert_eq!(chosen.lines.len(), 1, "an index without lag is not listed");
    let line = &chosen.lines[0];
    assert_eq!((line.standing, line.class), (Standing::Starts, Class::Batch));
    assert_eq!((line.db.as_str(), &*line.design, line.pending), ("orders", "_design/1", Some(3)));
    assert_eq!(chosen.starts.len(), 1);
}

/// Each condition alone prevents a build and gives its own reason.
#[test]
fn each_condition_has_its_reason() {
    type Case = (Reason, fn(&mut World));
    let cases: &[Case] = &[
        (Reason::Excluded, |world| world.settings.ignore = Patterns::new(&["ord*"]).unwrap()),
        (Reason::Running, World::indexer),
        (Reason::Grace, |world| world.settings.grace = Duration::from_secs(60)),
        (Reason::Suspended, |world| {
            let suspension = Suspension { since: ago(9), by: None, why: None };
            let mut history = History::default();
            history.suspensions.0.insert(Scope::All, suspension);
            world.plan.conditions.history = Arc::new(history);
        }),
        (Reason::Maintenance, |world| {
            let node = NodePressure { maintenance_since: Some(ago(9)), ..NodePressure::default() };
            let nodes = [(world.nodes[1], node)].into();
            world.plan.conditions.pressures = Arc::new(Pressures { nodes });
        }),
        (Reason::Pressure, |world| {
            let held = crate::plan::pressure::Held {
                signal: crate::plan::pressure::Signal::RunQueue,
                since: ago(9),
                value: 90.0,
                low: 10.0,
            };
            let node = NodePressure { held: Some(held), ..NodePressure::default() };
            let nodes = [(world.nodes[0], node)].into();
            world.plan.conditions.pressures = Arc::new(Pressures { nodes });
        }),
        (Reason::Resharding, |world| {
            world.draft.set_state(world.shard, State::Resharding);
        }),
        (Reason::Headroom, |world| world.plan.conditions.disks = Arc::new(disks(24))),
        (Reason::NodeLimit, |world| {
            (world.settings.batch_channels, world.settings.incremental_channels) = (0, 0);
        }),
    ];
    for (reason, change) in cases {
        let mut world = World::new(&[3]);
        change(&mut world);
        assert_eq!(world.only(), Standing::Waits(*reason));
    }
}

/// A volume with the given number of free bytes out of a hundred, which holds the files of the
/// first node.
fn disks(available: u64) -> crate::plan::disk::Disks {
    let space = crate::plan::disk::Space { available, size: Some(100), at: NOW };
    crate::plan::disk::Disks {
        volumes: vec![crate::plan::disk::Volume {
            name: "a".into(),
            nodes: vec!["couchdb@a".into()],
            space: Some(space),
            falling_since: None,
            problem: None,
        }],
    }
}

#[test]
fn a_full_disk_prevents_builds_before_couchdbs_monitor_does() {
    let mut world = World::new(&[3]);
    world.plan.conditions.disks = Arc::new(disks(25));
    assert_eq!(world.only(), Standing::Starts);
}

#[test]
fn design_documents_can_disable_automatic_builds() {
    let mut world = World::new(&[3]);
    let ix = world.views[0];
    let view = world.draft.now().target(ix).and_then(|it| it.view()).cloned().unwrap();
    world.draft.set_view(ix, View { built_by: None, ..view });
    assert_eq!(world.only(), Standing::Waits(Reason::Excluded));
}

#[test]
fn old_facts_are_measured_again_first() {
    let mut world = World::new(&[3]);
    let ix = world.views[0];
    let mut facts = world.draft.now().target(ix).unwrap().facts();
    facts.measured_at = Some(Measured { at: ago(300), by: Source::Http });
    world.draft.set_facts(ix, facts);
    let chosen = world.choose(&Memory::default());
    assert_eq!(chosen.lines[0].standing, Standing::Waits(Reason::Stale));
    assert_eq!((chosen.reread, chosen.starts), (vec![ix], vec![]));
    // They are not requested again while the answer is pending.
    let mut memory = Memory::default();
    let all = look::look(&world.plan.snapshot);
    memory.see(&all.all, &Jobs::default(), &world.settings, NOW);
    memory.asked(ix, NOW);
    assert_eq!(world.choose(&memory).reread, vec![]);
}

#[test]
fn a_running_build_occupies_its_slots() {
    let mut world = World::new(&[3, 3, 3]);
    (world.settings.batch_channels, world.settings.incremental_channels) = (1, 1);
    let all = {
        world.plan.snapshot = world.draft.publish(NOW);
        look::look(&world.plan.snapshot)
    };
    let mut memory = Memory::default();
    memory.start(&all.all[0], Class::Batch, NOW);
    let standings = world.standings(&memory);
    assert_eq!(standings[0], Standing::Builds);
    let starts = standings.iter().filter(|it| **it == Standing::Starts).count();
    let waits = Standing::Waits(Reason::NodeLimit);
    assert_eq!((starts, standings.iter().filter(|it| **it == waits).count()), (1, 1));
}

#[test]
fn another_seed_gives_another_order() {
    let order = |luck: u64| {
        let mut places: Vec<usize> = (0..20).collect();
        places.sort_by_key(|at| shuffled(luck, *at));
        places
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn indexers_without_progress_are_stalled() {
    let mut world = World::new(&[3]);
    world.indexer();
    assert_eq!(world.choose(&Memory::default()).lines[0].stalled_since, None);
    let mut jobs = (*world.plan.conditions.jobs).clone();
    jobs.list[0].last_progress = ago(601);
    world.plan.conditions.jobs = Arc::new(jobs);
    assert_eq!(world.choose(&Memory::default()).lines[0].stalled_since, Some(ago(601)));
}

#[test]
fn a_failed_build_is_delayed_and_stalled() {
    let mut world = World::new(&[3_000]);
    world.plan.snapshot = world.draft.publish(NOW);
    let all = look::look(&world.plan.snapshot);
    let mut memory = Memory::default();
    memory.start(&all.all[0], Class::Batch, ago(20));
    memory.refused(all.all[0].ix, &world.settings, ago(2));
    let line = &world.choose(&memory).lines[0];
    assert_eq!(line.standing, Standing::Waits(Reason::CoolDown));
    assert_eq!(line.stalled_since, Some(ago(2)));
    assert_eq!(Ending::ALL.map(Ending::label), ["built", "failed"]);
}

/// A search index of the same database, beside its views.
fn search(world: &mut World, offered: Option<bool>, indexed: u64) -> Ix {
    let db = world.draft.now().target(world.shard).unwrap().db();
    let range = Range { from: 0, to: u32::MAX };
    for node in world.nodes {
        let ix = world.draft.db_target(node, db, Some(range));
        let facts = world.draft.now().target(ix).unwrap().facts();
        world.draft.set_facts(ix, Facts { update_seq: Known::new(10_000), ..facts });
    }
    let query = Query { design: "_design/s".into(), view: "text".into() };
    let engine = couchdb_names::Engine::Nouveau;
    let search = Search { engine, index: "text".into(), offered };
    let view = View {
        designs: ["_design/s".into()].into(),
        built_by: Some(query),
        search: Some(search),
        ..View::default()
    };
    let ix = world.draft.add_view(db, view);
    let measured_at = Some(Measured { at: ago(10), by: Source::Http });
    let facts = Facts { update_seq: Known::new(indexed), measured_at, ..Facts::default() };
    world.draft.set_facts(ix, facts);
    ix
}

#[test]
fn a_search_index_is_selected_like_a_view() {
    let mut world = World::new(&[0]);
    let ix = search(&mut world, Some(true), 9_000);
    let chosen = world.choose(&Memory::default());
    let line = &chosen.lines[0];
    assert_eq!((line.ix, line.standing, line.pending), (ix, Standing::Starts, Some(1_000)));
    assert_eq!(line.id.to_string(), "search:orders/nouveau/_design%2Fs/text");
    assert_eq!(chosen.starts.len(), 1);
    // CouchDB's monitor stops view builds there, but not search indexes.
    world.plan.conditions.disks = Arc::new(disks(24));
    assert_eq!(world.choose(&Memory::default()).lines[0].standing, Standing::Starts);
    world.plan.conditions.disks = Arc::new(disks(1));
    let standing = world.choose(&Memory::default()).lines[0].standing;
    assert_eq!(standing, Standing::Waits(Reason::Headroom));
}

#[test]
fn a_search_index_without_its_engine_is_only_listed() {
    for offered in [None, Some(false)] {
        let mut world = World::new(&[0]);
        search(&mut world, offered, 9_000);
        let chosen = world.choose(&Memory::default());
        let line = &chosen.lines[0];
        assert_eq!(line.standing, Standing::Waits(Reason::NotOffered));
        assert_eq!((line.pending, line.since), (None, None));
        assert_eq!((chosen.starts.len(), chosen.reread.len()), (0, 0));
    }
}
