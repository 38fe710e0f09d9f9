//! Limits: running jobs per node, channel and cluster, and spent bytes of the hourly budget.

use super::{
    db_copies::NodeCopies,
    queue_bounds,
    refusal::{Refusal, RefusalReason},
    reservation::SlotReservation,
    rules::Rules,
};
use crate::{
    model::settings::limits::{BUDGET_PERIOD, Limits},
    table::NodeIx,
};
use std::time::Duration;
use wall_clock::Moment;

/// A file larger than this fraction of the hourly budget counts as large.
const LARGE_FILE_DIVISOR: u64 = 8;

/// Slots used by running jobs and by this plan's starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JobSlots {
    limits: Limits,
    /// Whether clusters share the limits. Only if they do not may a file larger than the whole hourly budget start
    /// alone: otherwise each cluster would start one.
    is_shared: bool,
    /// The most jobs that the cluster may ever run: a share of shared limits may grow.
    most_jobs: usize,
    /// Number of views whose copies may all be compacted at once.
    whole_views: usize,
    /// By node index.
    jobs_by_node: Vec<usize>,
    /// Targets by node, then channel; each counts once, regardless of the number of its files on
    /// the node.
    targets_by_queue: Vec<usize>,
    /// Each channel's limit on one node.
    channel_limits: Vec<usize>,
    cluster_jobs: usize,
    /// Number of views whose copies are all being compacted at once.
    all_copies_jobs: usize,
    spent_bytes: u64,
    /// Whether this plan starts something on each node, by node index.
    has_start: Vec<bool>,
    reserved: Option<ReservedSlots>,
}

/// Slots and bytes reserved for a target until it starts.
#[derive(Clone, Debug, Default, PartialEq)]
struct ReservedSlots {
    /// By node index.
    jobs_by_node: Vec<usize>,
    /// The channel that takes the target.
    channel_index: usize,
    cluster_jobs: usize,
    /// Whether the target is a view whose copies are all compacted at once.
    all_copies: bool,
    /// Reserved bytes of the hourly budget.
    budget_bytes: u64,
    /// The start of the reservation.
    since: Moment,
}

impl ReservedSlots {
    fn of(reservation: &SlotReservation, nodes: usize) -> Self {
        let &SlotReservation {
            channel_index: channel,
            all_copies,
            total_bytes: bytes,
            active_from: since,
            ..
        } = reservation;
        let mut reserved = Self {
            jobs_by_node: vec![0; nodes],
            channel_index: channel,
            cluster_jobs: 0,
            all_copies,
            budget_bytes: bytes,
            since,
        };
        for (node, copies) in files_by_node(&reservation.copies) {
            if let Some(count) = reserved.jobs_by_node.get_mut(node.as_usize()) {
                // All slots are already free, so any other start would only delay this one.
                *count = if reservation.slots_free { usize::MAX } else { copies };
            }
            reserved.cluster_jobs = reserved.cluster_jobs.saturating_add(copies);
        }
        reserved
    }

    fn on_node(&self, node: NodeIx) -> usize {
        self.jobs_by_node.get(node.as_usize()).copied().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SlotRequest<'a> {
    /// The nodes that hold its files.
    pub(super) copies: &'a [NodeCopies],
    /// The channel that it counts towards.
    pub(super) channel_index: usize,
    /// Whether it is a view whose copies are all compacted at once.
    pub(super) all_copies: bool,
    /// Bytes of one file.
    pub(super) file_bytes: u64,
}

impl JobSlots {
    pub(super) fn new(rules: &Rules, channel_limits: Vec<usize>, nodes: usize) -> Self {
        Self {
            limits: rules.limits,
            is_shared: rules.shared.is_some(),
            most_jobs: rules.most_jobs(),
            whole_views: rules.whole_views,
            jobs_by_node: vec![0; nodes],
            targets_by_queue: vec![0; nodes.saturating_mul(channel_limits.len())],
            channel_limits,
            has_start: vec![false; nodes],
            ..Self::default()
        }
    }

    /// Counts one file that is being compacted.
    pub(super) fn count_job(&mut self, node: NodeIx) {
        self.count_jobs(node, 1);
    }

    /// Counts one target of a channel that is being compacted on a node.
    pub(super) fn count_target(&mut self, node: NodeIx, channel: usize) {
        let at = self.queue_index(node, channel);
        if let Some(count) = self.targets_by_queue.get_mut(at) {
            *count += 1;
        }
    }

    /// Counts one view whose copies are all being compacted.
    pub(super) fn count_all_copies_job(&mut self) {
        self.all_copies_jobs += 1;
    }

    /// Counts the bytes of files that were started within the last hour.
    pub(super) fn count_spent(&mut self, spent: &[(Moment, u64)], now: Moment) {
        let recent = spent.iter().filter(|(at, _)| is_recent(*at, now, BUDGET_PERIOD));
        self.spent_bytes =
            recent.map(|(_, bytes)| *bytes).fold(self.spent_bytes, u64::saturating_add);
    }

    /// Running compactions and starts in the whole cluster.
    pub(super) const fn cluster_jobs(&self) -> usize {
        self.cluster_jobs
    }

    /// Running compactions and starts on a node.
    pub(super) fn jobs_on(&self, node: NodeIx) -> usize {
        self.jobs_by_node.get(node.as_usize()).copied().unwrap_or(0)
    }

    /// Targets of a channel that are being compacted on a node or start there.
    pub(super) fn targets_of(&self, node: NodeIx, channel: usize) -> usize {
        self.targets_by_queue.get(self.queue_index(node, channel)).copied().unwrap_or(0)
    }

    /// Spent bytes of the hourly budget.
    pub(super) const fn spent_bytes(&self) -> u64 {
        self.spent_bytes
    }

    /// Whether this plan starts something on a node.
    pub(super) fn has_start_on(&self, node: NodeIx) -> bool {
        self.has_start.get(node.as_usize()).copied().unwrap_or(false)
    }

    /// Checks whether a channel may run one more target on a node.
    pub(super) fn check_channel(&self, node: NodeIx, channel: usize) -> Result<(), Refusal> {
        let running = self.targets_of(node, channel);
        let limit = self.channel_limits.get(channel).copied().unwrap_or(0);
        check_limit(RefusalReason::ChannelLimit, running, 0, 1, limit)
    }

    /// Checks a request against the limits; a view with all its copies counts with every file.
    pub(super) fn check(&self, request: SlotRequest<'_>) -> Result<(), Refusal> {
        self.check_against(&ReservedSlots::default(), request, files_by_node(request.copies))
    }

    /// Checks a request against the limits with slots reserved for another target. A refusal for
    /// the reservation shows fewer jobs or bytes than the limit.
    pub(super) fn check_with_reservation(&self, request: SlotRequest<'_>) -> Result<(), Refusal> {
        let Some(reserved) = &self.reserved else { return Ok(()) };
        self.check_against(reserved, request, files_by_node(request.copies))
            .map_err(|refusal| refusal.since(reserved.since))
    }

    /// Checks a request against limits and reserved slots; `files` is the number of files to
    /// compact on each node.
    fn check_against(
        &self,
        reserved: &ReservedSlots,
        request: SlotRequest<'_>,
        files: impl Iterator<Item = (NodeIx, usize)> + Clone,
    ) -> Result<(), Refusal> {
        let SlotRequest { channel_index: channel, all_copies, file_bytes: file, .. } = request;
        let concurrency = self.channel_limits.get(channel).copied().unwrap_or(0);
        for (node, _) in files.clone() {
            let running = self.targets_of(node, channel);
            let held = usize::from(reserved.on_node(node) > 0 && reserved.channel_index == channel);
            check_limit(RefusalReason::ChannelLimit, running, held, 1, concurrency)?;
        }
        for (node, copies) in files.clone() {
            let running = self.jobs_on(node);
            let limit = self.limits.per_node;
            check_limit(RefusalReason::NodeLimit, running, reserved.on_node(node), copies, limit)?;
        }
        let all = files.map(|(_, copies)| copies).fold(0, usize::saturating_add);
        let limit = self.limits.cluster;
        check_limit(
            RefusalReason::ClusterLimit,
            self.cluster_jobs,
            reserved.cluster_jobs,
            all,
            limit,
        )?;
        if all_copies {
            let held = usize::from(reserved.all_copies);
            let (running, limit) = (self.all_copies_jobs, self.whole_views);
            check_limit(RefusalReason::ClusterLimit, running, held, 1, limit)?;
        }
        let bytes = file.saturating_mul(u64::try_from(all).unwrap_or(u64::MAX));
        self.check_budget(reserved.budget_bytes, bytes)
    }

    /// Checks the hourly budget. A file larger than the whole budget may start if nothing is spent, unless the budget
    /// is shared; otherwise it could never start.
    fn check_budget(&self, held: u64, bytes: u64) -> Result<(), Refusal> {
        let before = self.spent_bytes.saturating_add(held);
        let after = before.saturating_add(bytes);
        if (before == 0 && !self.is_shared) || after <= self.limits.bytes_per_hour {
            return Ok(());
        }
        let value = if held > 0 { self.spent_bytes } else { after };
        let limit = self.limits.bytes_per_hour as f64;
        Err(Refusal::with_numbers(RefusalReason::Budget, value as f64, limit))
    }

    /// Whether a file needs so much of the hourly budget that smaller files could always use up
    /// the expired bytes first.
    pub(super) const fn is_large(&self, file: u64) -> bool {
        file > self.limits.bytes_per_hour / LARGE_FILE_DIVISOR
    }

    /// Whether the limits would admit a request if no job ran and no bytes were spent. False for a
    /// view with all its copies while their maximum is running: its reservation would leave slots
    /// idle until one of them ends.
    pub(super) fn could_ever_admit(&self, request: SlotRequest<'_>) -> bool {
        let SlotRequest { copies: copies_by_node, channel_index: channel, all_copies, file_bytes } =
            request;
        let files = files_by_node(copies_by_node).map(|(_, files)| files).sum::<usize>();
        let bytes = file_bytes.saturating_mul(u64::try_from(files).unwrap_or(u64::MAX));
        let fits = files <= self.limits.cluster && bytes <= self.limits.bytes_per_hour;
        !(all_copies && self.all_copies_jobs >= self.whole_views)
            && (fits || !self.is_shared)
            && self.channel_limits.get(channel).is_some_and(|limit| *limit > 0)
            && self.never_admits(copies_by_node).is_none()
    }

    /// The refusal of files that need more slots at once than the limits ever have.
    pub(super) fn never_admits(&self, copies_by_node: &[NodeCopies]) -> Option<Refusal> {
        let files = || files_by_node(copies_by_node).map(|(_, copies)| copies);
        let over = |needs: usize, limit: usize| {
            let (needs, limit) = (needs as f64, limit as f64);
            (needs > limit).then(|| Refusal::with_numbers(RefusalReason::Excluded, needs, limit))
        };
        let all = files().fold(0, usize::saturating_add);
        over(files().max().unwrap_or(0), self.limits.per_node).or_else(|| over(all, self.most_jobs))
    }

    /// Reserves the slots that a target needs.
    pub(super) fn reserve(&mut self, reservation: &SlotReservation) {
        self.reserved = Some(ReservedSlots::of(reservation, self.jobs_by_node.len()));
    }

    /// Releases the reserved slots when their target starts and uses them.
    pub(super) fn release_reservation(&mut self) {
        self.reserved = None;
    }

    /// The bounds that apply to any file of a channel on a node.
    pub(super) fn bounds(&self, node: NodeIx, channel: usize) -> queue_bounds::SlotBounds {
        self.bounds_against(&ReservedSlots::default(), node, channel)
    }

    /// The same bounds with slots reserved for another target, if any.
    pub(super) fn bounds_with_reservation(
        &self,
        node: NodeIx,
        channel: usize,
    ) -> Option<queue_bounds::SlotBounds> {
        Some(self.bounds_against(self.reserved.as_ref()?, node, channel))
    }

    fn bounds_against(
        &self,
        reserved: &ReservedSlots,
        node: NodeIx,
        channel: usize,
    ) -> queue_bounds::SlotBounds {
        let request =
            SlotRequest { copies: &[], channel_index: channel, all_copies: false, file_bytes: 0 };
        let reached = self.check_against(reserved, request, [(node, 1)].into_iter()).err();
        let reached = reached.map(|refusal| refusal.reason);
        let before = self.spent_bytes.saturating_add(reserved.budget_bytes);
        let budget = match (before, self.limits.bytes_per_hour.checked_sub(before)) {
            (0, _) if !self.is_shared => u64::MAX,
            (_, left) => left.unwrap_or(0),
        };
        queue_bounds::SlotBounds { reached_limit: reached, largest_in_budget: budget }
    }

    /// Whether no further compaction can start anywhere.
    pub(super) const fn is_cluster_full(&self) -> bool {
        self.cluster_jobs >= self.limits.cluster || self.spent_bytes > self.limits.bytes_per_hour
    }

    pub(super) fn record_start(
        &mut self,
        copies_by_node: &[NodeCopies],
        channel: usize,
        all_copies: bool,
        file: u64,
    ) {
        for (node_copies, (_, copies)) in copies_by_node.iter().zip(files_by_node(copies_by_node)) {
            self.count_jobs(node_copies.node, copies);
            self.count_target(node_copies.node, channel);
            self.spent_bytes =
                self.spent_bytes.saturating_add(file.saturating_mul(u64::from(node_copies.count)));
            if let Some(started) = self.has_start.get_mut(node_copies.node.as_usize()) {
                *started = true;
            }
        }
        self.all_copies_jobs += usize::from(all_copies);
    }

    fn count_jobs(&mut self, node: NodeIx, jobs: usize) {
        if let Some(count) = self.jobs_by_node.get_mut(node.as_usize()) {
            *count = count.saturating_add(jobs);
        }
        self.cluster_jobs = self.cluster_jobs.saturating_add(jobs);
    }

    fn queue_index(&self, node: NodeIx, channel: usize) -> usize {
        node.as_usize().saturating_mul(self.channel_limits.len()).saturating_add(channel)
    }
}

/// The nodes that hold files, with the number of files on each.
fn files_by_node(copies_by_node: &[NodeCopies]) -> impl Iterator<Item = (NodeIx, usize)> + Clone {
    copies_by_node.iter().map(|node_copies| {
        (node_copies.node, usize::try_from(node_copies.count).unwrap_or(usize::MAX))
    })
}

/// Checks whether `more` jobs fit into the limit along with `running` and `held` ones.
fn check_limit(
    reason: RefusalReason,
    running: usize,
    held: usize,
    more: usize,
    limit: usize,
) -> Result<(), Refusal> {
    if running.saturating_add(held).saturating_add(more) <= limit {
        return Ok(());
    }
    // For a single file the value shown is the number of running jobs; for several files, the total
    // that the start would reach.
    let value = if more == 1 || held > 0 { running } else { running.saturating_add(more) };
    Err(Refusal::with_numbers(reason, value as f64, limit as f64))
}

/// Whether something happened less than `span` ago. False if the clock was set back by `span` or
/// more, so that nothing is blocked.
pub(super) fn is_recent(at: Moment, now: Moment, span: Duration) -> bool {
    at.age(now) < span && now.age(at) < span
}
