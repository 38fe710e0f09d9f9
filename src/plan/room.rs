//! Limits: how many jobs run where, and what they spent of the hour's bytes.

use super::{Refusal, RefusalReason, sites::Site};
use crate::{clock::Moment, settings::limits::Limits, snapshot::NodeIx};
use std::time::Duration;

/// Over how long bytes are counted.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// Jobs that run, and those this plan starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Room {
    limits: Limits,
    /// By the node's place.
    nodes: Vec<usize>,
    /// By node, then channel: targets, however many files of each are compacted there.
    channels: Vec<usize>,
    /// Of each channel, how many may run on a node.
    concurrency: Vec<usize>,
    cluster: usize,
    /// Views of which every copy is compacted at once.
    wholes: usize,
    spent: u64,
    /// Nodes on which this plan starts something.
    started: Vec<bool>,
}

impl Room {
    pub(super) fn new(limits: Limits, concurrency: Vec<usize>, nodes: usize) -> Self {
        Self {
            limits,
            nodes: vec![0; nodes],
            channels: vec![0; nodes.saturating_mul(concurrency.len())],
            concurrency,
            started: vec![false; nodes],
            ..Self::default()
        }
    }

    /// A file that is being compacted.
    pub(super) fn count_job(&mut self, node: NodeIx) {
        self.count_jobs(node, 1);
    }

    /// A target of a channel that is being compacted on a node.
    pub(super) fn count_target(&mut self, node: NodeIx, channel: usize) {
        let at = self.slot(node, channel);
        if let Some(count) = self.channels.get_mut(at) {
            *count += 1;
        }
    }

    /// A view of which every copy is being compacted.
    pub(super) fn count_whole(&mut self) {
        self.wholes += 1;
    }

    /// Bytes of the files that were started within the last hour.
    pub(super) fn count_spent(&mut self, spent: &[(Moment, u64)], now: Moment) {
        let recent = spent.iter().filter(|(at, _)| recently(*at, now, HOUR));
        self.spent = recent.map(|(_, bytes)| *bytes).fold(self.spent, u64::saturating_add);
    }

    /// Compactions that run or start in the whole cluster.
    pub(super) const fn cluster(&self) -> usize {
        self.cluster
    }

    /// Whether this plan starts something on a node.
    pub(super) fn starts_on(&self, node: NodeIx) -> bool {
        self.started.get(node.as_usize()).copied().unwrap_or(false)
    }

    /// Whether a channel may run one more target on a node.
    pub(super) fn channel(&self, node: NodeIx, channel: usize) -> Result<(), Refusal> {
        let running = self.channels.get(self.slot(node, channel)).copied().unwrap_or(0);
        let limit = self.concurrency.get(channel).copied().unwrap_or(0);
        within(RefusalReason::ChannelLimit, running, 1, limit)
    }

    /// Whether the limits let these files be compacted; a whole view at its true weight.
    pub(super) fn admits(
        &self,
        sites: &[Site],
        channel: usize,
        whole: bool,
        file: u64,
    ) -> Result<(), Refusal> {
        for site in sites {
            self.channel(site.node, channel)?;
        }
        let copies = |site: &Site| usize::try_from(site.copies).unwrap_or(usize::MAX);
        for site in sites {
            let running = self.nodes.get(site.node.as_usize()).copied().unwrap_or(0);
            within(RefusalReason::NodeLimit, running, copies(site), self.limits.per_node)?;
        }
        let all = sites.iter().map(copies).fold(0, usize::saturating_add);
        within(RefusalReason::ClusterLimit, self.cluster, all, self.limits.cluster)?;
        if whole {
            within(RefusalReason::ClusterLimit, self.wholes, 1, 1)?;
        }
        self.budget(file.saturating_mul(u64::try_from(all).unwrap_or(u64::MAX)))
    }

    /// Whether the hour's bytes suffice. A file larger than all of them starts where none
    /// is spent: else it never would.
    fn budget(&self, bytes: u64) -> Result<(), Refusal> {
        let after = self.spent.saturating_add(bytes);
        if self.spent == 0 || after <= self.limits.bytes_per_hour {
            return Ok(());
        }
        let limit = self.limits.bytes_per_hour as f64;
        Err(Refusal::compared(RefusalReason::Budget, after as f64, limit))
    }

    /// The limit that is reached for one more file of a channel on a node, and bytes of the
    /// largest file within the budget.
    pub(super) fn terms(&self, node: NodeIx, channel: usize) -> (Option<RefusalReason>, u64) {
        let running = self.nodes.get(node.as_usize()).copied().unwrap_or(0);
        let reached = self
            .channel(node, channel)
            .and_then(|()| within(RefusalReason::NodeLimit, running, 1, self.limits.per_node))
            .and_then(|()| {
                within(RefusalReason::ClusterLimit, self.cluster, 1, self.limits.cluster)
            });
        let budget = match (self.spent, self.limits.bytes_per_hour.checked_sub(self.spent)) {
            (0, _) => u64::MAX,
            (_, left) => left.unwrap_or(0),
        };
        (reached.err().map(|refusal| refusal.reason), budget)
    }

    /// Whether no further compaction can start anywhere.
    pub(super) const fn cluster_full(&self) -> bool {
        self.cluster >= self.limits.cluster || self.spent > self.limits.bytes_per_hour
    }

    /// Counts a start.
    pub(super) fn start(&mut self, sites: &[Site], channel: usize, whole: bool, file: u64) {
        for site in sites {
            let copies = usize::try_from(site.copies).unwrap_or(usize::MAX);
            self.count_jobs(site.node, copies);
            self.count_target(site.node, channel);
            self.spent = self.spent.saturating_add(file.saturating_mul(u64::from(site.copies)));
            if let Some(started) = self.started.get_mut(site.node.as_usize()) {
                *started = true;
            }
        }
        self.wholes += usize::from(whole);
    }

    fn count_jobs(&mut self, node: NodeIx, jobs: usize) {
        if let Some(count) = self.nodes.get_mut(node.as_usize()) {
            *count = count.saturating_add(jobs);
        }
        self.cluster = self.cluster.saturating_add(jobs);
    }

    fn slot(&self, node: NodeIx, channel: usize) -> usize {
        node.as_usize().saturating_mul(self.concurrency.len()).saturating_add(channel)
    }
}

fn within(reason: RefusalReason, running: usize, more: usize, limit: usize) -> Result<(), Refusal> {
    if running.saturating_add(more) <= limit {
        return Ok(());
    }
    // One more is what every start is; of several the reader wants to see all.
    let value = if more == 1 { running } else { running.saturating_add(more) };
    Err(Refusal::compared(reason, value as f64, limit as f64))
}

/// Whether something happened less than `span` ago. A clock that was set back further than
/// that holds nothing up.
pub(super) fn recently(at: Moment, now: Moment, span: Duration) -> bool {
    at.age(now) < span && now.age(at) < span
}
