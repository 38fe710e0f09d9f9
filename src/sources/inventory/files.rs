//! Observations from a node's own files.
//!
//! Reads on blocking threads, and keeps the results of the last walk, so that the next one opens only
//! changed files.

use super::{
    CompactionFile, DbFile, DiskWalk, FoundFile, MapRead, Members, Observation, PartFile,
    ReadError, Stage,
};
use crate::{
    datadir::{
        self, HeaderValues, NodeDirectories, ReadProblem, RootError, WalkCache, WalkItem,
        WalkResult,
    },
    model::facts::{
        FactFlags, FactSource as MeasuredBy, Facts, Measurement, OptionalU64 as Number, Overhead,
    },
    text::Label,
};
use futures::{
    FutureExt as _, StreamExt as _,
    stream::{self, BoxStream},
};
use std::{
    num::NonZero,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
};
use tokio::{sync::mpsc, task, time::Instant};
use wall_clock::{Clock, Moment};

/// The maximum number of reading threads: more do not make a disk faster, and CouchDB needs it too.
const MAX_THREADS: usize = 4;

/// The maximum number of unhandled batches; a walk that gets further ahead waits.
const MAX_WAITING_BATCHES: usize = 4;

/// Reads the directories of one node.
#[derive(Clone, Debug)]
pub struct FilesSource {
    node: Arc<str>,
    roots: Arc<NodeDirectories>,
    clock: Clock,
    /// The results of the previous walk.
    known: Arc<Mutex<Arc<WalkCache>>>,
}

impl FilesSource {
    /// A source over the directories of `node`.
    pub fn new(node: &str, roots: NodeDirectories, clock: Clock) -> Self {
        Self { node: node.into(), roots: Arc::new(roots), clock, known: Arc::default() }
    }

    /// Walks the directories.
    pub(super) fn disk(self) -> BoxStream<'static, Observation> {
        let (batches, waiting) = mpsc::channel(MAX_WAITING_BATCHES);
        let node = Arc::clone(&self.node);
        let walking = task::spawn_blocking(move || self.walk(&batches));
        let batches_of_files = stream::unfold(waiting, |mut waiting| async {
            waiting.recv().await.map(|seen| (seen, waiting))
        });
        let ended = walking.map(move |ended| {
            // If the runtime shuts down, nothing receives the response.
            let disk = ended.unwrap_or_else(|_| Err(ReadError::of_file("", ReadProblem::Io)));
            Observation::DiskEnd { node, disk }
        });
        batches_of_files.chain(stream::once(ended)).boxed()
    }

    fn walk(&self, batches: &mpsc::Sender<Observation>) -> Result<DiskWalk, ReadError> {
        let began = Instant::now();
        let at = self.clock.now();
        let before = Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let take = |found: Vec<WalkItem>| {
            let files = found.into_iter().map(|found| FoundFile::of(found, at)).collect();
            let disk = Observation::Disk { node: Arc::clone(&self.node), files };
            batches.blocking_send(disk).is_ok()
        };
        let threads = thread::available_parallelism().map_or(1, NonZero::get).clamp(2, MAX_THREADS);
        let walked = datadir::walk(&self.roots, &before, threads, at, &take)
            .map_err(|why| unread_root(&self.roots.data, &why))?;
        let WalkResult { sums, is_complete: whole, cache: known } = walked;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        Ok(DiskWalk { sums, whole, took: began.elapsed(), volumes: self.roots.volumes() })
    }

    /// Substitutes for CouchDB's responses if there is no CouchDB: the one node, and no map.
    pub(super) fn alone(&self, stage: &Stage) -> BoxStream<'static, Observation> {
        let node = || vec![self.node.to_string()];
        let observations = match stage {
            Stage::Nodes => {
                let members = Members { expected: node(), connected: Vec::new() };
                vec![
                    Observation::Members(Ok(members)),
                    Observation::Reshard(Ok(Default::default())),
                ]
            }
            Stage::Map { .. } => vec![Observation::MapEnd(Ok(MapRead::None))],
            Stage::Splits => vec![Observation::Reshard(Ok(Default::default()))],
            Stage::Files { .. }
            | Stage::Strays { .. }
            | Stage::Disk
            | Stage::Shards { .. }
            | Stage::Views { .. }
            | Stage::Poll { .. }
            | Stage::Away { .. } => Vec::new(),
        };
        stream::iter(observations).boxed()
    }
}

impl FoundFile {
    /// An observation of a walk at this time.
    pub fn of(found: WalkItem, at: Moment) -> Self {
        match found {
            WalkItem::Db { shard, values: numbers, reported, is_same_file: same, problem } => {
                let facts = facts(&numbers, at);
                Self::Db(DbFile { shard, facts, reported, same, problem })
            }
            WalkItem::View { shard, signature, values: numbers, collators, problem } => {
                let facts = facts(&numbers, at);
                Self::View(PartFile { shard, signature, facts, collators, problem })
            }
            WalkItem::Compaction { shard, signature, bytes, modified_at: changed } => {
                let of_view = signature.is_some();
                Self::Compaction(CompactionFile { shard, of_view, bytes, changed })
            }
            WalkItem::Unread { path, problem } => Self::Unread(ReadError::of_file(&path, problem)),
        }
    }
}

fn facts(values: &HeaderValues, at: Moment) -> Facts {
    let facts = Facts {
        file_bytes: Number::new(values.file_bytes),
        active_bytes: values.active_bytes,
        external_bytes: values.external_bytes,
        update_seq: values.update_seq,
        compacted_seq: values.compacted_seq,
        docs: values.docs,
        deleted_docs: values.deleted_docs,
        purge_seq: values.purge_seq,
        overhead: Overhead {
            purge_seq: values.purge_seq,
            purges_limit: values.purges_limit.map(u64::from).into(),
            purge_bytes: values.purge_bytes,
            local_bytes: values.local_bytes,
        },
        measured_at: Some(Measurement { at, source: MeasuredBy::Files }),
        flags: FactFlags { needs_upgrade: values.needs_upgrade, ..FactFlags::default() },
        ..Facts::default()
    };
    facts.marked_from_files()
}

fn unread_root(root: &Path, RootError { problem, cause }: &RootError) -> ReadError {
    let next = if *problem == ReadProblem::Permission {
        "; run recliner as CouchDB's user, or grant it read access"
    } else {
        ""
    };
    let message = format!("cannot read {}: {cause}{next}", root.display());
    ReadError { reason: problem.label(), message, right: None }
}

impl ReadError {
    /// The error of a file that could not be read.
    pub(crate) fn of_file(path: &str, problem: ReadProblem) -> Self {
        let message = format!("{path}: {}", problem.explanation());
        Self { reason: problem.label(), message, right: None }
    }
}
