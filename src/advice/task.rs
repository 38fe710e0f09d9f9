//! The task that runs the rules.
//!
//! Owns the [`AdviceView`] and publishes it. Nothing waits for it: it has a thread of its own, and
//! while the journal cannot be written, records are stored later. A mute is answered once it is
//! stored.

use super::{
    AdviceInputs, AdviceView, LagHistory, RuleResult, Situation, Survey, check_surveyed,
    rule::VOLUME_FILLS, volume_course::fill_dates,
};
use crate::{
    model::{
        channel::Channels,
        records::{AdviceKey, AdviceRecord, Mute, StateChange, StateStore, StoreError},
        settings::advice::{AdviceSettings, RemedySettings},
    },
    plan::Plan,
    scan::ScanStatus,
    sources::node_settings::NodeSettings,
    what_if::VolumeDates,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Interval between runs of the rules.
const INTERVAL: Duration = Duration::from_secs(60);

/// Interval until the cluster has been read.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between simulations while a volume is about to fill: dates move by hours, and a
/// simulation takes seconds of a processor and the memory of a what-if.
const OUTLOOK_INTERVAL: Duration = Duration::from_secs(6 * 3_600);

/// Orders are rare and answered at once, so a short queue is enough.
const ORDER_QUEUE_LENGTH: usize = 8;

/// A mute of advice, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MuteChange {
    /// What is muted.
    pub key: AdviceKey,
    /// For how long; none to end it.
    pub mute_for: Option<Duration>,
    /// The operator's reason.
    pub why: Option<String>,
    /// Who ordered it, and from which address.
    pub by: Option<String>,
}

/// Why a mute order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MuteError {
    /// No advice is about this; the sentence names what there is.
    #[error("{0}")]
    Unknown(String),
    /// It cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task has ended, or has not loaded what the previous process left.
    #[error("recliner is stopping, or has not loaded its state yet; try again")]
    Unavailable,
}

type MuteReply = oneshot::Sender<Result<Option<Mute>, MuteError>>;

/// Handle to the advice task.
#[derive(Clone, Debug)]
pub struct AdviceHandle {
    /// The advice, as last published.
    pub view: watch::Receiver<Arc<AdviceView>>,
    orders: mpsc::Sender<(MuteChange, MuteReply)>,
}

impl AdviceHandle {
    /// Mutes advice or ends a mute; returns the mute in force once it is stored.
    ///
    /// # Errors
    /// If there is no such advice, or the mute cannot be stored.
    pub async fn mute(&self, order: MuteChange) -> Result<Option<Mute>, MuteError> {
        let (reply, answered) = oneshot::channel();
        self.orders.try_send((order, reply)).map_err(|_| MuteError::Unavailable)?;
        answered.await.unwrap_or(Err(MuteError::Unavailable))
    }
}

/// What the task watches.
#[derive(Clone, Debug)]
pub struct AdviceSources {
    /// The plan.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// The scanner's state.
    pub status: watch::Receiver<Arc<ScanStatus>>,
    /// Settings of the nodes.
    pub node_settings: watch::Receiver<Arc<NodeSettings>>,
    /// The smoosh channels in these settings.
    pub smoosh_channels: fn(&NodeSettings) -> Channels,
    /// The thresholds.
    pub settings: watch::Receiver<AdviceSettings>,
    /// Settings that remedies check, so that they do not advise what is already set.
    pub remedy_settings: watch::Receiver<RemedySettings>,
}

impl AdviceSources {
    fn inputs(&self) -> AdviceInputs {
        AdviceInputs {
            plan: Arc::clone(&self.plans.borrow()),
            status: Arc::clone(&self.status.borrow()),
            node_settings: Arc::clone(&self.node_settings.borrow()),
            volume_dates: None,
            lags: Arc::default(),
            settings: *self.settings.borrow(),
            remedy_settings: self.remedy_settings.borrow().clone(),
        }
    }
}

/// The task that runs the rules and publishes the advice.
#[derive(Debug)]
pub struct AdviceTask {
    clock: Clock,
    sources: AdviceSources,
    store: Arc<dyn StateStore>,
    published: watch::Sender<Arc<AdviceView>>,
    orders: mpsc::Receiver<(MuteChange, MuteReply)>,
    view: AdviceView,
    /// Changes that wait to be stored.
    waiting: BTreeMap<AdviceKey, StateChange>,
    outlook: VolumeOutlook,
    lags: Arc<LagHistory>,
}

/// The simulation of the dates on which volumes are full.
#[derive(Debug, Default)]
struct VolumeOutlook {
    dates: Option<Arc<VolumeDates>>,
    began_at: Option<Moment>,
    running: Option<JoinHandle<Option<VolumeDates>>>,
}

impl VolumeOutlook {
    /// Starts a simulation if a volume is about to fill and the last one is old; forgets the dates
    /// once no volume is about to fill.
    fn update(
        &mut self,
        results: &[RuleResult],
        inputs: &AdviceInputs,
        smoosh: impl FnOnce() -> Channels,
        now: Moment,
    ) {
        if !results.iter().any(|result| result.rule.code == VOLUME_FILLS) {
            self.dates = None;
            return;
        }
        let is_due = self.began_at.is_none_or(|began| began.age(now) >= OUTLOOK_INTERVAL);
        if is_due && self.running.is_none() {
            self.began_at = Some(now);
            let (plan, smoosh) = (Arc::clone(&inputs.plan), smoosh());
            let look = move || VolumeDates::of(&plan, &smoosh, now);
            self.running = Some(tokio::task::spawn_blocking(look));
        }
    }

    /// Waits for the running simulation, or forever if there is none.
    async fn finished(&mut self) {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        // A panic in it is logged, and ends only this simulation.
        let dates = running.await.ok().flatten();
        self.running = None;
        self.dates = dates.map(Arc::new);
    }
}

impl AdviceTask {
    /// Creates the task and its handle.
    pub fn new(
        clock: Clock,
        sources: AdviceSources,
        store: Arc<dyn StateStore>,
    ) -> (Self, AdviceHandle) {
        let (published, view) = watch::channel(Arc::default());
        let (orders, taken) = mpsc::channel(ORDER_QUEUE_LENGTH);
        let handle = AdviceHandle { view, orders };
        let (view, waiting) = (AdviceView::default(), BTreeMap::new());
        let (outlook, lags) = (VolumeOutlook::default(), Arc::default());
        let task =
            Self { clock, sources, store, published, orders: taken, view, waiting, outlook, lags };
        (task, handle)
    }

    /// Waits for the records of the previous process, then runs until `stop`. Ends if there is no
    /// usable state, as the job state task does.
    pub async fn run(
        mut self,
        recovering: oneshot::Receiver<BTreeMap<AdviceKey, AdviceRecord>>,
        stop: CancellationToken,
    ) {
        let Some(Ok(records)) = stop.run_until_cancelled(recovering).await else { return };
        self.view.records = records;
        let mut tick = time::interval(FIRST_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_first = true;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some((order, reply)) = self.orders.recv() => {
                    let Some(done) = stop.run_until_cancelled(self.mute(order)).await else { return };
                    // The client may have disconnected.
                    let _gone = reply.send(done);
                }
                () = self.outlook.finished() => {
                    self.look();
                }
                _ = tick.tick() => {
                    if self.look() && is_first {
                        is_first = false;
                        tick = time::interval(INTERVAL);
                        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
                        tick.reset();
                    }
                    if stop.run_until_cancelled(self.store_changes()).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Runs all rules; returns whether the cluster has been read.
    fn look(&mut self) -> bool {
        let mut inputs = self.sources.inputs();
        if !inputs.status.is_ready(inputs.plan.snapshot.version()) {
            return false;
        }
        let now = self.clock.now();
        let survey = Survey::of(&inputs.plan.snapshot, now);
        self.lags = Arc::new(self.lags.updated(&inputs.plan.snapshot, &survey.lagging_views));
        inputs.lags = Arc::clone(&self.lags);
        inputs.volume_dates.clone_from(&self.outlook.dates);
        let results = check_surveyed(&inputs, &survey, now);
        let situation = Situation { inputs: &inputs, survey: &survey, now };
        self.view.fill_dates = fill_dates(&situation);
        let smoosh = || (self.sources.smoosh_channels)(&inputs.node_settings);
        self.outlook.update(&results, &inputs, smoosh, now);
        for change in self.view.update(results, now) {
            if let StateChange::SetAdvice(key, _) = &change {
                self.waiting.insert(key.clone(), change);
            }
        }
        self.publish();
        true
    }

    fn publish(&self) {
        self.published.send_replace(Arc::new(self.view.clone()));
    }

    async fn mute(&mut self, order: MuteChange) -> Result<Option<Mute>, MuteError> {
        let MuteChange { key, mute_for, why, by } = order;
        let now = self.clock.now();
        if mute_for.is_some() {
            self.view.check_known(&key).map_err(MuteError::Unknown)?;
        } else if self.view.records.get(&key).is_none_or(|record| record.mute.is_none()) {
            return Err(MuteError::Unknown(self.view.not_muted(&key)));
        }
        let mute = mute_for.map(|span| Mute { since: now, until: now.plus(span), by, why });
        let before = self.view.records.get(&key).cloned();
        let change = self.view.set_mute(key.clone(), mute.clone());
        if let Err(why) = self.store.store(vec![change]).await {
            match before {
                Some(record) => self.view.records.insert(key, record),
                None => self.view.records.remove(&key),
            };
            return Err(why.into());
        }
        self.waiting.remove(&key);
        self.publish();
        Ok(mute)
    }

    /// Stores the waiting changes. The job state task reports a journal that cannot be written.
    async fn store_changes(&mut self) {
        let changes: Vec<StateChange> = self.waiting.values().cloned().collect();
        if !changes.is_empty() && self.store.store(changes).await.is_ok() {
            self.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests;
