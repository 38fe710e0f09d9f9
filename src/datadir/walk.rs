//! The walk: every file of both directories, once, on a few threads and in bounded memory.
//!
//! One thread traverses the directories and distributes files in batches; the other threads read
//! them, and so does the first one when they are busy. Directory entries are streamed, so a
//! directory of a million files needs no more memory than one of ten.

use super::{
    DirectoryContent, FileMeaning, NodeDirectories, OtherFileSums, ReadProblem, RootError,
    WalkCache, WalkItem,
    entries::for_each_entry,
    file_meaning,
    open_file::size,
    read::{ExpectedContent, FileReader, FileReading},
    walk_cache::{self, CacheEntry},
};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, open, openat, statat},
    io::Errno,
};
use std::{
    ffi::{CStr, CString},
    fmt,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};
use wall_clock::Moment;

/// How long CouchDB may take to delete what it moved to `.delete`: a file system takes seconds to minutes
/// for a file of hundreds of gigabytes.
const RECENT_TRASH: Duration = Duration::from_secs(3_600);

/// Maximum depth below a directory. A database name has at most 238 bytes, half of them slashes.
const MAX_DEPTH: usize = 160;

const FILES_PER_BATCH: usize = 128;

/// Maximum number of directories that one batch keeps open: most index directories hold one file
/// each.
const MAX_OPEN_DIRECTORIES: usize = 32;

/// Queued batches for each reading thread.
const MAX_QUEUED_BATCHES: usize = 2;

/// Number of findings passed on at once.
const ITEMS_PER_HANDOVER: usize = 256;

/// The result of a walk.
#[derive(Debug)]
pub struct WalkResult {
    /// Bytes of files that are not targets.
    pub sums: OtherFileSums,
    /// Whether every directory was read: only then are missing files really gone.
    pub is_complete: bool,
    /// The cached readings for the next walk.
    pub cache: WalkCache,
}

/// Walks both directories on `threads` threads, at least one, and passes its findings to `take`
/// until `take` returns false. `now` is the start of the walk.
///
/// # Errors
///
/// If the data directory itself cannot be read; an unreadable view directory is reported like any
/// other problem.
pub fn walk(
    roots: &NodeDirectories,
    before: &WalkCache,
    threads: usize,
    now: Moment,
    take: &(dyn Fn(Vec<WalkItem>) -> bool + Sync),
) -> Result<WalkResult, RootError> {
    let data = open_root(&roots.data)?;
    let views = roots.views.as_deref().map(open_root);
    let place = |fd: &OwnedFd| fstat(fd).ok();
    let places = [place(&data), views.as_ref().and_then(|fd| place(fd.as_ref().ok()?))];
    let one_tree = match &places {
        [Some(one), Some(other)] => is_same_place(one, other),
        [one, other] => views.is_none() || (one.is_none() && other.is_none()),
    };
    let stop = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        let (helpers, running): (Vec<_>, Vec<_>) = (1..threads)
            .map(|_| {
                let (batches, waiting) = sync_channel(MAX_QUEUED_BATCHES);
                let stop = &stop;
                let worker = WalkWorker::new(before, take, stop, now);
                (batches, scope.spawn(move || worker.run(&waiting)))
            })
            .unzip();
        let mut walker = DirectoryWalker {
            worker_queues: helpers,
            next_worker: 0,
            batch: Vec::new(),
            directories: 0,
            buffers: Vec::new(),
            roots: places,
            is_complete: true,
            worker: WalkWorker::new(before, take, &stop, now),
        };
        let tree = if one_tree { DirectoryContent::Both } else { DirectoryContent::Databases };
        walker.walk_directory(&Arc::new(OpenDirectory { fd: data, path: Vec::new(), tree }), 0);
        match views {
            _ if one_tree => {}
            Some(Ok(fd)) => {
                walker.walk_directory(
                    &Arc::new(OpenDirectory {
                        fd,
                        path: Vec::new(),
                        tree: DirectoryContent::Views,
                    }),
                    0,
                );
            }
            Some(Err(why)) => walker.report_unread(b"the view directory", why.problem),
            None => {}
        }
        walker.dispatch_batch();
        let DirectoryWalker { worker_queues: helpers, is_complete: whole, worker, .. } = walker;
        drop(helpers);
        let mut parts = vec![worker.finish()];
        for helper in running {
            match helper.join() {
                Ok(part) => parts.push(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (parts, whole)
    });
    let (parts, whole) = ended;
    let (mut sums, mut entries) = (OtherFileSums::default(), Vec::new());
    entries.reserve_exact(parts.iter().map(|part| part.1.len()).sum());
    for (part, mut read) in parts {
        sums.add(&part);
        entries.append(&mut read);
    }
    let whole = whole && !stop.load(Ordering::Relaxed);
    Ok(WalkResult { sums, is_complete: whole, cache: WalkCache::from_entries(entries) })
}

/// Opens a root directory. Only here does a walk follow links, because a user named the path.
fn open_root(path: &Path) -> Result<OwnedFd, RootError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    open(path, flags, Mode::empty()).map_err(RootError::from)
}

/// Whether both are the same directory: device and inode identify it.
fn is_same_place(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

#[derive(Debug)]
struct OpenDirectory {
    fd: OwnedFd,
    /// Its path below the root, with a trailing slash; empty for the root itself.
    path: Vec<u8>,
    tree: DirectoryContent,
}

/// A file to be read.
#[derive(Debug)]
struct FileItem {
    dir: Arc<OpenDirectory>,
    name: CString,
}

#[derive(Debug)]
struct DirectoryWalker<'a> {
    worker_queues: Vec<SyncSender<Vec<FileItem>>>,
    next_worker: usize,
    batch: Vec<FileItem>,
    directories: usize,
    buffers: Vec<Vec<u8>>,
    /// Both roots: neither is walked as part of the other.
    roots: [Option<Stat>; 2],
    is_complete: bool,
    worker: WalkWorker<'a>,
}

impl DirectoryWalker<'_> {
    fn walk_directory(&mut self, dir: &Arc<OpenDirectory>, depth: usize) {
        if depth > MAX_DEPTH {
            self.report_unread(&dir.path, ReadProblem::TooDeep);
            return;
        }
        self.directories += 1;
        let mut buffer = self.buffers.pop().unwrap_or_default();
        let ended = for_each_entry(&dir.fd, &mut buffer, |name, kind| {
            self.take_entry(dir, depth, name, kind);
            match self.worker.stop.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if let Err(why) = ended {
            self.report_unread(&dir.path, why.into());
        }
        self.buffers.push(buffer);
        if self.directories >= MAX_OPEN_DIRECTORIES {
            self.dispatch_batch();
        }
    }

    fn take_entry(
        &mut self,
        dir: &Arc<OpenDirectory>,
        depth: usize,
        name: &CStr,
        mut kind: FileType,
    ) {
        if matches!(name.to_bytes(), b"." | b"..") {
            return;
        }
        if kind == FileType::Unknown {
            // Some file systems do not report the type.
            let Ok(stat) = statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        // Links may lead outside, and CouchDB only has regular files.
        if kind == FileType::RegularFile {
            let item = FileItem { dir: Arc::clone(dir), name: name.to_owned() };
            self.batch.push(item);
            if self.batch.len() >= FILES_PER_BATCH {
                self.dispatch_batch();
            }
        } else if kind == FileType::Directory {
            self.enter_directory(dir, name.to_owned(), depth);
        }
    }

    fn enter_directory(&mut self, parent: &Arc<OpenDirectory>, name: CString, depth: usize) {
        let mut path = parent.path.clone();
        path.extend_from_slice(name.to_bytes());
        path.push(b'/');
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        match openat(&parent.fd, &name, flags, Mode::empty()) {
            Ok(fd) => {
                // Only near the top: an extra call for each of a million directories would be
                // noticeable.
                if depth < 4 && self.is_root_directory(&fd) {
                    return;
                }
                self.walk_directory(
                    &Arc::new(OpenDirectory { fd, path, tree: parent.tree }),
                    depth + 1,
                );
            }
            // Deleted, or replaced by another kind of file.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(why) => self.report_unread(&path, why.into()),
        }
    }

    fn is_root_directory(&self, fd: &OwnedFd) -> bool {
        let [_, Some(_)] = self.roots else { return false };
        let is_root =
            |stat: &Stat| self.roots.iter().flatten().any(|root| is_same_place(root, stat));
        fstat(fd).is_ok_and(|stat| is_root(&stat))
    }

    fn report_unread(&mut self, path: &[u8], problem: ReadProblem) {
        self.is_complete = false;
        self.worker.report_unread(path, problem);
    }

    /// Passes the batch to a thread with queue space, or reads it on this one.
    fn dispatch_batch(&mut self) {
        self.directories = 0;
        let mut batch = std::mem::take(&mut self.batch);
        for _ in 0..self.worker_queues.len() {
            self.next_worker = (self.next_worker + 1) % self.worker_queues.len().max(1);
            let Some(helper) = self.worker_queues.get(self.next_worker) else { break };
            match helper.try_send(batch) {
                Ok(()) => return,
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => batch = back,
            }
        }
        self.worker.read_batch(&batch);
        batch.clear();
        self.batch = batch;
    }
}

/// Reads files; one instance for each thread.
struct WalkWorker<'a> {
    before: &'a WalkCache,
    take: &'a (dyn Fn(Vec<WalkItem>) -> bool + Sync),
    stop: &'a AtomicBool,
    /// When the walk began.
    now: Moment,
    reader: FileReader,
    found: Vec<WalkItem>,
    sums: OtherFileSums,
    entries: Vec<CacheEntry>,
    path: Vec<u8>,
}

impl fmt::Debug for WalkWorker<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WalkWorker").field("sums", &self.sums).finish_non_exhaustive()
    }
}

impl<'a> WalkWorker<'a> {
    fn new(
        before: &'a WalkCache,
        take: &'a (dyn Fn(Vec<WalkItem>) -> bool + Sync),
        stop: &'a AtomicBool,
        now: Moment,
    ) -> Self {
        Self {
            before,
            take,
            stop,
            now,
            reader: FileReader::new(),
            found: Vec::new(),
            sums: OtherFileSums::default(),
            entries: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Reads batches until the sender is dropped.
    fn run(mut self, waiting: &Receiver<Vec<FileItem>>) -> (OtherFileSums, Vec<CacheEntry>) {
        while let Ok(batch) = waiting.recv() {
            self.read_batch(&batch);
        }
        self.finish()
    }

    fn finish(mut self) -> (OtherFileSums, Vec<CacheEntry>) {
        self.pass_on_items();
        (self.sums, self.entries)
    }

    fn read_batch(&mut self, batch: &[FileItem]) {
        for item in batch {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.read_item(item);
            if self.found.len() >= ITEMS_PER_HANDOVER {
                self.pass_on_items();
            }
        }
    }

    fn pass_on_items(&mut self) {
        if !self.found.is_empty() && !(self.take)(std::mem::take(&mut self.found)) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn read_item(&mut self, item: &FileItem) {
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        path.extend_from_slice(&item.dir.path);
        path.extend_from_slice(item.name.to_bytes());
        self.sums.files += 1;
        let tree = item.dir.tree;
        match file_meaning(&path) {
            FileMeaning::Db { shard } if tree != DirectoryContent::Views => {
                if let Some(file) = self.read_cached(item, &path, ExpectedContent::Db) {
                    let FileReading {
                        values: numbers, reported, is_same_file: same, problem, ..
                    } = file;
                    let shard = shard.into();
                    self.found.push(WalkItem::Db {
                        shard,
                        values: numbers,
                        reported,
                        is_same_file: same,
                        problem,
                    });
                }
            }
            FileMeaning::View { shard, signature } if tree != DirectoryContent::Databases => {
                if let Some(file) = self.read_cached(item, &path, ExpectedContent::View(signature))
                {
                    let collators = file.collators.unwrap_or_else(|| self.reader.no_collators());
                    let (shard, numbers, problem) = (shard.into(), file.values, file.problem);
                    self.found.push(WalkItem::View {
                        shard,
                        signature,
                        values: numbers,
                        collators,
                        problem,
                    });
                }
            }
            FileMeaning::Compaction { shard } if tree != DirectoryContent::Views => {
                self.report_compaction(item, shard, None);
            }
            FileMeaning::ViewCompaction { shard, signature }
                if tree != DirectoryContent::Databases =>
            {
                self.report_compaction(item, shard, Some(signature));
            }
            FileMeaning::View { .. } | FileMeaning::ViewCompaction { .. } => {
                self.sums.misplaced += file_bytes(item);
            }
            FileMeaning::Trash => {
                let bytes = self.add_trash(item);
                if self.is_recent(item) {
                    self.sums.recent_trash += bytes;
                }
            }
            FileMeaning::Recoverable => self.sums.recoverable += self.add_trash(item),
            FileMeaning::Nouveau => self.sums.nouveau += file_bytes(item),
            FileMeaning::Clouseau => self.sums.clouseau += file_bytes(item),
            FileMeaning::Db { .. } | FileMeaning::Compaction { .. } | FileMeaning::Other => {
                self.sums.other += file_bytes(item);
            }
        }
        self.path = path;
    }

    /// Counts a file that CouchDB has deleted or set aside; returns its bytes.
    fn add_trash(&mut self, item: &FileItem) -> u64 {
        let bytes = file_bytes(item);
        self.sums.trash += bytes;
        let is_of_views = item.dir.tree == DirectoryContent::Views;
        self.sums.trash_of_views += if is_of_views { bytes } else { 0 };
        bytes
    }

    /// Whether a file in `.delete` was moved there recently; a move sets its change time.
    fn is_recent(&self, item: &FileItem) -> bool {
        let stat = statat(&item.dir.fd, &item.name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| {
            let moved = Moment::from_unix(u64::try_from(stat.st_ctime).unwrap_or_default());
            moved.age(self.now) < RECENT_TRASH
        })
    }

    fn read_cached(
        &mut self,
        item: &FileItem,
        path: &[u8],
        expected: ExpectedContent,
    ) -> Option<FileReading> {
        let key = walk_cache::path_key(path, item.dir.tree == DirectoryContent::Views);
        let before = self.before.get(key);
        let file = self.reader.read_file(&item.dir.fd, &item.name, expected, before)?;
        // An empty database file may be left by a stopped split; whether it is an error depends on the shard map.
        let is_empty_db = expected == ExpectedContent::Db && file.values.file_bytes == 0;
        let is_left = |problem: &ReadProblem| is_empty_db && *problem == ReadProblem::NoValidHeader;
        if let Some(problem) = file.problem.filter(|problem| !is_left(problem)) {
            self.report_unread(path, problem);
        }
        self.entries.push(CacheEntry { key, file: file.clone() });
        Some(file)
    }

    fn report_compaction(
        &mut self,
        item: &FileItem,
        shard: &str,
        signature: Option<couchdb_names::Signature>,
    ) {
        let Ok(stat) = statat(&item.dir.fd, &item.name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        self.found.push(WalkItem::Compaction {
            shard: shard.into(),
            signature,
            bytes: size(&stat),
            modified_at: Moment::from_unix(u64::try_from(stat.st_mtime).unwrap_or_default()),
        });
    }

    fn report_unread(&mut self, path: &[u8], problem: ReadProblem) {
        let path = String::from_utf8_lossy(path).into_owned();
        self.found.push(WalkItem::Unread { path, problem });
    }
}

/// A file's size; zero if it is gone.
fn file_bytes(item: &FileItem) -> u64 {
    let stat = statat(&item.dir.fd, &item.name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(0, |stat| size(&stat))
}
