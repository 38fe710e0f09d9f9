//! Observations from a node's own files.
//!
//! Reads on blocking threads, and keeps the results of the last walk, so that the next one opens only
//! changed files.

use super::{
    CompactionFile, DbFile, DiskWalk, FoundFile, HttpSource, MapRead, Members, Observation,
    PartFile, ReadError, Stage,
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
    future::ready,
    num::NonZero,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task,
    time::{Instant, timeout_at},
};
use wall_clock::{Clock, Moment};

/// The maximum number of reading threads: more do not make a disk faster, and CouchDB needs it too.
const MAX_THREADS: usize = 4;

/// The maximum number of unprocessed batches; a walk that is further ahead waits.
const MAX_WAITING_BATCHES: usize = 4;

/// The maximum number of shards whose UUIDs are compared with CouchDB's in each sweep. If the directory
/// is another node's, not every file exists on this node.
const MAX_UUID_REQUESTS: usize = 8;

/// The number of files that show that a directory is another node's, if no UUID is equal. One file alone
/// may just have been replaced.
const MAX_DIFFERING_UUIDS: u32 = 3;

/// How long a walk waits for CouchDB's UUIDs.
const UUIDS_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the directories of one node.
#[derive(Clone, Debug)]
pub struct FilesSource {
    node: Arc<str>,
    roots: Arc<NodeDirectories>,
    clock: Clock,
    /// The results of the previous walk.
    known: Arc<Mutex<Arc<WalkCache>>>,
    /// Whether CouchDB's last answers showed that the files are another node's.
    is_foreign: Arc<AtomicBool>,
}

impl FilesSource {
    /// A source over the directories of `node`.
    pub fn new(node: &str, roots: NodeDirectories, clock: Clock) -> Self {
        let (node, roots) = (node.into(), Arc::new(roots));
        Self { node, roots, clock, known: Arc::default(), is_foreign: Arc::default() }
    }

    /// Walks the directories, unless CouchDB's answers show that they are another node's.
    pub(super) fn disk(self, http: Option<HttpSource>) -> BoxStream<'static, Observation> {
        let observations = async move {
            if let Some(http) = http {
                let is_foreign = self.compare_uuids(http).await;
                if is_foreign.unwrap_or_else(|| self.is_foreign.load(Ordering::Relaxed)) {
                    self.is_foreign.store(true, Ordering::Relaxed);
                    let (node, problem) = (Arc::clone(&self.node), self.foreign_problem());
                    let foreign = Observation::ForeignDirectory { node, problem };
                    return stream::once(ready(foreign)).boxed();
                }
                self.is_foreign.store(false, Ordering::Relaxed);
            }
            self.walked()
        };
        stream::once(observations).flatten().boxed()
    }

    async fn compare_uuids(&self, http: HttpSource) -> Option<bool> {
        let roots = Arc::clone(&self.roots);
        let read = move || datadir::some_file_uuids(&roots.data, MAX_UUID_REQUESTS);
        let files = task::spawn_blocking(read).await.ok()?;
        let reported = |db: String| {
            let (http, node) = (http.clone(), Arc::clone(&self.node));
            async move { http.file_uuid(&node, &db).await }
        };
        are_foreign(files, reported).await
    }

    fn foreign_problem(&self) -> String {
        let (node, directory) = (&self.node, self.roots.data.display());
        let written = datadir::directory_owner(&self.roots.data).filter(|owner| **owner != **node);
        let written =
            written.map(|owner| format!(" ({owner} wrote them last)")).unwrap_or_default();
        format!(
            "the files in {directory} are not {node}'s{written}: CouchDB has different files with the same names, so recliner uses none of these; name the data directory of {node}"
        )
    }

    fn walked(self) -> BoxStream<'static, Observation> {
        let (batches, waiting) = mpsc::channel(MAX_WAITING_BATCHES);
        let node = Arc::clone(&self.node);
        let walking = task::spawn_blocking(move || self.walk(&batches));
        let batches_of_files = stream::unfold(waiting, |mut waiting| async {
            waiting.recv().await.map(|seen| (seen, waiting))
        });
        let ended = walking.map(move |ended| {
            // If the runtime is shutting down, nothing receives this result.
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

/// Whether files are another node's: CouchDB reports other UUIDs for files of the same names. `None` if
/// no two UUIDs could be compared.
async fn are_foreign<F: Future<Output = Option<String>>>(
    files: Vec<(String, String)>,
    reported: impl Fn(String) -> F,
) -> Option<bool> {
    let (deadline, mut differing) = (Instant::now() + UUIDS_TIMEOUT, 0);
    for (db, uuid) in files {
        match timeout_at(deadline, reported(db)).await {
            // One equal UUID proves that the directory is this node's.
            Ok(Some(reported)) if reported == uuid => return Some(false),
            Ok(Some(_)) => differing += 1,
            Ok(None) => {}
            Err(_) => break,
        }
        if differing >= MAX_DIFFERING_UUIDS {
            break;
        }
    }
    (differing > 0).then_some(true)
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
        file_id: values.file_id,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// The verdict if CouchDB reports these UUIDs for the files, and the number of requests.
    async fn judged(reported: &[(&str, Option<&str>)]) -> (Option<bool>, usize) {
        let files = reported.iter().map(|(db, _)| ((*db).to_owned(), "own".to_owned())).collect();
        let asked = Cell::new(0);
        let verdict = are_foreign(files, |db| {
            asked.set(asked.get() + 1);
            async move {
                let (_, uuid) = reported.iter().find(|(name, _)| *name == db)?;
                if *uuid == Some("never") {
                    std::future::pending::<()>().await;
                }
                uuid.map(ToOwned::to_owned)
            }
        });
        (verdict.await, asked.get())
    }

    #[tokio::test(start_paused = true)]
    async fn directory_is_foreign_only_if_every_compared_uuid_differs() {
        let (own, other, none) = (Some("own"), Some("other"), None);
        assert_eq!(judged(&[("a", own), ("b", other)]).await, (Some(false), 1));
        assert_eq!(judged(&[("a", other), ("b", none), ("c", own)]).await, (Some(false), 3));
        let many = [("a", other), ("b", other), ("c", other), ("d", own)];
        assert_eq!(judged(&many).await, (Some(true), 3), "three are enough");
        assert_eq!(judged(&[("a", none), ("_dbs", other)]).await, (Some(true), 2), "no shards");
        assert_eq!(judged(&[("a", none), ("_dbs", none)]).await, (None, 2), "nothing was compared");
        assert_eq!(judged(&[]).await, (None, 0));
        let hangs = [("a", other), ("b", Some("never")), ("c", own)];
        assert_eq!(judged(&hangs).await, (Some(true), 2));
    }
}
