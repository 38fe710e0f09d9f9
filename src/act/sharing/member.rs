//! The task that asks the keeper for this cluster's share of shared limits.

use crate::{
    act::job_state::JobStateHandle,
    model::{
        channel::Mode,
        records::StoreError,
        settings::{Settings, fleet::FleetSettings, limits::Limits},
        share::Share,
    },
    plan::{Plan, RefusalReason},
    shared_limits::{Granted, Lease, LeaseRequest, NOT_A_MEMBER, Now, SharedUse},
    sources::recliner::{NoReply, ReclinerClient},
    store::journal::{Journal, SharedRecord},
};
use couchdb_client::Address;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// How long the keeper may take to answer, and the maximum size of its answer.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BYTES: usize = 1 << 16;

/// How often a member without a lease asks.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(5);

/// How often the journal is read before it can be; it is claimed for a cluster soon after the start.
const BETWEEN_READS: Duration = Duration::from_secs(1);

/// How many times a member asks during one lease.
const ASKS_IN_A_LEASE: u32 = 4;

/// The route of the keeper.
const ROUTE: &str = "shared-limits/lease";

/// Which keeper a member asks, and how much its own limits allow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MemberSettings {
    /// The keeper's address, and the name of this recliner there; `None` if nothing is shared.
    keeper: Option<(Address, String)>,
    /// The login.
    fleet: FleetSettings,
    /// The cluster's own limits.
    limits: Limits,
    mode: Mode,
}

impl From<&Settings> for MemberSettings {
    fn from(settings: &Settings) -> Self {
        let shared = &settings.shared_limits;
        Self {
            keeper: shared.url.clone().zip(shared.name.clone()),
            fleet: settings.fleet.clone(),
            limits: settings.limits,
            mode: settings.mode,
        }
    }
}

/// What a member knows about its keeper.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MemberView {
    /// The keeper, and the name of this recliner there; `None` if none is asked.
    pub(crate) keeper: Option<(Address, String)>,
    /// When the keeper last answered.
    pub(crate) answered_at: Option<Moment>,
    /// Why the last request has no answer.
    pub(crate) problem: Option<String>,
}

/// The state that the next process needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StoredMember {
    /// Identifies the journal.
    instance: String,
    /// The keeper that granted the share, and the member's name there.
    keeper: Option<(String, String)>,
    own_share: Share,
}

/// Changes the settings, and reads what the task publishes.
#[derive(Clone, Debug)]
pub(crate) struct MemberHandle {
    settings: watch::Sender<MemberSettings>,
    granted: watch::Sender<Option<Granted>>,
    pub(crate) view: watch::Receiver<Arc<MemberView>>,
}

impl MemberHandle {
    /// A handle without a task that always shows this view.
    #[cfg(test)]
    pub(crate) fn fixed(granted: Option<Granted>, view: MemberView) -> Self {
        let couchdb = couchdb_client::ClientSettings::new(Vec::new());
        let (_, handle) = MemberTask::new(Clock::System, &Settings::new(couchdb));
        handle.granted.send_replace(granted);
        Self { view: watch::channel(Arc::new(view)).1, ..handle }
    }

    /// The share of shared limits; `None` if nothing is shared.
    pub(crate) fn granted(&self) -> watch::Receiver<Option<Granted>> {
        self.granted.subscribe()
    }

    /// Must be called before the settings take effect elsewhere: once limits are shared, nothing may start before the
    /// keeper, or what is stored, allows it.
    pub(crate) fn reconfigure(&self, settings: &Settings) {
        let settings = MemberSettings::from(settings);
        let is_shared = settings.keeper.is_some();
        let mut is_other_keeper = false;
        self.settings.send_if_modified(|before| {
            let changes = *before != settings;
            is_other_keeper = before.keeper != settings.keeper;
            *before = settings;
            changes
        });
        // After the settings, so that anything a task still publishes about the previous keeper is replaced
        // or refused.
        if is_other_keeper {
            self.granted.send_replace(is_shared.then(Granted::default));
        }
    }
}

/// What the task reads and stores.
#[derive(Clone, Debug)]
pub(crate) struct MemberInputs {
    /// Reports what is in use.
    pub(crate) job_state: JobStateHandle,
    /// Shows whether anything waits.
    pub(crate) plans: watch::Receiver<Arc<Plan>>,
    /// Stores what may be used without an answer.
    pub(crate) journal: Journal,
}

#[derive(Debug)]
pub(crate) struct MemberTask {
    clock: Clock,
    settings: watch::Receiver<MemberSettings>,
    granted: watch::Sender<Option<Granted>>,
    view: watch::Sender<Arc<MemberView>>,
}

impl MemberTask {
    /// The task and its handle.
    pub(crate) fn new(clock: Clock, settings: &Settings) -> (Self, MemberHandle) {
        let settings = MemberSettings::from(settings);
        let granted = settings.keeper.is_some().then(Granted::default);
        let (granted, _) = watch::channel(granted);
        let (view, view_rx) = watch::channel(Arc::default());
        let (settings, settings_rx) = watch::channel(settings);
        let handle = MemberHandle { settings, granted: granted.clone(), view: view_rx };
        (Self { clock, settings: settings_rx, granted, view }, handle)
    }

    /// Asks until `stop`.
    pub(crate) async fn run(self, inputs: MemberInputs, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow(inputs)).await;
    }

    async fn follow(mut self, inputs: MemberInputs) {
        loop {
            let settings = self.settings.borrow_and_update().clone();
            let asked = settings.keeper.clone().filter(|_| settings.mode == Mode::Enforce);
            let view = MemberView { keeper: asked, ..MemberView::default() };
            self.view.send_replace(Arc::new(view));
            let mut changes = self.settings.clone();
            let asking = async {
                match settings.keeper.clone() {
                    Some(keeper) => {
                        Member { task: &self, inputs: &inputs, settings, keeper }.ask_always().await
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => {
                    // The service ends together with the sender.
                    if changed.is_err() { return std::future::pending().await; }
                }
                () = asking => {}
            }
        }
    }
}

/// One member, while its settings stay the same. A request that is in flight when they change is dropped with it.
struct Member<'a> {
    task: &'a MemberTask,
    inputs: &'a MemberInputs,
    settings: MemberSettings,
    keeper: (Address, String),
}

impl Member<'_> {
    async fn ask_always(self) {
        let (mut stored, mut granted) = self.load().await;
        self.allow(granted);
        let (mut client, mut is_answered) = (None, true);
        loop {
            let asked_at = Instant::now();
            let asked = match client.take().map_or_else(|| self.client(), Ok) {
                Ok(usable) => {
                    let asked = self.ask(&usable, &mut stored, &mut granted).await;
                    client = Some(usable);
                    asked
                }
                Err(why) => Err(why),
            };
            let problem = asked.err();
            self.log(is_answered, problem.as_deref());
            is_answered = problem.is_none();
            self.show(problem);
            let now = Now::read(self.task.clock);
            let pause = granted.lasts().filter(|_| granted.lease(now).is_some());
            let pause = pause.map_or(BETWEEN_ATTEMPTS, |lasts| lasts / ASKS_IN_A_LEASE);
            time::sleep_until(asked_at + pause.max(Duration::from_secs(1))).await;
        }
    }

    /// What an earlier process was granted, once the journal is readable. Until then nothing is allowed.
    async fn load(&self) -> (StoredMember, Granted) {
        loop {
            match self.stored().await {
                Ok(stored) => {
                    let granted = Granted::stored(stored.own_share);
                    return (stored, granted);
                }
                Err(why) => self.show(Some(format!("the journal cannot be used: {why}"))),
            }
            time::sleep(BETWEEN_READS).await;
        }
    }

    /// The stored state, with an identity. A record that cannot be read allows nothing, and neither does a share from
    /// another keeper or under another name.
    async fn stored(&self) -> Result<StoredMember, StoreError> {
        let bytes = self.inputs.journal.shared_record(SharedRecord::Member).await?;
        let stored = bytes.and_then(|bytes| postcard::from_bytes(&bytes).ok());
        let mut stored: StoredMember = stored.unwrap_or_default();
        let keeper = Some((self.keeper.0.as_str().to_owned(), self.keeper.1.clone()));
        if stored.keeper != keeper {
            (stored.keeper, stored.own_share) = (keeper, Share::NONE);
        }
        if stored.instance.is_empty() {
            stored.instance = random_name()?;
            self.save(&stored).await?;
        }
        Ok(stored)
    }

    async fn save(&self, stored: &StoredMember) -> Result<(), StoreError> {
        let bytes = super::encode(stored)?;
        self.inputs.journal.save_shared_record(SharedRecord::Member, bytes).await
    }

    fn client(&self) -> Result<ReclinerClient, String> {
        ReclinerClient::of_fleet(&self.settings.fleet, TIMEOUT)
    }

    /// Asks once. An answer takes effect only after what it allows without a further answer is stored: a later process
    /// must not use more.
    async fn ask(
        &self,
        client: &ReclinerClient,
        stored: &mut StoredMember,
        granted: &mut Granted,
    ) -> Result<(), String> {
        let used = self.inputs.job_state.shared_use().await.ok_or("recliner is stopping")?;
        let request = self.request(stored, granted, used);
        let asked_at = Now::read(self.task.clock);
        let body = serde_json::to_vec(&request).map_err(|why| why.to_string())?;
        let post = client.post(&self.keeper.0, ROUTE);
        let post = post.header("content-type", "application/json").body(body);
        let answered = client.answer::<Lease>(post, MAX_BYTES).await;
        let (after, answer) = match answered {
            Ok(lease) => (Granted::answered(asked_at, lease.data), Ok(())),
            // The keeper reserves nothing for it.
            Err(NoReply::Refused { kind, says }) if kind == NOT_A_MEMBER => {
                *granted = Granted::default();
                self.allow(*granted);
                (*granted, Err(says))
            }
            Err(why) => return Err(why.into_fleet_reason()),
        };
        if after.own_share() != stored.own_share {
            let new = StoredMember { own_share: after.own_share(), ..stored.clone() };
            self.save(&new).await.map_err(|why| format!("its answer cannot be stored: {why}"))?;
            *stored = new;
        }
        *granted = after;
        self.allow(after);
        answer
    }

    /// Publishes what is allowed, unless the keeper has changed in the meantime.
    fn allow(&self, allowed: Granted) {
        self.task.granted.send_if_modified(|granted| {
            let is_asked = self.task.settings.borrow().keeper.as_ref() == Some(&self.keeper);
            if is_asked {
                *granted = Some(allowed);
            }
            is_asked
        });
    }

    fn request(&self, stored: &StoredMember, granted: &Granted, used: SharedUse) -> LeaseRequest {
        let plan = self.inputs.plans.borrow();
        let own = self.settings.limits.in_cluster();
        // Targets held back for other reasons, such as a closed window, would not start with a larger share.
        let reasons = [RefusalReason::ClusterLimit, RefusalReason::Budget, RefusalReason::Ramp];
        let waits = plan.decision_counts.iter().any(|counts| {
            counts.starts > 0 || reasons.iter().any(|reason| counts.refusals(*reason) > 0)
        });
        LeaseRequest {
            name: self.keeper.1.clone(),
            instance: stored.instance.clone(),
            // Without an exact number, the keeper does not lower its count.
            acts_on: if used.is_lower_bound { 0 } else { granted.acts_on() },
            used: used.used,
            wanted: match self.settings.mode {
                Mode::Advise => Share::NONE,
                Mode::Enforce if waits => own,
                Mode::Enforce => used.used.min(own),
            },
        }
    }

    fn log(&self, was_answered: bool, problem: Option<&str>) {
        let keeper = self.keeper.0.as_str();
        match problem {
            Some(why) if was_answered => {
                tracing::warn!(
                    keeper,
                    why,
                    "no new lease of shared limits: when the last one ends, this cluster uses only its own share"
                );
            }
            None if !was_answered => {
                tracing::info!(keeper, "this cluster gets leases of shared limits again")
            }
            Some(_) | None => {}
        }
    }

    fn show(&self, problem: Option<String>) {
        let now = self.task.clock.now();
        self.task.view.send_modify(|view| {
            let answered_at = if problem.is_none() { Some(now) } else { view.answered_at };
            *view = Arc::new(MemberView { keeper: view.keeper.clone(), answered_at, problem });
        });
    }
}

/// A name that no other journal has.
fn random_name() -> Result<String, StoreError> {
    let bytes: [u8; 16] = super::random_bytes()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
