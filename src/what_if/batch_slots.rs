//! The slots of compactions between two plans, if one plan decides about all of them.
//!
//! Such a plan only gives the order of compactions; each begins when slots of its nodes, of its
//! channel on them and of the cluster become free.

use crate::{
    model::{channel::Channels, settings::limits::Limits},
    plan::{PlannedStart, rest_after},
    table::{NodeIx, TargetRef},
};
use hashbrown::HashMap;
use std::time::Duration;

/// Something with a limited number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Cluster,
    /// Views whose copies are all compacted at once run one after another.
    WholeViews,
    Node(NodeIx),
    Channel(NodeIx, usize),
}

/// The slots that a compaction needs.
#[derive(Clone, Debug)]
pub(super) struct SlotNeed<'a> {
    nodes: &'a [NodeIx],
    channel: usize,
    /// Number of files on each of the nodes.
    files: usize,
    is_whole_view: bool,
}

impl<'a> SlotNeed<'a> {
    /// The slots that a start needs on these nodes.
    pub(super) fn of(start: &PlannedStart, target: TargetRef<'_>, nodes: &'a [NodeIx]) -> Self {
        let is_everywhere = start.node == NodeIx::CLUSTER;
        let copies = if is_everywhere { target.file_count() as usize } else { 1 };
        Self {
            nodes,
            channel: start.channel,
            files: copies.div_ceil(nodes.len().max(1)),
            is_whole_view: is_everywhere && target.shard_map().ranges > 1,
        }
    }

    /// The owners of the slots, with the number of slots of each.
    fn owners(&self) -> impl Iterator<Item = (Owner, usize)> {
        let of_node = |node: &NodeIx| {
            [(Owner::Node(*node), self.files), (Owner::Channel(*node, self.channel), 1)]
        };
        let all = (Owner::Cluster, self.files.saturating_mul(self.nodes.len()));
        let view = self.is_whole_view.then_some((Owner::WholeViews, 1));
        self.nodes.iter().flat_map(of_node).chain([all]).chain(view)
    }
}

/// When the slots become free.
#[derive(Clone, Debug)]
pub(super) struct BatchSlots {
    limits: Limits,
    /// Maximum number of concurrent compactions, by channel.
    concurrency: Vec<usize>,
    /// When the latest compactions of each owner end, earliest first.
    taken_until: HashMap<Owner, Vec<Duration>>,
}

impl BatchSlots {
    /// Free slots under these limits.
    pub(super) fn new(limits: Limits, channels: &Channels) -> Self {
        let concurrency = channels.list.iter().map(|channel| channel.concurrency).collect();
        Self { limits, concurrency, taken_until: HashMap::new() }
    }

    /// Takes the slots that a compaction needs, for its duration; returns when it begins, or `None`
    /// if that is not before the next plan.
    pub(super) fn take(
        &mut self,
        need: &SlotNeed<'_>,
        (now, next): (Duration, Duration),
        takes: Duration,
    ) -> Option<Duration> {
        let mut begins = now;
        for (owner, count) in need.owners() {
            begins = begins.max(self.free_at(owner, count)?);
        }
        if begins >= next {
            return None;
        }
        let ends = begins.saturating_add(takes);
        let rested = ends.saturating_add(rest_after(takes, self.limits.duty_percent));
        for (owner, count) in need.owners() {
            let until = match owner {
                Owner::Node(_) => rested,
                Owner::Cluster | Owner::WholeViews | Owner::Channel(..) => ends,
            };
            self.occupy(owner, count, until);
        }
        Some(begins)
    }

    fn capacity(&self, owner: Owner) -> usize {
        match owner {
            Owner::Channel(_, channel) => self.concurrency.get(channel).copied().unwrap_or(0),
            Owner::Node(_) => self.limits.per_node,
            Owner::Cluster => self.limits.cluster,
            Owner::WholeViews => 1,
        }
    }

    /// First moment at which `count` slots are free, if any.
    fn free_at(&self, owner: Owner, count: usize) -> Option<Duration> {
        let capacity = self.capacity(owner);
        let ends = self.taken_until.get(&owner).map_or(&[][..], Vec::as_slice);
        let free = capacity.saturating_sub(ends.len());
        if count > capacity {
            return None;
        }
        let wanted = count.saturating_sub(free);
        Some(wanted.checked_sub(1).and_then(|at| ends.get(at)).copied().unwrap_or_default())
    }

    fn occupy(&mut self, owner: Owner, count: usize, until: Duration) {
        // Without a limit there is nothing to remember.
        let capacity = self.capacity(owner);
        if capacity == usize::MAX {
            return;
        }
        let ends = self.taken_until.entry(owner).or_default();
        let free = capacity.saturating_sub(ends.len());
        ends.drain(..count.saturating_sub(free).min(ends.len()));
        let at = ends.partition_point(|end| *end <= until);
        ends.splice(at..at, std::iter::repeat_n(until, count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::channel::ChannelPreset;

    #[test]
    fn compactions_start_as_slots_become_free() {
        let second = Duration::from_secs;
        let list = ChannelPreset::Rent.channels();
        let channels = Channels { list, ..Channels::default() };
        let limits = Limits { per_node: 2, cluster: 3, duty_percent: 50.0, ..Limits::default() };
        let mut slots = BatchSlots::new(limits, &channels);
        let node = |at| NodeIx::from_usize(at).unwrap();
        let mut take = |node, channel, takes| {
            let need = SlotNeed { nodes: &[node], channel, files: 1, is_whole_view: false };
            slots.take(&need, (second(100), second(200)), second(takes))
        };
        assert_eq!(take(node(1), 0, 10), Some(second(100)));
        assert_eq!(take(node(1), 0, 10), Some(second(110)), "the channel runs one at a time");
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

    #[test]
    fn compaction_of_all_view_copies_takes_their_slots_and_runs_alone() {
        let second = Duration::from_secs;
        let list = ChannelPreset::Rent.channels();
        let channels = Channels { list, ..Channels::default() };
        let limits = Limits { per_node: 2, cluster: 8, duty_percent: 100.0, ..Limits::default() };
        let mut slots = BatchSlots::new(limits, &channels);
        let nodes: Vec<NodeIx> = (1..4).filter_map(NodeIx::from_usize).collect();
        let mut take = |nodes: &[NodeIx], channel, files, takes| {
            let is_whole_view = channel == 1;
            let need = SlotNeed { nodes, channel, files, is_whole_view };
            slots.take(&need, (second(100), second(200)), second(takes))
        };
        assert_eq!(take(&nodes, 1, 3, 10), None, "a node runs two at a time");
        assert_eq!(take(&nodes[..1], 0, 1, 30), Some(second(100)));
        assert_eq!(take(&nodes, 1, 2, 10), Some(second(130)), "both slots of the first node");
        assert_eq!(take(&nodes[1..], 1, 1, 5), Some(second(140)), "after the other view");
        assert_eq!(take(&nodes[..1], 2, 1, 5), Some(second(140)));
    }
}
