//! The state of a shard copy, from the shard map and the files on disk: ok, stray, missing or moving.

use super::{CopyAt, MapEntry};
use crate::model::target::TargetState;
use couchdb_names::Range;
use std::collections::BTreeMap;

/// A copy that is or should be on a node's disk.
#[derive(Clone, Copy, Debug)]
pub struct Copy<'a> {
    /// The clustered database.
    pub db: &'a str,
    /// The range of the copy.
    pub range: Range,
    /// The node whose disk it is or should be on.
    pub node: &'a str,
}

/// The unfinished jobs of `_reshard`, by (database, range) of their sources, with whether each one
/// runs. CouchDB resumes a stopped or failed job from its checkpoint, so the job's incomplete
/// targets still belong to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reshard {
    sources: BTreeMap<(String, Range), bool>,
    is_unread: bool,
}

impl Reshard {
    /// The jobs if they could not be requested.
    pub const fn unread() -> Self {
        Self { sources: BTreeMap::new(), is_unread: true }
    }

    /// The same jobs, marked as possibly incomplete.
    #[must_use]
    pub fn into_unread(self) -> Self {
        Self { is_unread: true, ..self }
    }

    /// Whether the jobs could not be requested, so that there may be others.
    pub const fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Adds a job by its source shard, with whether it runs.
    pub fn add(&mut self, db: &str, source: Range, runs: bool) {
        *self.sources.entry((db.to_owned(), source)).or_default() |= runs;
    }

    /// Whether there are no jobs.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether a copy is a source or a target of a job; the targets are parts of a source's range.
    pub fn covers(&self, copy: Copy<'_>) -> bool {
        self.jobs_of(copy).next().is_some()
    }

    /// Whether a copy is a source or a target of a running job.
    pub fn is_splitting(&self, copy: Copy<'_>) -> bool {
        self.jobs_of(copy).any(|runs| runs)
    }

    fn jobs_of(&self, copy: Copy<'_>) -> impl Iterator<Item = bool> {
        let first = (copy.db.to_owned(), Range { from: 0, to: 0 });
        self.sources
            .range(first..)
            .take_while(move |((db, _), _)| db == copy.db)
            .filter(move |((_, source), _)| {
                source.contains(copy.range.from) && source.contains(copy.range.to)
            })
            .map(|(_, runs)| *runs)
    }
}

/// The state of a copy found where the map places it.
pub fn state_of_placed(copy: Copy<'_>, reshard: &Reshard) -> TargetState {
    if reshard.is_splitting(copy) { TargetState::Resharding } else { TargetState::Ok }
}

/// The state of a file on a node where the map does not place it.
///
/// `entry` is the map's entry of the same database instance, if there is one; `absent` returns whether
/// a copy is missing on disk.
pub fn state_of_stray(
    copy: Copy<'_>,
    entry: Option<&MapEntry>,
    reshard: &Reshard,
    absent: impl Fn(&CopyAt) -> bool,
) -> TargetState {
    let moving = || {
        entry.is_some_and(|entry| {
            let at = CopyAt { range: copy.range, node: copy.node.to_owned() };
            entry.leaving.contains(&at)
                && entry.copies.iter().any(|other| other.range == copy.range && absent(other))
        })
    };
    if reshard.covers(copy) || moving() {
        TargetState::Resharding
    } else if reshard.is_unread() {
        TargetState::Unknown
    } else {
        TargetState::Orphan
    }
}

/// The state of a copy in the map that is missing on its node's disk.
pub fn state_of_absent(copy: Copy<'_>, entry: &MapEntry, reshard: &Reshard) -> TargetState {
    let at = CopyAt { range: copy.range, node: copy.node.to_owned() };
    if reshard.covers(copy) || entry.arriving.contains(&at) {
        TargetState::Resharding
    } else if reshard.is_unread() {
        TargetState::Unknown
    } else {
        TargetState::Missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: Range = Range { from: 0, to: 0x7fff_ffff };
    const ALL: Range = Range { from: 0, to: u32::MAX };

    fn at(range: Range, node: &str) -> CopyAt {
        CopyAt { range, node: node.to_owned() }
    }

    fn entry() -> MapEntry {
        MapEntry {
            db: "db".into(),
            suffix: ".1".into(),
            copies: [at(LOW, "a"), at(LOW, "c")].into(),
            arriving: [at(LOW, "c")].into(),
            leaving: [at(LOW, "b")].into(),
        }
    }

    #[test]
    fn moving_shard_is_neither_orphan_nor_missing() {
        let none = Reshard::default();
        let mut splitting = Reshard::default();
        splitting.add("db", ALL, true);
        let mut stopped = Reshard::default();
        stopped.add("db", ALL, false);
        let unread = Reshard::unread();
        let copy = |node| Copy { db: "db", range: LOW, node };
        let entry = entry();
        let c_absent = |copy: &CopyAt| copy.node == "c";
        for (case, state, expected) in [
            (
                "old copy, new one still filling",
                state_of_stray(copy("b"), Some(&entry), &none, c_absent),
                TargetState::Resharding,
            ),
            (
                "old copy, new one complete",
                state_of_stray(copy("b"), Some(&entry), &none, |_| false),
                TargetState::Orphan,
            ),
            (
                "a copy nobody planned",
                state_of_stray(copy("d"), Some(&entry), &none, c_absent),
                TargetState::Orphan,
            ),
            (
                "of a deleted database",
                state_of_stray(copy("b"), None, &none, |_| true),
                TargetState::Orphan,
            ),
            (
                "a half of a split",
                state_of_stray(copy("a"), Some(&entry), &splitting, |_| false),
                TargetState::Resharding,
            ),
            (
                "a half of a split that stopped",
                state_of_stray(copy("a"), None, &stopped, |_| false),
                TargetState::Resharding,
            ),
            (
                "the source of a split that stopped",
                state_of_placed(copy("a"), &stopped),
                TargetState::Ok,
            ),
            (
                "a stray file while the splits are unknown",
                state_of_stray(copy("b"), None, &unread, |_| false),
                TargetState::Unknown,
            ),
            (
                "a missing copy while the splits are unknown",
                state_of_absent(copy("a"), &entry, &unread),
                TargetState::Unknown,
            ),
            (
                "a new copy whose file does not exist yet",
                state_of_absent(copy("c"), &entry, &none),
                TargetState::Resharding,
            ),
            ("a missing old copy", state_of_absent(copy("a"), &entry, &none), TargetState::Missing),
            (
                "a missing copy during a split",
                state_of_absent(copy("a"), &entry, &splitting),
                TargetState::Resharding,
            ),
        ] {
            assert_eq!(state, expected, "{case}");
        }
        let other = Copy { db: "db2", range: LOW, node: "a" };
        assert_eq!(state_of_stray(other, None, &splitting, |_| false), TargetState::Orphan);
    }
}
