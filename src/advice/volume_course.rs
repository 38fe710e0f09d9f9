//! When volumes will be full, by the growth of the files on them.

use super::{GrowthSums, Situation};
use crate::{
    plan::disk::Volume,
    table::NodeIx,
    what_if::{FillDates, time_until_full},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The expected course of a volume's free space.
#[derive(Clone, Copy, Debug)]
pub(super) struct VolumeCourse {
    /// Free bytes.
    pub(super) available: u64,
    /// Bytes of its files that compactions would leave.
    pub(super) live: u64,
    /// Bytes of its files that compactions would free.
    pub(super) reclaimable: u64,
    /// How fast its files grow.
    pub(super) growth: GrowthSums,
    /// For how long growth was measured.
    pub(super) watched: Duration,
    /// Time until the volume is full if nothing is compacted; none beyond ten years.
    pub(super) uncompacted: Option<Duration>,
    /// Time until it is full if compaction keeps up; none beyond ten years.
    pub(super) compacted: Option<Duration>,
}

impl VolumeCourse {
    /// None if its space or its growth is not known.
    pub(super) fn of(situation: &Situation<'_>, volume: &Volume) -> Option<Self> {
        let available = volume.space?.available;
        let files = situation.inputs.plan.waste_on(volume)?;
        let members: Vec<_> = situation.snapshot().members().collect();
        let mut growth = GrowthSums::default();
        let views = situation.survey.node(NodeIx::CLUSTER);
        for name in &volume.nodes {
            let (ix, _) = members.iter().find(|(_, node)| node.name == *name && node.is_served)?;
            let node = situation.survey.node(*ix);
            let share = 1.0 / members.len() as f64;
            growth.add(&node.growth, 1.0);
            growth.add(&views.growth, share);
        }
        let watched = growth.watched()?;
        if watched < situation.settings().min_watched {
            return None;
        }
        let uncompacted = time_until_full(available as f64, growth.file_rate);
        let (live, reclaimable) = files.live_bytes().zip(files.reclaimable_bytes())?;
        let compacted = time_until_full((available + reclaimable) as f64, growth.active_rate);
        Some(Self { available, live, reclaimable, growth, watched, uncompacted, compacted })
    }
}

/// The simulated dates, or those by the growth of the last days.
pub(super) fn dates_of(
    situation: &Situation<'_>,
    volume: &Volume,
    course: &VolumeCourse,
) -> FillDates {
    let simulated = situation.inputs.volume_dates.as_ref();
    if let Some(dates) = simulated.and_then(|dates| dates.volumes.get(&volume.name)) {
        return *dates;
    }
    let date = |time: Option<Duration>| time.map(|time| situation.now.plus(time));
    FillDates {
        uncompacted: date(course.uncompacted),
        compacted: date(course.compacted),
        ..FillDates::default()
    }
}

/// When each volume with known growth is full, by its name.
pub(super) fn fill_dates(situation: &Situation<'_>) -> BTreeMap<Arc<str>, FillDates> {
    let volumes = situation.inputs.plan.conditions.disks.volumes.iter();
    let dates = volumes.filter_map(|volume| {
        let course = VolumeCourse::of(situation, volume)?;
        Some((Arc::clone(&volume.name), dates_of(situation, volume, &course)))
    });
    dates.collect()
}
