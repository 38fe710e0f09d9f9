//! Disk space: what each volume has left for jobs, and what jobs reserve.

use super::{
    db_copies::NodeCopies,
    disk::{Disks, Volume, VolumeSpace},
    queue_bounds,
    refusal::{Refusal, RefusalReason},
    rules::Rules,
};
use crate::{
    jobs::Jobs,
    model::rounding::to_bytes,
    table::{NodeIx, Snapshot},
};
use hashbrown::HashMap;
use wall_clock::Moment;

/// One volume's balance, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct VolumeBalance {
    /// Bytes that may be written in addition to running jobs' reservations; `None` if unknown.
    free_bytes: Option<u64>,
    /// The part of these bytes that this plan's starts use.
    planned_bytes: u64,
    falling_since: Option<Moment>,
}

/// The space left on all volumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SpaceLedger {
    volumes: Vec<VolumeBalance>,
    /// The indexes of each node's volumes, by node index.
    volumes_by_node: Vec<Vec<usize>>,
    blind_limit: u64,
}

/// The bytes that a start needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpaceNeed {
    /// Peak bytes in addition to each file; `None` if no size is known.
    pub(super) peak_bytes: Option<u64>,
    /// The size of the file itself.
    pub(super) file_bytes: Option<u64>,
}

impl SpaceLedger {
    pub(super) fn new(snapshot: &Snapshot, disks: &Disks, jobs: &Jobs, rules: &Rules) -> Self {
        let mut volumes_by_node = vec![Vec::new(); snapshot.nodes().len()];
        let places: HashMap<&str, usize> =
            snapshot.nodes().iter().enumerate().map(|(at, node)| (&*node.name, at)).collect();
        for (at, volume) in disks.volumes.iter().enumerate() {
            for node in &volume.nodes {
                let volumes = places.get(&**node).and_then(|place| volumes_by_node.get_mut(*place));
                if let Some(volumes) = volumes.filter(|volumes| !volumes.contains(&at)) {
                    volumes.push(at);
                }
            }
        }
        let keep_free = rules.headroom.keep_free_percent;
        let balance = |volume: &Volume| {
            volume_balance(volume, volume.reserved_bytes(jobs, snapshot), keep_free)
        };
        let volumes = disks.volumes.iter().map(balance).collect();
        Self { volumes, volumes_by_node, blind_limit: rules.headroom.blind_limit }
    }

    /// Whether free space is known on every volume of these nodes; false for a node without
    /// volumes.
    pub(super) fn is_known(&self, copies_by_node: &[NodeCopies]) -> bool {
        copies_by_node.iter().all(|node_copies| {
            let volumes = self.volumes_of(node_copies);
            !volumes.is_empty()
                && self.balances_of(volumes).all(|balance| balance.free_bytes.is_some())
        })
    }

    /// Checks whether the space left by running jobs is enough.
    pub(super) fn check_after_running(
        &self,
        copies_by_node: &[NodeCopies],
        need: SpaceNeed,
    ) -> Result<(), Refusal> {
        if !self.is_known(copies_by_node)
            && need.file_bytes.is_none_or(|file| file > self.blind_limit)
        {
            let limit = Some(self.blind_limit as f64);
            let value = need.file_bytes.map(|file| file as f64);
            let refusal = Refusal::without_numbers(RefusalReason::UnknownDisk);
            return Err(Refusal { value, limit, ..refusal });
        }
        self.check(copies_by_node, need, |_| 0)
    }

    /// Checks whether the space left by running jobs and this plan's starts is enough.
    pub(super) fn check_after_starts(
        &self,
        copies_by_node: &[NodeCopies],
        need: SpaceNeed,
    ) -> Result<(), Refusal> {
        self.check(copies_by_node, need, |balance| balance.planned_bytes)
    }

    /// The bounds that apply to any file on a node.
    pub(super) fn bounds(&self, node: NodeIx) -> queue_bounds::SpaceBounds {
        let volumes = self.volumes_by_node.get(node.as_usize()).map_or(&[][..], Vec::as_slice);
        let free_and_planned =
            || self.balances_of(volumes).filter_map(|it| Some((it.free_bytes?, it.planned_bytes)));
        let is_known =
            !volumes.is_empty() && self.balances_of(volumes).all(|it| it.free_bytes.is_some());
        queue_bounds::SpaceBounds {
            largest_blind: (!is_known).then_some(self.blind_limit),
            is_falling: self.balances_of(volumes).any(|balance| balance.falling_since.is_some()),
            free_after_running: free_and_planned().map(|(free, _)| free).min(),
            free_after_starts: free_and_planned()
                .map(|(free, planned)| free.saturating_sub(planned))
                .min(),
        }
    }

    /// Reserves the space of a start.
    pub(super) fn reserve(&mut self, copies_by_node: &[NodeCopies], peak: u64) {
        for node_copies in copies_by_node {
            for at in self.volumes_by_node.get(node_copies.node.as_usize()).into_iter().flatten() {
                if let Some(balance) = self.volumes.get_mut(*at) {
                    let peak = peak.saturating_mul(u64::from(node_copies.count));
                    balance.planned_bytes = balance.planned_bytes.saturating_add(peak);
                }
            }
        }
    }

    fn check(
        &self,
        copies_by_node: &[NodeCopies],
        need: SpaceNeed,
        taken: impl Fn(&VolumeBalance) -> u64,
    ) -> Result<(), Refusal> {
        for node_copies in copies_by_node {
            for at in self.volumes_of(node_copies) {
                let Some(balance) = self.volumes.get(*at) else { continue };
                if balance.falling_since.is_some() {
                    let refusal = Refusal::without_numbers(RefusalReason::Headroom);
                    return Err(refusal.since(balance.falling_since));
                }
                let Some(room) = balance.free_bytes else { continue };
                let Some(peak) = need.peak_bytes else {
                    return Err(Refusal::without_numbers(RefusalReason::Headroom));
                };
                let copies = match copies_by_node {
                    [one] => one.count,
                    // Several nodes may share the volume.
                    _ => copies_by_node
                        .iter()
                        .filter(|other| self.volumes_of(other).contains(at))
                        .map(|other| other.count)
                        .sum(),
                };
                let peak = peak.saturating_mul(u64::from(copies));
                let room = room.saturating_sub(taken(balance));
                if peak > room {
                    let reason = RefusalReason::Headroom;
                    return Err(Refusal::with_numbers(reason, peak as f64, room as f64));
                }
            }
        }
        Ok(())
    }

    fn volumes_of(&self, node_copies: &NodeCopies) -> &[usize] {
        self.volumes_by_node.get(node_copies.node.as_usize()).map_or(&[], Vec::as_slice)
    }

    fn balances_of(&self, volumes: &[usize]) -> impl Iterator<Item = &VolumeBalance> {
        volumes.iter().filter_map(|at| self.volumes.get(*at))
    }
}

fn volume_balance(volume: &Volume, reserved: u64, keep_free_percent: f64) -> VolumeBalance {
    VolumeBalance {
        free_bytes: free_bytes(volume, reserved, keep_free_percent),
        planned_bytes: 0,
        falling_since: volume.falling_since,
    }
}

/// Bytes that may be written in addition to running jobs' reservations; `None` if unknown.
pub(super) fn free_bytes(volume: &Volume, reserved: u64, keep_free_percent: f64) -> Option<u64> {
    volume.space.map(|space| usable_bytes(space, keep_free_percent).saturating_sub(reserved))
}

/// Free bytes of a volume that compactions may use.
pub(super) fn usable_bytes(space: VolumeSpace, keep_free_percent: f64) -> u64 {
    space.available.saturating_sub(min_free_bytes(space, keep_free_percent))
}

/// Bytes of a volume that starts must leave free; zero if its size is unknown.
fn min_free_bytes(space: VolumeSpace, percent: f64) -> u64 {
    space.size.map_or(0, |size| to_bytes((size as f64 * percent / 100.0).ceil()))
}
