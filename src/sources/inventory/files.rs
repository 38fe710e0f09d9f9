//! Observations from a node's own files.
//!
//! Reads on threads that may block, and holds what the last walk read, so that the next one
//! opens only what changed.

use super::{
    CompactionFile, DbSeen, DiskSeen, FileSeen, MapRead, Members, Observation, PartSeen, Stage,
    Unread,
};
use crate::{
    datadir::{self, Found, Known, Numbers, Problem, Roots, Walked},
    model::facts::{Facts, Flags, Known as Number, Measured, Source as MeasuredBy},
};
use futures::{
    FutureExt as _, StreamExt as _,
    stream::{self, BoxStream},
};
use std::{
    num::NonZero,
    sync::{Arc, Mutex, PoisonError},
    thread,
};
use tokio::{sync::mpsc, task, time::Instant};
use wall_clock::{Clock, Moment};

/// Threads that read at most; a disk that is asked by more is no faster, and CouchDB's own.
const MAX_THREADS: usize = 4;

/// Batches that wait to be taken: a walk that is further ahead waits itself.
const MAX_WAITING_BATCHES: usize = 4;

/// Reads the directories of one node.
#[derive(Clone, Debug)]
pub struct FilesSource {
    node: Arc<str>,
    roots: Arc<Roots>,
    clock: Clock,
    /// What the walk before read.
    known: Arc<Mutex<Arc<Known>>>,
}

impl FilesSource {
    /// A source over the directories of `node`.
    #[must_use]
    pub fn new(node: &str, roots: Roots, clock: Clock) -> Self {
        Self { node: node.into(), roots: Arc::new(roots), clock, known: Arc::default() }
    }

    /// Walks the directories.
    pub(super) fn disk(self) -> BoxStream<'static, Observation> {
        let (batches, waiting) = mpsc::channel(MAX_WAITING_BATCHES);
        let node = Arc::clone(&self.node);
        let walking = task::spawn_blocking(move || self.walk(&batches));
        let found = stream::unfold(waiting, |mut waiting| async {
            waiting.recv().await.map(|seen| (seen, waiting))
        });
        let ended = walking.map(move |ended| {
            // Where the runtime ends, nothing receives the answer.
            let disk = ended.unwrap_or_else(|_| Err(unread("", Problem::Io)));
            Observation::DiskEnd { node, disk }
        });
        found.chain(stream::once(ended)).boxed()
    }

    fn walk(&self, batches: &mpsc::Sender<Observation>) -> Result<DiskSeen, Unread> {
        let began = Instant::now();
        let at = self.clock.now();
        let before = Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let take = |found: Vec<Found>| {
            let files = found.into_iter().map(|found| FileSeen::of(found, at)).collect();
            let disk = Observation::Disk { node: Arc::clone(&self.node), files };
            batches.blocking_send(disk).is_ok()
        };
        let threads = thread::available_parallelism().map_or(1, NonZero::get).clamp(2, MAX_THREADS);
        let walked = datadir::walk(&self.roots, &before, threads, &take)
            .map_err(|problem| unread(&self.roots.data.display().to_string(), problem))?;
        let Walked { sums, whole, known } = walked;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        Ok(DiskSeen { sums, whole, took: began.elapsed(), volumes: self.roots.volumes() })
    }

    /// Replaces CouchDB's answers where there is none to ask: the one node, and no map.
    pub(super) fn alone(&self, stage: &Stage) -> BoxStream<'static, Observation> {
        let node = || vec![self.node.to_string()];
        let seen = match stage {
            Stage::Nodes => {
                let members = Members { expected: node(), connected: Vec::new() };
                vec![
                    Observation::Members(Ok(members)),
                    Observation::Reshard(Ok(Default::default())),
                ]
            }
            Stage::Map => vec![Observation::MapEnd(Ok(MapRead::None))],
            Stage::Splits => vec![Observation::Reshard(Ok(Default::default()))],
            Stage::Files { .. }
            | Stage::Strays { .. }
            | Stage::Disk
            | Stage::Shards { .. }
            | Stage::Views { .. }
            | Stage::Poll { .. }
            | Stage::Away { .. } => Vec::new(),
        };
        stream::iter(seen).boxed()
    }
}

impl FileSeen {
    /// What was found by a walk at this moment.
    #[must_use]
    pub fn of(found: Found, at: Moment) -> Self {
        match found {
            Found::Db { shard, numbers, reported, same, problem } => {
                let facts = facts(&numbers, at);
                Self::Db(DbSeen { shard, facts, reported, same, problem })
            }
            Found::View { shard, signature, numbers, collators, problem } => {
                let facts = facts(&numbers, at);
                Self::View(PartSeen { shard, signature, facts, collators, problem })
            }
            Found::Compaction { shard, signature, bytes, changed } => {
                let of_view = signature.is_some();
                Self::Compaction(CompactionFile { shard, of_view, bytes, changed })
            }
            Found::Unread { path, problem } => Self::Unread(unread(&path, problem)),
        }
    }
}

fn facts(numbers: &Numbers, at: Moment) -> Facts {
    let Numbers { file, active, external, update_seq, compacted_seq, docs, deleted_docs, .. } =
        *numbers;
    let facts = Facts {
        file: Number::new(file),
        active,
        external,
        update_seq,
        compacted_seq,
        docs,
        deleted_docs,
        measured_at: Some(Measured { at, by: MeasuredBy::Files }),
        flags: Flags { needs_upgrade: numbers.needs_upgrade, ..Flags::default() },
        ..Facts::default()
    };
    facts.all_by_files()
}

fn unread(path: &str, problem: Problem) -> Unread {
    Unread { reason: problem.label(), message: format!("{path}: {}", problem.says()), right: None }
}
