//! What feeds change about the tables: what they name is read by itself, and what they
//! confirm need not be read for long.

use super::{
    super::{
        Settings,
        news::{Named, News, Stale},
        touched::{Pace, Touched},
    },
    Tables,
};
use crate::{
    model::target::{Kind, State as TargetState},
    sources::inventory::{Lane, MapEntry, Reshard, Stage},
    table::{DbIx, DbMap, Ix, NodeIx},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::Instant;
use wall_clock::Moment;

/// Shards of a node that are read together because they were named: more wait for the next
/// turn, and with them whatever is named meanwhile.
const TOGETHER: usize = 256;

/// Entries of the shard map that are asked for one by one; where more are named, the whole
/// map is read instead.
const ENTRIES: usize = 1_000;

/// The database that has the shard map.
const MAP: &str = "_dbs";

/// After so long without a word and without a job a cluster counts as quiet.
const QUIET: Duration = Duration::from_secs(60);

/// What was named and waits to be read, and how long what was read by itself holds.
#[derive(Debug)]
pub(in crate::scan) struct Followed {
    /// Shards, node by node.
    pub(in crate::scan) shards: Touched<NodeIx, Ix>,
    /// Entries of the shard map.
    pub(in crate::scan) entries: Touched<(), Box<str>>,
    /// When the last whole listing began, and what was being split by it.
    listed: Option<(Moment, Instant, Option<Reshard>)>,
    /// Nodes that were not there when they were last asked.
    away: BTreeSet<NodeIx>,
    /// Counts sweeps: each reads another part of what is confirmed.
    turn: usize,
    /// Whether the next sweep reads everything.
    whole: bool,
    /// When something was last named or seen to run.
    busy: Instant,
    /// Shards that a job voided: how it ended is judged by what is read of them.
    voided: BTreeSet<Ix>,
}

impl Followed {
    pub(super) fn new() -> Self {
        Self {
            shards: Touched::default(),
            entries: Touched::default(),
            listed: None,
            away: BTreeSet::new(),
            turn: 0,
            whole: false,
            busy: Instant::now(),
            voided: BTreeSet::new(),
        }
    }

    /// The next sweep lists and reads everything.
    pub(in crate::scan) fn whole(&mut self) {
        self.whole = true;
        self.listed = None;
    }

    /// A job was seen, or something was named.
    pub(super) fn is_busy(&mut self) {
        self.busy = Instant::now();
    }

    /// Whether this sweep reads everything.
    pub(super) const fn reads_all(&self) -> bool {
        self.whole
    }

    /// Whether a target is among those that have their turn once in so many sweeps.
    pub(super) fn is_turn_of(&self, ix: Ix, sweeps: usize) -> bool {
        ix.as_usize() % sweeps == self.turn % sweeps
    }

    /// What a node has on its disk was listed, all of the map having been read.
    pub(super) fn has_listed(&mut self, began: Moment, splits: Option<&Reshard>) {
        self.listed = Some((began, Instant::now(), splits.cloned()));
    }

    /// Whether some node was not there when it was last asked.
    pub(super) fn is_any_away(&self) -> bool {
        !self.away.is_empty()
    }
}

impl Settings {
    /// How often what is named is read at most.
    pub(in crate::scan) const fn pace(&self) -> Pace {
        Pace { shortest: self.reread_after, longest: self.interval }
    }

    /// In how many sweeps what is confirmed is read once.
    fn parts(&self) -> usize {
        let parts = self.interval_followed.as_secs().checked_div(self.interval.as_secs());
        parts.and_then(|parts| usize::try_from(parts).ok()).unwrap_or(1).max(1)
    }
}

impl Tables {
    /// Takes in what feeds told; answers whether readers have to know at once.
    pub(in crate::scan) fn heard(&mut self, news: News, settings: &Settings) -> bool {
        let now = Instant::now();
        if !news.named.is_empty() {
            self.followed.is_busy();
        }
        if news.named.iter().any(|named| named.what == Stale::Entry) {
            // The map is a database of each node's own, and not every server names it.
            self.written(MAP, settings, now);
        }
        for Named { db, what } in news.named {
            let known = what == Stale::Shards && self.written(&db, settings, now);
            if !known {
                self.ask_for(db, settings, now);
            }
        }
        let changed = self.draft.now().followed_since() != news.followed_since;
        self.draft.set_followed_since(news.followed_since);
        changed
    }

    /// Something was written to a database; answers whether the tables have it.
    fn written(&mut self, db: &str, settings: &Settings, now: Instant) -> bool {
        let mut known = false;
        for instance in self.draft.instances(db) {
            let copies = self.draft.copies_of(instance);
            known |= !copies.is_empty() || self.draft.map_of(instance).copies > 0;
            self.touch(instance, &copies, settings, now);
        }
        known
    }

    fn touch(&mut self, db: DbIx, copies: &[Ix], settings: &Settings, now: Instant) {
        for ix in copies.iter().copied() {
            let Some(target) = self.draft.now().target(ix) else { continue };
            let there =
                !matches!(target.state(), TargetState::Missing | TargetState::Unaddressable);
            let node = target.node_ix();
            self.draft.doubt(ix);
            // Of a node that is not there a sweep reads everything when it is back.
            if there && self.draft.now().node(node).is_some_and(|node| node.up == Some(true)) {
                self.followed.shards.named(node, ix, settings.pace(), now);
            }
        }
        for view in self.views.of(db).to_vec() {
            self.draft.doubt(view);
        }
        self.views.named(db, now);
    }

    fn ask_for(&mut self, db: Box<str>, settings: &Settings, now: Instant) {
        if self.followed.entries.waiting() >= ENTRIES {
            self.followed.entries = Touched::default();
            self.followed.listed = None;
        }
        if self.followed.listed.is_some() || self.draft.now().followed_since().is_none() {
            self.followed.entries.named((), db, settings.pace(), now);
        }
    }

    /// What was measured of a target holds no more: it is read again at once, beside the
    /// sweep.
    pub(in crate::scan) fn void(&mut self, ix: Ix) {
        let Some(target) = self.draft.now().target(ix) else { return };
        let (kind, node) = (target.kind(), target.node_ix());
        self.followed.is_busy();
        self.draft.doubt(ix);
        match kind {
            Kind::Db => {
                self.followed.voided.insert(ix);
                self.followed.shards.urgent(node, ix, Instant::now());
            }
            Kind::View | Kind::Search => {
                self.reread.insert(ix);
            }
            Kind::Cleanup => {}
        }
    }

    /// Lanes of what is due on nodes of which nothing is being read.
    pub(in crate::scan) fn due_shards(
        &mut self,
        free: impl Fn(NodeIx) -> bool,
    ) -> Vec<(NodeIx, Lane)> {
        let taken = self.followed.shards.take(free, TOGETHER, Instant::now());
        let mut lanes = Vec::with_capacity(taken.len());
        for (node, targets) in taken {
            let snapshot = self.draft.now();
            let (there, gone): (Vec<Ix>, Vec<Ix>) = targets.into_iter().partition(|ix| {
                snapshot.target(*ix).is_some_and(|target| target.node_ix() == node)
            });
            if let Some(name) = snapshot.node(node).map(|node| Arc::clone(&node.name))
                && !there.is_empty()
            {
                lanes.push((node, Lane::of(&name, there, snapshot)));
            }
            for ix in gone {
                self.followed.shards.forget(&ix);
            }
        }
        lanes
    }

    /// Databases whose entries in the map are due.
    pub(in crate::scan) fn due_entries(&mut self) -> Vec<String> {
        let taken = self.followed.entries.take(|()| true, TOGETHER, Instant::now());
        taken.into_values().flatten().map(String::from).collect()
    }

    /// A shard was read because it was touched.
    pub(in crate::scan) fn touched_read(&mut self, ix: Ix, well: bool, settings: &Settings) {
        let unnamed = self.followed.shards.read(&ix, well, settings.pace(), Instant::now());
        if unnamed && well {
            self.draft.trust(ix);
        }
    }

    /// All that was touched on a node was read, or never will be. Answers whether somebody
    /// waits for it, to learn how a job ended.
    pub(in crate::scan) fn touched_ended(&mut self, stage: &Stage, settings: &Settings) -> bool {
        let Stage::Shards { lanes, .. } = stage else { return false };
        let mut awaited = false;
        let (pace, now) = (settings.pace(), Instant::now());
        for ix in lanes.iter().flat_map(|lane| &lane.targets) {
            awaited |= self.followed.voided.remove(ix);
            if self.followed.shards.is_read_now(ix) {
                self.followed.shards.read(ix, false, pace, now);
            }
        }
        self.followed.shards.tidy(pace, now);
        awaited
    }

    /// A sweep read a shard: where nobody waits to read it again, what was doubted is settled.
    pub(in crate::scan) fn swept(&mut self, ix: Ix) {
        if !self.followed.shards.waits(&ix) {
            self.draft.trust(ix);
        }
    }

    /// The map was asked for one database.
    pub(in crate::scan) fn entry(
        &mut self,
        db: &str,
        entry: Result<Option<MapEntry>, crate::sources::inventory::Unread>,
        settings: &Settings,
    ) {
        let (pace, now) = (settings.pace(), Instant::now());
        self.followed.entries.read(&Box::from(db), entry.is_ok(), pace, now);
        self.followed.entries.tidy(pace, now);
        let entry = match entry {
            Ok(entry) => entry,
            Err(unread) => return self.count(NodeIx::CLUSTER, &unread),
        };
        for instance in self.draft.instances(db) {
            let same = entry.as_ref().is_some_and(|entry| {
                self.draft.now().db_name(instance).is_some_and(|name| *name.suffix == *entry.suffix)
            });
            if !same && self.draft.map_of(instance).copies > 0 {
                self.gone(instance);
            }
        }
        if let Some(entry) = entry {
            self.mapped(entry, settings, now);
        }
    }

    /// A database instance is in the map no more.
    fn gone(&mut self, db: DbIx) {
        self.notices.lacks(db, &self.draft);
        self.listing.lacks(db);
        self.views.gone(&mut self.draft, db);
        self.draft.set_map(db, DbMap::default(), &[]);
        for ix in self.draft.copies_of(db) {
            self.followed.shards.forget(&ix);
            self.listing.gone(ix);
            self.draft.remove(ix);
        }
    }

    /// The map has this entry for a database by now.
    fn mapped(&mut self, entry: MapEntry, settings: &Settings, now: Instant) {
        let moves = !entry.arriving.is_empty() || !entry.leaving.is_empty();
        let db = self.draft.db(crate::table::DbName { db: &entry.db, suffix: &entry.suffix });
        let before: BTreeSet<Ix> = self.draft.copies_of(db).into_iter().collect();
        let expected = entry.copies.iter().filter(|at| settings.nodes.has(&at.node)).count();
        self.listing.map_entry(&mut self.draft, &mut self.views, settings, entry);
        self.notices.has(db, &self.draft);
        let copies = self.draft.copies_of(db);
        for ix in copies.iter().filter(|ix| !before.contains(ix)) {
            self.listing.found(*ix);
        }
        if moves || copies.len() != expected {
            // Which of them are where, only the nodes' own lists of files tell.
            self.followed.listed = None;
        }
        self.touch(db, &copies, settings, now);
    }

    /// Whether a sweep has to list what there is, or feeds have told since it was last listed.
    pub(super) fn has_to_list(&self, settings: &Settings) -> bool {
        let (Some(since), Some((began, at, splits))) =
            (self.draft.now().followed_since(), &self.followed.listed)
        else {
            return true;
        };
        let mut nodes = self.draft.now().nodes().iter().enumerate().skip(1);
        *began < since
            || at.elapsed() >= settings.interval_followed
            || *splits != self.listing.splits
            || nodes.any(|(at, node)| {
                let read = node.member && node.up == Some(true) && settings.nodes.has(&node.name);
                read && !NodeIx::from_usize(at).is_some_and(|at| self.listing.has_listed(at))
            })
    }

    /// A sweep begins: another part of what is confirmed has its turn.
    pub(super) const fn next_part(&mut self) {
        self.followed.turn = self.followed.turn.wrapping_add(1);
    }

    /// Whether a sweep reads a target: what feeds confirm only once in many sweeps, unless
    /// nobody but a header that is not to be trusted said it, and not what is about to be read
    /// because it was named.
    pub(super) fn is_due(&self, ix: Ix, settings: &Settings) -> bool {
        if self.followed.whole {
            return true;
        }
        if self.followed.shards.waits(&ix) {
            return false;
        }
        !self.draft.now().is_confirmed(ix)
            || self.wants_couchdb(ix)
            || self.followed.is_turn_of(ix, settings.parts())
    }

    /// The sweep ended that was to read everything, if it was.
    pub(super) const fn whole_no_more(&mut self) {
        self.followed.whole = false;
    }

    /// A node answered, or did not: what is there may have changed without a word meanwhile.
    pub(super) fn heard_of(&mut self, node: NodeIx, there: bool) {
        let news =
            if there { self.followed.away.remove(&node) } else { self.followed.away.insert(node) };
        if !news || self.draft.now().followed_since().is_none() {
            return;
        }
        let on_it = self.draft.now().targets().filter(|target| target.node_ix() == node);
        let all: Vec<Ix> = on_it.map(|target| target.ix()).collect();
        for ix in all {
            self.draft.doubt(ix);
        }
    }

    /// Looks whether the cluster is quiet: for a while nothing was named, and nothing ran.
    pub(in crate::scan) fn look_whether_quiet(&mut self) -> bool {
        let quiet = self.draft.now().followed_since().is_some()
            && self.followed.busy.elapsed() >= QUIET
            && self.followed.shards.next(|_| true).is_none();
        let changed = self.draft.now().is_quiet() != quiet;
        self.draft.set_quiet(quiet);
        changed
    }
}
