//! The task that runs the rules.
//!
//! Owns the [`AdviceView`] and publishes it. Nothing waits for it: it has its own thread, and
//! records are stored later if the journal cannot be written. An order to mute is answered once it
//! is stored.

use super::{
    AdviceInputs, AdviceView, CopyHistory, LagHistory, Survey, check_surveyed,
    forecasts::Forecaster, rule::VOLUME_FILLS,
};
use crate::{
    jobs::FailedBuildsByIndex,
    model::{
        channel::Channels,
        forecast::GrowthHistories,
        reads::Reads,
        records::{
            AdviceKey, AdviceRecord, ForecastRecord, Mute, StateChange, StateStore, StoreError,
        },
        settings::advice::{AdviceSettings, RemedySettings},
    },
    plan::Plan,
    scan::ScanStatus,
    sources::node_settings::NodeSettings,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Interval between runs of the rules.
const INTERVAL: Duration = Duration::from_secs(60);

/// Interval until the cluster has been read.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// Orders are rare and answered at once, so a short queue is enough.
const ORDER_QUEUE_LENGTH: usize = 8;

/// A mute of advice, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MuteChange {
    /// What is muted.
    pub key: AdviceKey,
    /// For how long; `None` ends the mute.
    pub mute_for: Option<Duration>,
    /// The operator's reason.
    pub why: Option<String>,
    /// Who ordered it, and from which address.
    pub by: Option<String>,
}

/// Why a mute order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MuteError {
    /// There is no such advice; the sentence names what exists.
    #[error("{0}")]
    Unknown(String),
    /// It cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task has ended, or has not loaded the previous process's state.
    #[error("recliner is stopping or still starting; try again")]
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
    /// Settings that remedies check, so that they do not advise what is already configured.
    pub remedy_settings: watch::Receiver<RemedySettings>,
    /// The recorded growth of each volume.
    pub histories: watch::Receiver<Arc<GrowthHistories>>,
    /// Who reads the indexes.
    pub reads: watch::Receiver<Arc<Reads>>,
    /// The indexes whose builds failed.
    pub failed_builds: watch::Receiver<Arc<FailedBuildsByIndex>>,
}

/// The records that the previous process left.
#[derive(Debug, Default)]
pub struct AdviceLeft {
    /// About advice.
    pub advice: BTreeMap<AdviceKey, AdviceRecord>,
    /// Kept forecasts, by volume.
    pub forecasts: BTreeMap<String, ForecastRecord>,
}

impl AdviceSources {
    fn inputs(&self) -> AdviceInputs {
        AdviceInputs {
            plan: Arc::clone(&self.plans.borrow()),
            status: Arc::clone(&self.status.borrow()),
            node_settings: Arc::clone(&self.node_settings.borrow()),
            forecasts: Arc::default(),
            lags: Arc::default(),
            copies: Arc::default(),
            reads: Arc::clone(&self.reads.borrow()),
            failed_builds: Arc::clone(&self.failed_builds.borrow()),
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
    waiting_forecasts: BTreeMap<String, StateChange>,
    forecaster: Forecaster,
    lags: Arc<LagHistory>,
    copies: Arc<CopyHistory>,
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
        let task = Self {
            clock,
            sources,
            store,
            published,
            orders: taken,
            view: AdviceView::default(),
            waiting: BTreeMap::new(),
            waiting_forecasts: BTreeMap::new(),
            forecaster: Forecaster::default(),
            lags: Arc::default(),
            copies: Arc::default(),
        };
        (task, handle)
    }

    /// Waits for the records of the previous process, then runs until `stop`. Ends if there is no
    /// usable state, as the job state task does.
    pub async fn run(mut self, recovering: oneshot::Receiver<AdviceLeft>, stop: CancellationToken) {
        let Some(Ok(left)) = stop.run_until_cancelled(recovering).await else { return };
        self.view.records = left.advice;
        self.forecaster = Forecaster::resume(left.forecasts);
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
                () = self.forecaster.finished() => {
                    self.look();
                }
                Ok(()) = self.sources.histories.changed(), if !self.forecaster.has_books() => {
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
        self.copies = Arc::new(self.copies.updated(&inputs.plan.snapshot, &survey));
        inputs.copies = Arc::clone(&self.copies);
        let histories = Arc::clone(&self.sources.histories.borrow());
        for change in self.forecaster.update(&inputs.plan, &histories, now) {
            if let StateChange::SetForecasts(volume, _) = &change {
                self.waiting_forecasts.insert(volume.clone(), change);
            }
        }
        inputs.forecasts = Arc::clone(&self.forecaster.view.by_volume);
        self.view.forecasts = Arc::clone(&self.forecaster.view);
        let results = check_surveyed(&inputs, &survey, now);
        let is_filling = results.iter().any(|result| result.rule.code == VOLUME_FILLS);
        let smoosh = || (self.sources.smoosh_channels)(&inputs.node_settings);
        self.forecaster.simulate(&inputs.plan, smoosh, is_filling, now);
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
        let changes = self.waiting.values().chain(self.waiting_forecasts.values());
        let changes: Vec<StateChange> = changes.cloned().collect();
        if !changes.is_empty() && self.store.store(changes).await.is_ok() {
            self.waiting.clear();
            self.waiting_forecasts.clear();
        }
    }
}

#[cfg(test)]
mod tests;
