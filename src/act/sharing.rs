//! Limits that several clusters share: the tasks of the keeper and of a member.
//!
//! The keeper's task owns what it granted, stores it before it answers, and never sends a request. The member's task
//! asks the keeper, stores what it may use if the keeper does not answer, and publishes what is allowed; the planner
//! and the job state task respect that.

mod keeper;
mod member;

pub(crate) use keeper::{KeeperHandle, KeeperView, NotGranted};
pub(crate) use member::{MemberHandle, MemberView};

use crate::{
    act::job_state::JobStateHandle,
    model::{records::StoreError, settings::Settings},
    plan::Plan,
    store::journal::Journal,
};
use keeper::KeeperTask;
use member::{MemberInputs, MemberTask};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Both tasks.
#[derive(Debug)]
pub(crate) struct SharingTask {
    keeper: KeeperTask,
    member: MemberTask,
    journal: Journal,
}

/// The handles of both.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Divides limits that clusters share.
    pub(crate) keeper: KeeperHandle,
    /// Asks for this cluster's share.
    pub(crate) member: MemberHandle,
}

impl SharingTask {
    /// Both tasks and their handles.
    pub(crate) fn new(clock: Clock, settings: &Settings, journal: &Journal) -> (Self, Sharing) {
        let keeper_settings = settings.shared_limits.keeper.clone();
        let (keeper_task, keeper) = KeeperTask::new(journal.clone(), keeper_settings);
        let (member_task, member) = MemberTask::new(clock, settings);
        let task = Self { keeper: keeper_task, member: member_task, journal: journal.clone() };
        (task, Sharing { keeper, member })
    }

    /// Answers members, and asks the keeper, until `stop`.
    pub(crate) async fn run(
        self,
        job_state: JobStateHandle,
        plans: watch::Receiver<Arc<Plan>>,
        stop: CancellationToken,
    ) {
        let inputs = MemberInputs { job_state, plans, journal: self.journal };
        tokio::join!(self.keeper.run(stop.clone()), self.member.run(inputs, stop));
    }
}

impl Sharing {
    /// Must be called before the settings take effect elsewhere.
    pub(crate) fn reconfigure(&self, settings: &Settings) {
        self.member.reconfigure(settings);
        self.keeper.reconfigure(settings.shared_limits.keeper.clone());
    }

    /// Handles without tasks: nothing is shared.
    pub fn none() -> Self {
        let settings = Settings::new(couchdb_client::ClientSettings::new(Vec::new()));
        let keeper = KeeperHandle::without_task();
        Self { keeper, member: MemberTask::new(Clock::System, &settings).1 }
    }
}

fn encode(record: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    postcard::to_stdvec(record).map_err(|why| StoreError(format!("cannot encode it: {why}")))
}

fn random_bytes<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| StoreError("the operating system returned no random bytes".to_owned()))?;
    Ok(bytes)
}
