//! A second, slow implementation of the plan that counts everything from scratch for each question.

use super::{slot_reservations::ExpectedReservation, world::World, *};
use crate::{
    jobs::JobKind,
    model::{
        channel::Mode,
        records::{Backoff, CompactionOrder, SuspensionScope},
        settings::work::EnforceViews,
        window,
    },
};
use ordered_float::OrderedFloat;
use std::{cmp::Reverse, collections::BTreeSet};

/// A start: the target, its channel, and the node of each compacted file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) ix: TargetIx,
    pub(super) channel: usize,
    pub(super) files: Vec<NodeIx>,
}

/// Inputs: the world, its plan's queues, and the starts so far.
pub(super) struct Naive<'a> {
    pub(super) world: &'a World,
    pub(super) plan: &'a Plan,
    pub(super) chosen: Vec<Chosen>,
    pub(super) reservation: Option<ExpectedReservation>,
}

/// Which starts count: running jobs only, or this plan's starts as well.
#[derive(Clone, Copy, PartialEq)]
enum Counting {
    Running,
    Starts,
}

impl Naive<'_> {
    /// Chooses until nothing more may start.
    pub(super) fn choose(&mut self) {
        self.reservation = self.reservation();
        while let Some(chosen) = self.next() {
            self.chosen.push(chosen);
        }
    }

    fn next(&self) -> Option<Chosen> {
        let mut best: Option<(f64, Chosen)> = None;
        for queue in self.plan.queues.iter() {
            let is_new = |ix: &TargetIx| self.chosen.iter().all(|chosen| chosen.ix != *ix);
            let mut candidates = self.candidates(queue);
            // The sort is stable, so ties keep the queue's order.
            candidates.sort_by_key(|ix| {
                let ordered = self.world.conditions.constraints.orders.contains_key(ix);
                (!ordered, !ordered && !self.has_reservation(*ix))
            });
            let head = candidates.into_iter().filter(is_new).find_map(|ix| {
                let files = self.admitted(queue.channel_index, ix).ok()?;
                Some((self.worth(ix), Chosen { ix, channel: queue.channel_index, files }))
            });
            if let Some(head) = head
                && best.as_ref().is_none_or(|best| head.0 > best.0)
            {
                best = Some(head);
            }
        }
        best.map(|(_, chosen)| chosen)
    }

    /// The candidates of a queue: orders, then open rounds that no channel takes, then queued
    /// targets.
    pub(super) fn candidates(&self, queue: &QueueView) -> Vec<TargetIx> {
        let history = &self.world.conditions.constraints;
        let mut ordered: Vec<TargetIx> = history.orders.keys().copied().collect();
        let priority = |ix: TargetIx| {
            OrderedFloat(self.plan.placement(ix).map_or(0.0, |(_, placed)| placed.priority))
        };
        ordered.sort_by_key(|ix| {
            let CompactionOrder { at, run, .. } = history.orders[ix];
            (at, run.is_some(), run.map(|_| Reverse(priority(*ix))), *ix)
        });
        let mut all = ordered;
        all.extend(
            history.partly_compacted_views.keys().filter(|ix| self.plan.placement(**ix).is_none()),
        );
        all.retain(|ix| self.queue_key(*ix) == Some((queue.node, queue.channel_index)));
        all.extend(queue.queued());
        let mut seen = BTreeSet::new();
        all.retain(|ix| seen.insert(*ix));
        all
    }

    /// The queue that a target counts towards. In these worlds the first channel of a kind excludes
    /// no names.
    fn queue_key(&self, ix: TargetIx) -> Option<(NodeIx, usize)> {
        let (target, history) = (self.target(ix), &self.world.conditions.constraints);
        let forced = self.forced(ix) || history.partly_compacted_views.contains_key(&ix);
        let first = || self.plan.channels.list.iter().position(|it| it.kind == target.kind());
        let channel = self.channel_of(ix).or_else(|| first().filter(|_| forced))?;
        Some((target.node_ix(), channel))
    }

    /// Whether a forced order makes it a candidate regardless of thresholds and back-off.
    fn forced(&self, ix: TargetIx) -> bool {
        self.world.conditions.constraints.orders.get(&ix).is_some_and(|ordered| ordered.force)
    }

    fn is_ordered_alone(&self, ix: TargetIx) -> bool {
        let ordered = self.world.conditions.constraints.orders.get(&ix);
        ordered.is_some_and(|ordered| ordered.run.is_none())
    }

    pub(super) fn worth(&self, ix: TargetIx) -> f64 {
        if self.world.conditions.constraints.orders.contains_key(&ix) {
            return f64::INFINITY;
        }
        if self.has_reservation(ix) {
            return f64::MAX;
        }
        let target = self.world.snapshot.target(ix).unwrap();
        let gain = target.reclaimable_bytes().zip(target.predicted_bytes());
        let frees = gain.map_or(0.0, |(gain, rewrite)| gain as f64 / rewrite as f64).max(0.01);
        let waited = self
            .plan
            .placement(ix)
            .map_or(0.0, |(_, placed)| placed.queued_since.age(self.plan.planned_at).as_secs_f64());
        frees.log2() + waited / (6.0 * 3_600.0)
    }

    pub(super) fn target(&self, ix: TargetIx) -> TargetRef<'_> {
        self.world.snapshot.target(ix).unwrap()
    }

    /// The nodes of all copies of a target's database.
    pub(super) fn copy_nodes(&self, ix: TargetIx) -> Vec<NodeIx> {
        let db = self.target(ix).db();
        let mut homes: Vec<NodeIx> = self
            .world
            .snapshot
            .targets()
            .filter(|target| target.kind() == TargetKind::Db && target.db() == db)
            .map(TargetRef::node_ix)
            .collect();
        homes.sort();
        homes
    }

    /// The node of each file if a target may start, or the reason why it may not.
    pub(super) fn admitted(
        &self,
        channel: usize,
        ix: TargetIx,
    ) -> Result<Vec<NodeIx>, RefusalReason> {
        let target = self.target(ix);
        if let Some(reason) = self.target_refusal(ix) {
            return Err(reason);
        }
        match target.kind() {
            TargetKind::Db => {
                self.check_files(channel, ix, vec![target.node_ix()]).map_err(|it| it.1)
            }
            TargetKind::Cleanup | TargetKind::Search => {
                match self.cleanup_refusal(channel, self.ordered_alone(ix)) {
                    Some(reason) => Err(reason),
                    None => Ok(vec![]),
                }
            }
            TargetKind::View if target.shard_map().ranges > 1 => {
                self.check_files(channel, ix, self.copy_nodes(ix)).map_err(|it| it.1)
            }
            TargetKind::View => {
                let homes = self.copy_nodes(ix);
                let nothing = BTreeSet::new();
                let done = self
                    .world
                    .conditions
                    .constraints
                    .partly_compacted_views
                    .get(&ix)
                    .unwrap_or(&nothing);
                let mut left: Vec<NodeIx> =
                    homes.iter().copied().filter(|node| !done.contains(node)).collect();
                if left.is_empty() {
                    left = homes;
                }
                let results: Vec<_> = left
                    .into_iter()
                    .map(|node| self.check_files(channel, ix, vec![node]))
                    .collect();
                if let Some(Ok(files)) = results.iter().find(|result| result.is_ok()) {
                    return Ok(files.clone());
                }
                let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
                let farthest = refused.iter().map(|(stage, _)| *stage).max().unwrap();
                Err(refused.into_iter().find(|(stage, _)| *stage == farthest).unwrap().1)
            }
        }
    }

    pub(super) fn target_refusal(&self, ix: TargetIx) -> Option<RefusalReason> {
        let (world, target) = (self.world, self.target(ix));
        let facts = target.facts();
        let views = world.rules.views;
        if target.kind() == TargetKind::View
            && (views == EnforceViews::None
                || (views == EnforceViews::Q1 && target.shard_map().ranges > 1))
        {
            return Some(RefusalReason::Excluded);
        }
        if target.kind() == TargetKind::View && target.shard_map().ranges > 1 {
            let (limits, homes) = (world.rules.limits, self.copy_nodes(ix));
            let on = |node: &NodeIx| homes.iter().filter(|it| *it == node).count();
            let most = world.rules.shared.map_or(limits.cluster, |shared| shared.most.jobs);
            let too_many = homes.len() > most;
            if too_many || homes.iter().any(|it| on(it) > limits.per_node) {
                return Some(RefusalReason::Excluded);
            }
        }
        let mut jobs = world.conditions.jobs.list.iter().filter(|job| job.target == Some(ix));
        if facts.flags.compact_running || jobs.clone().any(|job| job.is_compaction()) {
            return Some(RefusalReason::Running);
        }
        let splits = |other: TargetRef<'_>| {
            other.state() == TargetState::Resharding
                && (other.ix() == ix
                    || (target.kind() == TargetKind::View && other.db() == target.db()))
        };
        if world.snapshot.targets().any(splits) {
            return Some(RefusalReason::Resharding);
        }
        let behind = target.kind() == TargetKind::View && facts.updates_pending.get() > Some(1_000);
        if behind || jobs.any(|job| !job.is_compaction()) {
            return Some(RefusalReason::Building);
        }
        if self.forced(ix) {
            return self.stale(ix);
        }
        match world.conditions.constraints.backoffs.get(&ix) {
            Some(backoff) if self.is_ordered_alone(ix) && backoff.yields_to_order(&facts) => {}
            Some(Backoff::CoolDown { until, .. } | Backoff::Unsettled { until, .. })
                if *until > self.plan.planned_at =>
            {
                return Some(RefusalReason::CoolDown);
            }
            Some(Backoff::Quarantined { .. }) => return Some(RefusalReason::Quarantined),
            Some(Backoff::Futile { .. }) => return Some(RefusalReason::Futile),
            Some(Backoff::CoolDown { .. } | Backoff::Unsettled { .. }) | None => {}
        }
        let sizes =
            facts.file_bytes.get().zip(target.correction().predicted_bytes(target.kind(), &facts));
        let lean = sizes.is_some_and(|(file, left)| file.saturating_sub(left) * 20 < file);
        let in_round = world.conditions.constraints.partly_compacted_views.contains_key(&ix);
        let futile = lean
            && !in_round
            && !facts.flags.needs_upgrade
            && target.confidence() != crate::model::facts::Confidence::Low;
        futile.then_some(RefusalReason::Futile).or_else(|| self.stale(ix))
    }

    fn stale(&self, ix: TargetIx) -> Option<RefusalReason> {
        let fresh_for = self.world.rules.fresh_for;
        let measured = self.target(ix).facts().measured_at;
        let history = &self.world.conditions.constraints;
        let started = history
            .started_unmeasured
            .get(&ix)
            .filter(|_| !history.partly_compacted_views.contains_key(&ix));
        if started.is_some_and(|at| measured.is_some_and(|it| it.at <= *at)) {
            return Some(RefusalReason::Stale);
        }
        let young = measured.is_some_and(|it| it.at.age(self.plan.planned_at) <= fresh_for);
        let fresh = young || (measured.is_some() && self.plan.snapshot.is_confirmed(ix));
        (!fresh).then_some(RefusalReason::Stale)
    }

    /// Whether it was ordered alone, and not as a member of a run.
    pub(super) fn ordered_alone(&self, ix: TargetIx) -> bool {
        let order = self.world.conditions.constraints.orders.get(&ix);
        order.is_some_and(|ordered| ordered.run.is_none())
    }

    pub(super) fn gate_refusal(&self, node: NodeIx, at: usize) -> Option<RefusalReason> {
        let (world, now) = (self.world, self.plan.planned_at);
        let channel = &world.channels.list[at];
        let enforces = world.rules.mode == Mode::Enforce;
        if enforces && channel.mode == Mode::Advise {
            return Some(RefusalReason::Mode);
        }
        let history = &world.conditions.constraints;
        let name = world.snapshot.node(node).unwrap().name.to_string();
        let mut scopes = vec![
            SuspensionScope::All,
            SuspensionScope::Node(name),
            SuspensionScope::Channel(channel.name.to_string()),
        ];
        if channel.kind != TargetKind::Db {
            scopes.push(SuspensionScope::Node("_cluster".to_owned()));
        }
        if scopes.iter().any(|scope| history.suspensions.0.contains_key(scope)) {
            return Some(RefusalReason::Suspended);
        }
        if enforces && history.journal_failure.is_some() {
            return Some(RefusalReason::Journal);
        }
        if world.snapshot.node(node).unwrap().is_up == Some(false) {
            return Some(RefusalReason::NodeDown);
        }
        let pressure = world.conditions.pressures.nodes.get(&node);
        if pressure.is_some_and(|it| it.maintenance_since.is_some()) {
            return Some(RefusalReason::Maintenance);
        }
        if pressure.is_some_and(|it| it.upgrade_since.is_some()) {
            return Some(RefusalReason::Upgrade);
        }
        if !window::any_open_at(&channel.windows, now) {
            return Some(RefusalReason::Window);
        }
        pressure.is_some_and(|it| it.hold.is_some()).then_some(RefusalReason::Pressure)
    }

    /// Whether earlier starts, or jobs that were not polled yet, postpone more starts on a node.
    fn is_spread(&self, node: NodeIx) -> bool {
        let (world, now) = (self.world, self.plan.planned_at);
        let history = &world.conditions.constraints;
        let polled = world.conditions.jobs.polled_nodes.iter().any(|(at, _)| *at == node);
        let wait = world.rules.limits.wait;
        (node != NodeIx::CLUSTER && history.enforcing_since.is_some() && !polled)
            || history.last_start_by_node.get(&node).is_some_and(|last| last.age(now) < wait)
            || (node != NodeIx::CLUSTER && self.is_ramped(Counting::Running))
    }

    /// Whether a node rests, or its running jobs allow no further job. Calculates with integers,
    /// because these worlds have whole percentages.
    fn rests(&self, node: NodeIx) -> bool {
        let duty = self.world.rules.limits.duty_percent.to_string().parse::<u64>().unwrap();
        let Some(period) = self.world.conditions.constraints.busy_periods.get(&node) else {
            return false;
        };
        match (period.first_ended_at, period.ended_at) {
            _ if duty == 100 => false,
            (None, _) => false,
            (Some(_), None) => true,
            (Some(_), Some(ended)) => {
                let worked = (ended.unix() - period.since.unix()).min(3_600);
                let rested = self.plan.planned_at.unix() - ended.unix();
                rested * duty < worked * (100 - duty)
            }
        }
    }

    /// Whether the ramp after this process began to act allows no further jobs.
    fn is_ramped(&self, counting: Counting) -> bool {
        let limits = self.world.rules.limits;
        let Some(since) = self.world.conditions.constraints.enforcing_since else { return false };
        if limits.wait.is_zero() {
            return false;
        }
        let steps = since.age(self.plan.planned_at).as_secs() / limits.wait.as_secs().max(30);
        let allowed = 2_usize.pow(u32::try_from(steps).unwrap());
        allowed < limits.cluster && self.files(counting).len() >= allowed
    }

    /// The node of every file that is being compacted.
    fn files(&self, counting: Counting) -> Vec<NodeIx> {
        let jobs = self.world.conditions.jobs.compactions().map(|job| job.key.node);
        let mut files: Vec<NodeIx> = jobs.collect();
        files.extend(self.flagged_running().into_iter().map(|(node, _, _)| node));
        if counting == Counting::Starts {
            files.extend(self.chosen.iter().flat_map(|chosen| chosen.files.iter().copied()));
        }
        files
    }

    /// Targets that are running only according to their facts, because their nodes were not polled.
    fn flagged_running(&self) -> Vec<(NodeIx, TargetIx, Option<usize>)> {
        let jobs = &self.world.conditions.jobs;
        self.world
            .snapshot
            .targets()
            .filter(|target| target.facts().flags.compact_running)
            .filter(|target| {
                let measured = target.facts().measured_at.map(|measured| measured.at);
                measured.is_some_and(|at| at.age(self.plan.planned_at).as_secs() <= 3_600)
            })
            .filter(|target| jobs.polled_nodes.iter().all(|(node, _)| *node != target.node_ix()))
            .filter(|target| !jobs.compactions().any(|job| job.target == Some(target.ix())))
            .map(|it| (it.node_ix(), it.ix(), self.channel_of(it.ix())))
            // A target without a channel is not queued and not considered.
            .filter(|(_, _, channel)| channel.is_some())
            .collect()
    }

    fn channel_of(&self, ix: TargetIx) -> Option<usize> {
        self.plan.placement(ix).and_then(|(_, placed)| placed.channel_index())
    }

    /// Number of a channel's targets that are being compacted on a node.
    fn running_of_channel(&self, node: NodeIx, channel: usize) -> usize {
        let jobs = self.world.conditions.jobs.compactions();
        let mut targets: BTreeSet<TargetIx> = jobs
            .filter(|job| job.key.node == node)
            .filter_map(|job| job.target)
            .filter(|ix| self.channel_of(*ix) == Some(channel))
            .collect();
        targets.extend(
            self.flagged_running()
                .into_iter()
                .filter(|it| it.0 == node && it.2 == Some(channel))
                .map(|it| it.1),
        );
        let starts = self.chosen.iter().filter(|it| it.channel == channel);
        targets.extend(starts.filter(|it| it.files.contains(&node)).map(|it| it.ix));
        targets.len()
    }

    fn cleanup_refusal(&self, channel: usize, ordered: bool) -> Option<RefusalReason> {
        let starts = self.chosen.iter().filter(|chosen| chosen.files.is_empty()).count();
        let concurrency = self.world.channels.list[channel].concurrency;
        self.gate_refusal(NodeIx::CLUSTER, channel)
            .or_else(|| (starts >= concurrency).then_some(RefusalReason::ChannelLimit))
            .or_else(|| {
                let waits = !self.world.rules.limits.wait.is_zero();
                let spread = (waits && starts > 0) || self.is_spread(NodeIx::CLUSTER);
                spread.then_some(RefusalReason::Ramp)
            })
            .or_else(|| (!ordered && self.rests(NodeIx::CLUSTER)).then_some(RefusalReason::Duty))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
    pub(super) fn peak(&self, ix: TargetIx) -> u64 {
        let target = self.target(ix);
        let active = target.facts().active_bytes.get().unwrap();
        match target.kind() {
            TargetKind::Db => (active as f64 * self.world.rules.headroom.factor).ceil() as u64,
            TargetKind::View | TargetKind::Cleanup | TargetKind::Search => active,
        }
    }

    /// Bytes of a volume that are left for starts.
    pub(super) fn free_bytes(&self, volume: &disk::Volume, starts: bool) -> Option<i128> {
        let space = volume.space?;
        let percent = self.world.rules.headroom.keep_free_percent;
        let kept = space.size.map_or(0.0, |size| (size as f64 * percent / 100.0).ceil());
        let on_it = |node: NodeIx| {
            let name = &self.world.snapshot.node(node).unwrap().name;
            volume.nodes.iter().any(|other| other == name)
        };
        let jobs = self.world.conditions.jobs.compactions().filter(|job| on_it(job.key.node));
        let reserved: u64 = jobs.map(|job| job.reserved_bytes).sum();
        let taken = |chosen: &Chosen| {
            let files = chosen.files.iter().filter(|node| on_it(**node)).count();
            i128::from(self.peak(chosen.ix)) * files as i128
        };
        let starts: i128 = if starts { self.chosen.iter().map(taken).sum() } else { 0 };
        #[expect(clippy::cast_possible_truncation, reason = "a whole number of bytes")]
        let kept = kept as i128;
        Some(i128::from(space.available) - kept - i128::from(reserved) - starts)
    }

    fn volumes(&self, node: NodeIx) -> Vec<&disk::Volume> {
        let name = &self.world.snapshot.node(node).unwrap().name;
        self.world.conditions.disks.of_node(name).collect()
    }

    fn has_space(&self, ix: TargetIx, files: &[NodeIx], starts: bool) -> bool {
        let all: Vec<_> = files.iter().flat_map(|node| self.volumes(*node)).collect();
        all.iter().all(|volume| {
            let here = files
                .iter()
                .filter(|node| self.volumes(**node).iter().any(|other| other.name == volume.name));
            let need = i128::from(self.peak(ix)) * here.count() as i128;
            let left = self.free_bytes(volume, starts);
            // A volume below its reserve has no space left, but a start that needs no space may
            // still run.
            volume.falling_since.is_none() && left.is_none_or(|left| need <= left.max(0))
        })
    }

    /// Why the window or the space prevents a target from starting, regardless of other starts.
    pub(super) fn window_and_space(
        &self,
        channel: usize,
        ix: TargetIx,
        files: &[NodeIx],
    ) -> Option<(u8, RefusalReason)> {
        let (world, target) = (self.world, self.target(ix));
        let settings = &world.channels.list[channel];
        if settings.strict_window
            && let Some(rate) = world.conditions.constraints.rewrite_bytes_per_second
            && let Some(closes) = Openings::of(&settings.windows, self.plan.planned_at)
                .next_change(self.plan.planned_at)
        {
            let per_file = target.predicted_bytes().unwrap() / u64::from(target.file_count());
            let left = self.plan.planned_at.age(closes).as_secs_f64();
            if per_file as f64 / rate > left {
                return Some((6, RefusalReason::WouldNotFitWindow));
            }
        }
        let known = files.iter().all(|node| {
            let volumes = self.volumes(*node);
            !volumes.is_empty() && volumes.iter().all(|volume| volume.space.is_some())
        });
        let file = target.facts().file_bytes.get().unwrap();
        if !known && file > world.rules.headroom.blind_limit {
            return Some((7, RefusalReason::UnknownDisk));
        }
        (!self.has_space(ix, files, false)).then_some((7, RefusalReason::Headroom))
    }

    pub(super) fn check_files(
        &self,
        channel: usize,
        ix: TargetIx,
        files: Vec<NodeIx>,
    ) -> Result<Vec<NodeIx>, (u8, RefusalReason)> {
        let target = self.target(ix);
        let limits = self.world.rules.limits;
        let distinct: BTreeSet<NodeIx> = files.iter().copied().collect();
        let ordered = self.ordered_alone(ix);
        let closed = |node: &NodeIx| self.gate_refusal(*node, channel);
        if let Some(reason) = distinct.iter().find_map(closed) {
            return Err((5, reason));
        }
        if let Some(reason) = self.window_and_space(channel, ix, &files) {
            return Err(reason);
        }
        if target.kind() == TargetKind::Db
            && limits.one_copy_of_a_range
            && self.is_other_copy_running(target)
        {
            return Err((8, RefusalReason::OtherCopyRunning));
        }
        if let Some(reason) = self.limit_refusal(channel, &distinct, &files, target) {
            return Err((9, reason));
        }
        if let Some(reason) = self.reservation_refusal(channel, ix, &files) {
            return Err((9, reason));
        }
        if !self.has_space(ix, &files, true) {
            return Err((10, RefusalReason::Headroom));
        }
        for node in distinct {
            let waits =
                !limits.wait.is_zero() && self.chosen.iter().any(|it| it.files.contains(&node));
            if waits || self.is_ramped(Counting::Starts) || self.is_spread(node) {
                return Err((11, RefusalReason::Ramp));
            }
            if !ordered && self.rests(node) {
                return Err((11, RefusalReason::Duty));
            }
        }
        Ok(files)
    }

    pub(super) fn is_other_copy_running(&self, target: TargetRef<'_>) -> bool {
        let jobs =
            self.world.conditions.jobs.list.iter().filter(|job| job.key.kind == JobKind::CompactDb);
        let running = jobs.filter_map(|job| job.target);
        let flagged = self.flagged_running().into_iter().map(|it| it.1);
        let starts = self.chosen.iter().map(|chosen| chosen.ix);
        running.chain(flagged).chain(starts).any(|ix| {
            let other = self.target(ix);
            other.kind() == TargetKind::Db
                && other.db() == target.db()
                && other.range() == target.range()
        })
    }

    pub(super) fn limit_refusal(
        &self,
        channel: usize,
        nodes: &BTreeSet<NodeIx>,
        files: &[NodeIx],
        target: TargetRef<'_>,
    ) -> Option<RefusalReason> {
        let limits = self.world.rules.limits;
        let concurrency = self.world.channels.list[channel].concurrency;
        if nodes.iter().any(|node| self.running_of_channel(*node, channel) >= concurrency) {
            return Some(RefusalReason::ChannelLimit);
        }
        let running = self.files(Counting::Starts);
        let count = |of: &[NodeIx], node: NodeIx| of.iter().filter(|it| **it == node).count();
        let over = |node: &NodeIx| count(&running, *node) + count(files, *node) > limits.per_node;
        if nodes.iter().any(over) {
            return Some(RefusalReason::NodeLimit);
        }
        let whole = target.kind() == TargetKind::View && target.shard_map().ranges > 1;
        if running.len() + files.len() > limits.cluster
            || (whole && self.is_all_copies_job_running())
        {
            return Some(RefusalReason::ClusterLimit);
        }
        let history = &self.world.conditions.constraints;
        let recent = history
            .recent_starts
            .iter()
            .filter(|it| it.0.age(self.plan.planned_at).as_secs() < 3_600);
        let before: u64 = recent.map(|it| it.1).sum();
        let bytes = |ix: TargetIx, files: usize| {
            self.target(ix).facts().file_bytes.get().unwrap() * files as u64
        };
        let compacted = self.chosen.iter().filter(|chosen| !chosen.files.is_empty());
        let starts: u64 = compacted.map(|chosen| bytes(chosen.ix, chosen.files.len())).sum();
        let spent = before + starts;
        let after = spent + bytes(target.ix(), files.len());
        let alone = spent == 0 && self.world.rules.shared.is_none();
        (!alone && after > limits.bytes_per_hour).then_some(RefusalReason::Budget)
    }
}
