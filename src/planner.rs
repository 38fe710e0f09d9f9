//! The planner: one task that follows the snapshots and publishes the plan.
//!
//! Owns the queues. Never asks CouchDB and never starts anything. The scanner feeds it
//! snapshots, the owners of jobs, history, space and pressure feed it those; metrics, API
//! and whoever acts read the plan it published last.

use crate::{
    channel::Channels,
    clock::{Clock, Moment},
    disk::Disks,
    job::{History, Jobs},
    plan::{Conditions, Plan, Queues, Rules},
    pressure::Pressures,
    snapshot::Snapshot,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

/// How often a plan is made without news, because facts grow stale by themselves.
const PERIOD: Duration = Duration::from_secs(10);

/// How many sweeps facts stay fresh for at least.
const FRESH_SWEEPS: u32 = 3;

/// What the planner goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The channels.
    pub channels: Arc<Channels>,
    /// What else decides.
    pub rules: Rules,
}

/// What the planner follows.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Facts.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// What runs.
    pub jobs: watch::Receiver<Arc<Jobs>>,
    /// What is remembered.
    pub history: watch::Receiver<Arc<History>>,
    /// Free space.
    pub disks: watch::Receiver<Arc<Disks>>,
    /// Which nodes are too busy, or in maintenance.
    pub pressures: watch::Receiver<Arc<Pressures>>,
}

impl Inputs {
    /// Only facts; of everything else nothing is known, and stays so.
    #[must_use]
    pub fn facts_only(snapshots: watch::Receiver<Arc<Snapshot>>) -> Self {
        Self {
            snapshots,
            jobs: watch::channel(Arc::default()).1,
            history: watch::channel(Arc::default()).1,
            disks: watch::channel(Arc::default()).1,
            pressures: watch::channel(Arc::default()).1,
        }
    }

    /// The conditions as they stand.
    fn conditions(&mut self) -> Conditions {
        Conditions {
            jobs: Arc::clone(&self.jobs.borrow_and_update()),
            history: Arc::clone(&self.history.borrow_and_update()),
            disks: Arc::clone(&self.disks.borrow_and_update()),
            pressures: Arc::clone(&self.pressures.borrow_and_update()),
        }
    }
}

/// The way to read the plan.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The plan published last.
    pub plan: watch::Receiver<Arc<Plan>>,
}

/// Owns the queues.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    queues: Queues,
    inputs: Inputs,
    settings: watch::Receiver<Arc<Settings>>,
    plan: watch::Sender<Arc<Plan>>,
}

enum Event {
    News,
    Settings,
    Tick,
    Stop,
}

impl Task {
    /// Makes the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        inputs: Inputs,
        settings: watch::Receiver<Arc<Settings>>,
    ) -> (Self, Handle) {
        let queues = Queues::new(Arc::clone(&settings.borrow().channels));
        let (plan, reader) = watch::channel(Arc::default());
        (Self { clock, queues, inputs, settings, plan }, Handle { plan: reader })
    }

    /// Plans until `stop`, or until nobody sends snapshots any more.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut tick = time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next_change = self.plan.borrow().next_change;
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                () = stop.cancelled() => Event::Stop,
                news = self.inputs.snapshots.changed() => if news.is_ok() { Event::News } else { Event::Stop },
                news = self.settings.changed() => if news.is_ok() { Event::Settings } else { Event::Stop },
                // Whoever is gone sends no more news; the last ones still count.
                Ok(()) = self.inputs.jobs.changed() => Event::News,
                Ok(()) = self.inputs.history.changed() => Event::News,
                Ok(()) = self.inputs.disks.changed() => Event::News,
                Ok(()) = self.inputs.pressures.changed() => Event::News,
                () = until(self.clock, next_change) => Event::Tick,
                _ = tick.tick() => Event::Tick,
            };
            match event {
                Event::Stop => return,
                Event::Settings => {
                    let channels = Arc::clone(&self.settings.borrow_and_update().channels);
                    self.queues.reconfigure(channels);
                }
                Event::News | Event::Tick => {}
            }
            self.follow();
        }
    }

    /// Brings the queues up to the snapshot and publishes what follows from everything.
    ///
    /// A million targets take a third of a second, which is why whoever runs this task
    /// gives it a thread of its own.
    fn follow(&mut self) {
        let snapshot = Arc::clone(&self.inputs.snapshots.borrow_and_update());
        let conditions = self.inputs.conditions();
        // Where the pace makes a sweep longer than the settings reckoned with, facts of the
        // last ones still count: else a large cluster would have no fresh facts at all.
        let sweeps = snapshot.sweep().unwrap_or_default().saturating_mul(FRESH_SWEEPS);
        let mut rules = self.settings.borrow().rules.clone();
        rules.fresh_for = rules.fresh_for.max(sweeps);
        let now = self.clock.now();
        self.queues.follow(&snapshot, now);
        let plan = self.queues.publish(&snapshot, &conditions, &Arc::new(rules), now);
        self.plan.send_replace(Arc::new(plan));
    }
}

/// Waits until the clock says `at`, in whole seconds; for ever where there is nothing to
/// wait for.
async fn until(clock: Clock, at: Option<Moment>) {
    match at {
        Some(at) => time::sleep(clock.now().age(at)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Moment,
        facts::{Facts, Known, Measured, Source},
        plan::Decision,
        settings::limits::Headroom,
        snapshot::{DbName, Draft},
    };
    use tokio::task::JoinSet;

    fn settings(channels: Arc<Channels>) -> Settings {
        let fresh_for = Duration::from_secs(60);
        // Nothing is known of the disks here.
        let headroom = Headroom { blind_limit: u64::MAX, ..Headroom::default() };
        Settings { channels, rules: Rules { fresh_for, headroom, ..Rules::default() } }
    }

    async fn plan_where(handle: &mut Handle, wanted: impl FnMut(&Arc<Plan>) -> bool) -> Arc<Plan> {
        let plan = time::timeout(Duration::from_secs(3_600), handle.plan.wait_for(wanted));
        Arc::clone(&plan.await.expect("a plan comes within the hour").expect("the task lives"))
    }

    #[tokio::test(start_paused = true)]
    async fn facts_stay_fresh_for_three_sweeps_however_long_those_take() {
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let mut draft = Draft::new(5);
        draft.set_sweep(Duration::from_secs(100));
        let (_snapshots, snapshots_rx) = watch::channel(draft.publish(clock.now()));
        let channels: Arc<Channels> = Arc::default();
        let settings = settings(channels);
        let (_settings, settings_rx) = watch::channel(Arc::new(settings));
        let (task, mut handle) = Task::new(clock, Inputs::facts_only(snapshots_rx), settings_rx);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(stop.clone()));
        let plan = plan_where(&mut handle, |plan| plan.snapshot.version() > 0).await;
        assert_eq!(plan.rules.fresh_for, Duration::from_secs(300));
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn it_follows_news_other_channels_and_the_clock() {
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let mut draft = Draft::new(5);
        let node = draft.node("couchdb@a");
        let db = draft.db(DbName { db: "a", suffix: "" });
        let ix = draft.db_target(node, db, None);
        draft.set_facts(
            ix,
            Facts {
                file: Known::new(100 << 20),
                active: Known::new(1 << 20),
                measured_at: Some(Measured { at: Moment::from_unix(1_000), by: Source::Http }),
                ..Facts::default()
            },
        );
        let (snapshots, snapshots_rx) = watch::channel(Arc::default());
        let settings = settings(Arc::default());
        let (settings_tx, settings_rx) = watch::channel(Arc::new(settings.clone()));
        let (task, mut handle) = Task::new(clock, Inputs::facts_only(snapshots_rx), settings_rx);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(stop.clone()));

        snapshots.send_replace(draft.publish(clock.now()));
        let decision = |plan: &Plan| plan.snapshot.target(ix).map(|target| plan.decision(target));
        plan_where(&mut handle, |plan| decision(plan) == Some(Decision::Start)).await;

        let stale = |plan: &Arc<Plan>| matches!(decision(plan), Some(Decision::Refused(refusal)) if refusal.reason.label() == "stale");
        let plan = plan_where(&mut handle, stale).await;
        assert!(plan.made_at >= Moment::from_unix(1_061), "{:?}", plan.made_at);

        let mut channels = Channels::default();
        channels.list.clear();
        settings_tx.send_replace(Arc::new(Settings { channels: Arc::new(channels), ..settings }));
        plan_where(&mut handle, |plan| decision(plan) == Some(Decision::NotTaken)).await;

        stop.cancel();
        let ended = time::timeout(Duration::from_secs(60), tasks.join_next()).await;
        assert!(ended.expect("the task ends").expect("there is one").is_ok());
    }
}
