//! The scorecard over small clusters that grow, are compacted by others, and whose clock is set.

use super::*;
use crate::{
    jobs::{Job, JobKey, JobKind, JobPhase, Jobs},
    model::{
        channel::{ChannelPreset, Channels},
        facts::{FactSource, Facts, Measurement, OptionalU64},
        records::JobOwner,
        settings::limits::Headroom,
    },
    plan::{Conditions, Queues},
    table::{DbName, Draft, NodeIx, TargetIx},
};
use couchdb_names::Range;
use proptest::prelude::*;

const NOW: u64 = 1_795_222_800;
const MIB: u64 = 1 << 20;
const WHOLE: Range = Range { from: 0, to: u32::MAX };
const MINUTE: Duration = Duration::from_secs(60);

/// Databases on one node, which a test changes; a plan follows each minute.
struct World {
    draft: Draft,
    dbs: Vec<(TargetIx, Facts)>,
    queues: Queues,
    rules: Arc<Rules>,
    channels: Arc<Channels>,
    jobs: Vec<Job>,
    now: Moment,
}

fn facts(file: u64, active: u64) -> Facts {
    Facts {
        docs: OptionalU64::new(1_000),
        deleted_docs: OptionalU64::new(0),
        update_seq: OptionalU64::new(1_000_000),
        compacted_seq: OptionalU64::new(10),
        ..Facts::sized(file * MIB, active * MIB)
    }
}

impl World {
    /// Databases with these sizes of file and live bytes, in MiB.
    fn new(preset: ChannelPreset, sizes: &[(u64, u64)]) -> Self {
        let mut draft = Draft::new(5);
        let node = draft.get_or_add_node("couchdb@a");
        draft.update_node(node, |node| node.is_member = true);
        let dbs = sizes.iter().enumerate().map(|(at, (file, active))| {
            let db = draft.get_or_add_db(DbName { db: &format!("db{at}"), suffix: ".17" });
            (draft.get_or_add_shard(node, db, Some(WHOLE)), facts(*file, *active))
        });
        let dbs = dbs.collect();
        let channels = Arc::new(Channels { list: preset.channels(), ..Channels::default() });
        let headroom = Headroom { blind_limit: u64::MAX, ..Headroom::default() };
        let rules = Arc::new(Rules { headroom, ..Rules::default() });
        let queues = Queues::new(Arc::clone(&channels));
        let (jobs, now) = (Vec::new(), Moment::from_unix(NOW));
        Self { draft, dbs, queues, rules, channels, jobs, now }
    }

    fn fresh_for(&mut self, span: Duration) {
        self.rules = Arc::new(Rules { fresh_for: span, ..(*self.rules).clone() });
    }

    /// Replaces the channels by ones that enforce.
    fn enforce(&mut self) {
        self.rules = Arc::new(Rules { mode: Mode::Enforce, ..(*self.rules).clone() });
    }

    fn change(&mut self, at: usize, file: i64, active: i64) {
        let facts = &mut self.dbs[at].1;
        let sum = |known: OptionalU64, more: i64| {
            let more = more * i64::try_from(MIB).unwrap();
            OptionalU64::new(known.get().unwrap().saturating_add_signed(more))
        };
        facts.file_bytes = sum(facts.file_bytes, file);
        facts.active_bytes = sum(facts.active_bytes, active);
        facts.update_seq = OptionalU64::new(facts.update_seq.get().unwrap() + 1_000);
    }

    /// Somebody really compacts a database.
    fn compact(&mut self, at: usize) {
        let facts = &mut self.dbs[at].1;
        let left = facts.active_bytes.get().unwrap() + 4_096;
        facts.file_bytes = OptionalU64::new(left.min(facts.file_bytes.get().unwrap()));
        facts.compacted_seq = facts.update_seq;
    }

    /// Another program's compaction of a database runs from now on.
    fn begin_other(&mut self, at: usize) {
        let target = self.dbs[at].0;
        let key = JobKey {
            node: NodeIx::from_usize(1).unwrap(),
            shard: format!("db{at}.17").into(),
            kind: JobKind::CompactDb,
        };
        self.jobs.push(Job {
            key,
            target: Some(target),
            target_kind: TargetKind::Db,
            owner: JobOwner::Other,
            channel: None,
            started_at: self.now,
            phase: JobPhase::Running,
            progress: None,
            last_progress_at: self.now,
            reserved_bytes: 0,
            file_bytes: Some(9 * MIB),
            predicted_bytes: Some(5 * MIB),
        });
    }

    fn plan(&mut self) -> Plan {
        for (ix, facts) in &self.dbs {
            let measured_at = Some(Measurement { at: self.now, source: FactSource::Http });
            self.draft.set_facts(*ix, Facts { measured_at, ..*facts });
        }
        let snapshot = self.draft.publish(self.now);
        let jobs = Arc::new(Jobs { list: self.jobs.clone(), ..Jobs::default() });
        let conditions = Conditions { jobs, ..Conditions::default() };
        self.queues.apply_snapshot(&snapshot, self.now);
        self.queues.update_prices(&snapshot, &conditions, &self.rules, self.now);
        self.queues.make_plan(&snapshot, &conditions, &self.rules, self.now)
    }

    /// Bytes that are really wasted.
    fn wasted(&mut self) -> u64 {
        Waste::of(&self.plan().snapshot).reclaimable_bytes().unwrap()
    }
}

/// A scorecard, and the records that its journal would contain.
#[derive(Default)]
struct Kept {
    card: Scorecard,
    records: ScorecardRecords,
    is_new: bool,
}

impl Kept {
    fn step(&mut self, world: &mut World, elapsed: Duration) {
        world.now = world.now.plus(elapsed);
        let plan = world.plan();
        let elapsed = (!self.is_new).then_some(elapsed);
        self.is_new = false;
        let totals = CompactionTotals::default();
        for change in self.card.step(&plan, totals, world.now, elapsed) {
            self.records.apply(change);
        }
    }

    fn steps(&mut self, world: &mut World, count: u32) {
        (0..count).for_each(|_| self.step(world, MINUTE));
    }

    /// The process is killed, and another continues from the stored records.
    fn restart(&mut self) {
        self.card = Scorecard::new(self.records.clone());
        self.is_new = true;
    }

    fn sums(&self) -> ScorecardHour {
        let mut sums = ScorecardHour::default();
        self.records.hours.values().for_each(|hour| sums.add(hour));
        sums
    }
}

#[test]
fn a_bloated_file_is_compacted_once_and_stays_small() {
    let mut world = World::new(ChannelPreset::Smoosh, &[(1_000, 100), (50, 50)]);
    let wasted = world.wasted();
    let mut kept = Kept::default();
    kept.steps(&mut world, 60);
    let sums = kept.sums();
    assert_eq!((sums.advised.compactions, sums.conflicts), (1, 0));
    assert!(sums.advised.freed_bytes > 890 * MIB && sums.advised.freed_bytes <= wasted);
    assert!(sums.advised.rewritten_bytes.abs_diff(100 * MIB) < 3 * MIB, "{sums:?}");
    assert_eq!(sums.real.compactions, 0);
    assert_eq!(sums.real.peak_waste_bytes, wasted);
    // The first step has no time before it.
    assert_eq!(sums.advised_seconds, 59 * 60);
    assert!((sums.real.waste_byte_seconds / (wasted as f64 * 59.0 * 60.0) - 1.0).abs() < 1e-9);
    let left = kept.card.view(world.now).advised_waste_bytes.unwrap();
    assert_eq!(left, wasted - sums.advised.freed_bytes);
    assert!(sums.advised.peak_extra_bytes.abs_diff(100 * MIB) < 3 * MIB, "{sums:?}");
    assert_eq!(kept.records.targets.len(), 1);
    assert_eq!(world.wasted(), wasted, "nothing really happened");
}

#[test]
fn growing_file_is_compacted_whenever_a_channel_takes_it() {
    // Half of the file is waste after every hundred minutes.
    let mut world = World::new(ChannelPreset::Smoosh, &[(110, 100)]);
    let mut kept = Kept::default();
    for _ in 0..1_000 {
        world.change(0, 1, 0);
        kept.step(&mut world, MINUTE);
    }
    let sums = kept.sums();
    assert!((9..=11).contains(&sums.advised.compactions), "{sums:?}");
    let mean =
        |side: &ScorecardSide| side.waste_byte_seconds / sums.advised_seconds as f64 / MIB as f64;
    assert!((mean(&sums.advised) - 50.0).abs() < 8.0, "{}", mean(&sums.advised));
    assert!((mean(&sums.real) - 510.0).abs() < 8.0, "{}", mean(&sums.real));
}

#[test]
fn rent_starts_over_at_each_advised_compaction() {
    // Due when g t^2 / 2 is the horizon times the data: after sqrt(2 h A / g), every nine hours.
    let mut world = World::new(ChannelPreset::Rent, &[(100, 100)]);
    let mut kept = Kept::default();
    for minute in 0..4 * 24 * 60 {
        if minute % 5 == 0 {
            world.change(0, 5, 0);
        }
        kept.step(&mut world, MINUTE);
        if minute == 3_000 {
            kept.restart();
        }
    }
    let sums = kept.sums();
    assert!((9..=11).contains(&sums.advised.compactions), "{sums:?}");
}

#[test]
fn real_compaction_ends_the_savings_of_an_advised_one() {
    let mut world = World::new(ChannelPreset::Smoosh, &[(1_000, 100)]);
    let mut kept = Kept::default();
    kept.steps(&mut world, 5);
    assert_eq!(kept.records.targets.len(), 1);
    world.compact(0);
    kept.step(&mut world, MINUTE);
    assert_eq!(kept.records.targets.len(), 0);
    assert_eq!(kept.card.view(world.now).advised_waste_bytes, Some(world.wasted()));
    // Growth from then on is wasted in both worlds.
    world.change(0, 50, 0);
    kept.step(&mut world, MINUTE);
    assert_eq!(kept.card.view(world.now).advised_waste_bytes, Some(world.wasted()));
}

#[test]
fn compaction_by_others_is_a_conflict_only_if_it_begins_later() {
    // Compacting 6 GiB takes five minutes.
    let mut world = World::new(ChannelPreset::Smoosh, &[(20_000, 6_000)]);
    world.begin_other(0);
    let mut kept = Kept::default();
    kept.steps(&mut world, 3);
    assert_eq!((kept.sums().conflicts, kept.records.jobs.len()), (0, 0), "it waits");
    world.jobs.clear();
    kept.steps(&mut world, 3);
    assert_eq!(kept.records.jobs.len(), 1, "now it may start");
    world.begin_other(0);
    kept.steps(&mut world, 1);
    assert_eq!(kept.sums().conflicts, 1);
    kept.restart();
    kept.steps(&mut world, 10);
    let sums = kept.sums();
    assert_eq!((sums.conflicts, sums.advised.compactions), (1, 1), "it counts once");
}

#[test]
fn scorecard_keeps_its_sums_and_pauses_while_recliner_enforces() {
    let mut world = World::new(ChannelPreset::Smoosh, &[(1_000, 100), (800, 300)]);
    let mut kept = Kept::default();
    kept.steps(&mut world, 30);
    let before = kept.sums();
    world.enforce();
    kept.steps(&mut world, 30);
    let sums = kept.sums();
    assert_eq!(sums, ScorecardHour { enforced_seconds: 1_800, ..before });
    assert_eq!(kept.card.view(world.now).state, ScorecardState::Enforcing);
    // Channels that only advise are counted again.
    let list = world.channels.list.iter().cloned().map(|mut channel| {
        channel.mode = Mode::Advise;
        channel
    });
    let list = list.collect();
    world.queues.reconfigure(Arc::new(Channels { list, ..Channels::default() }));
    kept.steps(&mut world, 30);
    assert_eq!(kept.sums().advised_seconds, before.advised_seconds + 1_800);
}

#[test]
fn step_within_the_freshness_of_facts_is_not_a_gap() {
    let mut world = World::new(ChannelPreset::Smoosh, &[(1_000, 100)]);
    let mut kept = Kept::default();
    kept.steps(&mut world, 2);
    let gap = 2 * Duration::from_secs(3_600);
    kept.step(&mut world, gap);
    let counted = kept.sums().advised_seconds;
    world.fresh_for(4 * gap);
    kept.step(&mut world, gap);
    kept.step(&mut world, gap);
    assert_eq!(kept.sums().advised_seconds, counted + 2 * gap.as_secs());
    let hours = kept.card.view(world.now).hours;
    assert!(hours.values().all(|hour| hour.advised_seconds <= 3_660), "{hours:?}");
}

#[test]
fn gap_is_reported_as_missing_and_not_counted() {
    let mut world = World::new(ChannelPreset::Smoosh, &[(1_000, 100)]);
    let mut kept = Kept::default();
    kept.steps(&mut world, 121);
    kept.step(&mut world, 3 * Duration::from_secs(3_600));
    kept.steps(&mut world, 60);
    let sums = kept.sums();
    assert_eq!(sums.advised_seconds, 180 * 60);
    let view = kept.card.view(world.now);
    let since = Moment::from_unix(NOW - 86_400);
    let sum = view.sum(since, world.now);
    assert_eq!(sum.sums, sums);
    assert_eq!(sum.missing_seconds, 3 * 3_600);
    assert_eq!(sum.from, Some(Moment::from_unix(NOW / 3_600 * 3_600)));
    // The sum since the middle of the gap.
    let sum = view.sum(Moment::from_unix(NOW + 4 * 3_600), world.now);
    assert!(sum.sums.advised_seconds <= 3_660 && sum.missing_seconds <= 2 * 3_600, "{sum:?}");
}

#[test]
fn setting_the_clock_neither_loses_nor_doubles_sums() {
    let run = |set: &[(u32, i64)]| {
        let mut world = World::new(ChannelPreset::Smoosh, &[(20_000, 6_000), (900, 100)]);
        let mut kept = Kept::default();
        for step in 0..240 {
            for (_, by) in set.iter().filter(|(at, _)| *at == step) {
                world.now = Moment::from_unix(world.now.unix().saturating_add_signed(*by));
            }
            kept.step(&mut world, MINUTE);
        }
        kept.sums()
    };
    let steady = run(&[]);
    assert_eq!(steady.advised.compactions, 2);
    let day = 86_400;
    for set in [&[(2, day)][..], &[(2, -day)], &[(2, day), (4, -2 * day)], &[(100, -1_800)]] {
        let found = run(set);
        assert_eq!(found.advised_seconds, steady.advised_seconds, "{set:?}");
        assert_eq!(found.advised.compactions, steady.advised.compactions, "{set:?}");
        assert_eq!(found.advised.freed_bytes, steady.advised.freed_bytes, "{set:?}");
        let waste = found.advised.waste_byte_seconds / steady.advised.waste_byte_seconds;
        assert!((waste - 1.0).abs() < 0.05, "{set:?}: {waste}");
    }
}

#[test]
fn scorecard_keeps_a_limited_number_of_hours() {
    let mut kept = Kept::default();
    let mut world = World::new(ChannelPreset::Smoosh, &[(100, 100)]);
    for _ in 0..900 {
        kept.step(&mut world, MINUTE);
        world.now = world.now.plus(Duration::from_secs(3_600));
    }
    assert_eq!(kept.records.hours.len(), 35 * 24);
    assert_eq!(kept.records.hours, kept.card.hours);
}

#[derive(Clone, Debug)]
enum Event {
    Grow(usize, i64, i64),
    Compact(usize),
    Restart,
    SetClock(i64),
    Pass(u32),
}

fn any_event() -> impl Strategy<Value = Event> {
    let db = 0..3_usize;
    prop_oneof![
        4 => (db.clone(), 0..400_i64, 0..60_i64).prop_map(|(db, garbage, live)| Event::Grow(db, garbage + live, live)),
        2 => db.prop_map(Event::Compact),
        1 => Just(Event::Restart),
        1 => (-200_000..200_000_i64).prop_map(Event::SetClock),
        4 => (1..90_u32).prop_map(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(crate::cases::one_case_in(16))]

    /// Savings are never negative and never exceed the waste; only waste is freed; each second
    /// counts once; and the journal equals the process's state.
    #[test]
    fn scorecard_sums_never_exceed_what_was_wasted(
        events in proptest::collection::vec(any_event(), 1..40),
        is_rent in any::<bool>(),
    ) {
        let preset = if is_rent { ChannelPreset::Rent } else { ChannelPreset::Smoosh };
        let mut world = World::new(preset, &[(500, 100), (300, 290), (2_000, 400)]);
        let mut made = world.wasted();
        let mut kept = Kept::default();
        let (mut seconds, mut starts) = (0, 0);
        kept.steps(&mut world, 1);
        for event in events {
            match event {
                Event::Grow(db, file, active) => {
                    world.change(db, file, active);
                    made += u64::try_from(file).unwrap() * MIB;
                }
                Event::Compact(db) => world.compact(db),
                Event::Restart => {
                    kept.restart();
                    kept.steps(&mut world, 1);
                    starts += 1;
                }
                Event::SetClock(by) => {
                    world.now = Moment::from_unix(world.now.unix().saturating_add_signed(by));
                }
                Event::Pass(minutes) => {
                    kept.steps(&mut world, minutes);
                    seconds += u64::from(minutes) * 60;
                }
            }
            let wasted = world.wasted();
            let left = kept.card.view(world.now).advised_waste_bytes.unwrap();
            if matches!(event, Event::Pass(_)) {
                prop_assert!(left <= wasted, "{left} of {wasted}");
            }
            prop_assert_eq!(&kept.records.hours, &kept.card.hours);
            prop_assert_eq!(&kept.records.jobs, &kept.card.jobs.records());
            prop_assert_eq!(kept.records.targets.len(), kept.card.targets.len());
        }
        let sums = kept.sums();
        prop_assert_eq!(sums.advised_seconds, seconds, "{} restarts", starts);
        // A real compaction may leave a little more than the predicted one.
        prop_assert!(sums.advised.freed_bytes <= made + made / 50, "{sums:?} of {made}");
        prop_assert!(sums.advised.waste_byte_seconds <= sums.real.waste_byte_seconds * (1.0 + 1e-9));
        prop_assert!(sums.advised.peak_waste_bytes <= sums.real.peak_waste_bytes);
    }
}
