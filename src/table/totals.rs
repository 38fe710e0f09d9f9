//! Totals, updated with every change and not summed at scrape time.

use super::NodeIx;
use crate::model::target::{Kind, State};

/// A sum with the number of known and unknown summands.
///
/// Without any known summand the sum is unknown, not zero, unless there was nothing to sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    total: u128,
    known: u64,
    unknown: u64,
}

impl Sum {
    pub(super) fn add(&mut self, value: Option<u64>) {
        match value {
            Some(value) => {
                self.total = self.total.saturating_add(u128::from(value));
                self.known += 1;
            }
            None => self.unknown += 1,
        }
    }

    pub(super) fn remove(&mut self, value: Option<u64>) {
        match value {
            Some(value) => {
                self.total = self.total.saturating_sub(u128::from(value));
                self.known = self.known.saturating_sub(1);
            }
            None => self.unknown = self.unknown.saturating_sub(1),
        }
    }

    /// The sum of the known values; `None` if none is known.
    #[must_use]
    pub const fn get(self) -> Option<f64> {
        if self.known == 0 && self.unknown > 0 { None } else { Some(self.total as f64) }
    }

    /// Number of unknown summands.
    #[must_use]
    pub const fn unknown(self) -> u64 {
        self.unknown
    }
}

/// Sums over the targets of one node and kind, in bytes on disk.
///
/// A cluster-wide view counts all its copies, wherever their sizes come from. So the sums of the
/// pseudo node are complete, and the parts of views on the other nodes are the same files again,
/// listed by node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of targets, by state in the order of [`State::ALL`].
    pub states: [u64; State::ALL.len()],
    /// File bytes.
    pub file: Sum,
    /// Active bytes.
    pub active: Sum,
    /// External bytes.
    pub external: Sum,
    /// Bytes that a compaction would free.
    pub reclaimable: Sum,
    /// File bytes of targets in state [`State::Orphan`]; also included in the sums above.
    pub orphan: Sum,
}

/// One target's contribution, in bytes on disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contribution {
    pub(super) node: NodeIx,
    pub(super) kind: Kind,
    pub(super) state: State,
    /// Number of its files.
    pub(super) copies: u32,
    pub(super) file: Option<u64>,
    pub(super) active: Option<u64>,
    pub(super) external: Option<u64>,
    pub(super) reclaimable: Option<u64>,
}

impl Contribution {
    /// Whether it is the part of a view.
    pub(super) fn is_part(&self) -> bool {
        self.kind == Kind::View && self.node != NodeIx::CLUSTER
    }
}

/// Counts and bytes by node and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    nodes: Vec<[Sums; Kind::ALL.len()]>,
}

impl Totals {
    /// The sums of one node and kind.
    #[must_use]
    pub fn of(&self, node: NodeIx, kind: Kind) -> Sums {
        self.nodes.get(node.as_usize()).map_or_else(Sums::default, |kinds| kinds[kind as usize])
    }

    pub(super) fn add(&mut self, target: &Contribution) {
        self.change(target, Sum::add, |count| *count += 1);
    }

    pub(super) fn remove(&mut self, target: &Contribution) {
        self.change(target, Sum::remove, |count| *count = count.saturating_sub(1));
    }

    fn change(
        &mut self,
        target: &Contribution,
        sum: impl Fn(&mut Sum, Option<u64>),
        count: impl Fn(&mut u64),
    ) {
        let at = target.node.as_usize();
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, [Sums::default(); Kind::ALL.len()]);
        }
        let sums = &mut self.nodes[at][target.kind as usize];
        count(&mut sums.states[target.state as usize]);
        // A missing file has no bytes, known or unknown, and a cleanup is not a file. Unused parts
        // of views count as stale index files.
        let stale = target.is_part() && target.state == State::Orphan;
        if target.state == State::Missing || target.kind == Kind::Cleanup || stale {
            return;
        }
        sum(&mut sums.file, target.file);
        if target.state == State::Orphan {
            sum(&mut sums.orphan, target.file);
        }
        sum(&mut sums.active, target.active);
        sum(&mut sums.external, target.external);
        sum(&mut sums.reclaimable, target.reclaimable);
    }
}
