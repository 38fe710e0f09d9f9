//! The end of a sweep: what of it is told, and how old what is known has become.

use super::Tables;
use crate::{
    model::{facts::Source, target::Kind},
    sources::couchdb::NO_USER,
    table::{Node, NodeIx},
};
use std::collections::{BTreeMap, BTreeSet};
use wall_clock::Moment;

/// Why no database can be read, where these rights are missing.
pub(super) fn nothing_readable(rights: &BTreeSet<String>) -> String {
    if rights.contains(NO_USER) {
        return NO_USER.to_owned();
    }
    let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
    format!("the login may read no database: {}", rights.join("; "))
}

impl Tables {
    /// When the last sweep began, if it read everything it was to read.
    pub(in crate::scan) fn swept_since(&self) -> Option<Moment> {
        (self.incomplete.is_empty() && self.status.problem.is_none()).then_some(self.began)
    }

    /// Ends a sweep: says which nodes were read whole and how old the oldest facts are. What of
    /// the cluster has not come by now is unread in it, and taken in when it comes.
    pub(in crate::scan) fn finish(&mut self, now: Moment) {
        if !self.rounds.splits || !self.rounds.views.are_over() {
            self.incomplete.insert(NodeIx::CLUSTER);
        }
        self.judge_disk(now);
        self.count_disagreements();
        if self.rounds.views.are_over() {
            self.whole_no_more();
        }
        self.note_ages(now);
        let nodes = self.draft.now().nodes().len();
        for at in (0..nodes).filter_map(NodeIx::from_usize) {
            // Of one that is this process's to read it was said when it was read.
            let others = |node: &Node| !node.served && self.rounds.answered.contains(&at);
            let whole = !self.incomplete.contains(&at)
                && (at == NodeIx::CLUSTER || self.draft.now().node(at).is_some_and(others));
            if whole {
                self.draft.change_node(at, |node| node.last_success = Some(now));
            }
        }
        let answered = self.draft.now().nodes().iter().any(|node| node.up == Some(true));
        let answered =
            answered || self.listing.readable || (self.listing.alone && self.disk.walked());
        self.status.ready |= answered;
        self.status.sweeps += 1;
        self.status.shards = self.spared.shards();
        let took = self.began_at.elapsed();
        self.draft.set_sweep(took);
        self.status.last_duration = Some(took);
        self.status.last_end = Some(now);
        if self.incomplete.is_empty() && answered {
            self.status.last_success = Some(now);
        }
        self.status.progress = None;
        self.status.missing_rights = std::mem::take(&mut self.rights);
    }

    /// Notes of each node when the oldest of its facts was measured; what feeds confirm is as
    /// good as new.
    pub(super) fn note_ages(&mut self, now: Moment) {
        let mut oldest: BTreeMap<(NodeIx, Source), Moment> = BTreeMap::new();
        // What is known of a cleanup is evidence, which does not age.
        let measured = self.draft.now().targets().filter(|it| it.kind() != Kind::Cleanup);
        for target in measured {
            if let Some(measured) = target.facts().measured_at {
                let confirmed = self.draft.now().is_confirmed(target.ix());
                let at = if confirmed { now.max(measured.at) } else { measured.at };
                let first = oldest.entry((target.node_ix(), measured.by)).or_insert(at);
                *first = at.min(*first);
            }
        }
        let nodes = self.draft.now().nodes().len();
        for at in (0..nodes).filter_map(NodeIx::from_usize) {
            self.draft.change_node(at, |node| {
                node.oldest_fact = oldest.get(&(at, Source::Http)).copied();
                if let Some(disk) = &mut node.disk {
                    disk.oldest_fact = oldest.get(&(at, Source::Files)).copied();
                }
            });
        }
    }
}
