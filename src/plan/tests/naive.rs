//! A second, slow implementation of the plan: it counts everything from scratch for each question.

use super::{claims::Kept, world::World, *};
use crate::{
    jobs::Work,
    model::{
        channel::Mode,
        memory::{Rest, Scope},
        settings::work::EnforceViews,
        window,
    },
};
use std::collections::BTreeSet;

/// A start: the target, its channel, and the node of each compacted file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) ix: Ix,
    pub(super) channel: usize,
    pub(super) files: Vec<NodeIx>,
}

/// Inputs: the world, its plan's queues, and the starts so far.
pub(super) struct Naive<'a> {
    pub(super) world: &'a World,
    pub(super) plan: &'a Plan,
    pub(super) chosen: Vec<Chosen>,
    /// The slot reservation.
    pub(super) kept: Option<Kept>,
}

/// Whether only running jobs count, or starts too.
#[derive(Clone, Copy, PartialEq)]
enum Counting {
    Running,
    Starts,
}

impl Naive<'_> {
    /// Chooses until nothing more may start.
    pub(super) fn choose(&mut self) {
        self.kept = self.keeps();
        while let Some(chosen) = self.next() {
            self.chosen.push(chosen);
        }
    }

    fn next(&self) -> Option<Chosen> {
        let mut best: Option<(f64, Chosen)> = None;
        for queue in self.plan.queues.iter() {
            let is_new = |ix: &Ix| self.chosen.iter().all(|chosen| chosen.ix != *ix);
            let mut candidates = self.candidates(queue);
            // The sort is stable.
            candidates.sort_by_key(|ix| {
                let ordered = self.world.conditions.history.orders.contains_key(ix);
                (!ordered, !ordered && !self.has_claim(*ix))
            });
            let head = candidates.into_iter().filter(is_new).find_map(|ix| {
                let files = self.admitted(queue.channel, ix).ok()?;
                Some((self.worth(ix), Chosen { ix, channel: queue.channel, files }))
            });
            if let Some(head) = head
                && best.as_ref().is_none_or(|best| head.0 > best.0)
            {
                best = Some(head);
            }
        }
        best.map(|(_, chosen)| chosen)
    }

    /// Orders, then open rounds that no channel takes, then queued targets.
    pub(super) fn candidates(&self, queue: &QueueView) -> Vec<Ix> {
        let history = &self.world.conditions.history;
        let mut ordered: Vec<Ix> = history.orders.keys().copied().collect();
        ordered.sort_by_key(|ix| (history.orders[ix].at, *ix));
        let mut all = ordered;
        all.extend(history.rounds.keys().filter(|ix| self.plan.placement(**ix).is_none()));
        all.retain(|ix| self.place(*ix) == Some((queue.node, queue.channel)));
        all.extend(queue.waiting());
        let mut seen = BTreeSet::new();
        all.retain(|ix| seen.insert(*ix));
        all
    }

    /// The queue a target counts for. In these worlds the first channel of a kind excludes no
    /// names.
    fn place(&self, ix: Ix) -> Option<(NodeIx, usize)> {
        let (target, history) = (self.target(ix), &self.world.conditions.history);
        let forced = self.forced(ix) || history.rounds.contains_key(&ix);
        let first = || self.plan.channels.list.iter().position(|it| it.kind == target.kind());
        let channel = self.channel_of(ix).or_else(|| first().filter(|_| forced))?;
        Some((target.node_ix(), channel))
    }

    /// Whether an order makes it a candidate regardless of thresholds and back-off.
    fn forced(&self, ix: Ix) -> bool {
        self.world.conditions.history.orders.get(&ix).is_some_and(|ordered| ordered.force)
    }

    pub(super) fn worth(&self, ix: Ix) -> f64 {
        if self.world.conditions.history.orders.contains_key(&ix) {
            return f64::INFINITY;
        }
        if self.has_claim(ix) {
            return f64::MAX;
        }
        let target = self.world.snapshot.target(ix).unwrap();
        let gain = target.reclaimable().zip(target.predicted());
        let frees = gain.map_or(0.0, |(gain, rewrite)| gain as f64 / rewrite as f64).max(0.01);
        let waited = self
            .plan
            .placement(ix)
            .map_or(0.0, |(_, placed)| placed.since.age(self.plan.made_at).as_secs_f64());
        frees.log2() + waited / (6.0 * 3_600.0)
    }

    pub(super) fn target(&self, ix: Ix) -> TargetRef<'_> {
        self.world.snapshot.target(ix).unwrap()
    }

    /// The nodes of all copies of a target's database.
    pub(super) fn homes(&self, ix: Ix) -> Vec<NodeIx> {
        let db = self.target(ix).db();
        let mut homes: Vec<NodeIx> = self
            .world
            .snapshot
            .targets()
            .filter(|target| target.kind() == Kind::Db && target.db() == db)
            .map(TargetRef::node_ix)
            .collect();
        homes.sort();
        homes
    }

    /// Whether a target may start: the node of each file, or the reason why not.
    pub(super) fn admitted(&self, channel: usize, ix: Ix) -> Result<Vec<NodeIx>, RefusalReason> {
        let target = self.target(ix);
        if let Some(reason) = self.own(ix) {
            return Err(reason);
        }
        match target.kind() {
            Kind::Db => self.at(channel, ix, vec![target.node_ix()]).map_err(|it| it.1),
            Kind::Cleanup | Kind::Search => match self.cleanup(channel) {
                Some(reason) => Err(reason),
                None => Ok(vec![]),
            },
            Kind::View if target.map().ranges > 1 => {
                self.at(channel, ix, self.homes(ix)).map_err(|it| it.1)
            }
            Kind::View => {
                let homes = self.homes(ix);
                let nothing = BTreeSet::new();
                let done = self.world.conditions.history.rounds.get(&ix).unwrap_or(&nothing);
                let mut left: Vec<NodeIx> =
                    homes.iter().copied().filter(|node| !done.contains(node)).collect();
                if left.is_empty() {
                    left = homes;
                }
                let answers: Vec<_> =
                    left.into_iter().map(|node| self.at(channel, ix, vec![node])).collect();
                if let Some(Ok(files)) = answers.iter().find(|answer| answer.is_ok()) {
                    return Ok(files.clone());
                }
                let refused: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
                let farthest = refused.iter().map(|(stage, _)| *stage).max().unwrap();
                Err(refused.into_iter().find(|(stage, _)| *stage == farthest).unwrap().1)
            }
        }
    }

    pub(super) fn own(&self, ix: Ix) -> Option<RefusalReason> {
        let (world, target) = (self.world, self.target(ix));
        let facts = target.facts();
        let views = world.rules.views;
        if target.kind() == Kind::View
            && (views == EnforceViews::None
                || (views == EnforceViews::Q1 && target.map().ranges > 1))
        {
            return Some(RefusalReason::Excluded);
        }
        let mut jobs = world.conditions.jobs.list.iter().filter(|job| job.target == Some(ix));
        if facts.flags.compact_running || jobs.clone().any(|job| job.compacts()) {
            return Some(RefusalReason::Running);
        }
        let splits = |other: TargetRef<'_>| {
            other.state() == State::Resharding
                && (other.ix() == ix || (target.kind() == Kind::View && other.db() == target.db()))
        };
        if world.snapshot.targets().any(splits) {
            return Some(RefusalReason::Resharding);
        }
        let behind = target.kind() == Kind::View && facts.updates_pending.get() > Some(1_000);
        if behind || jobs.any(|job| !job.compacts()) {
            return Some(RefusalReason::Building);
        }
        if self.forced(ix) {
            return self.stale(ix);
        }
        match world.conditions.history.rests.get(&ix) {
            Some(Rest::CoolDown { until, .. }) if *until > self.plan.made_at => {
                return Some(RefusalReason::CoolDown);
            }
            Some(Rest::Quarantined { .. }) => return Some(RefusalReason::Quarantined),
            Some(Rest::Futile { .. }) => return Some(RefusalReason::Futile),
            Some(Rest::CoolDown { .. }) | None => {}
        }
        let seq = facts.compacted_seq.get().filter(|seq| *seq > 0 && target.kind() == Kind::Db);
        let lean = target.reclaimable().is_some_and(|it| it <= facts.file.get().unwrap_or(0) / 100);
        let futile = lean && seq.is_some() && seq == facts.update_seq.get();
        futile.then_some(RefusalReason::Futile).or_else(|| self.stale(ix))
    }

    fn stale(&self, ix: Ix) -> Option<RefusalReason> {
        let fresh_for = self.world.rules.fresh_for;
        let measured = self.target(ix).facts().measured_at;
        let history = &self.world.conditions.history;
        let started = history.started.get(&ix).filter(|_| !history.rounds.contains_key(&ix));
        if started.is_some_and(|at| measured.is_some_and(|it| it.at <= *at)) {
            return Some(RefusalReason::Stale);
        }
        let young = measured.is_some_and(|it| it.at.age(self.plan.made_at) <= fresh_for);
        let fresh = young || (measured.is_some() && self.plan.snapshot.is_confirmed(ix));
        (!fresh).then_some(RefusalReason::Stale)
    }

    pub(super) fn gates(&self, node: NodeIx, at: usize) -> Option<RefusalReason> {
        let (world, now) = (self.world, self.plan.made_at);
        let channel = &world.channels.list[at];
        let enforces = world.rules.mode == Mode::Enforce;
        if enforces && channel.mode == Mode::Advise {
            return Some(RefusalReason::Mode);
        }
        let history = &world.conditions.history;
        let name = world.snapshot.node(node).unwrap().name.to_string();
        let mut scopes =
            vec![Scope::All, Scope::Node(name), Scope::Channel(channel.name.to_string())];
        if channel.kind != Kind::Db {
            scopes.push(Scope::Node("_cluster".to_owned()));
        }
        if scopes.iter().any(|scope| history.suspensions.0.contains_key(scope)) {
            return Some(RefusalReason::Suspended);
        }
        if enforces && history.journal_trouble.is_some() {
            return Some(RefusalReason::Journal);
        }
        let pressure = world.conditions.pressures.nodes.get(&node);
        if pressure.is_some_and(|it| it.maintenance_since.is_some()) {
            return Some(RefusalReason::Maintenance);
        }
        if !window::open_at(&channel.windows, now) {
            return Some(RefusalReason::Window);
        }
        let polled = world.conditions.jobs.polled.iter().any(|(at, _)| *at == node);
        if node != NodeIx::CLUSTER && history.acting_since.is_some() && !polled {
            return Some(RefusalReason::Ramp);
        }
        let wait = world.rules.limits.wait;
        if history.last_start.get(&node).is_some_and(|last| last.age(now) < wait) {
            return Some(RefusalReason::Ramp);
        }
        if node != NodeIx::CLUSTER && self.ramped(Counting::Running) {
            return Some(RefusalReason::Ramp);
        }
        pressure.is_some_and(|it| it.held.is_some()).then_some(RefusalReason::Pressure)
    }

    /// Whether the ramp after this process began to act allows no further job.
    fn ramped(&self, counting: Counting) -> bool {
        let limits = self.world.rules.limits;
        let Some(since) = self.world.conditions.history.acting_since else { return false };
        if limits.wait.is_zero() {
            return false;
        }
        let steps = since.age(self.plan.made_at).as_secs() / limits.wait.as_secs();
        let allowed = 2_usize.pow(u32::try_from(steps).unwrap());
        allowed < limits.cluster && self.files(counting).len() >= allowed
    }

    /// The nodes of all files that are compacted.
    fn files(&self, counting: Counting) -> Vec<NodeIx> {
        let jobs = self.world.conditions.jobs.compactions().map(|job| job.key.node);
        let mut files: Vec<NodeIx> = jobs.collect();
        files.extend(self.flagged().into_iter().map(|(node, _, _)| node));
        if counting == Counting::Starts {
            files.extend(self.chosen.iter().flat_map(|chosen| chosen.files.iter().copied()));
        }
        files
    }

    /// Targets that only their facts show as running, because their nodes were not asked.
    fn flagged(&self) -> Vec<(NodeIx, Ix, Option<usize>)> {
        let jobs = &self.world.conditions.jobs;
        self.world
            .snapshot
            .targets()
            .filter(|target| target.facts().flags.compact_running)
            .filter(|target| {
                let measured = target.facts().measured_at.map(|measured| measured.at);
                measured.is_some_and(|at| at.age(self.plan.made_at).as_secs() <= 3_600)
            })
            .filter(|target| jobs.polled.iter().all(|(node, _)| *node != target.node_ix()))
            .filter(|target| !jobs.compactions().any(|job| job.target == Some(target.ix())))
            .map(|it| (it.node_ix(), it.ix(), self.channel_of(it.ix())))
            // A target without channel is not queued and not considered.
            .filter(|(_, _, channel)| channel.is_some())
            .collect()
    }

    fn channel_of(&self, ix: Ix) -> Option<usize> {
        self.plan.placement(ix).and_then(|(_, placed)| placed.channel())
    }

    /// Targets of a channel that are compacted on a node.
    fn of_channel(&self, node: NodeIx, channel: usize) -> usize {
        let jobs = self.world.conditions.jobs.compactions();
        let mut targets: BTreeSet<Ix> = jobs
            .filter(|job| job.key.node == node)
            .filter_map(|job| job.target)
            .filter(|ix| self.channel_of(*ix) == Some(channel))
            .collect();
        targets.extend(
            self.flagged()
                .into_iter()
                .filter(|it| it.0 == node && it.2 == Some(channel))
                .map(|it| it.1),
        );
        let starts = self.chosen.iter().filter(|it| it.channel == channel);
        targets.extend(starts.filter(|it| it.files.contains(&node)).map(|it| it.ix));
        targets.len()
    }

    fn cleanup(&self, channel: usize) -> Option<RefusalReason> {
        let starts = self.chosen.iter().filter(|chosen| chosen.files.is_empty()).count();
        let concurrency = self.world.channels.list[channel].concurrency;
        self.gates(NodeIx::CLUSTER, channel)
            .or_else(|| (starts >= concurrency).then_some(RefusalReason::ChannelLimit))
            .or_else(|| {
                let waits = !self.world.rules.limits.wait.is_zero();
                (waits && starts > 0).then_some(RefusalReason::Ramp)
            })
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
    fn peak(&self, ix: Ix) -> u64 {
        let target = self.target(ix);
        let active = target.facts().active.get().unwrap();
        match target.kind() {
            Kind::Db => (active as f64 * self.world.rules.headroom.factor).ceil() as u64,
            Kind::View | Kind::Cleanup | Kind::Search => active,
        }
    }

    /// Bytes that a volume has left for starts.
    pub(super) fn left(&self, volume: &disk::Volume, starts: bool) -> Option<i128> {
        let space = volume.space?;
        let percent = self.world.rules.headroom.keep_free_percent;
        let kept = space.size.map_or(0.0, |size| (size as f64 * percent / 100.0).ceil());
        let on_it = |node: NodeIx| {
            let name = &self.world.snapshot.node(node).unwrap().name;
            volume.nodes.iter().any(|other| other == name)
        };
        let jobs = self.world.conditions.jobs.list.iter().filter(|job| on_it(job.key.node));
        let reserved: u64 = jobs.map(|job| job.reserved).sum();
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

    fn has_space(&self, ix: Ix, files: &[NodeIx], starts: bool) -> bool {
        let all: Vec<_> = files.iter().flat_map(|node| self.volumes(*node)).collect();
        all.iter().all(|volume| {
            let here = files
                .iter()
                .filter(|node| self.volumes(**node).iter().any(|other| other.name == volume.name));
            let need = i128::from(self.peak(ix)) * here.count() as i128;
            let left = self.left(volume, starts);
            // A volume below its reserve has no space left, but a start that needs none may still
            // run.
            volume.falling_since.is_none() && left.is_none_or(|left| need <= left.max(0))
        })
    }

    /// Why the window or the space keeps a target from starting, apart from other starts.
    pub(super) fn window_and_space(
        &self,
        channel: usize,
        ix: Ix,
        files: &[NodeIx],
    ) -> Option<(u8, RefusalReason)> {
        let (world, target) = (self.world, self.target(ix));
        let settings = &world.channels.list[channel];
        if settings.strict_window
            && let Some(rate) = world.conditions.history.rate
            && let Some(closes) = window::next_change(&settings.windows, self.plan.made_at)
        {
            let per_file = target.predicted().unwrap() / u64::from(target.copies());
            let left = self.plan.made_at.age(closes).as_secs_f64();
            if per_file as f64 / rate > left {
                return Some((6, RefusalReason::WouldNotFitWindow));
            }
        }
        let known = files.iter().all(|node| {
            let volumes = self.volumes(*node);
            !volumes.is_empty() && volumes.iter().all(|volume| volume.space.is_some())
        });
        let file = target.facts().file.get().unwrap();
        if !known && file > world.rules.headroom.blind_limit {
            return Some((7, RefusalReason::UnknownDisk));
        }
        (!self.has_space(ix, files, false)).then_some((7, RefusalReason::Headroom))
    }

    pub(super) fn at(
        &self,
        channel: usize,
        ix: Ix,
        files: Vec<NodeIx>,
    ) -> Result<Vec<NodeIx>, (u8, RefusalReason)> {
        let target = self.target(ix);
        let limits = self.world.rules.limits;
        let distinct: BTreeSet<NodeIx> = files.iter().copied().collect();
        if let Some(reason) = distinct.iter().find_map(|node| self.gates(*node, channel)) {
            return Err((5, reason));
        }
        if let Some(reason) = self.window_and_space(channel, ix, &files) {
            return Err(reason);
        }
        if target.kind() == Kind::Db && limits.one_copy_of_a_range && self.other_copy(target) {
            return Err((8, RefusalReason::OtherCopyRunning));
        }
        if let Some(reason) = self.limits(channel, &distinct, &files, target) {
            return Err((9, reason));
        }
        if let Some(reason) = self.yields(channel, ix, &files) {
            return Err((9, reason));
        }
        if !self.has_space(ix, &files, true) {
            return Err((10, RefusalReason::Headroom));
        }
        let waits = !limits.wait.is_zero()
            && self.chosen.iter().any(|it| it.files.iter().any(|node| distinct.contains(node)));
        if waits || self.ramped(Counting::Starts) {
            return Err((11, RefusalReason::Ramp));
        }
        Ok(files)
    }

    pub(super) fn other_copy(&self, target: TargetRef<'_>) -> bool {
        let jobs = self.world.conditions.jobs.list.iter().filter(|job| job.key.work == Work::Db);
        let running = jobs.filter_map(|job| job.target);
        let flagged = self.flagged().into_iter().map(|it| it.1);
        let starts = self.chosen.iter().map(|chosen| chosen.ix);
        running.chain(flagged).chain(starts).any(|ix| {
            let other = self.target(ix);
            other.kind() == Kind::Db && other.db() == target.db() && other.range() == target.range()
        })
    }

    pub(super) fn limits(
        &self,
        channel: usize,
        nodes: &BTreeSet<NodeIx>,
        files: &[NodeIx],
        target: TargetRef<'_>,
    ) -> Option<RefusalReason> {
        let limits = self.world.rules.limits;
        let concurrency = self.world.channels.list[channel].concurrency;
        if nodes.iter().any(|node| self.of_channel(*node, channel) >= concurrency) {
            return Some(RefusalReason::ChannelLimit);
        }
        let running = self.files(Counting::Starts);
        let count = |of: &[NodeIx], node: NodeIx| of.iter().filter(|it| **it == node).count();
        let over = |node: &NodeIx| count(&running, *node) + count(files, *node) > limits.per_node;
        if nodes.iter().any(over) {
            return Some(RefusalReason::NodeLimit);
        }
        let whole = target.kind() == Kind::View && target.map().ranges > 1;
        if running.len() + files.len() > limits.cluster || (whole && self.a_whole_runs()) {
            return Some(RefusalReason::ClusterLimit);
        }
        let history = &self.world.conditions.history;
        let recent =
            history.spent.iter().filter(|it| it.0.age(self.plan.made_at).as_secs() < 3_600);
        let before: u64 = recent.map(|it| it.1).sum();
        let bytes =
            |ix: Ix, files: usize| self.target(ix).facts().file.get().unwrap() * files as u64;
        let compacted = self.chosen.iter().filter(|chosen| !chosen.files.is_empty());
        let starts: u64 = compacted.map(|chosen| bytes(chosen.ix, chosen.files.len())).sum();
        let spent = before + starts;
        let after = spent + bytes(target.ix(), files.len());
        (spent > 0 && after > limits.bytes_per_hour).then_some(RefusalReason::Budget)
    }
}
