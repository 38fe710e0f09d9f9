//! Limits that several clusters on the same storage share.
//!
//! One recliner, the keeper, hands out leases of them to the members, each for its own cluster. Owns the rules of
//! both: [`keeper`] what a member may have, [`member`] what it may do with the answers it got or did not get. Pure; the
//! tasks are in `act`. The plan and the job state task keep to what [`member`] allows.
//!
//! The promise: what all members run, and what they started within any hour, is never above the shared limits, whatever
//! requests, answers and processes are lost. The keeper therefore counts for each member the most that the member may
//! still act on. It counts less only if the member shows, by the number of its newest lease, that it got that lease.

mod allowance;
mod fair;
pub(crate) mod keeper;
mod member;

pub use allowance::Allowance;
pub use member::{Granted, Now};

use crate::model::share::Share;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of error with which a keeper refuses a recliner that has no share.
pub(crate) const NOT_A_MEMBER: &str = "not_a_member";

/// What a member uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedUse {
    /// What it runs, and what it started within the last hour.
    pub used: Share,
    /// Whether it may run more, because not all that an earlier process started was found yet.
    pub is_lower_bound: bool,
}

/// What a member asks the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseRequest {
    /// The member, as the keeper's configuration names it.
    pub name: String,
    /// Identifies the member's journal, so that two processes with one name are noticed.
    pub instance: String,
    /// Number of the lease that it acts on; 0 if it got none since it was started.
    pub acts_on: u64,
    /// What it runs, and what it started within the last hour.
    pub used: Share,
    /// What it could use.
    pub wanted: Share,
}

/// The keeper's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// Number of the lease, by which the member shows that it got it. No other lease has the same.
    pub id: u64,
    /// What the member may use while the lease lasts.
    pub lease: Share,
    /// How long it lasts, in milliseconds since the member asked.
    pub lasts_ms: u64,
    /// What the member may use without a lease.
    pub own_share: Share,
    /// What any lease may allow it at most, if no other member needs anything.
    pub most: Share,
}
