//! Everything that rules may read.

use super::{CopyHistory, ForecastsByVolume, LagHistory, Survey};
use crate::{
    jobs::FailedBuildsByIndex,
    model::{
        reads::Reads,
        settings::{
            Settings,
            advice::{AdviceSettings, RemedySettings},
        },
    },
    plan::Plan,
    scan::ScanStatus,
    sources::node_settings::NodeSettings,
    table::{DbIx, NodeIx, Snapshot, TargetIx, TargetRef},
};
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// The inputs of the rules, as other tasks last published them.
#[derive(Clone, Debug)]
pub struct AdviceInputs {
    /// The plan, with its snapshot, channels, jobs, volumes, remembered outcomes and settings.
    pub plan: Arc<Plan>,
    /// The state of the scanner.
    pub status: Arc<ScanStatus>,
    /// Settings of the nodes; empty if settings are not read.
    pub node_settings: Arc<NodeSettings>,
    /// The forecasts of volumes; empty without a running recliner.
    pub forecasts: Arc<ForecastsByVolume>,
    /// Earlier lags of indexes.
    pub lags: Arc<LagHistory>,
    /// Which copies of shards differ, and since when.
    pub copies: Arc<CopyHistory>,
    /// Who reads the indexes, according to access logs; empty in commands that read the cluster
    /// once.
    pub reads: Arc<Reads>,
    /// The indexes whose builds failed; empty in commands that read the cluster once.
    pub failed_builds: Arc<FailedBuildsByIndex>,
    /// The thresholds.
    pub settings: AdviceSettings,
    /// Settings that remedies check, so that they do not advise what is already configured.
    pub remedy_settings: RemedySettings,
}

impl AdviceInputs {
    /// The inputs for a command that reads the cluster once, without what only the service learns
    /// over time.
    pub(crate) fn of_one_reading(
        plan: Arc<Plan>,
        status: Arc<ScanStatus>,
        node_settings: Arc<NodeSettings>,
        settings: &Settings,
    ) -> Self {
        Self {
            plan,
            status,
            node_settings,
            forecasts: Arc::default(),
            lags: Arc::default(),
            copies: Arc::default(),
            reads: Arc::default(),
            failed_builds: Arc::default(),
            settings: settings.advice,
            remedy_settings: settings.into(),
        }
    }
}

/// The inputs, with the sums that one pass over all targets gathered.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// What other tasks published.
    pub inputs: &'a AdviceInputs,
    /// Sums by database.
    pub survey: &'a Survey,
    /// The present moment.
    pub now: Moment,
}

impl<'a> Situation<'a> {
    /// All targets.
    pub fn snapshot(&self) -> &'a Snapshot {
        &self.inputs.plan.snapshot
    }

    /// The thresholds.
    pub const fn settings(&self) -> &'a AdviceSettings {
        &self.inputs.settings
    }

    /// Whether any channel ranks by rent.
    pub fn has_rent_channel(&self) -> bool {
        self.inputs.plan.channels.by_rent().next().is_some()
    }

    /// Number of copies that each range of a database has on average, at least one.
    pub fn copies_of(&self, db: DbIx) -> u64 {
        let map = self.snapshot().shard_map(db);
        u64::from(map.copies.checked_div(map.ranges).unwrap_or(1).max(1))
    }

    /// Targets that the survey lists individually.
    pub fn listed(&self, list: &'a [TargetIx]) -> impl Iterator<Item = TargetRef<'a>> {
        let snapshot = self.snapshot();
        list.iter().filter_map(|ix| snapshot.target(*ix))
    }

    /// The shard copies of a database that are in the shard map and on disk.
    pub fn shards_of(&self, db: DbIx) -> impl Iterator<Item = TargetRef<'a>> {
        let snapshot = self.snapshot();
        self.survey.shards_of(db).filter_map(|row| snapshot.target_at(row))
    }

    /// The shard copies on a node that are in the shard map and on disk.
    pub fn shards_on(&self, node: NodeIx) -> impl Iterator<Item = TargetRef<'a>> {
        let snapshot = self.snapshot();
        self.survey.shards_on(node).filter_map(|row| snapshot.target_at(row))
    }

    /// The view indexes of a database.
    pub fn views_of(&self, db: DbIx) -> impl Iterator<Item = TargetRef<'a>> {
        let snapshot = self.snapshot();
        self.survey.views_of(db).filter_map(|row| snapshot.target_at(row))
    }

    /// The name of a database, without the suffix of its files.
    pub fn db_name(&self, db: DbIx) -> &'a str {
        self.snapshot().db_name(db).map_or("", |name| name.db)
    }
}

/// Values by their keys, in the order in which they come.
pub(super) fn grouped_by<K: Ord, V>(
    pairs: impl IntoIterator<Item = (K, V)>,
) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    pairs.into_iter().for_each(|(key, value)| groups.entry(key).or_default().push(value));
    groups
}

/// A sum that stays at the largest number.
pub(super) fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}
