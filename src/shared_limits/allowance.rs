//! What a member may use at one moment, as the plan reads it.

use crate::model::share::Share;
use wall_clock::Moment;

/// A share of shared limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// What may be used.
    pub share: Share,
    /// When the lease ends, after which less may be allowed; `None` without a lease.
    pub until: Option<Moment>,
    /// The most that may ever be allowed, as far as known.
    pub most: Share,
}
