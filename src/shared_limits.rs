//! Limits that several clusters on the same storage share.
//!
//! One recliner, the keeper, grants leases of them to the members, each for its own cluster. Owns the rules for both:
//! [`keeper`] decides what a member may use, [`member`] what it may do with the answers that it received or missed.
//! Pure; the tasks are in `act`. The plan and the job state task obey [`member`].
//!
//! The guarantee: what all members run, and what they started within any hour, never exceeds the shared limits, no
//! matter which requests, answers and processes are lost. So the keeper counts for each member the most that the member
//! may still act on. It counts less only once the member shows, by the number of its newest lease, that it received
//! that lease.

mod allowance;
mod fair;
pub(crate) mod keeper;
mod member;

pub use allowance::Allowance;
pub use member::{Granted, Now};

use crate::model::share::Share;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of error with which a keeper refuses a recliner without a share.
pub(crate) const NOT_A_MEMBER: &str = "not_a_member";

/// A member's use of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedUse {
    /// The compactions that it runs, and the bytes that it started within the last hour.
    pub used: Share,
    /// Whether it may run more, because some starts of an earlier process were not found yet.
    pub is_lower_bound: bool,
}

/// A member's request to the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseRequest {
    /// The member's name in the keeper's configuration.
    pub name: String,
    /// Identifies the member's journal, to detect two processes with one name.
    pub instance: String,
    /// Number of the lease that it acts on; 0 if it received none since it was started.
    pub acts_on: u64,
    /// The compactions that it runs, and the bytes that it started within the last hour.
    pub used: Share,
    /// What it could use.
    pub wanted: Share,
}

/// The keeper's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// Number of the lease, by which the member shows that it received it. It is unique.
    pub id: u64,
    /// What the member may use while the lease lasts.
    pub lease: Share,
    /// How long it lasts, in milliseconds since the member's request.
    pub lasts_ms: u64,
    /// What the member may use without a lease.
    pub own_share: Share,
    /// The maximum of any lease, if no other member needs anything.
    pub most: Share,
}
