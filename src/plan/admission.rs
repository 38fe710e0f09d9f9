//! Admission: whether a target may start, and if not, the first reason in a fixed order.
//!
//! Owns the state that starts change. A start only uses up slots and space, so an earlier refusal
//! stays valid, and the state after the last start explains every queued target.

use super::{
    Claim, Conditions, Freshness, Placement, Refusal, RefusalReason, Rules,
    brief::{Brief, Own, Shape},
    gates::{Doors, Gates, Opening},
    ledger::{Ledger, Need},
    room::{Asks, Room},
    running::Running,
    sites::{Site, Sited, Sites},
    terms::Terms,
};
use crate::{
    model::{channel::Channels, memory::Rest, target::Kind},
    table::{Chunked, Ix, NodeIx, Snapshot},
};
use std::sync::Arc;
use wall_clock::Moment;

/// The check at which a target was refused, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Gates,
    Window,
    Space,
    OtherCopy,
    Limits,
    SpaceBesideStarts,
    Spread,
}

type Stopped = (Stage, Refusal);

/// Time left in a channel's window, for channels with `strict_window`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Strict {
    left: f64,
    /// Bytes a second.
    rate: f64,
}

impl Strict {
    /// Size of the largest new file that can be finished in time.
    fn largest(&self) -> f64 {
        self.left * self.rate
    }
}

/// Decides whether a target may start.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    snapshot: Arc<Snapshot>,
    rules: Arc<Rules>,
    conditions: Conditions,
    now: Moment,
    gates: Gates,
    room: Room,
    ledger: Ledger,
    running: Running,
    sites: Arc<Sites>,
    strict: Vec<Option<Strict>>,
    /// Maximum number of running jobs while starts are ramped up after this process began to act.
    allowed: Option<usize>,
    /// Predicted peak of a db job, as a multiple of active bytes.
    factor: f64,
    /// The target for which slots are reserved.
    claimant: Option<Ix>,
}

/// Inputs of an admission.
#[derive(Debug)]
pub(super) struct Present<'a> {
    pub(super) snapshot: &'a Arc<Snapshot>,
    pub(super) channels: &'a Channels,
    pub(super) conditions: &'a Conditions,
    pub(super) rules: &'a Arc<Rules>,
    pub(super) now: Moment,
    pub(super) openings: &'a [Opening],
    pub(super) placements: &'a Chunked<Placement>,
    pub(super) sites: &'a Arc<Sites>,
}

impl Admission {
    pub(super) fn new(
        present: &Present<'_>,
        active: impl Iterator<Item = ((NodeIx, usize), Ix)>,
    ) -> Self {
        let &Present { snapshot, channels, conditions, rules, now, openings, .. } = present;
        let concurrency = channels.list.iter().map(|channel| channel.concurrency).collect();
        let mut room = Room::new(rules.limits, concurrency, snapshot.nodes().len());
        room.count_spent(&conditions.history.spent, now);
        let running = Running::new(
            snapshot,
            channels,
            conditions,
            present.placements,
            active,
            &mut room,
            now,
        );
        let doors = Doors { rules, conditions, now, running: room.cluster() };
        let rate = conditions.history.rate.filter(|rate| *rate > 0.0);
        let strict = channels.list.iter().zip(openings).map(|(channel, opening)| {
            let until = opening.until.filter(|_| channel.strict_window && opening.open)?;
            Some(Strict { left: now.age(until).as_secs_f64(), rate: rate? })
        });
        let acting_since = conditions.history.acting_since;
        Self {
            gates: Gates::new(snapshot, channels, openings, &doors),
            ledger: Ledger::new(snapshot, &conditions.disks, &conditions.jobs, rules),
            strict: strict.collect(),
            allowed: acting_since.and_then(|since| rules.allowed_after(since, now)),
            factor: conditions.headroom_factor(rules),
            claimant: None,
            snapshot: Arc::clone(snapshot),
            rules: Arc::clone(rules),
            conditions: conditions.clone(),
            now,
            room,
            running,
            sites: Arc::clone(present.sites),
        }
    }

    /// The bounds that apply to every shard of a queue.
    pub(super) fn terms(&self, node: NodeIx, channel: usize) -> Terms {
        let strict = self.strict.get(channel).copied().flatten();
        Terms {
            now: self.now,
            fresh_for: self.rules.fresh_for.as_secs(),
            factor: self.factor,
            gate: self.gates.shut(node, channel).map(|refusal| refusal.reason),
            window: strict.map(|strict| strict.largest()),
            space: self.ledger.terms(node),
            limits: self.room.terms(node, channel),
            beside_kept: self.room.terms_beside_kept(node, channel),
            spread: self.spread(node).err().map(|refusal| refusal.reason),
        }
    }

    /// Why a candidate may not start, if it may not. Uses the queue's bounds for a shard without
    /// special state.
    pub(super) fn reason(
        &self,
        terms: &Terms,
        (node, channel): (NodeIx, usize),
        brief: &Brief,
    ) -> Option<RefusalReason> {
        let special = self.claimant == Some(brief.ix) || self.running.known(brief.ix).is_some();
        if Terms::cover(brief) && !special {
            let confirmed = || self.snapshot.is_confirmed(brief.ix);
            return terms.reason(brief, confirmed, || self.other_copy(brief));
        }
        self.admit(node, channel, brief).err().map(|refusal| refusal.reason)
    }

    /// The node to which a target's request would go if it started now despite all refusals: for a
    /// view compacted copy by copy, the node of the first copy that its round has not compacted
    /// yet.
    pub(super) fn addressee(&self, node: NodeIx, brief: &Brief) -> Option<NodeIx> {
        match brief.shape {
            Shape::Shard => Some(node),
            Shape::Whole | Shape::Cleanup => Some(NodeIx::CLUSTER),
            Shape::Copy => self.copies_left(brief).ok()?.next().map(|site| site.node),
            Shape::Nothing => None,
        }
    }

    /// Whether no further target of a cluster-wide queue can start.
    pub(super) fn nothing_more(&self, channel: usize, kind: Kind) -> bool {
        match kind {
            Kind::Db => false,
            Kind::View => self.room.cluster_full(),
            Kind::Search => true,
            Kind::Cleanup => self.room.channel(NodeIx::CLUSTER, channel).is_err(),
        }
    }

    /// The node on which a target may start; the pseudo node for starts on all nodes.
    ///
    /// # Errors
    ///
    /// The first reason why it may not start. For a target with several copies to choose from, the
    /// reason of the copy that passed the most checks.
    pub(super) fn admit(
        &self,
        node: NodeIx,
        channel: usize,
        brief: &Brief,
    ) -> Result<NodeIx, Refusal> {
        self.own(brief)?;
        match brief.shape {
            Shape::Shard => {
                let site = Site { node, copies: 1, shard: brief.ix };
                self.at(&[site], channel, brief).map_err(|(_, refusal)| refusal)?;
                Ok(node)
            }
            Shape::Copy => self.copy(channel, brief),
            Shape::Whole => {
                let sited = self.sited(brief)?;
                self.at(&sited.sites, channel, brief).map_err(|(_, refusal)| refusal)?;
                Ok(NodeIx::CLUSTER)
            }
            Shape::Cleanup => {
                self.cleanup(channel)?;
                Ok(NodeIx::CLUSTER)
            }
            Shape::Nothing => Err(Refusal::plain(RefusalReason::Excluded)),
        }
    }

    /// The refusal of a target that does not start.
    /// A target without any reason did not fit into its queue: the selection gives a reason to
    /// every queued target.
    pub(super) fn decide(&self, node: NodeIx, channel: usize, brief: &Brief) -> Refusal {
        let no_room = Refusal::plain(RefusalReason::ChannelLimit);
        self.admit(node, channel, brief).err().unwrap_or(no_room)
    }

    /// Counts a start and reserves its disk space.
    pub(super) fn start(&mut self, node: NodeIx, channel: usize, brief: &Brief) {
        let sites = self.started_sites(node, brief);
        let file = if brief.shape == Shape::Cleanup { 0 } else { brief.file.get().unwrap_or(0) };
        self.room.start(&sites, channel, brief.shape == Shape::Whole, file);
        if self.claimant == Some(brief.ix) {
            self.room.release();
        }
        if brief.shape != Shape::Cleanup {
            self.ledger.reserve(&sites, self.need(brief).peak.unwrap_or(0));
        }
        if brief.shape == Shape::Shard {
            self.running.take_range(&self.snapshot, brief.ix);
        }
    }

    /// Whether a target may need more free slots or budget than ever become free at once.
    pub(super) fn may_claim(&self, brief: &Brief) -> bool {
        match brief.shape {
            Shape::Whole => true,
            Shape::Shard => self.room.is_large(brief.file.get().unwrap_or(0)),
            Shape::Copy | Shape::Cleanup | Shape::Nothing => false,
        }
    }

    /// The nodes that hold a target's files, if only running jobs and recent starts keep it from
    /// starting; and whether recent starts alone do.
    pub(super) fn waits_for_room(
        &self,
        (node, channel): (NodeIx, usize),
        brief: &Brief,
    ) -> Option<(Vec<Site>, bool)> {
        self.own(brief).ok()?;
        let sites = self.started_sites(node, brief);
        let (whole, file) = (brief.shape == Shape::Whole, brief.file.get().unwrap_or(0));
        // A ramp with a limit ends by itself as long as nothing else starts. A node that has not
        // reported its running jobs gives no such guarantee.
        let passes = |shut: Refusal| shut.reason == RefusalReason::Ramp && shut.limit.is_some();
        let shut = |site: &Site| self.gates.shut(site.node, channel);
        let asks = Asks { sites: &sites, channel, whole, file };
        let waits = !sites.is_empty()
            && sites.iter().filter_map(shut).all(passes)
            && self.fits_window(channel, brief).is_ok()
            && self.ledger.beside_what_runs(&sites, self.need(brief)).is_ok()
            && (whole || !self.other_copy(brief))
            && self.room.could_admit(asks);
        let ready = self.room.admits(asks).is_ok() && self.at(&sites, channel, brief).is_err();
        waits.then_some((sites, ready))
    }

    /// Reserves slots.
    pub(super) fn keep(&mut self, claim: &Claim) {
        self.claimant = Some(claim.ix);
        self.room.keep(claim);
    }

    /// The files that a start compacts: their nodes, with one shard for each node.
    pub(super) fn started_sites(&self, node: NodeIx, brief: &Brief) -> Vec<Site> {
        let sited = || self.sites.get(brief.db).map_or(&[][..], |sited| &sited.sites);
        match brief.shape {
            Shape::Shard => vec![Site { node, copies: 1, shard: brief.ix }],
            Shape::Copy => sited().iter().filter(|site| site.node == node).copied().collect(),
            Shape::Whole => sited().to_vec(),
            Shape::Cleanup | Shape::Nothing => vec![Site { node, copies: 0, shard: brief.ix }],
        }
    }

    /// Excludes a target whose request cannot be built.
    pub(super) fn exclude(&mut self, ix: Ix) {
        self.running.exclude(ix);
    }

    /// Bytes that a start needs in addition to one file, at its peak.
    pub(super) fn need(&self, brief: &Brief) -> Need {
        Need { peak: brief.peak(self.factor), file: brief.file.get() }
    }

    /// Whether free space is known on every node that a start writes to.
    pub(super) fn knows_space(&self, sites: &[Site]) -> bool {
        self.ledger.knows(sites)
    }

    /// Reasons of the target itself, independent of other jobs and of the node.
    fn own(&self, brief: &Brief) -> Result<(), Refusal> {
        use crate::model::settings::work::EnforceViews;
        let plain = |reason| Err(Refusal::plain(reason));
        match (brief.shape, self.rules.views) {
            (Shape::Copy | Shape::Whole, EnforceViews::None)
            | (Shape::Whole, EnforceViews::Q1)
            | (Shape::Nothing, _) => return plain(RefusalReason::Excluded),
            (Shape::Shard | Shape::Copy | Shape::Whole | Shape::Cleanup, _) => {}
        }
        let known = self.running.known(brief.ix).copied().unwrap_or_default();
        if known.unaddressable {
            return plain(RefusalReason::Excluded);
        }
        if known.running.is_some() || brief.own == Own::Running {
            let since = known.running;
            return Err(Refusal { since, ..Refusal::plain(RefusalReason::Running) });
        }
        if brief.own == Own::Resharding || self.resharding(brief) {
            return plain(RefusalReason::Resharding);
        }
        if known.building.is_some() || matches!(brief.own, Own::Updating | Own::Behind) {
            let since = known.building;
            return Err(Refusal { since, ..Refusal::plain(RefusalReason::Building) });
        }
        let rest = known.rest.filter(|_| !known.forced);
        if let Some(refusal) = rest.and_then(|rest| self.rests(rest, brief)) {
            return Err(refusal);
        }
        if brief.own == Own::Lean && !known.forced {
            let value = brief.reclaimable().map(|frees| frees as f64);
            return Err(Refusal { value, ..Refusal::plain(RefusalReason::Futile) });
        }
        self.unspent(known.started, brief)?;
        self.fresh(brief)
    }

    /// Refuses a target whose facts were already used for a start. A view with an open round
    /// continues with any facts.
    fn unspent(&self, started: Option<Moment>, brief: &Brief) -> Result<(), Refusal> {
        let spent = started.filter(|at| brief.measured_at <= *at);
        let in_round = || self.conditions.history.rounds.contains_key(&brief.ix);
        let Some(at) = spent.filter(|_| !in_round()) else { return Ok(()) };
        let value = Some(at.age(self.now).as_secs_f64());
        Err(Refusal { value, since: Some(at), ..Refusal::plain(RefusalReason::Stale) })
    }

    fn resharding(&self, brief: &Brief) -> bool {
        matches!(brief.shape, Shape::Copy | Shape::Whole)
            && self.sites.get(brief.db).is_some_and(|sited| sited.resharding)
    }

    fn rests(&self, rest: Rest, brief: &Brief) -> Option<Refusal> {
        let now = self.now;
        let (refusal, since) = match rest {
            Rest::CoolDown { since, until } => {
                if until <= now {
                    return None;
                }
                let (rested, all) = (since.age(now).as_secs_f64(), since.age(until).as_secs_f64());
                (Refusal::compared(RefusalReason::CoolDown, rested, all), since)
            }
            Rest::Quarantined { since, failures } => {
                let value = Some(f64::from(failures));
                (Refusal { value, ..Refusal::plain(RefusalReason::Quarantined) }, since)
            }
            Rest::Futile { since, file_bytes, .. } => {
                let value = brief.file.get().map(|file| file as f64);
                let limit = Some(file_bytes as f64);
                (Refusal { value, limit, ..Refusal::plain(RefusalReason::Futile) }, since)
            }
        };
        Some(Refusal { since: Some(since), ..refusal })
    }

    fn fresh(&self, brief: &Brief) -> Result<(), Refusal> {
        if brief.measured_at == Moment::default() {
            return Err(Refusal::plain(RefusalReason::Stale));
        }
        if Freshness::of(&self.snapshot, brief.ix, &self.rules, self.now).is_some() {
            return Ok(());
        }
        let (age, fresh_for) = (brief.measured_at.age(self.now), self.rules.fresh_for);
        let (value, limit) = (age.as_secs_f64(), fresh_for.as_secs_f64());
        let since = Some(brief.measured_at.plus(fresh_for));
        Err(Refusal { since, ..Refusal::compared(RefusalReason::Stale, value, limit) })
    }

    /// The nodes that hold a view's copies. Without a known copy no request is possible.
    fn sited(&self, brief: &Brief) -> Result<&Sited, Refusal> {
        let sited = self.sites.get(brief.db).filter(|sited| !sited.sites.is_empty());
        sited.ok_or(Refusal::plain(RefusalReason::Excluded))
    }

    /// The copies of a view that its round has not compacted yet; all copies if a new round
    /// begins.
    fn copies_left(&self, brief: &Brief) -> Result<impl Iterator<Item = &Site>, Refusal> {
        let sites = &self.sited(brief)?.sites;
        let done = self.conditions.history.rounds.get(&brief.ix);
        let is_done = move |site: &Site| done.is_some_and(|done| done.contains(&site.node));
        let all_done = sites.iter().all(is_done);
        Ok(sites.iter().filter(move |site| all_done || !is_done(site)))
    }

    /// The first copy of a view that may start, among those its round has not compacted yet.
    fn copy(&self, channel: usize, brief: &Brief) -> Result<NodeIx, Refusal> {
        let mut farthest: Option<Stopped> = None;
        for site in self.copies_left(brief)? {
            match self.at(std::slice::from_ref(site), channel, brief) {
                Ok(()) => return Ok(site.node),
                Err(stopped) if farthest.is_none_or(|before| before.0 < stopped.0) => {
                    farthest = Some(stopped);
                }
                Err(_) => {}
            }
        }
        Err(farthest.map_or(Refusal::plain(RefusalReason::Excluded), |(_, refusal)| refusal))
    }

    /// Deleting index files uses neither a job slot nor disk space.
    fn cleanup(&self, channel: usize) -> Result<(), Refusal> {
        if let Some(refusal) = self.gates.shut(NodeIx::CLUSTER, channel) {
            return Err(refusal);
        }
        self.room.channel(NodeIx::CLUSTER, channel)?;
        self.spread(NodeIx::CLUSTER)
    }

    /// Whether these files may be compacted now.
    fn at(&self, sites: &[Site], channel: usize, brief: &Brief) -> Result<(), Stopped> {
        for site in sites {
            if let Some(refusal) = self.gates.shut(site.node, channel) {
                return Err((Stage::Gates, refusal));
            }
        }
        self.fits_window(channel, brief).map_err(|refusal| (Stage::Window, refusal))?;
        let need = self.need(brief);
        let space = self.ledger.beside_what_runs(sites, need);
        space.map_err(|refusal| (Stage::Space, refusal))?;
        if brief.shape == Shape::Shard && self.other_copy(brief) {
            let refusal = Refusal::plain(RefusalReason::OtherCopyRunning);
            return Err((Stage::OtherCopy, refusal));
        }
        let (whole, file) = (brief.shape == Shape::Whole, brief.file.get().unwrap_or(0));
        let asks = Asks { sites, channel, whole, file };
        self.room.admits(asks).map_err(|refusal| (Stage::Limits, refusal))?;
        if !self.goes_before_the_kept(brief.ix) {
            let limits = self.room.admits_beside_kept(asks);
            limits.map_err(|refusal| (Stage::Limits, refusal))?;
        }
        let space = self.ledger.beside_what_starts(sites, need);
        space.map_err(|refusal| (Stage::SpaceBesideStarts, refusal))?;
        for site in sites {
            self.spread(site.node).map_err(|refusal| (Stage::Spread, refusal))?;
        }
        Ok(())
    }

    fn fits_window(&self, channel: usize, brief: &Brief) -> Result<(), Refusal> {
        let Some(strict) = self.strict.get(channel).copied().flatten() else { return Ok(()) };
        let Some(bytes) = brief.predicted.get().or_else(|| brief.file.get()) else {
            return Ok(());
        };
        if bytes as f64 <= strict.largest() {
            return Ok(());
        }
        let takes = bytes as f64 / strict.rate;
        Err(Refusal::compared(RefusalReason::WouldNotFitWindow, takes, strict.left))
    }

    /// Whether a target may also use slots that are reserved for another target.
    fn goes_before_the_kept(&self, ix: Ix) -> bool {
        self.claimant == Some(ix) || self.running.known(ix).is_some_and(|known| known.ordered)
    }

    /// Whether another copy of a shard's range is being compacted while only one may be.
    fn other_copy(&self, brief: &Brief) -> bool {
        self.rules.limits.one_copy_of_a_range
            && self.running.other_copy(&self.snapshot, brief.db, brief.ix)
    }

    /// Whether this plan's own starts postpone another start on a node.
    fn spread(&self, node: NodeIx) -> Result<(), Refusal> {
        let wait = self.rules.limits.wait;
        if !wait.is_zero() && self.room.starts_on(node) {
            return Err(Refusal::compared(RefusalReason::Ramp, 0.0, wait.as_secs_f64()));
        }
        match self.allowed {
            Some(allowed) if node != NodeIx::CLUSTER && self.room.cluster() >= allowed => {
                let (value, limit) = (self.room.cluster() as f64, allowed as f64);
                Err(Refusal::compared(RefusalReason::Ramp, value, limit))
            }
            _ => Ok(()),
        }
    }
}
