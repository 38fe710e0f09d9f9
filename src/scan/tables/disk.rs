//! What lies in nodes' own directories: facts of their files, parts of views, and what nothing
//! uses any more.

use super::Tables;
use crate::{
    datadir::{Sums, Tree, Volume},
    jobs,
    model::{
        estimate,
        facts::{Fact, Facts, Source, Verdict, merged},
        target::{Kind, State},
    },
    scan::Settings,
    sources::inventory::{CompactionFile, DbSeen, DiskSeen, FileSeen, PartSeen, Unread},
    table::{Bits, DbIx, DbName, Draft, Ix, NodeIx, OnDisk, OnVolume, PartSums, TargetRef, View},
};
use couchdb_names::{Range, ShardName};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// How long what a compaction writes must have rested to be a leftover, where it is known what
/// runs: a job that begins is seen with the next poll.
const RESTED: Duration = Duration::from_secs(600);

/// The same where nobody says what runs: smoosh stops a job outside its channel's window, for
/// a day at most where windows are daily, and then it goes on.
const RESTED_UNSEEN: Duration = Duration::from_secs(86_400);

/// Sweeps after which what a sidecar told of a database counts as late: CouchDB is asked again.
const LAG: u32 = 2;

/// What the walks of one sweep met.
#[derive(Debug, Default)]
pub(super) struct Disk {
    nodes: BTreeMap<NodeIx, OnNode>,
    /// Databases of which some part was met in this sweep.
    with_parts: BTreeSet<DbIx>,
    /// The same of the sweep before, whose views may still be read while this one walks.
    with_parts_before: BTreeSet<DbIx>,
}

/// The nodes that each sidecar told of last.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<Arc<str>, BTreeSet<NodeIx>>);

/// What one walk met.
#[derive(Debug, Default)]
struct OnNode {
    /// Targets whose file is there.
    seen: Bits,
    /// Shards that are there and no target yet.
    unlisted: BTreeSet<Box<str>>,
    compactions: Vec<CompactionFile>,
    /// Files that could not be read.
    unread: u64,
    ended: Option<DiskSeen>,
}

/// Sums over one node's files.
#[derive(Debug, Default)]
struct Judged {
    stale_bytes: u64,
    stale_files: u64,
    designs_known: bool,
}

impl Disk {
    pub(super) fn begin(&mut self) {
        let with_parts_before = std::mem::take(&mut self.with_parts);
        *self = Self { with_parts_before, ..Self::default() };
    }

    /// Whether the directories of some node were walked in this sweep.
    pub(super) fn walked(&self) -> bool {
        self.nodes.values().any(|node| node.ended.is_some())
    }

    /// Whether some index file of this database was met in this sweep, or before the walks of it.
    pub(super) fn has_parts(&self, db: DbIx) -> bool {
        self.with_parts.contains(&db) || (!self.walked() && self.with_parts_before.contains(&db))
    }

    /// Whether files of this node were met in this sweep.
    pub(super) fn has_met(&self, node: NodeIx) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Whether a target's file was met on this node in this sweep.
    pub(super) fn has_seen(&self, node: NodeIx, ix: Ix) -> bool {
        self.nodes.get(&node).is_some_and(|on_node| on_node.seen.has(ix.as_usize()))
    }
}

impl Tables {
    /// Takes in some of the files in a node's directories.
    pub(super) fn files(&mut self, node: &str, files: Vec<FileSeen>, settings: &Settings) {
        let at = self.draft.node(node);
        for file in files {
            match file {
                FileSeen::Db(file) => self.db_file(at, file),
                FileSeen::View(part) => {
                    if settings.parts {
                        self.part(at, part);
                    }
                }
                FileSeen::Compaction(file) => {
                    self.disk.nodes.entry(at).or_default().compactions.push(file);
                }
                FileSeen::Unread(unread) => {
                    self.disk.nodes.entry(at).or_default().unread += 1;
                    self.count(at, &unread);
                }
            }
        }
    }

    fn db_file(&mut self, node: NodeIx, mut seen: DbSeen) {
        let on_node = self.disk.nodes.entry(node).or_default();
        let (name, range) = named(&seen.shard);
        let known =
            self.draft.find_db(name).and_then(|db| self.draft.find_db_target(node, db, range));
        let ix = match known {
            Some(ix) => ix,
            None if self.listing.alone => {
                let db = self.draft.db(name);
                self.draft.db_target(node, db, range)
            }
            None => {
                on_node.unlisted.insert(seen.shard);
                return;
            }
        };
        on_node.seen.set(ix.as_usize());
        let version = self.draft.now().node(node).and_then(|node| node.version);
        self.draft.set_problem(ix, seen.problem);
        seen.facts.flags.exact = self.spared.is_exact(ix, &seen);
        seen.facts.confidence = estimate::confidence(Kind::Db, version, None);
        self.measured(ix, seen.facts);
    }

    /// Takes in what another process read of a node's files.
    pub(super) fn told(
        &mut self,
        node: &str,
        dbs: Vec<DbSeen>,
        parts: Vec<PartSeen>,
        settings: &Settings,
        now: Moment,
    ) {
        // A node that the cluster does not have is another cluster's.
        let Some(at) = self.draft.find_node(node) else { return };
        if settings.nodes.has(node) {
            let lags = |seen: &DbSeen| {
                let at = seen.facts.measured_at.map(|measured| measured.at);
                at.is_none_or(|at| at.age(now) > settings.interval.saturating_mul(LAG))
            };
            dbs.into_iter().filter(|seen| !lags(seen)).for_each(|seen| self.db_file(at, seen));
        }
        if settings.views {
            parts.into_iter().for_each(|part| self.part(at, part));
        }
    }

    /// Such a process told all, or is away: then CouchDB's own numbers count again.
    pub(super) fn told_ended(
        &mut self,
        peer: &Arc<str>,
        nodes: Result<BTreeSet<Arc<str>>, Unread>,
    ) {
        let now: BTreeSet<NodeIx> = match nodes {
            Ok(nodes) => nodes.iter().filter_map(|node| self.draft.find_node(node)).collect(),
            Err(unread) => {
                self.count(NodeIx::CLUSTER, &unread);
                BTreeSet::new()
            }
        };
        let before = self.peers.0.insert(Arc::clone(peer), now.clone()).unwrap_or_default();
        for at in before.union(&now) {
            let on_node = self.disk.nodes.entry(*at).or_default();
            // What this process reads itself, it takes out itself.
            if on_node.ended.is_none() {
                take_out_gone(&mut self.draft, *at, &on_node.seen, false);
            }
        }
    }

    fn part(&mut self, node: NodeIx, seen: PartSeen) {
        let PartSeen { shard, signature, facts, collators, problem } = seen;
        let (name, range) = named(&shard);
        let db = self.draft.db(name);
        let ix = self.draft.part(node, db, range, signature);
        self.disk.nodes.entry(node).or_default().seen.set(ix.as_usize());
        self.disk.with_parts.insert(db);
        self.draft.set_problem(ix, problem);
        if let Some(view) = self.draft.now().target(ix).and_then(TargetRef::view)
            && view.collators != collators
        {
            let view = View { collators, ..view.clone() };
            self.draft.set_view(ix, view);
        }
        if let Some(target) = self.draft.now().target(ix) {
            self.spared.moved(ix, &target.facts(), &facts);
        }
        self.measured(ix, facts);
    }

    /// Takes in what one source measured of a target, beside what is known of it.
    pub(super) fn measured(&mut self, ix: Ix, seen: Facts) {
        let Some(target) = self.draft.now().target(ix) else { return };
        let node = target.node_ix();
        let (facts, verdict) = merged(&target.facts(), &seen);
        self.notices.read(target, facts.update_seq.get());
        let known = target.facts().measured_at.map(|measured| measured.by);
        let header = seen.measured_at.is_some_and(|measured| measured.by == Source::Files);
        if verdict == Verdict::None && header && known == Some(Source::Http) {
            self.spared.went_on(ix);
        }
        self.spared.compared(node, ix, verdict);
        self.draft.set_facts(ix, facts);
    }

    /// A walk ended, or could not be made.
    pub(super) fn disk_ended(&mut self, node: &str, disk: Result<DiskSeen, Unread>) {
        let at = self.draft.node(node);
        match disk {
            Ok(disk) => {
                let (on_node, whole) = (self.disk.nodes.entry(at).or_default(), disk.whole);
                on_node.ended = Some(disk);
                if whole {
                    take_out_gone(&mut self.draft, at, &on_node.seen, self.listing.alone);
                }
            }
            Err(unread) => {
                if self.listing.alone {
                    self.status.problem = Some(unread.message.clone());
                }
                self.count(at, &unread);
            }
        }
    }

    /// Says what of the files is of no use, once all is known that a sweep finds out.
    pub(super) fn judge_disk(&mut self, now: Moment) {
        let mut nodes: BTreeMap<NodeIx, Judged> = BTreeMap::new();
        let mut stale_of: BTreeMap<DbIx, u64> = BTreeMap::new();
        let mut parts_of: BTreeMap<Ix, PartSums> = BTreeMap::new();
        let places = self.draft.now().capacity();
        for at in 0..places {
            let Some(part) = self.draft.now().target_at(at).filter(|target| target.is_part())
            else {
                continue;
            };
            let ix = part.ix();
            let (node, db, facts) = (part.node_ix(), part.db(), part.facts());
            let Some(view) = part.view() else { continue };
            let (signature, named) = (view.signature, !view.designs.is_empty());
            let of = self.draft.now().find_view(self.views.of(db), signature);
            let has_shard = self.has_shard(part);
            let designed = self.views.designed(db, signature);
            let judged = nodes.entry(node).or_default();
            judged.designs_known |= designed.is_some();
            let stale = has_shard == Some(false) || designed == Some(false);
            if stale {
                let bytes = facts.file.get().unwrap_or_default();
                judged.stale_bytes = judged.stale_bytes.saturating_add(bytes);
                judged.stale_files += 1;
                // What has lost its shard no `_view_cleanup` removes.
                if has_shard != Some(false) {
                    *stale_of.entry(db).or_default() += bytes;
                }
            } else if let Some(of) = of
                && let Some(sums) = sums(part)
            {
                parts_of.entry(of).or_default().add(&sums);
            }
            if stale || has_shard.is_some() || designed.is_some() {
                self.draft.set_state(ix, if stale { State::Orphan } else { State::Ok });
            }
            match of {
                Some(of) => attribute(&mut self.draft, ix, of),
                None if named && designed == Some(false) => unattribute(&mut self.draft, ix),
                None => {}
            }
        }
        self.sum_up(&parts_of);
        for (db, bytes) in stale_of {
            self.views.stale(&mut self.draft, db, bytes, now);
        }
        let walked: Vec<NodeIx> = self.disk.nodes.keys().copied().collect();
        for at in walked {
            let judged = nodes.remove(&at).unwrap_or_default();
            self.note_disk(at, &judged, now);
        }
    }

    /// Whether the shard that a part indexes is there; `None` where nobody looked.
    fn has_shard(&self, part: TargetRef<'_>) -> Option<bool> {
        let on_node = self.disk.nodes.get(&part.node_ix())?;
        on_node.ended.as_ref().filter(|disk| disk.whole)?;
        let shard = self.draft.find_db_target(part.node_ix(), part.db(), part.range());
        if shard.is_some_and(|ix| on_node.seen.has(ix.as_usize())) {
            return Some(true);
        }
        let name = part.shard_name()?;
        Some(on_node.unlisted.contains(&*name))
    }

    fn sum_up(&mut self, parts_of: &BTreeMap<Ix, PartSums>) {
        let views: Vec<Ix> = self
            .draft
            .now()
            .targets()
            .filter(|target| target.kind() == Kind::View && !target.is_part())
            .map(TargetRef::ix)
            .collect();
        for ix in views {
            let parts = parts_of.get(&ix).copied().unwrap_or_default();
            self.draft.set_parts(ix, parts);
        }
    }

    fn note_disk(&mut self, at: NodeIx, judged: &Judged, now: Moment) {
        let Some(on_node) = self.disk.nodes.get(&at) else { return };
        let Some(ended) = &on_node.ended else { return };
        let running = self.running.shown.nodes.get(&at).and_then(|polled| polled.tasks.as_deref());
        let left = leftovers(&on_node.compactions, running, now);
        let whole = ended.whole && on_node.unread == 0;
        let (sums, took) = (ended.sums, ended.took);
        let volumes = ended.volumes.iter().map(|volume| left.on(volume, &sums, judged));
        let volumes: Vec<OnVolume> = volumes.collect();
        self.draft.change_node(at, |node| {
            let before = node.disk.unwrap_or_default();
            node.volumes = volumes;
            node.disk = Some(OnDisk {
                last_success: if whole { Some(now) } else { before.last_success },
                oldest_fact: before.oldest_fact,
                took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                files: sums.files,
                stale_index: judged.stale_bytes.saturating_add(sums.misplaced),
                stale_index_files: judged.stale_files,
                designs_known: judged.designs_known,
                leftover: left.of_dbs.saturating_add(left.of_views),
                leftover_files: left.files,
                trash: sums.trash,
                nouveau: sums.nouveau,
                clouseau: sums.clouseau,
                other: sums.other,
            });
        });
    }
}

/// A shard's name in two parts; a node-local database's has no range.
fn named(shard: &str) -> (DbName<'_>, Option<Range>) {
    match ShardName::split(shard) {
        Some(split) => (DbName { db: split.db, suffix: split.suffix }, Some(split.range)),
        None => (DbName { db: shard, suffix: "" }, None),
    }
}

/// Takes out the parts of a node whose file is gone, and the databases where no list but the
/// disk's own says which there are.
fn take_out_gone(draft: &mut Draft, node: NodeIx, seen: &Bits, alone: bool) {
    let places = draft.now().capacity();
    for at in 0..places {
        let gone = draft.now().target_at(at).filter(|target| {
            let listed_here = target.is_part() || (alone && target.kind() == Kind::Db);
            target.node_ix() == node && listed_here && !seen.has(at)
        });
        if let Some(ix) = gone.map(TargetRef::ix) {
            draft.remove(ix);
        }
    }
}

/// What one part adds to its view, where its sizes are known.
fn sums(part: TargetRef<'_>) -> Option<PartSums> {
    Some(PartSums {
        count: 1,
        file: part.on_disk(Fact::File)?,
        active: part.on_disk(Fact::Active)?,
        external: part.on_disk(Fact::External).unwrap_or_default(),
        predicted: part.predicted()?,
        reclaimable: part.reclaimable()?,
    })
}

/// Gives a part the design documents of its view.
fn attribute(draft: &mut Draft, part: Ix, of: Ix) {
    let view = |ix| draft.now().target(ix).and_then(TargetRef::view);
    let (Some(view), Some(of)) = (view(part), view(of)) else { return };
    if !Arc::ptr_eq(&view.designs, &of.designs) {
        let (designs, language) = (Arc::clone(&of.designs), Arc::clone(&of.language));
        let view = View { designs, language, ..view.clone() };
        draft.set_view(part, view);
    }
}

/// The design document that a part had is gone, or is another by now.
fn unattribute(draft: &mut Draft, part: Ix) {
    let Some(view) = draft.now().target(part).and_then(TargetRef::view) else { return };
    let view = View { designs: Arc::new([]), language: Arc::from(""), ..view.clone() };
    draft.set_view(part, view);
}

/// What compactions left.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    files: u64,
    /// In bytes.
    of_dbs: u64,
    /// In bytes.
    of_views: u64,
}

impl Left {
    /// What of the bytes on one volume nothing uses. Indexes that lie where CouchDB does not
    /// look for them lie among databases.
    fn on(&self, volume: &Volume, sums: &Sums, judged: &Judged) -> OnVolume {
        let dbs = [sums.misplaced, self.of_dbs, sums.trash.saturating_sub(sums.trash_of_views)];
        let views = [judged.stale_bytes, self.of_views, sums.trash_of_views];
        let [stale_index, leftover, trash] = match volume.holds {
            Tree::Databases => dbs,
            Tree::Views => views,
            Tree::Both => std::array::from_fn(|at| {
                let of = |all: &[u64; 3]| all.get(at).copied().unwrap_or_default();
                of(&dbs).saturating_add(of(&views))
            }),
        };
        OnVolume { volume: volume.clone(), stale_index, leftover, trash }
    }
}

/// What compactions left, given what runs on the node, where that is known.
fn leftovers(files: &[CompactionFile], running: Option<&[jobs::Task]>, now: Moment) -> Left {
    let left = files.iter().filter(|file| match running {
        Some(tasks) => {
            file.changed.age(now) >= RESTED
                && !tasks.iter().any(|task| *task.key.shard == *file.shard)
        }
        None => file.changed.age(now) >= RESTED_UNSEEN,
    });
    left.fold(Left::default(), |mut all, file| {
        let bytes = if file.of_view { &mut all.of_views } else { &mut all.of_dbs };
        *bytes = bytes.saturating_add(file.bytes);
        all.files += 1;
        all
    })
}
