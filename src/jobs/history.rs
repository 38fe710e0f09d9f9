//! What is remembered, as the planner reads it: by places in the tables.

use crate::{
    model::memory::{Ordered, Rest, Suspensions},
    table::{Ix, NodeIx},
};
use std::collections::{BTreeMap, BTreeSet};
use wall_clock::Moment;

/// What is remembered, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Targets that are left alone, and why.
    pub rests: BTreeMap<Ix, Rest>,
    /// Views of which some copies were compacted and others were not yet: the nodes that are
    /// done. They are worth going on with whatever their score says by now.
    pub rounds: BTreeMap<Ix, BTreeSet<NodeIx>>,
    /// Targets that were started and not measured since, with when they were: what was measured
    /// before has been acted on.
    pub started: BTreeMap<Ix, Moment>,
    /// What an operator ordered and did not start yet: before all others, in the order of the
    /// orders.
    pub orders: BTreeMap<Ix, Ordered>,
    /// What an operator suspended.
    pub suspensions: Suspensions,
    /// Starts of this process within the last hour: when, and bytes of the file.
    pub spent: Vec<(Moment, u64)>,
    /// When this process last started a job on a node.
    pub last_start: BTreeMap<NodeIx, Moment>,
    /// When this process began to act: starts are spread out from then on.
    pub acting_since: Option<Moment>,
    /// Predicted peak of a db job, times active: the largest that was seen, where that is
    /// above the configured factor.
    pub headroom_factor: Option<f64>,
    /// Bytes a second that jobs of this process rewrote, where that was measured.
    pub rate: Option<f64>,
    /// Since when the journal cannot be written, and why.
    pub journal_trouble: Option<(Moment, String)>,
}
