//! The forecasts of all volumes: when they are made, which are kept, and how they compare with what
//! happened.
//!
//! Owns the results of the simulations that they need, and the records. Its task stores the
//! records.

use crate::{
    model::{
        channel::Channels,
        forecast::{GrowthHistories, Withheld, reach_of},
        records::{ForecastRecord, StateChange},
    },
    plan::Plan,
    what_if::{SimulatedRules, VolumeForecasts, volume_forecasts},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::task::JoinHandle;
use wall_clock::Moment;

/// Interval between forecasts, which cover whole days.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// Interval between simulations, each of which takes seconds of CPU time and the memory of a
/// what-if; and the shorter interval while a volume is about to fill.
const SIMULATION_INTERVAL: Duration = Duration::from_secs(24 * 3_600);
const SIMULATION_INTERVAL_FILLING: Duration = Duration::from_secs(6 * 3_600);

/// The forecasts of each volume by name, or why there is none. Volumes with unknown free space are left out.
pub type ForecastsByVolume = BTreeMap<Arc<str>, Result<VolumeForecasts, Withheld>>;

/// The forecasts, and what they are made from.
#[derive(Clone, Debug, Default)]
pub struct ForecastView {
    /// The forecasts.
    pub by_volume: Arc<ForecastsByVolume>,
    /// The recorded growth, for forecasts under other rules.
    pub histories: Arc<GrowthHistories>,
    /// The kept forecasts, by volume.
    pub records: BTreeMap<String, ForecastRecord>,
}

/// Makes the forecasts.
#[derive(Debug, Default)]
pub(super) struct Forecaster {
    pub(super) view: Arc<ForecastView>,
    made_at: Option<Moment>,
    simulated: Option<SimulatedRules>,
    began_at: Option<Moment>,
    running: Option<JoinHandle<Option<SimulatedRules>>>,
}

impl Forecaster {
    /// Continues the records of the previous process.
    pub(super) fn resume(records: BTreeMap<String, ForecastRecord>) -> Self {
        let view = Arc::new(ForecastView { records, ..ForecastView::default() });
        Self { view, ..Self::default() }
    }

    /// Whether any growth has been recorded.
    pub(super) fn has_books(&self) -> bool {
        !self.view.histories.is_empty()
    }

    /// Whether any forecast is withheld for such a reason.
    fn has_withheld(&self, is_reason: fn(&Withheld) -> bool) -> bool {
        let mut withheld = self.view.by_volume.values().filter_map(|it| it.as_ref().err());
        withheld.any(is_reason)
    }

    /// Makes new forecasts if they are old, keeps those of a new day, and compares those whose time
    /// has come; returns what to store.
    pub(super) fn update(
        &mut self,
        plan: &Plan,
        histories: &Arc<GrowthHistories>,
        now: Moment,
    ) -> Vec<StateChange> {
        let is_old = self.made_at.is_none_or(|at| at > now || at.age(now) >= INTERVAL);
        let is_new = !self.has_books() && !histories.is_empty();
        // While growth was not watched for long enough, the reason says for how long, which changes.
        let is_watched_longer = self.has_withheld(|it| matches!(it, Withheld::Watched(_)));
        if is_old || is_new || is_watched_longer {
            self.make(plan, histories, now);
        }
        let volumes = plan.conditions.disks.volumes.iter().filter(|volume| !volume.is_stated);
        let known = volumes.filter_map(|volume| Some((&volume.name, volume.space?.available)));
        let mut changed = Vec::new();
        for (name, free_bytes) in known {
            let forecasts = self.view.by_volume.get(name).and_then(|it| it.as_ref().ok());
            let record = self.view.records.get(&**name);
            let widening = record.map_or([1.0; 3], ForecastRecord::widening);
            let due = forecasts.filter(|_| record.is_none_or(|record| record.is_due(now)));
            let mut next = record.cloned().unwrap_or_default();
            let is_compared = next.compare(free_bytes, now);
            if let Some(forecasts) = due {
                next.keep(forecasts.expected(plan.rules.mode), widening);
            }
            if is_compared || due.is_some() {
                changed.push((name.to_string(), next));
            }
        }
        if !changed.is_empty() {
            Arc::make_mut(&mut self.view).records.extend(changed.iter().cloned());
        }
        let store = |(name, record)| StateChange::SetForecasts(name, Some(record));
        let gone = self.remove_gone(plan, now).into_iter();
        let gone = gone.map(|name| StateChange::SetForecasts(name, None));
        gone.chain(changed.into_iter().map(store)).collect()
    }

    /// Removes the records of volumes that disappeared long ago; returns their names. A volume that is missing for a
    /// while, as after a start, keeps its record.
    fn remove_gone(&mut self, plan: &Plan, now: Moment) -> Vec<String> {
        let volumes = &plan.conditions.disks.volumes;
        let is_gone = |(name, record): &(&String, &ForecastRecord)| {
            record.is_over(now) && volumes.iter().all(|volume| *volume.name != ***name)
        };
        let gone = self.view.records.iter().filter(is_gone);
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        if !gone.is_empty() {
            let records = &mut Arc::make_mut(&mut self.view).records;
            gone.iter().for_each(|name| drop(records.remove(name)));
        }
        gone
    }

    fn make(&mut self, plan: &Plan, histories: &Arc<GrowthHistories>, now: Moment) {
        let records = &self.view.records;
        let volumes = plan.conditions.disks.volumes.iter();
        let by_volume = volumes.filter_map(|volume| {
            let record = records.get(&*volume.name);
            let widening = record.map_or([1.0; 3], ForecastRecord::widening);
            let from = (self.simulated.as_ref(), widening);
            let forecasts = volume_forecasts(plan, volume, histories, from, now)?;
            Some((Arc::clone(&volume.name), forecasts))
        });
        let by_volume = Arc::new(by_volume.collect());
        let view = Arc::make_mut(&mut self.view);
        (view.by_volume, view.histories) = (by_volume, Arc::clone(histories));
        self.made_at = Some(now);
    }

    /// Starts a simulation if the last one is old and a forecast needs one.
    pub(super) fn simulate(
        &mut self,
        plan: &Arc<Plan>,
        smoosh: impl FnOnce() -> Channels,
        is_filling: bool,
        now: Moment,
    ) {
        let needs = |it: &Result<_, Withheld>| matches!(it, Ok(_) | Err(Withheld::NotSimulated));
        let interval = if is_filling { SIMULATION_INTERVAL_FILLING } else { SIMULATION_INTERVAL };
        let is_due = self.began_at.is_none_or(|at| at > now || at.age(now) >= interval);
        if is_due && self.running.is_none() && self.view.by_volume.values().any(needs) {
            self.began_at = Some(now);
            let (plan, smoosh) = (Arc::clone(plan), smoosh());
            let watched = self.view.histories.values().map(|history| history.watched(now));
            let reach = reach_of(watched.max().unwrap_or_default());
            let simulate = move || SimulatedRules::of(&plan, &smoosh, reach, now);
            self.running = Some(tokio::task::spawn_blocking(simulate));
        }
    }

    /// Waits for the running simulation, or forever if there is none.
    pub(super) async fn finished(&mut self) {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        // A panic in it is logged, and ends only this simulation.
        let simulated = running.await.ok().flatten();
        self.running = None;
        self.simulated = simulated;
        self.made_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::test_cluster::{NOW, Shard, TestCluster},
        model::forecast::{BookedSpan, DAY, GrowthHistory},
    };

    const GIB: u64 = 1 << 30;

    /// The plan of a node that wrote 10 GiB of live bytes a day, with `available` bytes free.
    fn plan(available: u64) -> Plan {
        let shard = Shard::new("orders", "a", 0, 200 * GIB);
        let shard = shard.grown_from(5 * 86_400, 150 * GIB, 150 * GIB);
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.set_volumes([("a", "a", Some(available)), ("b", "b", None)]);
        cluster.plan()
    }

    /// The books of this many days, until a moment.
    fn books(days: u32, until: Moment) -> Arc<GrowthHistories> {
        let at = |ago: u32| Moment::from_unix(until.unix() - u64::from(ago) * 86_400);
        let spans = (0..days).rev().map(|ago| BookedSpan {
            from: at(ago + 1),
            until: at(ago),
            live_bytes: 10 << 30,
            ..BookedSpan::default()
        });
        Arc::new([("a".to_owned(), GrowthHistory { spans: spans.collect() })].into())
    }

    fn known(forecaster: &Forecaster) -> Option<&Result<VolumeForecasts, Withheld>> {
        assert!(!forecaster.view.by_volume.contains_key("b"), "its space is not known");
        forecaster.view.by_volume.get("a")
    }

    #[tokio::test]
    async fn daily_forecast_waits_for_its_simulation_and_is_later_compared() {
        let mut forecaster = Forecaster::default();
        let plan = Arc::new(plan(100 * GIB));
        let simulate = |forecaster: &mut Forecaster| {
            forecaster.simulate(&plan, Channels::default, false, NOW);
            forecaster.running.is_some()
        };
        assert_eq!(forecaster.update(&plan, &books(1, NOW), NOW), []);
        assert_eq!(known(&forecaster), Some(&Err(Withheld::Watched(DAY))));
        assert!(!simulate(&mut forecaster), "nothing needs it");
        let later = NOW.plus(Duration::from_secs(60));
        assert_eq!(forecaster.update(&plan, &books(1, NOW), later), []);
        let watched = DAY + Duration::from_secs(60);
        assert_eq!(known(&forecaster), Some(&Err(Withheld::Watched(watched))), "it is never stale");
        let mut stated = (*plan).clone();
        for volume in &mut Arc::make_mut(&mut stated.conditions.disks).volumes {
            volume.is_stated = true;
        }
        forecaster.made_at = None;
        assert_eq!(forecaster.update(&stated, &books(14, NOW), NOW), []);
        assert_eq!(known(&forecaster), Some(&Err(Withheld::Stated)));
        assert!(!simulate(&mut forecaster), "nothing needs it");
        forecaster.made_at = None;
        assert_eq!(forecaster.update(&plan, &Arc::default(), NOW), []);
        assert_eq!(known(&forecaster), Some(&Err(Withheld::SizeUnknown)), "nothing can be booked");
        forecaster.made_at = None;
        assert_eq!(forecaster.update(&plan, &books(14, NOW), NOW), []);
        assert_eq!(known(&forecaster), Some(&Err(Withheld::NotSimulated)));
        assert!(simulate(&mut forecaster));
        forecaster.finished().await;
        let [StateChange::SetForecasts(name, Some(kept))] =
            &forecaster.update(&plan, &books(14, NOW), NOW)[..]
        else {
            panic!("it is kept");
        };
        assert_eq!((&**name, kept.kept[0].ranges.len()), ("a", 2), "14 days say 28, not 30");
        let Some(Ok(forecasts)) = known(&forecaster) else { panic!("it is known") };
        let VolumeForecasts { uncompacted, smoosh, in_force } = forecasts;
        // Everything that is written stays live, so no compaction helps.
        for forecast in [uncompacted, smoosh, in_force] {
            let full = forecast.full.median.unwrap().unix() - NOW.unix();
            assert!(full.abs_diff(10 * 86_400) < 3_600, "{full} s");
        }
        assert_eq!(forecaster.update(&plan, &books(14, NOW), NOW.plus(DAY / 2)), []);
        let (tomorrow, less) = (NOW.plus(DAY), self::plan(89 * GIB));
        let changed = forecaster.update(&less, &books(15, tomorrow), tomorrow);
        let [StateChange::SetForecasts(_, Some(kept))] = &changed[..] else {
            panic!("{changed:?}")
        };
        assert_eq!((kept.kept.len(), kept.kept[0].ranges[0].came), (2, Some(89 * GIB)));
        assert_eq!(kept.backtest(1, 30).unwrap().compared, 1);
        let mut next = Forecaster::resume([("old".to_owned(), kept.clone())].into());
        assert_eq!(next.view.records["old"].kept.len(), 2, "a restart goes on");
        assert_eq!(next.update(&less, &books(15, tomorrow), tomorrow), [], "it may come back");
        let later = tomorrow.plus(DAY * 32);
        let removed = StateChange::SetForecasts("old".to_owned(), None);
        assert_eq!(next.update(&less, &books(1, later), later), [removed]);
        assert!(next.view.records.is_empty(), "that volume is gone");
    }
}
