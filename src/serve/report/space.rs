//! The bytes of the cluster, how many of them nothing needs, and the free space of each volume.

use super::FullDates;
use crate::{
    advice::AdviceView,
    model::forecast::{Forecast, Withheld},
    plan::{
        Plan,
        disk::{Volume, volume_title},
    },
    table::Waste,
    text::size,
    what_if::VolumeForecasts,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Bytes of the whole cluster, in all copies. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Space {
    /// When the targets were read.
    pub generated_at: String,
    /// Bytes of shards, views and unused files.
    pub file_bytes: Option<u64>,
    /// Bytes of these that compactions are predicted to free.
    pub reclaimable_bytes: Option<u64>,
    /// Bytes of unused files among these: orphans, stale indexes, leftovers of compactions, deleted files; null
    /// if no directory is read and no orphan is known.
    pub unused_bytes: Option<u64>,
    /// Number of shards and views of unknown size; if there are any, the bytes above are lower bounds.
    #[serde(default)]
    pub unmeasured: u64,
    /// Number of nodes whose directories are not read; if there are any, `unused_bytes` is a lower bound, and
    /// `file_bytes` lacks their unused files.
    #[serde(default)]
    pub unread_directories: u64,
    /// Number of views of which some copies were not measured; these are counted as large as the measured one.
    #[serde(default)]
    pub estimated: u64,
    /// Number of targets.
    pub targets: usize,
    /// Number of targets that wait for a compaction.
    pub waiting: usize,
    /// The volumes that are configured or were found.
    pub volumes: Vec<VolumeSpaceLine>,
    /// Nodes without any volume of known free space.
    #[serde(default)]
    pub nodes_without_space: Vec<String>,
}

/// What is on one volume, and how much space is left. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeSpaceLine {
    /// The volume's name in metrics.
    pub volume: String,
    /// The nodes with files on the volume.
    pub nodes: Vec<String>,
    /// Size of the volume.
    pub size_bytes: Option<u64>,
    /// Bytes that can still be written.
    pub available_bytes: Option<u64>,
    /// Whether `available_bytes` is a fixed number of the configuration, which stays the same whatever is written.
    #[serde(default)]
    pub available_is_stated: bool,
    /// Bytes of the volume's files that would remain after compactions; null if a node has several volumes,
    /// because it is unknown which files are on which.
    pub live_bytes: Option<u64>,
    /// Bytes of the volume's files that compactions would free; null if `live_bytes` is.
    pub reclaimable_bytes: Option<u64>,
    /// Bytes of the volume's unused files; null if `live_bytes` is, or if they are unknown.
    pub unused_bytes: Option<u64>,
    /// Number of shards and views of unknown size on the volume's nodes; if there are any, the bytes above are
    /// lower bounds.
    #[serde(default)]
    pub unmeasured: u64,
    /// Live bytes of the largest shard that can be compacted on the volume now, besides `headroom.keep_free`
    /// and what running jobs may still write.
    pub largest_shard_that_fits_bytes: Option<u64>,
    /// Whether there is a forecast.
    #[serde(default)]
    pub growth_known: bool,
    /// When the volume is full if compaction keeps up, within `forecast_until`.
    #[serde(flatten)]
    pub full: FullDates,
    /// When the volume is full if nothing is compacted; null if not within `forecast_until`, or unknown.
    pub full_uncompacted_at: Option<String>,
    /// How far the forecast reaches; null if there is none.
    pub forecast_until: Option<String>,
    /// Why there is no forecast; null if there is one, or if the volume's space is unknown.
    pub forecast_withheld: Option<String>,
    /// Why the volume's space is unknown.
    pub problem: Option<String>,
}

impl Space {
    /// The space according to a plan, with the forecasts of the advice.
    pub fn of(plan: &Plan, advice: &AdviceView) -> Self {
        let waste = Waste::of(&plan.snapshot);
        let disks = &plan.conditions.disks;
        let is_known = |node: &str| disks.of_node(node).any(|volume| volume.space.is_some());
        let members = plan.snapshot.members().map(|(_, node)| &node.name);
        let forecasts = |volume: &Volume| advice.forecasts.by_volume.get(&volume.name);
        let lines = disks.volumes.iter();
        let lines = lines.map(|volume| VolumeSpaceLine::of(plan, volume, forecasts(volume)));
        Self {
            generated_at: plan.snapshot.generated_at().rfc3339(),
            file_bytes: waste.file_bytes(),
            reclaimable_bytes: waste.reclaimable_bytes(),
            unused_bytes: waste.unused_bytes(),
            unmeasured: waste.unmeasured(),
            unread_directories: waste.unread_directories(),
            estimated: waste.estimated(),
            targets: plan.snapshot.targets_once().count(),
            waiting: plan.waiting().map(|(_, waiting)| waiting).sum(),
            volumes: lines.collect(),
            nodes_without_space: members
                .filter(|name| !is_known(name))
                .map(ToString::to_string)
                .collect(),
        }
    }
}

impl Space {
    /// The signs before the bytes of all files, of waste and of unused files, where these are lower bounds or
    /// estimates.
    pub fn bounds(&self) -> [&'static str; 3] {
        let unread = self.unmeasured.saturating_add(self.unread_directories);
        let files = if self.unused_bytes.is_some() { unread } else { self.unmeasured };
        [(files, self.estimated), (self.unmeasured, self.estimated), (unread, 0)]
            .map(|(unknown, estimated)| size::bound(unknown, estimated))
    }

    /// What `file_bytes` includes, in words.
    pub const fn summed(&self) -> &'static str {
        if self.unused_bytes.is_some() {
            "shards, views and unused files"
        } else {
            "shards and views"
        }
    }
}

impl VolumeSpaceLine {
    /// Its name for people.
    pub(crate) fn title(&self) -> String {
        volume_title(&self.volume, &self.nodes)
    }

    /// How much is free, in words.
    pub(crate) fn free_in_words(&self) -> String {
        match (self.available_bytes.map(size::format_size_short), &self.problem) {
            (Some(free), _) => {
                let stated = if self.available_is_stated { ", as configured" } else { "" };
                let Some(of) = self.size_bytes else { return format!("{free} free{stated}") };
                let share = self.available_bytes.unwrap_or_default() as f64 / of.max(1) as f64;
                let of = size::format_size_short(of);
                format!("{free} of {of} free ({:.0}%){stated}", share * 100.0)
            }
            (None, Some(problem)) => format!("free space unknown: {problem}"),
            (None, None) => "free space unknown".to_owned(),
        }
    }

    /// Its size, and its used bytes: live, reclaimable, in unused files, and everything else. `None` if its size or
    /// its used bytes are unknown.
    pub(crate) fn parts(&self) -> Option<(u64, [u64; 4])> {
        let size = self.size_bytes.filter(|size| *size > 0 && !self.available_is_stated)?;
        let mut rest = size.saturating_sub(self.available_bytes.unwrap_or(size));
        let known = [self.live_bytes, self.reclaimable_bytes, self.unused_bytes];
        let [live, waste, unused] = known.map(|bytes| {
            let part = bytes.unwrap_or(0).min(rest);
            rest -= part;
            part
        });
        Some((size, [live, waste, unused, rest]))
    }

    fn of(
        plan: &Plan,
        volume: &Volume,
        forecasts: Option<&Result<VolumeForecasts, Withheld>>,
    ) -> Self {
        let files = plan.waste_on(volume);
        let known = forecasts.and_then(|forecasts| forecasts.as_ref().ok());
        let (in_force, uncompacted) =
            (known.map(|it| &it.in_force), known.map(|it| &it.uncompacted));
        let until = |forecast: &Forecast| forecast.made_at.plus(forecast.reach()).rfc3339();
        let withheld = forecasts.and_then(|forecasts| forecasts.as_ref().err());
        Self {
            volume: volume.name.to_string(),
            nodes: volume.nodes.iter().map(ToString::to_string).collect(),
            size_bytes: volume.space.and_then(|space| space.size),
            available_bytes: volume.space.map(|space| space.available),
            available_is_stated: volume.is_stated,
            live_bytes: files.and_then(Waste::live_bytes),
            reclaimable_bytes: files.and_then(Waste::reclaimable_bytes),
            unused_bytes: files.and_then(Waste::unused_bytes),
            unmeasured: files.map_or(0, Waste::unmeasured),
            largest_shard_that_fits_bytes: plan.largest_shard_that_fits(volume),
            growth_known: known.is_some(),
            full: FullDates::of(in_force),
            full_uncompacted_at: uncompacted.and_then(|it| it.full.median).map(Moment::rfc3339),
            forecast_until: in_force.map(until),
            forecast_withheld: withheld.map(ToString::to_string),
            problem: volume.problem.clone(),
        }
    }
}
