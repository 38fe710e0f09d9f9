//! The slots of compactions between two plans, where one plan decides for all of them.
//!
//! A plan that may start as many compactions as fit says in what order; when each begins follows
//! from the slots of its nodes, of its channel there and of the cluster, as they become free.

use crate::{
    model::{channel::Channels, settings::limits::Limits},
    table::NodeIx,
};
use hashbrown::HashMap;
use std::time::Duration;

/// What has slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Cluster,
    Node(NodeIx),
    Channel(NodeIx, usize),
}

/// When the slots become free.
#[derive(Clone, Debug)]
pub(super) struct BatchSlots {
    limits: Limits,
    /// By channel.
    concurrency: Vec<usize>,
    /// The ends of the compactions that had a slot last.
    taken_until: HashMap<Owner, Vec<Duration>>,
}

impl BatchSlots {
    /// Free slots under these limits.
    pub(super) fn new(limits: Limits, channels: &Channels) -> Self {
        let concurrency = channels.list.iter().map(|channel| channel.concurrency).collect();
        Self { limits, concurrency, taken_until: HashMap::new() }
    }

    /// Takes a slot of everything that a compaction on these nodes needs, for so long; returns when
    /// it begins. None if that is not before the next plan.
    pub(super) fn take(
        &mut self,
        nodes: &[NodeIx],
        channel: usize,
        (now, next): (Duration, Duration),
        takes: Duration,
    ) -> Option<Duration> {
        let of_node = |node: &NodeIx| [Owner::Node(*node), Owner::Channel(*node, channel)];
        let owners = || nodes.iter().flat_map(of_node).chain([Owner::Cluster]);
        let mut begins = now;
        for owner in owners() {
            begins = begins.max(self.free_at(owner)?);
        }
        if begins >= next {
            return None;
        }
        // A node rests in proportion to the work.
        let rest = 100.0 / self.limits.duty_percent.clamp(1.0, 100.0);
        for owner in owners() {
            let until = match owner {
                Owner::Node(_) => begins.saturating_add(takes.mul_f64(rest)),
                Owner::Cluster | Owner::Channel(..) => begins.saturating_add(takes),
            };
            self.occupy(owner, until);
        }
        Some(begins)
    }

    fn capacity(&self, owner: Owner) -> usize {
        match owner {
            Owner::Channel(_, channel) => self.concurrency.get(channel).copied().unwrap_or(0),
            Owner::Node(_) => self.limits.per_node,
            Owner::Cluster => self.limits.cluster,
        }
    }

    /// When a slot is free; none if there are none.
    fn free_at(&self, owner: Owner) -> Option<Duration> {
        let capacity = self.capacity(owner);
        let taken = self.taken_until.get(&owner).map_or(&[][..], Vec::as_slice);
        if taken.len() < capacity {
            return Some(Duration::ZERO);
        }
        taken.iter().min().copied().filter(|_| capacity > 0)
    }

    fn occupy(&mut self, owner: Owner, until: Duration) {
        // Without a limit there is nothing to remember.
        let capacity = self.capacity(owner);
        if capacity == usize::MAX {
            return;
        }
        let taken = self.taken_until.entry(owner).or_default();
        if taken.len() < capacity {
            taken.push(until);
        } else if let Some(first) = taken.iter_mut().min() {
            *first = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::channel::ChannelPreset;

    #[test]
    fn compactions_begin_as_slots_become_free() {
        let second = Duration::from_secs;
        let list = ChannelPreset::Rent.channels();
        let channels = Channels { list, ..Channels::default() };
        let limits = Limits { per_node: 2, cluster: 3, duty_percent: 50.0, ..Limits::default() };
        let mut slots = BatchSlots::new(limits, &channels);
        let node = |at| NodeIx::from_usize(at).unwrap();
        let mut take = |node, channel, takes| {
            slots.take(&[node], channel, (second(100), second(200)), second(takes))
        };
        assert_eq!(take(node(1), 0, 10), Some(second(100)));
        assert_eq!(take(node(1), 0, 10), Some(second(110)), "one of the channel at a time");
        assert_eq!(
            take(node(1), 1, 10),
            Some(second(120)),
            "both slots rest as long as they worked"
        );
        assert_eq!(take(node(2), 0, 500), Some(second(110)), "the cluster runs three at a time");
        assert_eq!(take(node(2), 0, 1), None, "not before the next plan");
        assert_eq!(take(node(3), 0, 500), Some(second(120)));
        assert_eq!(take(node(4), 0, 500), Some(second(130)));
        assert_eq!(take(node(5), 0, 5), None);
    }
}
