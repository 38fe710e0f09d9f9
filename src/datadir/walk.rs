//! The walk: every file of both directories, once, on a few threads and in bounded memory.
//!
//! One thread traverses the directories and distributes files in batches; the other threads read
//! them, and so does the first one when they are busy. Directory entries are streamed, so a
//! directory of a million files needs no more memory than one of ten.

use super::{
    Found, Known, Meaning, Problem, Roots, Sums, Tree,
    known::{self, Entry},
    meaning,
    opened::size,
    read::{Expected, File, Reader},
};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, fstat, open, openat, statat},
    io::Errno,
};
use std::{
    ffi::CString,
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
};
use wall_clock::Moment;

/// Maximum depth below a directory. A database name has at most 238 bytes, half of them slashes.
const DEEPEST: usize = 160;

/// Files in a batch.
const BATCH: usize = 128;

/// Maximum number of directories that one batch keeps open: most index directories hold one file
/// each.
const DIRECTORIES: usize = 32;

/// Queued batches for each reading thread.
const WAITING: usize = 2;

/// Findings that are passed on at once.
const FOUND: usize = 256;

/// The buffer for a directory's entries.
const ENTRIES: usize = 16 << 10;

/// The result of a walk.
#[derive(Debug)]
pub struct Walked {
    /// Bytes of files that are not targets.
    pub sums: Sums,
    /// Whether every directory was read: only then are missing files really gone.
    pub whole: bool,
    /// The cached readings for the next walk.
    pub known: Known,
}

/// Walks both directories on `threads` threads, at least one, and passes its findings to `take`
/// until that returns false.
///
/// # Errors
///
/// If the data directory itself cannot be read; an unreadable view directory is reported like any
/// other problem.
pub fn walk(
    roots: &Roots,
    before: &Known,
    threads: usize,
    take: &(dyn Fn(Vec<Found>) -> bool + Sync),
) -> Result<Walked, Problem> {
    let data = root(&roots.data)?;
    let views = roots.views.as_deref().map(root);
    let place = |fd: &OwnedFd| fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let places = [place(&data), views.as_ref().and_then(|fd| place(fd.as_ref().ok()?))];
    let one_tree = views.is_none() || places[0] == places[1];
    let stop = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        let (helpers, running): (Vec<_>, Vec<_>) = (1..threads)
            .map(|_| {
                let (batches, waiting) = sync_channel(WAITING);
                let stop = &stop;
                let hands = Hands::new(before, take, stop);
                (batches, scope.spawn(move || hands.read(&waiting)))
            })
            .unzip();
        let mut walker = Walker {
            helpers,
            next: 0,
            batch: Vec::new(),
            directories: 0,
            buffers: Vec::new(),
            roots: places,
            whole: true,
            hands: Hands::new(before, take, &stop),
        };
        let tree = if one_tree { Tree::Both } else { Tree::Databases };
        walker.directory(&Arc::new(Dir { fd: data, path: Vec::new(), tree }), 0);
        match views {
            _ if one_tree => {}
            Some(Ok(fd)) => {
                walker.directory(&Arc::new(Dir { fd, path: Vec::new(), tree: Tree::Views }), 0);
            }
            Some(Err(problem)) => walker.unread(b"the view directory", problem),
            None => {}
        }
        walker.deal();
        let Walker { helpers, whole, hands, .. } = walker;
        drop(helpers);
        let mut parts = vec![hands.ended()];
        for helper in running {
            match helper.join() {
                Ok(part) => parts.push(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (parts, whole)
    });
    let (parts, whole) = ended;
    let (mut sums, mut entries) = (Sums::default(), Vec::new());
    entries.reserve_exact(parts.iter().map(|part| part.1.len()).sum());
    for (part, mut read) in parts {
        sums.add(&part);
        entries.append(&mut read);
    }
    let whole = whole && !stop.load(Ordering::Relaxed);
    Ok(Walked { sums, whole, known: Known::of(entries) })
}

/// Opens a root directory. Only here are links followed, because a user named the path.
fn root(path: &Path) -> Result<OwnedFd, Problem> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    open(path, flags, Mode::empty()).map_err(Problem::from)
}

/// An open directory.
#[derive(Debug)]
struct Dir {
    fd: OwnedFd,
    /// Its path below the root, with a trailing slash; empty for the root itself.
    path: Vec<u8>,
    tree: Tree,
}

/// A file to be read.
#[derive(Debug)]
struct Item {
    dir: Arc<Dir>,
    name: CString,
}

/// Traverses the directories.
#[derive(Debug)]
struct Walker<'a> {
    helpers: Vec<SyncSender<Vec<Item>>>,
    next: usize,
    batch: Vec<Item>,
    directories: usize,
    buffers: Vec<Vec<u8>>,
    /// Device and inode of both roots: neither is walked as part of the other.
    roots: [Option<(u64, u64)>; 2],
    whole: bool,
    hands: Hands<'a>,
}

impl Walker<'_> {
    fn directory(&mut self, dir: &Arc<Dir>, depth: usize) {
        if depth > DEEPEST {
            self.unread(&dir.path, Problem::TooDeep);
            return;
        }
        self.directories += 1;
        let mut buffer = self.buffers.pop().unwrap_or_else(|| Vec::with_capacity(ENTRIES));
        let mut entries = RawDir::new(&dir.fd, buffer.spare_capacity_mut());
        loop {
            let entry = match entries.next() {
                None => break,
                Some(Ok(entry)) => entry,
                // Deleted meanwhile: it has no more entries.
                Some(Err(Errno::NOENT)) => break,
                Some(Err(why)) => {
                    self.unread(&dir.path, why.into());
                    break;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // Some file systems do not report the type.
                let Ok(stat) = statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                kind = FileType::from_raw_mode(stat.st_mode);
            }
            // Links may lead outside, and CouchDB only has regular files.
            if kind == FileType::RegularFile {
                let item = Item { dir: Arc::clone(dir), name: name.to_owned() };
                self.batch.push(item);
                if self.batch.len() >= BATCH {
                    self.deal();
                }
            } else if kind == FileType::Directory {
                self.enter(dir, name.to_owned(), depth);
            }
            if self.hands.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        buffer.clear();
        self.buffers.push(buffer);
        if self.directories >= DIRECTORIES {
            self.deal();
        }
    }

    fn enter(&mut self, parent: &Arc<Dir>, name: CString, depth: usize) {
        let mut path = parent.path.clone();
        path.extend_from_slice(name.to_bytes());
        path.push(b'/');
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        match openat(&parent.fd, &name, flags, Mode::empty()) {
            Ok(fd) => {
                // Only near the top: an extra call for each of a million directories would be
                // noticeable.
                if depth < 4 && self.is_root(&fd) {
                    return;
                }
                self.directory(&Arc::new(Dir { fd, path, tree: parent.tree }), depth + 1);
            }
            // Deleted, or replaced by another kind of file.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(why) => self.unread(&path, why.into()),
        }
    }

    fn is_root(&self, fd: &OwnedFd) -> bool {
        let [_, Some(_)] = self.roots else { return false };
        fstat(fd).is_ok_and(|stat| self.roots.contains(&Some((stat.st_dev, stat.st_ino))))
    }

    fn unread(&mut self, path: &[u8], problem: Problem) {
        self.whole = false;
        self.hands.unread(path, problem);
    }

    /// Passes the batch to a thread with a free slot, or reads it on this one.
    fn deal(&mut self) {
        self.directories = 0;
        let mut batch = std::mem::take(&mut self.batch);
        for _ in 0..self.helpers.len() {
            self.next = (self.next + 1) % self.helpers.len().max(1);
            let Some(helper) = self.helpers.get(self.next) else { break };
            match helper.try_send(batch) {
                Ok(()) => return,
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => batch = back,
            }
        }
        self.hands.batch(&batch);
        batch.clear();
        self.batch = batch;
    }
}

/// Reads files; one instance for each thread.
struct Hands<'a> {
    before: &'a Known,
    take: &'a (dyn Fn(Vec<Found>) -> bool + Sync),
    stop: &'a AtomicBool,
    reader: Reader,
    found: Vec<Found>,
    sums: Sums,
    entries: Vec<Entry>,
    path: Vec<u8>,
}

impl fmt::Debug for Hands<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Hands").field("sums", &self.sums).finish_non_exhaustive()
    }
}

impl<'a> Hands<'a> {
    fn new(
        before: &'a Known,
        take: &'a (dyn Fn(Vec<Found>) -> bool + Sync),
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            before,
            take,
            stop,
            reader: Reader::new(),
            found: Vec::new(),
            sums: Sums::default(),
            entries: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Reads batches until the sender is dropped.
    fn read(mut self, waiting: &Receiver<Vec<Item>>) -> (Sums, Vec<Entry>) {
        while let Ok(batch) = waiting.recv() {
            self.batch(&batch);
        }
        self.ended()
    }

    fn ended(mut self) -> (Sums, Vec<Entry>) {
        self.hand_over();
        (self.sums, self.entries)
    }

    fn batch(&mut self, batch: &[Item]) {
        for item in batch {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.item(item);
            if self.found.len() >= FOUND {
                self.hand_over();
            }
        }
    }

    fn hand_over(&mut self) {
        if !self.found.is_empty() && !(self.take)(std::mem::take(&mut self.found)) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn item(&mut self, item: &Item) {
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        path.extend_from_slice(&item.dir.path);
        path.extend_from_slice(item.name.to_bytes());
        self.sums.files += 1;
        let tree = item.dir.tree;
        match meaning(&path) {
            Meaning::Db { shard } if tree != Tree::Views => {
                if let Some(file) = self.file(item, &path, Expected::Db) {
                    let File { numbers, reported, same, problem, .. } = file;
                    let shard = shard.into();
                    self.found.push(Found::Db { shard, numbers, reported, same, problem });
                }
            }
            Meaning::View { shard, signature } if tree != Tree::Databases => {
                if let Some(file) = self.file(item, &path, Expected::View(signature)) {
                    let collators = file.collators.unwrap_or_else(|| self.reader.no_collators());
                    let (shard, numbers, problem) = (shard.into(), file.numbers, file.problem);
                    self.found.push(Found::View { shard, signature, numbers, collators, problem });
                }
            }
            Meaning::Compaction { shard } if tree != Tree::Views => {
                self.compaction(item, shard, None);
            }
            Meaning::ViewCompaction { shard, signature } if tree != Tree::Databases => {
                self.compaction(item, shard, Some(signature));
            }
            Meaning::View { .. } | Meaning::ViewCompaction { .. } => {
                self.sums.misplaced += bytes(item);
            }
            Meaning::Trash => {
                let bytes = bytes(item);
                self.sums.trash += bytes;
                self.sums.trash_of_views += if tree == Tree::Views { bytes } else { 0 };
            }
            Meaning::Nouveau => self.sums.nouveau += bytes(item),
            Meaning::Clouseau => self.sums.clouseau += bytes(item),
            Meaning::Db { .. } | Meaning::Compaction { .. } | Meaning::Other => {
                self.sums.other += bytes(item);
            }
        }
        self.path = path;
    }

    fn file(&mut self, item: &Item, path: &[u8], expected: Expected) -> Option<File> {
        let key = known::key(path, item.dir.tree == Tree::Views);
        let before = self.before.get(key);
        let file = self.reader.file(&item.dir.fd, &item.name, expected, before)?;
        if let Some(problem) = file.problem {
            self.unread(path, problem);
        }
        self.entries.push(Entry { key, file: file.clone() });
        Some(file)
    }

    fn compaction(
        &mut self,
        item: &Item,
        shard: &str,
        signature: Option<couchdb_names::Signature>,
    ) {
        let Ok(stat) = statat(&item.dir.fd, &item.name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        self.found.push(Found::Compaction {
            shard: shard.into(),
            signature,
            bytes: size(&stat),
            changed: Moment::from_unix(u64::try_from(stat.st_mtime).unwrap_or_default()),
        });
    }

    fn unread(&mut self, path: &[u8], problem: Problem) {
        let path = String::from_utf8_lossy(path).into_owned();
        self.found.push(Found::Unread { path, problem });
    }
}

/// A file's size; zero if it is gone.
fn bytes(item: &Item) -> u64 {
    let stat = statat(&item.dir.fd, &item.name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(0, |stat| size(&stat))
}
