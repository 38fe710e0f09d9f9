//! Limits that several clusters share: this cluster's share, and what the keeper counts for each member.

use crate::{
    act::sharing::{KeeperView, MemberView, Sharing},
    model::share::Share,
    shared_limits::{Granted, Now, keeper::Counted},
    text::{counted, size::format_size_short},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Limits that this cluster shares with others, or divides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedLimits {
    /// This cluster's share; null if it shares no limits, or only advises.
    pub share: Option<ClusterShare>,
    /// What the members of the limits that this recliner divides may use; empty if it divides none, or none asked yet.
    pub members: Vec<SharedMember>,
}

/// A cluster's share of shared limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterShare {
    /// The recliner that divides the limits.
    pub keeper: String,
    /// This cluster's name at the keeper.
    pub name: String,
    /// What the cluster may use now.
    pub allowed: Share,
    /// When the lease ends; null without one.
    pub until: Option<String>,
    /// What the cluster may use without a lease.
    pub own_share: Share,
    /// When the keeper last answered this process.
    pub last_answer: Option<String>,
    /// Why the last request was not answered; null if it was.
    pub problem: Option<String>,
    /// The share in a sentence.
    pub says: String,
}

/// A member, as the keeper accounts for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedMember {
    /// Its name.
    pub name: String,
    /// What it may use without a lease, according to the configuration.
    pub own_share: Share,
    /// The most that it may be running, and may have started within the hour; null if it never asked.
    pub held: Option<Share>,
    /// Its lease; null if it has none.
    pub lease: Option<Share>,
}

impl ClusterShare {
    /// This cluster's share; `None` if it shares no limits.
    pub(crate) fn of(view: &MemberView, granted: Option<Granted>, now: Now) -> Option<Self> {
        let ((keeper, name), granted) = view.keeper.clone().zip(granted)?;
        let allowance = granted.allowance(now);
        let (allowed, own_share) = (allowance.share, granted.own_share());
        let amount = format!(
            "{} and {} an hour",
            counted(allowed.jobs as u64, "compaction at a time", "compactions at a time"),
            format_size_short(allowed.bytes_per_hour)
        );
        let says = match (allowance.until, &view.problem) {
            (Some(until), None) => format!(
                "May use {amount} of the limits shared through {keeper}, at least until {}.",
                until.rfc3339()
            ),
            (Some(until), Some(why)) => format!(
                "May use {amount} of the limits shared through {keeper} until {}; then only its own share, because it gets no new lease: {why}.",
                until.rfc3339()
            ),
            (None, Some(why)) => format!(
                "May use only its own share, {amount}, of the limits shared through {keeper}, because it gets no lease: {why}."
            ),
            (None, None) => {
                format!("May use its own share, {amount}, of the limits shared through {keeper}.")
            }
        };
        Some(Self {
            keeper: keeper.to_string(),
            name,
            allowed,
            until: allowance.until.map(Moment::rfc3339),
            own_share,
            last_answer: view.answered_at.map(Moment::rfc3339),
            problem: view.problem.clone(),
            says,
        })
    }
}

impl SharedMember {
    /// Every member of the limits that this recliner divides.
    pub(crate) fn all(view: &KeeperView, now: Now) -> Vec<Self> {
        let Some(view) = view else { return Vec::new() };
        let (settings, keeper) = &**view;
        let line = |(name, counted): (&str, Counted)| Self {
            name: name.to_owned(),
            own_share: counted.own_share,
            held: counted.held,
            lease: counted.lease,
        };
        keeper.counted(settings, now.elapsed).map(line).collect()
    }
}

impl SharedLimits {
    /// The share and the members; `None` if nothing is shared.
    pub(crate) fn of(sharing: &Sharing, now: Now) -> Option<Self> {
        let (view, granted) =
            (sharing.member.view.borrow().clone(), *sharing.member.granted().borrow());
        let share = ClusterShare::of(&view, granted, now);
        let members = SharedMember::all(&sharing.keeper.view.borrow(), now);
        (share.is_some() || !members.is_empty()).then_some(Self { share, members })
    }
}
