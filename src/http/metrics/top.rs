//! The targets with most to reclaim, each by its name.
//!
//! Which they are comes with the snapshot; here one name becomes one series. These are most of a
//! large scrape.

use super::{Rows, places};
use crate::{
    exposition::{LabelSet, LabelSets, Writer, families as f},
    facts::Fact,
    plan::Plan,
    snapshot::{DbIx, Ix, Snapshot, TargetRef},
    target::{Kind, Range, RangeText, State},
};
use hashbrown::{HashMap, HashSet};

/// Letters of a target's labels: of node, database, range, document and signature, with
/// most names.
const LETTERS: usize = 256;

/// What a line has beside its labels: the longest of three names, and a number.
const REST: usize = 56;

/// Writes the families of single targets.
///
/// With many of them most of the time is spent on waiting for memory: their names are looked up
/// once, and in the order in which they lie there.
pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    let listed = listed(&plan.snapshot);
    let mut labels =
        LabelSets::with_room(&f::TARGET_FILE_BYTES, listed.len(), listed.len() * LETTERS);
    let mut sizes = Vec::with_capacity(listed.len());
    let others: Rows<&Sizes, Option<u64>, 6, 2> = [
        (&f::TARGET_ACTIVE_BYTES, |sizes| sizes.active),
        (&f::TARGET_RECLAIMABLE_BYTES, |sizes| sizes.reclaimable),
    ];
    writer.reserve((1 + others.len()) * listed.len() * (LETTERS + REST));
    // What looks the targets up writes at once, so that others can begin to compress it.
    let mut samples = writer.family(&f::TARGET_FILE_BYTES);
    for target in listed.into_iter().filter_map(|ix| plan.snapshot.target(ix)) {
        let (labels, size) = (pushed(&mut labels, target), Sizes::of(target));
        if let Some(bytes) = size.file {
            samples.sample_of(labels, bytes);
        }
        sizes.push(size);
    }
    for (family, fact) in others {
        let mut samples = writer.family(family);
        for (labels, sizes) in labels.iter().zip(&sizes) {
            if let Some(bytes) = fact(sizes) {
                samples.sample_of(labels, bytes);
            }
        }
    }
    let mut samples = writer.family(&f::TARGETS_NOT_EXPORTED);
    for kind in [Kind::Db, Kind::View] {
        let all: u64 = places(plan)
            .map(|(at, _)| plan.snapshot.totals().of(at, kind).states[State::Ok as usize])
            .sum();
        let shown = sizes.iter().filter(|sizes| sizes.kind == kind).count();
        samples.sample(&[kind.label()], all.saturating_sub(shown as u64));
    }
}

/// The targets that show by name, in the order of the tables.
///
/// While a database is deleted and made anew, both instances may count as live. One name is
/// one series: that of the one with more to free. Within an instance the tables hold one
/// target of a node, range and signature, so only names of two instances are looked into.
fn listed(snapshot: &Snapshot) -> Vec<Ix> {
    let top = snapshot.top();
    let mut listed: Vec<Ix> =
        Kind::COMPACTED.iter().flat_map(|kind| top.of(*kind)).copied().collect();
    listed.sort_unstable();
    let targets = || listed.iter().filter_map(|ix| snapshot.target(*ix));
    let mut dbs: Vec<DbIx> = targets().map(TargetRef::db).collect();
    dbs.sort_unstable();
    dbs.dedup();
    let mut names = HashSet::with_capacity(dbs.len());
    let name_of = |db: &DbIx| Some(snapshot.db_name(*db)?.db);
    let twins: HashSet<&str> =
        dbs.iter().filter_map(name_of).filter(|&name| !names.insert(name)).collect();
    if twins.is_empty() {
        return listed;
    }
    let mut labels = LabelSets::with_room(&f::TARGET_FILE_BYTES, 0, 0);
    let mut best: HashMap<String, TargetRef<'_>> = HashMap::new();
    for target in targets().filter(|target| twins.contains(target.db_name().db)) {
        let known = best.entry_ref(pushed(&mut labels, target).text()).or_insert(target);
        if target.reclaimable() > known.reclaimable() {
            *known = target;
        }
    }
    let best: HashSet<Ix> = best.into_values().map(TargetRef::ix).collect();
    let shows =
        |target: TargetRef<'_>| !twins.contains(target.db_name().db) || best.contains(&target.ix());
    targets().filter(|target| shows(*target)).map(TargetRef::ix).collect()
}

fn pushed<'a>(labels: &'a mut LabelSets<6>, target: TargetRef<'_>) -> LabelSet<'a, 6> {
    let range = target.range().map(Range::text);
    let signature = target.view().filter(|view| view.search.is_none());
    let signature = signature.map(|view| view.signature.to_string());
    let design = target.view().and_then(|view| view.designs.first());
    labels.push(&[
        target.node(),
        target.kind().label(),
        target.db_name().db,
        range.as_ref().map_or("", RangeText::as_str),
        design.map_or("", |design| design),
        signature.as_deref().unwrap_or_default(),
    ])
}

/// What is shown of one target, in bytes on disk.
struct Sizes {
    kind: Kind,
    file: Option<u64>,
    active: Option<u64>,
    reclaimable: Option<u64>,
}

impl Sizes {
    fn of(target: TargetRef<'_>) -> Self {
        Self {
            kind: target.kind(),
            file: target.on_disk(Fact::File),
            active: target.on_disk(Fact::Active),
            reclaimable: target.reclaimable(),
        }
    }
}
