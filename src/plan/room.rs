//! Limits: running jobs by node, channel and cluster, and bytes spent of the hourly budget.

use super::{Claim, Refusal, RefusalReason, sites::Site, terms};
use crate::{model::settings::limits::Limits, table::NodeIx};
use std::time::Duration;
use wall_clock::Moment;

/// The period over which the byte budget is counted.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// A file larger than this fraction of the hourly budget counts as large.
const LARGE: u64 = 8;

/// Slots used by running jobs and by this plan's starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Room {
    limits: Limits,
    /// By node index.
    nodes: Vec<usize>,
    /// Targets by node, then channel, regardless of the number of files of each on the node.
    channels: Vec<usize>,
    /// Each channel's limit on one node.
    concurrency: Vec<usize>,
    cluster: usize,
    /// Views whose copies are all being compacted at once.
    wholes: usize,
    spent: u64,
    /// Nodes on which this plan starts something.
    started: Vec<bool>,
    kept: Option<Kept>,
}

/// Slots and bytes reserved for a target until it starts.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kept {
    /// By node index.
    nodes: Vec<usize>,
    /// The channel that takes the target.
    channel: usize,
    cluster: usize,
    /// Whether the target is a view whose copies are all compacted at once.
    whole: bool,
    /// Reserved bytes of the hourly budget.
    bytes: u64,
    /// The start of the reservation.
    since: Moment,
}

impl Kept {
    fn of(claim: &Claim, nodes: usize) -> Self {
        let &Claim { channel, whole, bytes, since, .. } = claim;
        let mut kept = Self { nodes: vec![0; nodes], channel, cluster: 0, whole, bytes, since };
        for (node, copies) in on_sites(&claim.sites) {
            if let Some(count) = kept.nodes.get_mut(node.as_usize()) {
                // If all slots are free already, another start would only delay this one.
                *count = if claim.ready { usize::MAX } else { copies };
            }
            kept.cluster = kept.cluster.saturating_add(copies);
        }
        kept
    }

    fn on(&self, node: NodeIx) -> usize {
        self.nodes.get(node.as_usize()).copied().unwrap_or(0)
    }
}

/// A request for slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asks<'a> {
    /// The nodes that hold its files.
    pub(super) sites: &'a [Site],
    /// The channel it counts for.
    pub(super) channel: usize,
    /// Whether it is a view whose copies are all compacted at once.
    pub(super) whole: bool,
    /// Bytes of one file.
    pub(super) file: u64,
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

    /// Counts one file that is being compacted.
    pub(super) fn count_job(&mut self, node: NodeIx) {
        self.count_jobs(node, 1);
    }

    /// Counts one target of a channel that is being compacted on a node.
    pub(super) fn count_target(&mut self, node: NodeIx, channel: usize) {
        let at = self.slot(node, channel);
        if let Some(count) = self.channels.get_mut(at) {
            *count += 1;
        }
    }

    /// Counts one view whose copies are all being compacted.
    pub(super) fn count_whole(&mut self) {
        self.wholes += 1;
    }

    /// Counts the bytes of files that were started within the last hour.
    pub(super) fn count_spent(&mut self, spent: &[(Moment, u64)], now: Moment) {
        let recent = spent.iter().filter(|(at, _)| recently(*at, now, HOUR));
        self.spent = recent.map(|(_, bytes)| *bytes).fold(self.spent, u64::saturating_add);
    }

    /// Running compactions and starts in the whole cluster.
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
        within(RefusalReason::ChannelLimit, running, 0, 1, limit)
    }

    /// Whether the limits admit a request; a view with all its copies counts with every file.
    pub(super) fn admits(&self, asks: Asks<'_>) -> Result<(), Refusal> {
        self.admits_beside(&Kept::default(), asks, on_sites(asks.sites))
    }

    /// Whether the limits also admit it with slots reserved for another target. Such a
    /// refusal shows fewer jobs or bytes than the limit.
    pub(super) fn admits_beside_kept(&self, asks: Asks<'_>) -> Result<(), Refusal> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let refused = |refusal| Refusal { since: Some(kept.since), ..refusal };
        self.admits_beside(kept, asks, on_sites(asks.sites)).map_err(refused)
    }

    /// `files` is the number of files compacted on each node.
    fn admits_beside(
        &self,
        kept: &Kept,
        asks: Asks<'_>,
        files: impl Iterator<Item = (NodeIx, usize)> + Clone,
    ) -> Result<(), Refusal> {
        let Asks { channel, whole, file, .. } = asks;
        let concurrency = self.concurrency.get(channel).copied().unwrap_or(0);
        for (node, _) in files.clone() {
            let running = self.channels.get(self.slot(node, channel)).copied().unwrap_or(0);
            let held = usize::from(kept.on(node) > 0 && kept.channel == channel);
            within(RefusalReason::ChannelLimit, running, held, 1, concurrency)?;
        }
        for (node, copies) in files.clone() {
            let running = self.nodes.get(node.as_usize()).copied().unwrap_or(0);
            let limit = self.limits.per_node;
            within(RefusalReason::NodeLimit, running, kept.on(node), copies, limit)?;
        }
        let all = files.map(|(_, copies)| copies).fold(0, usize::saturating_add);
        let limit = self.limits.cluster;
        within(RefusalReason::ClusterLimit, self.cluster, kept.cluster, all, limit)?;
        if whole {
            let held = usize::from(kept.whole);
            within(RefusalReason::ClusterLimit, self.wholes, held, 1, 1)?;
        }
        let bytes = file.saturating_mul(u64::try_from(all).unwrap_or(u64::MAX));
        self.budget(kept.bytes, bytes)
    }

    /// Whether the hourly budget suffices. A file larger than the whole budget may start if
    /// nothing is spent; otherwise it could never start.
    fn budget(&self, held: u64, bytes: u64) -> Result<(), Refusal> {
        let before = self.spent.saturating_add(held);
        let after = before.saturating_add(bytes);
        if before == 0 || after <= self.limits.bytes_per_hour {
            return Ok(());
        }
        let value = if held > 0 { self.spent } else { after };
        let limit = self.limits.bytes_per_hour as f64;
        Err(Refusal::compared(RefusalReason::Budget, value as f64, limit))
    }

    /// Whether a file needs so much of the hourly budget that smaller files could always use up
    /// the expired bytes first.
    pub(super) const fn is_large(&self, file: u64) -> bool {
        file > self.limits.bytes_per_hour / LARGE
    }

    /// Whether the limits would admit a request if no job ran and no bytes were spent. Not for a
    /// second view with all its copies: its reservation would leave slots idle until the first one
    /// ends.
    pub(super) fn could_admit(&self, Asks { sites, channel, whole, .. }: Asks<'_>) -> bool {
        let all = on_sites(sites).map(|(_, copies)| copies).fold(0, usize::saturating_add);
        !(whole && self.wholes > 0)
            && self.concurrency.get(channel).is_some_and(|limit| *limit > 0)
            && on_sites(sites).all(|(_, copies)| copies <= self.limits.per_node)
            && all <= self.limits.cluster
    }

    /// Reserves the slots a target needs.
    pub(super) fn keep(&mut self, claim: &Claim) {
        self.kept = Some(Kept::of(claim, self.nodes.len()));
    }

    /// The target starts and uses the reserved slots.
    pub(super) fn release(&mut self) {
        self.kept = None;
    }

    /// The bounds that apply to any file of a channel on a node.
    pub(super) fn terms(&self, node: NodeIx, channel: usize) -> terms::Limits {
        self.terms_beside(&Kept::default(), node, channel)
    }

    /// The same bounds with slots reserved for another target, if any.
    pub(super) fn terms_beside_kept(&self, node: NodeIx, channel: usize) -> Option<terms::Limits> {
        Some(self.terms_beside(self.kept.as_ref()?, node, channel))
    }

    fn terms_beside(&self, kept: &Kept, node: NodeIx, channel: usize) -> terms::Limits {
        let asks = Asks { sites: &[], channel, whole: false, file: 0 };
        let reached = self.admits_beside(kept, asks, [(node, 1)].into_iter()).err();
        let reached = reached.map(|refusal| refusal.reason);
        let before = self.spent.saturating_add(kept.bytes);
        let budget = match (before, self.limits.bytes_per_hour.checked_sub(before)) {
            (0, _) => u64::MAX,
            (_, left) => left.unwrap_or(0),
        };
        terms::Limits { reached, budget }
    }

    /// Whether no further compaction can start anywhere.
    pub(super) const fn cluster_full(&self) -> bool {
        self.cluster >= self.limits.cluster || self.spent > self.limits.bytes_per_hour
    }

    /// Counts a start.
    pub(super) fn start(&mut self, sites: &[Site], channel: usize, whole: bool, file: u64) {
        for (site, (_, copies)) in sites.iter().zip(on_sites(sites)) {
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

/// The nodes that hold files, with the number of files on each.
fn on_sites(sites: &[Site]) -> impl Iterator<Item = (NodeIx, usize)> + Clone {
    sites.iter().map(|site| (site.node, usize::try_from(site.copies).unwrap_or(usize::MAX)))
}

/// Whether `more` jobs fit into the limit with `running` and `held` ones.
fn within(
    reason: RefusalReason,
    running: usize,
    held: usize,
    more: usize,
    limit: usize,
) -> Result<(), Refusal> {
    if running.saturating_add(held).saturating_add(more) <= limit {
        return Ok(());
    }
    // A single start shows the jobs that run; a start of several files shows the total it would
    // reach.
    let value = if more == 1 || held > 0 { running } else { running.saturating_add(more) };
    Err(Refusal::compared(reason, value as f64, limit as f64))
}

/// Whether something happened less than `span` ago. A clock that was set back by more than `span`
/// blocks nothing.
pub(super) fn recently(at: Moment, now: Moment, span: Duration) -> bool {
    at.age(now) < span && now.age(at) < span
}
