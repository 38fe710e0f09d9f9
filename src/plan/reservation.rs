//! Slots that are reserved for a target.

use super::db_copies::NodeCopies;
use crate::table::{NodeIx, TargetIx};
use wall_clock::Moment;

/// Slots and bytes that are reserved for a target.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotReservation {
    /// The target.
    pub ix: TargetIx,
    /// Whether the target is a view whose copies are all compacted at once.
    pub all_copies: bool,
    /// The node of the target's queue.
    pub(super) node: NodeIx,
    /// When the target was queued.
    pub queued_since: Moment,
    /// The start of the reservation.
    pub active_from: Moment,
    /// The end of the reservation, unless the target starts before.
    pub active_until: Moment,
    /// The channel that the target counts towards.
    pub(super) channel_index: usize,
    /// The nodes that hold the target's files.
    pub(super) copies: Vec<NodeCopies>,
    /// Total bytes of the target's files.
    pub(super) total_bytes: u64,
    /// Whether all slots are free and the target only waits because of a recent start or a rest.
    pub(super) slots_free: bool,
}
