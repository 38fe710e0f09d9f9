//! The planner: one task that follows the snapshots and publishes the plan.
//!
//! Owns the queues. Never sends requests to CouchDB and never starts anything. The scanner provides
//! snapshots; the owners of jobs, constraints, disk space and pressure provide those. Metrics, the
//! API and the enforcer read the plan published last.

use super::{
    conditions::Conditions, disk::Disks, pressure::Pressures, published::Plan, queues::Queues,
    rules::Rules,
};
use crate::{
    jobs::{Jobs, TargetConstraints},
    model::{
        channel::{Channels, Mode},
        records::CompactionOrder,
    },
    shared_limits::{Granted, Now},
    table::{Snapshot, TargetIx},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Interval between plans without any input change; needed because facts become stale with time.
const REPLAN_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum number of sweeps for which facts stay fresh.
const MIN_FRESH_SWEEPS: u32 = 3;

/// The rules under which compactions are started.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The channels.
    pub channels: Arc<Channels>,
    /// All other settings that affect decisions.
    pub rules: Rules,
}

/// The inputs that the planner watches.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Facts.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// Running jobs.
    pub jobs: watch::Receiver<Arc<Jobs>>,
    /// Stored outcomes, orders and suspensions.
    pub constraints: watch::Receiver<Arc<TargetConstraints>>,
    /// Free space.
    pub disks: watch::Receiver<Arc<Disks>>,
    /// Which nodes are too busy, or in maintenance.
    pub pressures: watch::Receiver<Arc<Pressures>>,
    /// The share of limits that several clusters have; `None` if nothing is shared.
    pub shared: watch::Receiver<Option<Granted>>,
}

impl Inputs {
    /// Inputs with facts only; all others keep their defaults.
    #[must_use]
    pub fn facts_only(snapshots: watch::Receiver<Arc<Snapshot>>) -> Self {
        Self {
            snapshots,
            jobs: watch::channel(Arc::default()).1,
            constraints: watch::channel(Arc::default()).1,
            disks: watch::channel(Arc::default()).1,
            pressures: watch::channel(Arc::default()).1,
            shared: watch::channel(None).1,
        }
    }

    fn conditions(&mut self) -> Conditions {
        Conditions {
            jobs: Arc::clone(&self.jobs.borrow_and_update()),
            constraints: Arc::clone(&self.constraints.borrow_and_update()),
            disks: Arc::clone(&self.disks.borrow_and_update()),
            pressures: Arc::clone(&self.pressures.borrow_and_update()),
        }
    }
}

/// Capacity of the command channel. Commands are rare and answered at once, so a short one is
/// enough.
const COMMAND_QUEUE_LENGTH: usize = 8;

/// Empties the queues of a node, of a channel, or of both; the reply is the number of targets
/// removed.
#[derive(Debug)]
struct FlushRequest {
    node: Option<String>,
    channel: Option<String>,
    reply: oneshot::Sender<u64>,
}

/// Requests a plan as if a target had been ordered; that plan is not published.
#[derive(Debug)]
struct IfOrdered {
    ix: TargetIx,
    ordered: CompactionOrder,
    reply: oneshot::Sender<Arc<Plan>>,
}

#[derive(Debug)]
enum PlannerCommand {
    Flush(FlushRequest),
    IfOrdered(IfOrdered),
}

/// Access to the plan.
#[derive(Clone, Debug)]
pub struct PlannerHandle {
    /// The plan published last.
    pub plan: watch::Receiver<Arc<Plan>>,
    commands: mpsc::Sender<PlannerCommand>,
}

impl PlannerHandle {
    /// Removes queued targets until their facts are measured again; `node` or `channel` restricts
    /// which. Returns the number removed; `None` if the task has ended.
    pub async fn flush(&self, node: Option<String>, channel: Option<String>) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(PlannerCommand::Flush(FlushRequest { node, channel, reply }))
            .await
            .ok()?;
        answer.await.ok()
    }

    /// The plan as it would be if an operator had ordered this target. `None` if the task has
    /// ended.
    pub async fn plan_if_ordered(
        &self,
        ix: TargetIx,
        ordered: CompactionOrder,
    ) -> Option<Arc<Plan>> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(PlannerCommand::IfOrdered(IfOrdered { ix, ordered, reply }))
            .await
            .ok()?;
        answer.await.ok()
    }
}

/// Owns the queues.
#[derive(Debug)]
pub struct PlannerTask {
    clock: Clock,
    queues: Queues,
    inputs: Inputs,
    settings: watch::Receiver<Arc<Policy>>,
    plan: watch::Sender<Arc<Plan>>,
    commands: mpsc::Receiver<PlannerCommand>,
}

enum Event {
    Command(PlannerCommand),
    InputsChanged,
    Settings,
    Tick,
    Stop,
}

impl PlannerTask {
    /// Creates the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        inputs: Inputs,
        settings: watch::Receiver<Arc<Policy>>,
    ) -> (Self, PlannerHandle) {
        let queues = Queues::new(Arc::clone(&settings.borrow().channels));
        let (plan, reader) = watch::channel(Arc::default());
        let (commands_tx, commands) = mpsc::channel(COMMAND_QUEUE_LENGTH);
        let handle = PlannerHandle { plan: reader, commands: commands_tx };
        (Self { clock, queues, inputs, settings, plan, commands }, handle)
    }

    /// Plans until `stop`, or until the sender of snapshots is dropped.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut tick = time::interval(REPLAN_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next_change = self.plan.borrow().next_change;
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                () = stop.cancelled() => Event::Stop,
                news = self.inputs.snapshots.changed() => if news.is_ok() { Event::InputsChanged } else { Event::Stop },
                news = self.settings.changed() => if news.is_ok() { Event::Settings } else { Event::Stop },
                Some(command) = self.commands.recv() => Event::Command(command),
                // A dropped sender sends no more updates; its last value stays valid.
                Ok(()) = self.inputs.jobs.changed() => Event::InputsChanged,
                Ok(()) = self.inputs.constraints.changed() => Event::InputsChanged,
                Ok(()) = self.inputs.disks.changed() => Event::InputsChanged,
                Ok(()) = self.inputs.pressures.changed() => Event::InputsChanged,
                Ok(()) = self.inputs.shared.changed() => Event::InputsChanged,
                () = sleep_until_moment(self.clock, next_change) => Event::Tick,
                _ = tick.tick() => Event::Tick,
            };
            match event {
                Event::Stop => return,
                Event::Settings => {
                    let channels = Arc::clone(&self.settings.borrow_and_update().channels);
                    self.queues.reconfigure(channels);
                }
                Event::Command(PlannerCommand::Flush(flush)) => self.flush(flush),
                Event::Command(PlannerCommand::IfOrdered(IfOrdered {
                    ix,
                    ordered,
                    reply: answer,
                })) => {
                    let plan = self.make_plan(|conditions| {
                        Arc::make_mut(&mut conditions.constraints).orders.insert(ix, ordered);
                    });
                    // The requester may have been dropped.
                    let _gone = answer.send(Arc::new(plan));
                }
                Event::InputsChanged | Event::Tick => {}
            }
            self.publish_plan();
        }
    }

    fn flush(&mut self, FlushRequest { node, channel, reply: answer }: FlushRequest) {
        let plan = Arc::clone(&self.plan.borrow());
        let matches = |wanted: &Option<String>, name: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == name)
        };
        let mut removed = 0;
        for queue in plan.queues.iter() {
            let of_node = plan.snapshot.node(queue.node).is_some_and(|it| matches(&node, &it.name));
            let of_channel = plan.channels.list.get(queue.channel_index);
            let of_channel = of_channel.is_some_and(|it| matches(&channel, &it.name));
            if of_node && of_channel {
                while self.queues.pop(queue.node, queue.channel_index) {
                    removed += 1;
                }
            }
        }
        // The targets are removed whether or not the requester still waits for the number.
        let _gone = answer.send(removed);
    }

    /// Publishes a new plan.
    ///
    /// Planning a million targets takes a third of a second, so this task runs on its own thread.
    fn publish_plan(&mut self) {
        let plan = self.make_plan(|_| {});
        self.plan.send_replace(Arc::new(plan));
    }

    /// Updates the queues to the snapshot and plans, under conditions that `change` may alter.
    fn make_plan(&mut self, change: impl FnOnce(&mut Conditions)) -> Plan {
        // Conditions are read before the snapshot because they depend on facts. With facts older
        // than the conditions, a job that has just ended would be started again for the same waste.
        let mut conditions = self.inputs.conditions();
        change(&mut conditions);
        let snapshot = Arc::clone(&self.inputs.snapshots.borrow_and_update());
        // If pacing makes a sweep longer than the settings assume, facts of the last sweeps still
        // count; otherwise a large cluster would have no fresh facts at all.
        let sweeps = snapshot.sweep_duration().unwrap_or_default().saturating_mul(MIN_FRESH_SWEEPS);
        let mut rules = self.settings.borrow().rules.clone();
        rules.fresh_for = rules.fresh_for.max(sweeps);
        let now = self.clock.now();
        let granted = *self.inputs.shared.borrow_and_update();
        // In advise mode no lease is requested, and the plan shows what the cluster's own limits
        // allow.
        let granted = granted.filter(|_| rules.mode == Mode::Enforce);
        let rules =
            rules.bounded_by(granted.map(|granted| granted.allowance(Now::read(self.clock))));
        self.queues.apply_snapshot(&snapshot, now);
        self.queues.update_prices(&snapshot, &conditions, &rules, now);
        self.queues.make_plan(&snapshot, &conditions, &Arc::new(rules), now)
    }
}

/// Waits until the clock reads `at`, in whole seconds; forever if there is nothing to wait for.
async fn sleep_until_moment(clock: Clock, at: Option<Moment>) {
    match at {
        Some(at) => time::sleep(clock.now().age(at)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Label;
    use crate::{
        jobs::{Job, JobKey, JobKind, JobPhase},
        model::{
            facts::Facts,
            records::{Backoff, JobOwner},
            settings::limits::Headroom,
            share::Share,
            target::TargetKind,
        },
        plan::Decision,
        shared_limits::Lease,
        table::{DbName, Draft},
    };
    use tokio::task::JoinSet;
    use wall_clock::Moment;

    fn settings(channels: Arc<Channels>) -> Policy {
        let fresh_for = Duration::from_secs(60);
        // Free disk space is unknown in these tests.
        let headroom = Headroom { blind_limit: u64::MAX, ..Headroom::default() };
        Policy { channels, rules: Rules { fresh_for, headroom, ..Rules::default() } }
    }

    async fn plan_where(
        handle: &mut PlannerHandle,
        wanted: impl FnMut(&Arc<Plan>) -> bool,
    ) -> Arc<Plan> {
        let plan = time::timeout(Duration::from_secs(3_600), handle.plan.wait_for(wanted));
        Arc::clone(&plan.await.expect("a plan comes within an hour").expect("the task is running"))
    }

    #[tokio::test(start_paused = true)]
    async fn facts_stay_fresh_for_three_sweeps_of_any_duration() {
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let mut draft = Draft::new(5);
        draft.set_sweep_duration(Duration::from_secs(100));
        let (_snapshots, snapshots_rx) = watch::channel(draft.publish(clock.now()));
        let channels: Arc<Channels> = Arc::default();
        let settings = settings(channels);
        let (_settings, settings_rx) = watch::channel(Arc::new(settings));
        let (task, mut handle) =
            PlannerTask::new(clock, Inputs::facts_only(snapshots_rx), settings_rx);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(stop.clone()));
        let plan = plan_where(&mut handle, |plan| plan.snapshot.version() > 0).await;
        assert_eq!(plan.rules.fresh_for, Duration::from_secs(300));
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn replans_when_a_job_or_a_cool_down_ends() {
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let mut draft = Draft::new(5);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "a", suffix: "" });
        let ix = draft.get_or_add_shard(node, db, None);
        let facts = Facts::read(100 << 20, 1 << 20, Moment::from_unix(1_000));
        draft.set_facts(ix, facts);
        let (_snapshots, snapshots) = watch::channel(draft.publish(clock.now()));
        let (jobs, jobs_rx) = watch::channel(Arc::default());
        let (history, history_rx) = watch::channel(Arc::default());
        let inputs =
            Inputs { jobs: jobs_rx, constraints: history_rx, ..Inputs::facts_only(snapshots) };
        let (_settings, settings) = watch::channel(Arc::new(settings(Arc::default())));
        let (task, mut handle) = PlannerTask::new(clock, inputs, settings);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(stop.clone()));
        let starts = |plan: &Arc<Plan>| plan.start(ix).is_some();
        let refused = |wanted: &'static str| {
            move |plan: &Arc<Plan>| {
                let decided = plan.snapshot.target(ix).map(|target| plan.decision(target));
                matches!(decided, Some(Decision::Refused(it)) if it.reason.label() == wanted)
            }
        };
        plan_where(&mut handle, starts).await;

        let key = JobKey { node, shard: "a".into(), kind: JobKind::CompactDb };
        let job = Job {
            key,
            target: Some(ix),
            target_kind: TargetKind::Db,
            owner: JobOwner::Other,
            channel: None,
            started_at: clock.now(),
            phase: JobPhase::Running,
            progress: None,
            last_progress_at: clock.now(),
            reserved_bytes: 0,
            file_bytes: None,
            predicted_bytes: None,
        };
        let before = time::Instant::now();
        jobs.send_replace(Arc::new(Jobs { list: vec![job], ..Jobs::default() }));
        plan_where(&mut handle, refused("running")).await;
        jobs.send_replace(Arc::default());
        plan_where(&mut handle, starts).await;
        assert!(before.elapsed() < Duration::from_millis(10), "{:?}", before.elapsed());

        let (since, until) = (clock.now(), clock.now().plus(Duration::from_secs(13)));
        let mut remembered = TargetConstraints::default();
        remembered.backoffs.insert(ix, Backoff::CoolDown { since, until });
        history.send_replace(Arc::new(remembered));
        let plan = plan_where(&mut handle, refused("cool_down")).await;
        assert_eq!(plan.next_change, Some(until));
        let plan = plan_where(&mut handle, starts).await;
        assert_eq!(plan.planned_at, until, "neither earlier nor as late as the next tick");
        stop.cancel();
    }

    #[tokio::test(start_paused = true)]
    async fn enforcing_recliner_is_bound_by_its_lease_until_it_ends() {
        let own_share = Share { jobs: 1, bytes_per_hour: 100 };
        let lease = Share { jobs: 3, bytes_per_hour: u64::MAX };
        for (mode, before, after) in [(Mode::Enforce, 3, 1), (Mode::Advise, 8, 8)] {
            let clock = Clock::anchored(Moment::from_unix(1_000));
            let lease = Lease { id: 1, lease, lasts_ms: 60_000, own_share, most: lease };
            let granted = Some(Granted::answered(Now::read(clock), lease));
            let (_snapshots, snapshots_rx) = watch::channel(Draft::new(5).publish(clock.now()));
            let settings = settings(Arc::default());
            let rules = Rules { mode, ..settings.rules.clone() };
            let own_bytes = rules.limits.bytes_per_hour;
            let (_settings, settings_rx) = watch::channel(Arc::new(Policy { rules, ..settings }));
            let inputs =
                Inputs { shared: watch::channel(granted).1, ..Inputs::facts_only(snapshots_rx) };
            let (task, mut handle) = PlannerTask::new(clock, inputs, settings_rx);
            let stop = CancellationToken::new();
            let mut tasks = JoinSet::new();
            tasks.spawn(task.run(stop.clone()));
            let plan = plan_where(&mut handle, |plan| plan.snapshot.version() > 0).await;
            assert_eq!(plan.rules.limits.cluster, before, "{mode:?}");
            assert_eq!(plan.rules.limits.bytes_per_hour, own_bytes, "its own limits hold too");
            let ends = (mode == Mode::Enforce).then(|| Moment::from_unix(1_061));
            assert_eq!(plan.next_change, ends, "{mode:?}");
            let late = |plan: &Arc<Plan>| plan.planned_at >= Moment::from_unix(1_061);
            let plan = plan_where(&mut handle, late).await;
            assert_eq!(plan.rules.limits.cluster, after, "{mode:?}");
            stop.cancel();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn replans_on_new_snapshots_settings_and_by_the_clock() {
        let clock = Clock::anchored(Moment::from_unix(1_000));
        let mut draft = Draft::new(5);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "a", suffix: "" });
        let ix = draft.get_or_add_shard(node, db, None);
        draft.set_facts(ix, Facts::read(100 << 20, 1 << 20, Moment::from_unix(1_000)));
        let (snapshots, snapshots_rx) = watch::channel(Arc::default());
        let settings = settings(Arc::default());
        let (settings_tx, settings_rx) = watch::channel(Arc::new(settings.clone()));
        let (task, mut handle) =
            PlannerTask::new(clock, Inputs::facts_only(snapshots_rx), settings_rx);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(stop.clone()));

        snapshots.send_replace(draft.publish(clock.now()));
        let decision = |plan: &Plan| plan.snapshot.target(ix).map(|target| plan.decision(target));
        plan_where(&mut handle, |plan| decision(plan) == Some(Decision::Start)).await;

        let stale = |plan: &Arc<Plan>| matches!(decision(plan), Some(Decision::Refused(refusal)) if refusal.reason.label() == "stale");
        let plan = plan_where(&mut handle, stale).await;
        assert!(plan.planned_at >= Moment::from_unix(1_061), "{:?}", plan.planned_at);

        let mut channels = Channels::default();
        channels.list.clear();
        settings_tx.send_replace(Arc::new(Policy { channels: Arc::new(channels), ..settings }));
        plan_where(&mut handle, |plan| decision(plan) == Some(Decision::NotTaken)).await;

        stop.cancel();
        let ended = time::timeout(Duration::from_secs(60), tasks.join_next()).await;
        assert!(ended.expect("the task ends").expect("the task was spawned").is_ok());
    }
}
