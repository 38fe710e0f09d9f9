//! Disk space: what each volume has left for jobs, and what jobs reserve.

use super::{Refusal, RefusalReason, Rules, sites::Site, terms};
use crate::{
    jobs::Jobs,
    plan::disk::{Disks, Space, Volume},
    table::{NodeIx, Snapshot},
};
use hashbrown::HashMap;
use wall_clock::Moment;

/// One volume's balance, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Balance {
    /// Bytes that may be written in addition to running jobs' reservations; absent where unknown.
    room: Option<u64>,
    /// The part of these bytes that this plan's starts use.
    taken: u64,
    falling_since: Option<Moment>,
}

/// The space left on all volumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ledger {
    volumes: Vec<Balance>,
    /// The indexes of each node's volumes, by node index.
    of_node: Vec<Vec<usize>>,
    blind_limit: u64,
}

/// The bytes that a start needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// Peak bytes in addition to each file; absent where no size is known.
    pub(super) peak: Option<u64>,
    /// The size of the file itself.
    pub(super) file: Option<u64>,
}

impl Ledger {
    pub(super) fn new(snapshot: &Snapshot, disks: &Disks, jobs: &Jobs, rules: &Rules) -> Self {
        let mut of_node = vec![Vec::new(); snapshot.nodes().len()];
        let places: HashMap<&str, usize> =
            snapshot.nodes().iter().enumerate().map(|(at, node)| (&*node.name, at)).collect();
        for (at, volume) in disks.volumes.iter().enumerate() {
            for node in &volume.nodes {
                let volumes = places.get(&**node).and_then(|place| of_node.get_mut(*place));
                if let Some(volumes) = volumes.filter(|volumes| !volumes.contains(&at)) {
                    volumes.push(at);
                }
            }
        }
        let mut reserved = vec![0_u64; disks.volumes.len()];
        for job in &jobs.list {
            for at in of_node.get(job.key.node.as_usize()).into_iter().flatten() {
                if let Some(reserved) = reserved.get_mut(*at) {
                    *reserved = reserved.saturating_add(job.reserved);
                }
            }
        }
        let keep_free = rules.headroom.keep_free_percent;
        let volumes = disks
            .volumes
            .iter()
            .zip(reserved)
            .map(|(volume, reserved)| balance(volume, reserved, keep_free))
            .collect();
        Self { volumes, of_node, blind_limit: rules.headroom.blind_limit }
    }

    /// Whether free space is known on every volume of these nodes.
    pub(super) fn knows(&self, sites: &[Site]) -> bool {
        sites.iter().all(|site| {
            let volumes = self.volumes_of(site);
            !volumes.is_empty() && self.balances(volumes).all(|balance| balance.room.is_some())
        })
    }

    /// Whether the space left by running jobs is enough.
    pub(super) fn beside_what_runs(&self, sites: &[Site], need: Need) -> Result<(), Refusal> {
        if !self.knows(sites) && need.file.is_none_or(|file| file > self.blind_limit) {
            let limit = Some(self.blind_limit as f64);
            let value = need.file.map(|file| file as f64);
            return Err(Refusal { value, limit, ..Refusal::plain(RefusalReason::UnknownDisk) });
        }
        self.fits(sites, need, |_| 0)
    }

    /// Whether the space left by running jobs and this plan's starts is enough.
    pub(super) fn beside_what_starts(&self, sites: &[Site], need: Need) -> Result<(), Refusal> {
        self.fits(sites, need, |balance| balance.taken)
    }

    /// The bounds that apply to any file on a node.
    pub(super) fn terms(&self, node: NodeIx) -> terms::Space {
        let volumes = self.of_node.get(node.as_usize()).map_or(&[][..], Vec::as_slice);
        let rooms = || self.balances(volumes).filter_map(|it| Some((it.room?, it.taken)));
        let knows = !volumes.is_empty() && self.balances(volumes).all(|it| it.room.is_some());
        terms::Space {
            blind: (!knows).then_some(self.blind_limit),
            falling: self.balances(volumes).any(|balance| balance.falling_since.is_some()),
            room: rooms().map(|(room, _)| room).min(),
            left: rooms().map(|(room, taken)| room.saturating_sub(taken)).min(),
        }
    }

    /// Reserves the space of a start.
    pub(super) fn reserve(&mut self, sites: &[Site], peak: u64) {
        for site in sites {
            for at in self.of_node.get(site.node.as_usize()).into_iter().flatten() {
                if let Some(balance) = self.volumes.get_mut(*at) {
                    let peak = peak.saturating_mul(u64::from(site.copies));
                    balance.taken = balance.taken.saturating_add(peak);
                }
            }
        }
    }

    fn fits(
        &self,
        sites: &[Site],
        need: Need,
        taken: impl Fn(&Balance) -> u64,
    ) -> Result<(), Refusal> {
        for site in sites {
            for at in self.volumes_of(site) {
                let Some(balance) = self.volumes.get(*at) else { continue };
                if balance.falling_since.is_some() {
                    let since = balance.falling_since;
                    return Err(Refusal { since, ..Refusal::plain(RefusalReason::Headroom) });
                }
                let Some(room) = balance.room else { continue };
                let Some(peak) = need.peak else {
                    return Err(Refusal::plain(RefusalReason::Headroom));
                };
                let copies = match sites {
                    [one] => one.copies,
                    // Several nodes may share the volume.
                    _ => sites
                        .iter()
                        .filter(|other| self.volumes_of(other).contains(at))
                        .map(|other| other.copies)
                        .sum(),
                };
                let peak = peak.saturating_mul(u64::from(copies));
                let room = room.saturating_sub(taken(balance));
                if peak > room {
                    let reason = RefusalReason::Headroom;
                    return Err(Refusal::compared(reason, peak as f64, room as f64));
                }
            }
        }
        Ok(())
    }

    fn volumes_of(&self, site: &Site) -> &[usize] {
        self.of_node.get(site.node.as_usize()).map_or(&[], Vec::as_slice)
    }

    fn balances(&self, volumes: &[usize]) -> impl Iterator<Item = &Balance> {
        volumes.iter().filter_map(|at| self.volumes.get(*at))
    }
}

fn balance(volume: &Volume, reserved: u64, keep_free_percent: f64) -> Balance {
    let room = volume.space.map(|space| {
        space.available.saturating_sub(kept_free(space, keep_free_percent)).saturating_sub(reserved)
    });
    Balance { room, taken: 0, falling_since: volume.falling_since }
}

/// Bytes of a volume that starts must leave free; none where its size is unknown.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and a conversion from float saturates"
)]
fn kept_free(space: Space, percent: f64) -> u64 {
    space.size.map_or(0, |size| (size as f64 * percent / 100.0).ceil() as u64)
}
