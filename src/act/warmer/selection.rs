//! Selects the indexes to build now, and gives the reason for the others. Pure.

use super::{
    build_history::{self, ActiveIndexers, BuildHistory, STALLED_AFTER},
    class::{BuildClass, BuildSlots},
    index_lag::{IndexLag, IndexLags},
};
use crate::{
    jobs::FailedBuilds,
    model::{settings::work::Warmer, target::TargetId},
    plan::{Plan, RefusalReason},
    table::{IndexQuery, NodeIx, SearchAttributes, TargetIx, TargetRef},
};
use hashbrown::HashMap;
use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// Facts older than this are read again before a build.
const MAX_FACT_AGE: Duration = Duration::from_secs(30);

/// Maximum number of indexes reread or started per check.
const MAX_STARTS_PER_CHECK: usize = 8;

/// A disk counts as near its threshold from this many percent below.
const THRESHOLD_MARGIN_PERCENT: f64 = 5.0;

/// Why a lagging index is not built.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuildRefusal {
    /// `warmer.ignore` names its database, or its design documents disable automatic builds.
    Excluded,
    /// Indexers are working on it.
    Running,
    /// It lacks no documents, or nothing is known to have changed since its last build.
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
    /// A node with a copy is in maintenance, or being upgraded.
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
    /// Explains the reason to a new reader.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Excluded => {
                "warmer.ignore names the database, or its design documents disable automatic builds"
            }
            Self::Running => "an indexer is working on it",
            Self::Phantom => "it lacks no documents; only a query would update its sequence",
            Self::NotOffered => "the cluster does not have its search engine",
            Self::CoolDown => "its last build failed recently; it is too early to retry",
            Self::Grace => "CouchDB may soon build it by itself (warmer.grace)",
            Self::Suspended => "an operator suspended starts",
            Self::Journal => "recliner's journal cannot be written",
            Self::Maintenance => "a node with a copy is in maintenance or being upgraded",
            Self::Pressure => "a node with a copy is busy",
            Self::Resharding => "a shard of its database is being split or moved",
            Self::Headroom => "a disk with a copy is too full",
            Self::NodeLimit => {
                "a node has reached its limit of indexers, or warmer.delay has not passed"
            }
            Self::Stale => "it must be measured again first",
        }
    }

    /// Why an index with this reason waits: completes "an index that lags is not built because".
    pub const fn because(self) -> &'static str {
        match self {
            Self::Excluded => {
                "`warmer.ignore` names its database, or each of its design documents has `\"autoupdate\": false` or `{\"views\": false}`; for search indexes `{\"nouveau\": false}` or `{\"indexes\": false}`."
            }
            Self::Running => "an indexer works on it, whatever started that.",
            Self::Phantom => {
                "it lacks no document: `_security`, revision limits and purges also change sequences, and CouchDB catches up only at the next write or query."
            }
            Self::NotOffered => {
                "a node reports that it lacks the search engine, or no node could be asked; recliner sends no requests for it."
            }
            Self::CoolDown => {
                "its last build had no effect; the pause is `warmer.delay`, then twice as long each time, up to an hour."
            }
            Self::Grace => {
                "it has not lagged for `warmer.grace` yet: CouchDB's ken or a reader may build it first."
            }
            Self::Maintenance => {
                "the gate of that name, or `upgrade`, is closed on a node with a copy."
            }
            Self::Suspended | Self::Journal | Self::Pressure => {
                "the gate of that name is closed on a node with a copy."
            }
            Self::Resharding => "a shard of its database is being split or moved.",
            Self::Headroom => {
                "a disk with a copy is within five percent of the threshold at which CouchDB's disk monitor stops builds (`[disk_monitor] background_view_indexing_threshold`, if it is enabled), or has less free space than `headroom.keep_free`."
            }
            Self::NodeLimit => {
                "a node has reached its limit of indexers, or `warmer.delay` is not over."
            }
            Self::Stale => "it must be measured again first.",
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
    /// Least number of sequences not indexed: for a view, often those of one range, as only one of
    /// its files is read. `None` if it is unknown whether it lags.
    pub pending: Option<u64>,
    /// Since when it has lagged and nothing has brought it forward.
    pub lagging_since: Option<Moment>,
    /// Since when neither its indexers nor requested builds have made progress.
    pub stalled_since: Option<Moment>,
    /// Its builds that failed in a row.
    pub failed: Option<FailedBuilds>,
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

#[derive(Debug, Default)]
pub(super) struct BuildSelection {
    /// All lagging indexes.
    pub(super) indexes: Vec<LaggingIndex>,
    /// The builds to start: positions in the list of lags, with their classes.
    pub(super) starts: Vec<(usize, BuildClass)>,
    /// Indexes to measure again before a decision.
    pub(super) reread: Vec<TargetIx>,
}

pub(super) fn select_builds(
    lags: &IndexLags,
    history: &BuildHistory,
    inputs: SelectionInputs<'_>,
) -> BuildSelection {
    let indexers = build_history::active_indexers(&inputs.plan.conditions.jobs);
    let slots = occupied_slots(&lags.buildable, history, &indexers, inputs);
    let mut selector =
        Selector { inputs, history, indexers, slots, selection: BuildSelection::default() };
    let mut order: Vec<(usize, &IndexLag)> = (lags.buildable.iter().enumerate())
        .filter(|(_, lag)| lag.pending > 0 || history.running_build(lag.ix).is_some())
        .collect();
    order.sort_by_cached_key(|(at, _)| shuffle_key(inputs.seed, *at));
    for (at, lag) in order {
        selector.add(at, lag);
    }
    let mut selection = selector.selection;
    let without_engine =
        lags.without_engine.iter().filter_map(|ix| inputs.plan.snapshot.target(*ix));
    selection.indexes.extend(without_engine.map(LaggingIndex::unmeasured));
    selection
}

/// The slots occupied by running indexers, and by requested builds that no node shows yet.
fn occupied_slots(
    lags: &[IndexLag],
    history: &BuildHistory,
    indexers: &HashMap<TargetIx, ActiveIndexers>,
    inputs: SelectionInputs<'_>,
) -> BuildSlots {
    let mut slots = BuildSlots::default();
    for job in inputs.plan.conditions.jobs.list.iter().filter(|job| !job.is_compaction()) {
        slots.occupy(job.key.node, 1);
    }
    let is_requested = |lag: &&IndexLag| history.running_build(lag.ix).is_some();
    for lag in lags.iter().filter(is_requested).filter(|lag| !indexers.contains_key(&lag.ix)) {
        slots.occupy_all(lag);
    }
    slots
}

/// A selection in progress.
struct Selector<'a> {
    inputs: SelectionInputs<'a>,
    history: &'a BuildHistory,
    indexers: HashMap<TargetIx, ActiveIndexers>,
    slots: BuildSlots,
    selection: BuildSelection,
}

impl Selector<'_> {
    /// Decides about an index; `at` is its position in the list of lags.
    fn add(&mut self, at: usize, lag: &IndexLag) {
        let Some(target) = self.inputs.plan.snapshot.target(lag.ix) else { return };
        let Some(view) = target.view() else { return };
        let (class, status) = self.decide(at, lag, target, view.build_query.is_some());
        let now = self.inputs.now;
        let last_progress_at = self.indexers.get(&lag.ix).map(|it| it.last_progress_at);
        let silent_since = last_progress_at.filter(|last| last.age(now) > STALLED_AFTER);
        let history = self.history.get(lag.ix);
        let failed = history
            .filter(|_| status != BuildStatus::Waiting(BuildRefusal::Phantom))
            .and_then(|history| history.failed.clone());
        self.selection.indexes.push(LaggingIndex {
            class,
            status,
            pending: (!lag.may_be_current).then_some(lag.pending),
            lagging_since: history.and_then(|history| history.lag).map(|lag| lag.since),
            stalled_since: silent_since.or_else(|| failed.as_ref().map(|it| it.since)),
            failed,
            ..LaggingIndex::unmeasured(target)
        });
    }

    fn decide(
        &mut self,
        at: usize,
        lag: &IndexLag,
        target: TargetRef<'_>,
        is_addressable: bool,
    ) -> (BuildClass, BuildStatus) {
        let SelectionInputs { settings, now, is_enforcing, .. } = self.inputs;
        if let Some(build) = self.history.running_build(lag.ix) {
            return (build.class, BuildStatus::Building);
        }
        let class = BuildClass::for_lag(lag, settings);
        if self.indexers.contains_key(&lag.ix) {
            return (class, BuildStatus::Waiting(BuildRefusal::Running));
        }
        if let Some(reason) = refusal(lag, target, is_addressable, self.history, self.inputs) {
            return (class, BuildStatus::Waiting(reason));
        }
        let history = self.history.get(lag.ix);
        let last = history.and_then(|history| history.last_build);
        let free = self.slots.startable_class(lag, last, settings, now);
        let begun = self.selection.starts.len() + self.selection.reread.len();
        let Some(free) = free.filter(|_| begun < MAX_STARTS_PER_CHECK) else {
            return (class, BuildStatus::Waiting(BuildRefusal::NodeLimit));
        };
        self.slots.occupy_all(lag);
        if is_enforcing && lag.measured_at.age(now) > MAX_FACT_AGE {
            let is_awaited =
                history.is_some_and(|history| history.awaits_reread(lag.measured_at, now));
            if !is_awaited {
                self.selection.reread.push(lag.ix);
            }
            return (class, BuildStatus::Waiting(BuildRefusal::Stale));
        }
        self.selection.starts.push((at, free));
        (free, BuildStatus::Starting)
    }
}

impl LaggingIndex {
    /// An index of which only the identity is known, e.g. because its engine is missing.
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
            failed: None,
        }
    }
}

/// Why an index is not built, build slots aside.
fn refusal(
    lag: &IndexLag,
    target: TargetRef<'_>,
    is_addressable: bool,
    history: &BuildHistory,
    inputs: SelectionInputs<'_>,
) -> Option<BuildRefusal> {
    let SelectionInputs { plan, settings, now, .. } = inputs;
    let entry = history.get(lag.ix);
    if !is_addressable || settings.ignore.matches(target.db_name().db) {
        return Some(BuildRefusal::Excluded);
    }
    if history.is_phantom(lag) {
        return Some(BuildRefusal::Phantom);
    }
    if entry.and_then(|entry| entry.backoff_until).is_some_and(|until| until > now) {
        return Some(BuildRefusal::CoolDown);
    }
    let since = entry.and_then(|entry| entry.lag).map_or(lag.measured_at, |lag| lag.grace_from);
    if since.age(now) < settings.grace {
        return Some(BuildRefusal::Grace);
    }
    let gates = [
        (RefusalReason::Suspended, BuildRefusal::Suspended),
        (RefusalReason::Journal, BuildRefusal::Journal),
        (RefusalReason::Maintenance, BuildRefusal::Maintenance),
        (RefusalReason::Upgrade, BuildRefusal::Maintenance),
        (RefusalReason::Pressure, BuildRefusal::Pressure),
    ];
    let nodes = || lag.database.copies_by_node.keys().copied();
    let nodes_and_cluster = || std::iter::once(NodeIx::CLUSTER).chain(nodes());
    for (gate, reason) in gates {
        if nodes_and_cluster().any(|node| plan.gate_refusal(gate, node).is_some()) {
            return Some(reason);
        }
    }
    if lag.database.resharding {
        return Some(BuildRefusal::Resharding);
    }
    nodes()
        .any(|node| is_nearly_full(node, lag.is_search, inputs))
        .then_some(BuildRefusal::Headroom)
}

/// Whether a disk of a node is close to the limit at which CouchDB stops building views, or
/// recliner stops starting jobs. CouchDB's monitor does not affect search indexes.
fn is_nearly_full(node: NodeIx, is_search: bool, inputs: SelectionInputs<'_>) -> bool {
    let Some(name) = inputs.plan.snapshot.node(node).map(|node| &node.name) else { return false };
    let mut volumes = inputs.plan.conditions.disks.of_node(name);
    let threshold = inputs.thresholds.get(&node).filter(|_| !is_search);
    let threshold = threshold.map_or(100.0, |threshold| threshold - THRESHOLD_MARGIN_PERCENT);
    let free = inputs.plan.rules.headroom.keep_free_percent.max(100.0 - threshold);
    volumes.any(|volume| {
        let space = volume.space.and_then(|space| Some((space.available, space.size?)));
        space.is_some_and(|(available, size)| available as f64 * 100.0 < size as f64 * free)
    })
}

/// A sort key that is random but reproducible for a given seed.
fn shuffle_key(seed: u64, at: usize) -> u64 {
    BuildHasherDefault::<DefaultHasher>::new().hash_one((seed, at))
}

#[cfg(test)]
mod tests;
