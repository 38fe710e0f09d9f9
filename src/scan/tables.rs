//! The scanner's state: applies observations to the tables and says what to read next.
//!
//! No I/O; `now` comes with each observation. The task beside it does the reading. Sweeps
//! go through fixed stages, each built from what the one before found.

mod addresses;
mod disk;
mod ending;
mod followed;
mod listing;
mod rounds;
mod searches;
mod spared;
mod stages;
mod tasks;
mod unanswered;
mod views;
mod wanted;

use super::{Settings, Status, noticed::Notices, status::Progress};
use crate::{
    jobs,
    model::{facts::Facts, target::Kind},
    sources::inventory::{MapRead, Members, NodeSeen, Observation, Reshard, Stage, Unread},
    table::{DbName, Draft, Ix, NodeIx, Snapshot},
};
use disk::{Disk, Peers};
use followed::Followed;
use listing::Listing;
use rounds::Rounds;
use spared::Spared;
use std::{collections::BTreeSet, sync::Arc};
use tasks::Running;
use tokio::time::Instant;
use views::{Seen, Views};
use wall_clock::Moment;

/// Everything the scanner knows.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) draft: Draft,
    pub(super) status: Status,
    listing: Listing,
    pub(super) views: Views,
    running: Running,
    disk: Disk,
    peers: Peers,
    spared: Spared,
    rounds: Rounds,
    /// Nodes that could not be read whole in this sweep.
    incomplete: BTreeSet<NodeIx>,
    /// Whether nothing of the whole cluster was unread since its views began to be read.
    views_whole: bool,
    /// Rights found missing in this sweep.
    rights: BTreeSet<String>,
    began: Moment,
    /// The same by the clock that only goes forward, for how long it took.
    began_at: Instant,
    /// Views whose facts a job has voided.
    pub(super) reread: BTreeSet<Ix>,
    pub(super) followed: Followed,
    pub(super) notices: Notices,
    /// Whether this sweep lists what there is.
    lists: bool,
}

impl Tables {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            draft: Draft::new(settings.top),
            status: Status::default(),
            listing: Listing::default(),
            views: Views::default(),
            running: Running::default(),
            disk: Disk::default(),
            peers: Peers::default(),
            spared: Spared::default(),
            rounds: Rounds::default(),
            incomplete: BTreeSet::new(),
            views_whole: false,
            rights: BTreeSet::new(),
            began: Moment::default(),
            began_at: Instant::now(),
            reread: BTreeSet::new(),
            followed: Followed::new(),
            notices: Notices::default(),
            lists: true,
        }
    }

    /// Takes in what an earlier process measured, into tables that are empty yet; answers how
    /// much of it cannot be read.
    pub(super) fn restore(&mut self, before: super::Before, settings: &Settings) -> usize {
        let mut damaged = 0;
        for block in before.blocks {
            if self.draft.restore(&block).is_err() {
                damaged += 1;
            }
        }
        self.views.restore(self.draft.now());
        self.notices.restored(&self.draft);
        before.marks.iter().for_each(|mark| self.notices.marked(mark, &mut self.draft));
        self.serve(settings);
        self.note_ages(Moment::default());
        damaged
    }

    /// Begins a sweep.
    pub(super) fn begin(&mut self, now: Moment) -> Stage {
        self.began = now;
        self.began_at = Instant::now();
        self.incomplete.clear();
        self.rights.clear();
        self.disk.begin();
        self.spared.begin(self.draft.now());
        self.next_part();
        self.rounds = Rounds::default();
        self.status.progress = Some(Progress { since: now, done: 0, total: None });
        Stage::Nodes
    }

    /// Applies one observation; at the end of a stage answers with the next one.
    pub(super) fn apply(
        &mut self,
        seen: Observation,
        (stage, began): (&Stage, Instant),
        settings: &Settings,
        now: Moment,
    ) -> Option<Stage> {
        match seen {
            Observation::Members(members) => {
                self.members(members);
                self.serve(settings);
            }
            Observation::Node(node) => self.node(node),
            Observation::Reshard(splits) => self.splits(splits, settings),
            Observation::MapPage(page) => {
                for entry in page {
                    self.listing.map_entry(&mut self.draft, &mut self.views, settings, entry);
                }
            }
            Observation::MapEnd(ended) => match ended {
                Ok(MapRead::Whole) => self.listing.map_whole = true,
                Ok(MapRead::Readable) => self.readable(),
                Ok(MapRead::None) => self.listing.alone = true,
                Err(unread) => self.unread(NodeIx::CLUSTER, &unread),
            },
            Observation::Unread(unread) => self.unread(NodeIx::CLUSTER, &unread),
            Observation::Files { node, names } => {
                let at = self.draft.node(&node);
                match names {
                    Ok(names) => self.listing.files(&mut self.draft, at, &names),
                    Err(unread) => {
                        self.down(at, &unread);
                        self.unread(at, &unread);
                    }
                }
            }
            Observation::Stray { db, entry } => match entry {
                Ok(entry) => {
                    self.listing.stray(&mut self.draft, &mut self.views, settings, &db, entry)
                }
                Err(unread) => self.unread(NodeIx::CLUSTER, &unread),
            },
            Observation::Shard { ix, facts } => {
                if self.is_still(ix, stage) {
                    self.shard(ix, facts);
                }
            }
            Observation::Views { db, suffix, views, searches, signatures } => {
                if let Some(db) = self.draft.find_db(DbName { db: &db, suffix: &suffix }) {
                    for view in views.iter().flatten() {
                        if let Ok(index) = &view.index {
                            self.index_said(db, index);
                        }
                    }
                    let seen = Seen {
                        views,
                        searches,
                        signatures,
                        has_parts: self.disk.has_parts(db),
                        cleans_itself: self.cleans_itself(),
                    };
                    for unread in self.views.seen(&mut self.draft, db, seen, (began, now)) {
                        self.unread(NodeIx::CLUSTER, &unread);
                    }
                }
                self.progressed();
            }
            Observation::Tasks { node, tasks } => {
                let at = self.draft.node(&node);
                match tasks {
                    Ok(tasks) => {
                        self.heard_of(at, true);
                        if !tasks.is_empty() {
                            self.followed.is_busy();
                        }
                        let ended = self.running.seen(&mut self.draft, &self.views, at, tasks);
                        ended.into_iter().for_each(|ix| self.void(ix));
                    }
                    Err(unread) => {
                        self.heard_of(at, false);
                        self.running.unseen(at);
                        self.count(at, &unread);
                    }
                }
            }
            Observation::Disk { node, files } => self.files(&node, files, settings),
            Observation::DiskEnd { node, disk } => self.disk_ended(&node, disk),
            Observation::Told { node, dbs, parts } => self.told(&node, dbs, parts, settings, now),
            Observation::ToldEnd { peer, nodes } => self.told_ended(&peer, nodes),
            // The next sweep reads it.
            Observation::Back { .. } => {}
            Observation::StageEnded => return self.next(stage, settings, now),
        }
        None
    }

    fn members(&mut self, members: Result<Members, Unread>) {
        match members {
            Ok(members) => {
                self.rounds.members = true;
                let expected: BTreeSet<&String> = members.expected.iter().collect();
                for name in &members.expected {
                    let at = self.draft.node(name);
                    self.draft.change_node(at, |node| {
                        node.member = true;
                        // A cluster that answers has a node that is connected.
                        node.files_alone = members.connected.is_empty();
                    });
                }
                let nodes = self.draft.now().nodes().len();
                for at in (1..nodes).filter_map(NodeIx::from_usize) {
                    self.draft.change_node(at, |node| {
                        node.member = expected.iter().any(|name| ***name == *node.name);
                    });
                }
                self.status.problem = None;
            }
            Err(unread) => {
                // Without the right to ask for nodes some databases may still be readable.
                let forbidden = unread.right.is_some();
                self.status.problem = (!forbidden).then(|| unread.message.clone());
                self.rounds.unanswered = unread.was_asked();
                if !unread.was_asked() {
                    let nodes = self.draft.now().nodes().len();
                    for at in (1..nodes).filter_map(NodeIx::from_usize) {
                        self.draft.change_node(at, |node| node.up = None);
                    }
                }
                self.unread(NodeIx::CLUSTER, &unread);
            }
        }
    }

    /// Says which nodes' targets this process serves, and how much of them it exports.
    fn serve(&mut self, settings: &Settings) {
        self.draft.set_top(settings.top);
        let nodes = self.draft.now().nodes().len();
        for at in (0..nodes).filter_map(NodeIx::from_usize) {
            self.draft.change_node(at, |node| {
                node.served = match at {
                    NodeIx::CLUSTER => settings.views,
                    _ => settings.nodes.has(&node.name),
                };
            });
        }
    }

    /// The map ended with what the login may read.
    fn readable(&mut self) {
        self.listing.readable = true;
        for at in self.listing.holders().clone() {
            self.draft.change_node(at, |node| node.member = true);
        }
        if self.listing.databases == 0 {
            self.status.problem = Some(ending::nothing_readable(&self.rights));
        }
    }

    fn node(&mut self, seen: NodeSeen) {
        let at = self.draft.node(&seen.node);
        let up = seen.up.is_ok();
        self.heard_of(at, up);
        if up {
            self.rounds.answered.insert(at);
        }
        self.draft.change_node(at, |node| {
            node.up = Some(up);
            node.version = seen.version.or(node.version);
            addresses::note(node, seen.own_address);
            node.smoosh = seen.smoosh;
        });
        if let Err(unread) = seen.up {
            self.unread(at, &unread);
        }
    }

    fn shard(&mut self, ix: Ix, facts: Result<Option<Facts>, Unread>) {
        self.progressed();
        match facts {
            Ok(Some(facts)) => {
                self.spared.told(ix);
                self.measured(ix, facts);
            }
            // Deleted since the files were listed: the next sweep takes it out.
            Ok(None) => {}
            Err(unread) => {
                if let Some(node) = self.draft.now().target(ix).map(|target| target.node_ix()) {
                    self.unread(node, &unread);
                }
            }
        }
    }

    /// Whether the servers remove stale index files by themselves after a design document
    /// changed (`couch_index_cleanup`, 3.5.2 and later).
    fn cleans_itself(&self) -> bool {
        let mut members =
            self.draft.now().nodes().iter().skip(1).filter(|node| node.member).peekable();
        members.peek().is_some()
            && members.all(|node| node.version.is_some_and(|version| version.cleans_indexes()))
    }

    /// A node that did not list its files is down when CouchDB says so.
    fn down(&mut self, at: NodeIx, unread: &Unread) {
        if matches!(unread.reason, "node_down" | "connect" | "timeout") {
            self.draft.change_node(at, |node| node.up = Some(false));
        }
    }

    fn unread(&mut self, at: NodeIx, unread: &Unread) {
        self.incomplete.insert(at);
        if at == NodeIx::CLUSTER {
            self.views_whole = false;
        }
        self.count(at, unread);
    }

    fn count(&mut self, at: NodeIx, unread: &Unread) {
        let name = self.draft.now().node(at).map(|node| Arc::clone(&node.name));
        let errors = &mut self.status.errors;
        *errors.entry((name.unwrap_or_default(), unread.reason)).or_default() += 1;
        if let Some(right) = unread.right {
            self.rights.insert(right.to_owned());
            self.status.missing_rights.insert(right.to_owned());
        }
        self.status.last_error = Some(unread.message.clone());
    }

    const fn progressed(&mut self) {
        if let Some(progress) = &mut self.status.progress {
            progress.done += 1;
        }
    }

    /// A poll of these nodes begins.
    pub(super) fn begin_poll(&mut self, now: Moment, nodes: &[String]) {
        let asked: Vec<NodeIx> =
            nodes.iter().filter_map(|name| self.draft.find_node(name)).collect();
        self.running.begin(now, &asked);
    }

    /// A poll ended; answers with what it showed.
    pub(super) fn end_poll(&mut self) -> jobs::Running {
        self.running.ended()
    }

    /// Shards of which it turned out between two sweeps that they are being split. That it is
    /// over, the next sweep finds. Answers whether that was news.
    pub(super) fn splitting(&mut self, splits: &Reshard) -> bool {
        self.listing.splitting(&mut self.draft, splits)
    }

    /// What `_view_cleanup` was asked to remove is evidence no more.
    pub(super) fn cleaned(&mut self, ix: Ix) {
        let Some(target) = self.draft.now().target(ix) else { return };
        if target.kind() == Kind::Cleanup {
            let mut facts = target.facts();
            facts.flags.evidence = false;
            self.draft.set_facts(ix, facts);
        }
    }

    pub(super) fn publish(&mut self, now: Moment) -> Arc<Snapshot> {
        self.draft.publish(now)
    }
}
