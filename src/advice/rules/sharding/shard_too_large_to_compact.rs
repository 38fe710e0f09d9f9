//! Shards whose volume will never have room to compact them.

use super::split::{split, split_progress};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording, total},
    model::target::TargetState,
    plan::UsableSpace,
    table::{DbIx, NodeIx, TargetRef, Waste},
    text::{counted, listed, size::format_size_short},
};
use couchdb_names::Range;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub(crate) const RULE: Rule = Rule {
    code: "shard_too_large_to_compact",
    finds: "Shards whose compaction needs more space than their volume has, even after everything else on it is compacted.",
    because: "A compaction writes a new file beside the old one, and for a database a second one to sort document ids: the predicted peak is `headroom.factor` times the live bytes, or as much as compactions here really needed. `headroom.keep_free` stays free. Such a shard can never be compacted again, so its file grows until the volume is full. A split writes the live data once more and leaves two shards that each need half as much; it has to happen while there is room for that. The date follows from the shard's measured growth, and assumes that nothing else on the volume grows. More than three affected databases on a volume are one finding about the volume.",
    severities: &[Severity::Critical],
    ..Rule::info(check)
};

/// Maximum number of databases on one volume that get findings of their own: with more, the volume
/// is the problem.
const MAX_DATABASES_OF_A_VOLUME: usize = 3;

/// Maximum number of databases that are named.
const MAX_NAMES: usize = 8;

/// Maximum number of split requests that are listed one by one.
const MAX_SPLITS: usize = 8;

/// Maximum number of days ahead that are searched for a date.
const MAX_DAYS: u64 = 3_650;

/// The space of a node's fullest volume.
#[derive(Clone, Copy, Debug)]
struct Room<'a> {
    usable: UsableSpace<'a>,
    /// Bytes that all other compactions and the removal of unused files may free there.
    freeable: u64,
}

impl Room<'_> {
    const fn limit(&self) -> u64 {
        self.usable.bytes.saturating_add(self.freeable)
    }
}

/// A shard copy that does not fit.
#[derive(Clone, Copy, Debug)]
struct Stuck<'a> {
    target: TargetRef<'a>,
    live_bytes: u64,
    peak_bytes: u64,
    room: Room<'a>,
}

impl Stuck<'_> {
    const fn lacking(&self) -> u64 {
        self.peak_bytes.saturating_sub(self.room.limit())
    }

    /// Days until not even the live data fits on the volume a second time, given its growth; `None`
    /// if growth is unknown or too slow.
    fn days_until_no_split_fits(&self, situation: &Situation<'_>) -> Option<u64> {
        let growth = self.target.growth().ahead(situation.now)?;
        let room = self.room.limit() as f64;
        (0..=MAX_DAYS).find(|days| {
            let span = Duration::from_secs(days * 86_400);
            let (file, active) = growth.within(span);
            self.live_bytes as f64 + active > room - file.max(0.0)
        })
    }
}

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let rooms = rooms(situation);
    let Some(least) = rooms.iter().flatten().map(Room::limit).min() else { return };
    let plan = &situation.inputs.plan;
    let mut by_volume: BTreeMap<&str, Vec<StuckDatabase<'_>>> = BTreeMap::new();
    for (ix, db) in situation.survey.dbs() {
        let Some((_, largest)) = db.largest else { continue };
        let largest = situation.snapshot().target(largest);
        if largest.and_then(|it| plan.compaction_peak(it)).is_none_or(|peak| peak <= least) {
            continue;
        }
        let stuck: Vec<Stuck<'_>> =
            situation.shards_of(ix).filter_map(|it| stuck(situation, &rooms, it)).collect();
        let Some(worst) = stuck.iter().max_by_key(|it| it.lacking()).copied() else { continue };
        let dbs = by_volume.entry(&worst.room.usable.volume.name).or_default();
        dbs.push(StuckDatabase { ix, stuck, worst });
    }
    for (volume, dbs) in by_volume {
        if dbs.len() > MAX_DATABASES_OF_A_VOLUME {
            let bytes = total(dbs.iter().map(StuckDatabase::bytes));
            findings.offer(Gain::Risk(bytes), || volume_finding(situation, volume, dbs));
            continue;
        }
        for db in dbs {
            let gain = Gain::Risk(db.bytes());
            findings.offer(gain, || finding(situation, &db));
        }
    }
}

/// The shard copies of one database that do not fit.
#[derive(Clone, Debug)]
struct StuckDatabase<'a> {
    ix: DbIx,
    stuck: Vec<Stuck<'a>>,
    /// The copy that lacks the most space.
    worst: Stuck<'a>,
}

impl StuckDatabase<'_> {
    /// Bytes of these files, which can only grow.
    fn bytes(&self) -> u64 {
        total(self.stuck.iter().filter_map(|it| it.target.file_bytes()))
    }
}

/// One finding for all databases on a volume: the worst, and how many others there are.
fn volume_finding(
    situation: &Situation<'_>,
    volume: &str,
    mut dbs: Vec<StuckDatabase<'_>>,
) -> Wording {
    dbs.sort_by_key(|db| (Reverse(db.worst.lacking()), db.ix));
    let copies: usize = dbs.iter().map(|db| db.stuck.len()).sum();
    let names = dbs.iter().map(|db| situation.db_name(db.ix).to_owned());
    let names: Vec<String> = names.take(MAX_NAMES).collect();
    let of_worst = finding(situation, &dbs[0]);
    let mut evidence = vec![
        ("databases", (dbs.len() as u64).into()),
        ("all_shard_copies", (copies as u64).into()),
        ("first_databases", listed(&names).into()),
    ];
    evidence.extend(of_worst.evidence);
    let mut remedy = vec![Remedy::choice(format!(
        "With so many of them, the volume {volume} itself is too full: enlarge it, or move shards and unneeded data off it. If that takes long, split the worst first:"
    ))];
    remedy.extend(of_worst.remedy);
    Wording {
        says: format!(
            "{} on the volume {volume} have shards that can never be compacted ({}). The worst: {}",
            counted(dbs.len() as u64, "database", "databases"),
            counted(copies as u64, "shard copy", "shard copies"),
            of_worst.says
        ),
        evidence,
        remedy,
        subject: Subject::Volume(volume.to_owned()),
    }
}

/// The shard, if it can never be compacted; none while it is unknown whether it can, and during a split.
fn stuck<'a>(
    situation: &Situation<'a>,
    rooms: &[Option<Room<'a>>],
    target: TargetRef<'a>,
) -> Option<Stuck<'a>> {
    let room = rooms.get(target.node_ix().as_usize()).copied().flatten()?;
    let live_bytes = target.active_bytes()?;
    let peak_bytes = situation.inputs.plan.compaction_peak(target)?;
    let room = Room {
        freeable: room.freeable.saturating_sub(target.reclaimable_bytes().unwrap_or_default()),
        ..room
    };
    let is_stuck = target.state() == TargetState::Ok
        && live_bytes >= situation.settings().min_bytes
        && peak_bytes > room.limit();
    is_stuck.then_some(Stuck { target, live_bytes, peak_bytes, room })
}

/// By node, the space of its fullest volume.
fn rooms<'a>(situation: &Situation<'a>) -> Vec<Option<Room<'a>>> {
    let nodes = 0..situation.snapshot().nodes().len();
    let room = |at| {
        let node = NodeIx::from_usize(at)?;
        let usable = situation.inputs.plan.usable_space(node)?;
        Some(Room { usable, freeable: freeable(situation, &usable) })
    };
    nodes.map(room).collect()
}

/// Bytes that compactions and cleanups may free on a volume at most. Indexes, whose location is
/// unknown over HTTP, count with the node's share of the cluster's.
fn freeable(situation: &Situation<'_>, usable: &UsableSpace<'_>) -> u64 {
    let (plan, snapshot) = (&situation.inputs.plan, situation.snapshot());
    let nodes = snapshot.members().filter(|(_, node)| usable.volume.nodes.contains(&node.name));
    let files = nodes.filter_map(|(ix, _)| Waste::on(snapshot, ix).wasted_bytes());
    // Bytes that a running compaction has written are not free now, and will belong to the file that it
    // leaves.
    let running = usable.volume.jobs(&plan.conditions.jobs, snapshot);
    let written = running.filter_map(|job| job.predicted_bytes.or(job.file_bytes));
    total(files.chain(written))
}

fn finding(situation: &Situation<'_>, found: &StuckDatabase<'_>) -> Wording {
    let StuckDatabase { ix, stuck, worst } = found;
    let db = situation.db_name(*ix);
    let days = worst.days_until_no_split_fits(situation);
    let split_fits = worst.live_bytes <= worst.room.limit();
    let date = days.map(|days| situation.now.plus(Duration::from_secs(days * 86_400)).date());
    let date = date.filter(|_| split_fits);
    let until = match &date {
        _ if !split_fits => " Not even a split fits any more.".to_owned(),
        Some(date) => format!(" At its present growth, not even a split will fit from {date} on."),
        None => String::new(),
    };
    let copies = counted(stuck.len() as u64, "shard copy", "shard copies");
    let says = format!(
        "{copies} of {db} can never be compacted: the one on {} needs {} beside its file, and volume {} has {} for compactions, at most {} after everything else on it is compacted.{until}",
        worst.target.node(),
        format_size_short(worst.peak_bytes),
        worst.room.usable.volume.title(),
        format_size_short(worst.room.usable.bytes),
        format_size_short(worst.room.limit()),
    );
    let mut evidence = vec![
        ("shard_copies", (stuck.len() as u64).into()),
        ("needed_bytes", worst.peak_bytes.into()),
        ("usable_bytes", worst.room.usable.bytes.into()),
        ("usable_bytes_after_all_else", worst.room.limit().into()),
        ("live_bytes", worst.live_bytes.into()),
        ("volume", worst.room.usable.volume.name.to_string().into()),
        ("shard", worst.target.shard_name().unwrap_or_default().into()),
    ];
    evidence.extend(date.map(|date| ("no_split_fits_from", date.into())));
    Wording {
        subject: Subject::Database(db.to_owned()),
        says,
        evidence,
        remedy: remedy(situation, found),
    }
}

fn remedy(situation: &Situation<'_>, found: &StuckDatabase<'_>) -> Vec<Remedy> {
    let StuckDatabase { ix, stuck, worst } = found;
    let volume = worst.room.usable.volume.title();
    if worst.live_bytes > worst.room.limit() {
        return vec![Remedy::choice(format!(
            "Enlarge the volume {volume}, or move shards off it; then split the shard, so that its compactions need less space."
        ))];
    }
    let mut steps = Vec::new();
    if worst.live_bytes > worst.room.usable.bytes {
        steps.push(Remedy::choice(format!(
            "Compact everything else on the volume {volume} first: only then is there room for a split."
        )));
    }
    let db = situation.db_name(*ix);
    let ranges: BTreeSet<Range> = stuck.iter().filter_map(|it| it.target.range()).collect();
    if ranges.len() > MAX_SPLITS
        || ranges.len() == situation.snapshot().shard_map(*ix).ranges as usize
    {
        steps.push(split("Split every range of the database in two:", db, None));
    } else {
        let splits = ranges.into_iter();
        steps.extend(splits.map(|it| split("Split all copies of the range:", db, Some(it))));
    }
    steps.push(split_progress());
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Shard, TestCluster};
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;

    fn found(shards: &[Shard], free_gib: Option<u64>) -> Vec<Finding> {
        let mut cluster = TestCluster::with_shards(shards);
        let free = free_gib.map(|free| free * GIB);
        cluster.set_free_space(&[("a", free), ("b", Some(9_000 * GIB))]);
        cluster.findings_of(&RULE)
    }

    fn shards() -> [Shard; 3] {
        let shard = |node, range| Shard::new("orders", node, range, 100 * GIB);
        [shard("a", 0), shard("b", 0), Shard::new("small", "a", 0, GIB)]
    }

    #[test]
    fn a_shard_that_needs_more_than_its_volume_has_is_critical() {
        let found = found(&shards(), Some(219));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "1 shard copy of orders can never be compacted: the one on a needs 220 GiB beside its file, and volume data-a has 219 GiB for compactions, at most 219 GiB after everything else on it is compacted."
        );
        assert_eq!((only.severity, only.gain), (Severity::Critical, Gain::Risk(100 * GIB)));
        let text = only.remedy[0].text.as_deref().unwrap_or_default();
        assert!(text.ends_with(r#"-d '{"db":"orders","type":"split"}'"#), "{text}");
    }

    #[test]
    fn many_large_shards_on_one_volume_give_one_finding() {
        let shard = |(db, gib): (&'static str, u64)| Shard::new(db, "a", 0, gib * GIB);
        let dbs = [("orders", 90), ("carts", 100), ("events", 80), ("audit", 70), ("small", 1)];
        let shards = dbs.map(shard);
        assert_eq!(found(&shards[..3], Some(10)).len(), 3);
        let found = found(&shards, Some(10));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "4 databases on the volume data-a have shards that can never be compacted (4 shard copies). The worst: 1 shard copy of carts can never be compacted: the one on a needs 220 GiB beside its file, and volume data-a has 10 GiB for compactions, at most 10 GiB after everything else on it is compacted. Not even a split fits any more."
        );
        assert_eq!(only.subject, Subject::Volume("data-a".to_owned()));
        assert_eq!(only.gain, Gain::Risk(340 * GIB));
        assert!(only.remedy.len() > 1);
    }

    #[test]
    fn ignores_shard_that_fits_after_other_compactions() {
        assert_eq!(found(&shards(), Some(221)), []);
        let [first, second, small] = shards();
        let bloated = Shard { file_bytes: Some(3 * GIB), ..small };
        assert_eq!(found(&[first, second, bloated], Some(219)), []);
    }

    #[test]
    fn space_kept_free_is_not_available_for_compactions() {
        let of_size = |size_gib: u64| {
            let mut cluster = TestCluster::with_shards(&shards());
            cluster.set_free_space(&[("a", Some(300 * GIB)), ("b", Some(9_000 * GIB))]);
            let disks = Arc::make_mut(&mut cluster.conditions.disks);
            let space = disks.volumes[0].space.as_mut().unwrap();
            space.size = Some(size_gib * GIB);
            cluster.findings_of(&RULE).len()
        };
        assert_eq!((of_size(1_000), of_size(700)), (1, 0));
    }

    #[test]
    fn says_when_not_even_a_split_will_fit() {
        let [first, second, _] = shards();
        let growing = first.grown_from(10 * 86_400, 90 * GIB, 90 * GIB);
        let says = found(&[growing.clone(), second.clone()], Some(121))[0].says.clone();
        assert!(
            says.ends_with(" At its present growth, not even a split will fit from 2026-12-02 on."),
            "{says}"
        );
        let late = &found(&[growing, second], Some(99))[0];
        assert!(late.says.ends_with(" Not even a split fits any more."), "{}", late.says);
        assert_eq!(late.remedy.len(), 1);
    }

    #[test]
    fn is_silent_if_free_space_or_sizes_are_unknown() {
        assert_eq!(found(&shards(), None), []);
        let [first, ..] = shards();
        assert_eq!(found(&[Shard { active_bytes: None, ..first }], Some(1)), []);
        assert_eq!(TestCluster::with_shards(&shards()).findings_of(&RULE), []);
    }
}
