//! Selects the indexes to build now, and gives the reason for the others. Pure.

use super::{
    build_history::{self, BuildHistory, STALLED_AFTER},
    class::{BuildClass, BuildSlots},
    index_lag::{IndexLag, IndexLags},
};
use crate::{
    model::{settings::work::Warmer, target::TargetId},
    plan::{Gate, Plan},
    table::{IndexQuery, NodeIx, SearchAttributes, TargetIx, TargetRef},
};
use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// Facts older than this are read again before a build.
const MAX_FACT_AGE: Duration = Duration::from_secs(30);

/// Maximum number of indexes reread or started per check.
const MAX_STARTS_PER_CHECK: usize = 8;

/// A disk counts as near its threshold from this many percent below.
const THRESHOLD_MARGIN_PERCENT: f64 = 5.0;

/// Why a lagging index is not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuildRefusal {
    /// `warmer.ignore` names its database, or its design documents disable automatic builds.
    Excluded,
    /// Indexers are working on it.
    Running,
    /// It misses no documents, or as far as known nothing has changed since its last build.
    Phantom,
    /// The cluster does not have the engine of this search index, or no node could confirm it.
    NotOffered,
    /// A recent build of it failed.
    CoolDown,
    /// CouchDB's own ken, or a reader, may be about to build it.
    Grace,
    /// An operator suspended starts.
    Suspended,
    /// The journal cannot be written.
    Journal,
    /// A node with a copy is in maintenance.
    Maintenance,
    /// A node with a copy is under pressure.
    Pressure,
    /// A shard of its database is being split or moved.
    Resharding,
    /// A disk is near the threshold of CouchDB's disk monitor, or below `headroom.keep_free`.
    Headroom,
    /// All build slots of a node are in use, or `warmer.delay` has not passed.
    NodeLimit,
    /// It is being measured again.
    Stale,
}

impl BuildRefusal {
    /// Every reason.
    pub const ALL: [Self; 14] = [
        Self::Excluded,
        Self::Running,
        Self::Phantom,
        Self::NotOffered,
        Self::CoolDown,
        Self::Grace,
        Self::Suspended,
        Self::Journal,
        Self::Maintenance,
        Self::Pressure,
        Self::Resharding,
        Self::Headroom,
        Self::NodeLimit,
        Self::Stale,
    ];

    /// The reason with this JSON value.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.label() == label)
    }

    /// Explains the reason to a new reader.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Excluded => {
                "warmer.ignore names the database, or its design documents disable automatic builds"
            }
            Self::Running => "an indexer is working on it",
            Self::Phantom => "it misses no documents; only a query would update its sequence",
            Self::NotOffered => "the cluster does not have its search engine",
            Self::CoolDown => "its last build failed recently, and it is not retried yet",
            Self::Grace => "CouchDB may be about to build it by itself (warmer.grace)",
            Self::Suspended => "an operator suspended starts",
            Self::Journal => "recliner's journal cannot be written",
            Self::Maintenance => "a node with a copy is in maintenance",
            Self::Pressure => "a node with a copy is busy",
            Self::Resharding => "a shard of its database is being split or moved",
            Self::Headroom => "a disk with a copy is too full",
            Self::NodeLimit => {
                "a node has reached its limit of indexers, or warmer.delay has not passed"
            }
            Self::Stale => "it is being measured again first",
        }
    }

    /// The value in JSON; identical to the compaction plan's value for the same reason.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Excluded => "excluded",
            Self::Running => "running",
            Self::Phantom => "phantom",
            Self::NotOffered => "not_offered",
            Self::CoolDown => "cool_down",
            Self::Grace => "grace",
            Self::Suspended => "suspended",
            Self::Journal => "journal",
            Self::Maintenance => "maintenance",
            Self::Pressure => "pressure",
            Self::Resharding => "resharding",
            Self::Headroom => "headroom",
            Self::NodeLimit => "node_limit",
            Self::Stale => "stale",
        }
    }
}

/// Build status of a lagging index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStatus {
    /// It is built now, or would be in enforce mode.
    Starting,
    /// This process requested a build, and indexers are working on it or about to.
    Building,
    /// It waits.
    Waiting(BuildRefusal),
}

/// A lagging index.
#[derive(Clone, Debug, PartialEq)]
pub struct LaggingIndex {
    /// The index.
    pub ix: TargetIx,
    /// Its identity.
    pub id: TargetId,
    /// Its database.
    pub db: String,
    /// Id of its first design document.
    pub design: Arc<str>,
    /// Attributes of a search index.
    pub search: Option<SearchAttributes>,
    /// The query that makes CouchDB build it; `None` if only readers' queries may build it.
    pub query: Option<IndexQuery>,
    /// Its build class.
    pub class: BuildClass,
    /// Its build status.
    pub status: BuildStatus,
    /// Number of sequences not indexed, over one copy of each range. For a search index, a lower
    /// bound. `None` if it is unknown whether it lags.
    pub pending: Option<u64>,
    /// Since when it lags without an indexer.
    pub lagging_since: Option<Moment>,
    /// Since when it makes no progress, neither by its indexers nor by requested builds.
    pub stalled_since: Option<Moment>,
}

/// Inputs of the selection other than the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectionInputs<'a> {
    pub(super) plan: &'a Plan,
    pub(super) settings: &'a Warmer,
    /// Disk usage in percent from which CouchDB's disk monitor stops builds, by node; absent if the
    /// monitor is off.
    pub(super) thresholds: &'a BTreeMap<NodeIx, f64>,
    /// Whether selected indexes are really built; if so, they are measured again first.
    pub(super) is_enforcing: bool,
    /// Seed of the random order.
    pub(super) seed: u64,
    pub(super) now: Moment,
}

/// Result of the selection.
#[derive(Debug, Default)]
pub(super) struct BuildSelection {
    /// All lagging indexes.
    pub(super) indexes: Vec<LaggingIndex>,
    /// The builds to start: positions in the list of lags, with their classes.
    pub(super) starts: Vec<(usize, BuildClass)>,
    /// Indexes to measure again before a decision.
    pub(super) reread: Vec<TargetIx>,
}

/// Selects the indexes to build.
pub(super) fn select_builds(
    looked: &IndexLags,
    memory: &BuildHistory,
    present: SelectionInputs<'_>,
) -> BuildSelection {
    let all = looked.buildable.as_slice();
    let work = build_history::active_indexers(&present.plan.conditions.jobs);
    let mut channels = BuildSlots::default();
    for job in present.plan.conditions.jobs.list.iter().filter(|job| !job.is_compaction()) {
        channels.occupy(job.key.node, 1);
    }
    let out = |seen: &IndexLag| memory.get(seen.ix).and_then(|entry| entry.running);
    for seen in all.iter().filter(|seen| out(seen).is_some() && !work.contains_key(&seen.ix)) {
        channels.occupy_all(seen);
    }
    let mut order: Vec<usize> = (0..all.len())
        .filter(|at| all.get(*at).is_some_and(|seen| seen.pending > 0 || out(seen).is_some()))
        .collect();
    order.sort_by_cached_key(|at| shuffle_key(present.seed, *at));
    let mut chosen = BuildSelection::default();
    for at in order {
        let Some(seen) = all.get(at) else { continue };
        let Some(target) = present.plan.snapshot.target(seen.ix) else { continue };
        let Some(view) = target.view() else { continue };
        let entry = memory.get(seen.ix);
        let mut class = BuildClass::for_lag(seen, present.settings);
        let standing = match out(seen) {
            Some(out) => {
                class = out.class;
                BuildStatus::Building
            }
            None => match refusal(seen, target, view.build_query.is_some(), memory, present) {
                _ if work.contains_key(&seen.ix) => BuildStatus::Waiting(BuildRefusal::Running),
                Some(reason) => BuildStatus::Waiting(reason),
                None => {
                    let last = entry.and_then(|entry| entry.last_build);
                    match channels.startable_class(seen, last, present.settings, present.now) {
                        None => BuildStatus::Waiting(BuildRefusal::NodeLimit),
                        Some(_)
                            if chosen.starts.len() + chosen.reread.len()
                                >= MAX_STARTS_PER_CHECK =>
                        {
                            BuildStatus::Waiting(BuildRefusal::NodeLimit)
                        }
                        Some(free) => {
                            channels.occupy_all(seen);
                            if present.is_enforcing
                                && seen.measured_at.age(present.now) > MAX_FACT_AGE
                            {
                                let asked = entry.is_some_and(|it| {
                                    it.awaits_reread(seen.measured_at, present.now)
                                });
                                if !asked {
                                    chosen.reread.push(seen.ix);
                                }
                                BuildStatus::Waiting(BuildRefusal::Stale)
                            } else {
                                class = free;
                                chosen.starts.push((at, free));
                                BuildStatus::Starting
                            }
                        }
                    }
                }
            },
        };
        let silent = work.get(&seen.ix).map(|work| work.last_progress_at);
        let silent = silent.filter(|last| last.age(present.now) > STALLED_AFTER);
        chosen.indexes.push(LaggingIndex {
            class,
            status: standing,
            pending: (!seen.may_be_current).then_some(seen.pending),
            lagging_since: entry.and_then(|entry| entry.lag).map(|lag| lag.since),
            stalled_since: silent.or_else(|| {
                entry
                    .filter(|_| standing != BuildStatus::Waiting(BuildRefusal::Phantom))?
                    .stalled_since
            }),
            ..LaggingIndex::unmeasured(target)
        });
    }
    let absent = looked.without_engine.iter().filter_map(|ix| present.plan.snapshot.target(*ix));
    chosen.indexes.extend(absent.map(LaggingIndex::unmeasured));
    chosen
}

impl LaggingIndex {
    /// An index about which only its identity is known, e.g. if its engine is missing.
    fn unmeasured(target: TargetRef<'_>) -> Self {
        let view = target.view();
        Self {
            ix: target.ix(),
            id: target.id(),
            db: target.db_name().db.to_owned(),
            design: view
                .and_then(|view| view.designs.first())
                .map_or_else(Arc::default, Arc::clone),
            search: target.search().cloned(),
            query: view.and_then(|view| view.build_query.clone()),
            class: BuildClass::Batch,
            status: BuildStatus::Waiting(BuildRefusal::NotOffered),
            pending: None,
            lagging_since: None,
            stalled_since: None,
        }
    }
}

/// Why an index is not built, build slots aside.
fn refusal(
    seen: &IndexLag,
    target: TargetRef<'_>,
    addressable: bool,
    memory: &BuildHistory,
    present: SelectionInputs<'_>,
) -> Option<BuildRefusal> {
    let SelectionInputs { plan, settings, now, .. } = present;
    let entry = memory.get(seen.ix);
    if !addressable || settings.ignore.matches(target.db_name().db) {
        return Some(BuildRefusal::Excluded);
    }
    if memory.is_phantom(seen) {
        return Some(BuildRefusal::Phantom);
    }
    if entry.and_then(|entry| entry.backoff_until).is_some_and(|until| until > now) {
        return Some(BuildRefusal::CoolDown);
    }
    let since = entry.and_then(|entry| entry.lag).map_or(seen.measured_at, |lag| lag.since);
    if since.age(now) < settings.grace {
        return Some(BuildRefusal::Grace);
    }
    let gates = [
        (Gate::Suspended, BuildRefusal::Suspended),
        (Gate::Journal, BuildRefusal::Journal),
        (Gate::Maintenance, BuildRefusal::Maintenance),
        (Gate::Pressure, BuildRefusal::Pressure),
    ];
    let sites = || seen.database.copies_by_node.keys().copied();
    let places = || std::iter::once(NodeIx::CLUSTER).chain(sites());
    for (gate, reason) in gates {
        if places().any(|node| plan.gate_refusal(gate, node).is_some()) {
            return Some(reason);
        }
    }
    if seen.database.resharding {
        return Some(BuildRefusal::Resharding);
    }
    sites()
        .any(|node| is_nearly_full(node, seen.is_search, present))
        .then_some(BuildRefusal::Headroom)
}

/// Whether a disk of a node is close to the limit at which CouchDB stops building views, or
/// recliner stops starting jobs. CouchDB's monitor does not affect search indexes.
fn is_nearly_full(node: NodeIx, search: bool, present: SelectionInputs<'_>) -> bool {
    let Some(name) = present.plan.snapshot.node(node).map(|node| &node.name) else { return false };
    let mut volumes = present.plan.conditions.disks.of_node(name);
    let threshold = present.thresholds.get(&node).filter(|_| !search);
    let threshold = threshold.map_or(100.0, |threshold| threshold - THRESHOLD_MARGIN_PERCENT);
    let free = present.plan.rules.headroom.keep_free_percent.max(100.0 - threshold);
    volumes.any(|volume| {
        let space = volume.space.and_then(|space| Some((space.available, space.size?)));
        space.is_some_and(|(available, size)| available as f64 * 100.0 < size as f64 * free)
    })
}

/// A sort key that is random but reproducible for a given seed.
fn shuffle_key(luck: u64, at: usize) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one((luck, at))
}

#[cfg(test)]
mod tests;
