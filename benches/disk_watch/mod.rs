//! Lists the files of databases from outside CouchDB.

use crate::stream::PREFIX;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The files of shards at one moment, by path: inode and size.
type Files = BTreeMap<PathBuf, (u64, u64)>;

/// All files of some directories at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// Shards of the databases that the bench writes to.
    pub(crate) files: Files,
    /// The number of files that running compactions write.
    pub(crate) unfinished: usize,
    /// Bytes of all allocated blocks.
    pub(crate) blocks: u64,
}

/// The effect of compactions, as visible in the files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rewritten {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Look {
    pub(crate) fn at(dirs: &[PathBuf]) -> Self {
        let mut look = Self::default();
        dirs.iter().for_each(|dir| look.add(dir));
        look
    }

    /// Adds a file or a directory. A file that disappears meanwhile is ignored.
    fn add(&mut self, path: &Path) {
        let Ok(meta) = path.symlink_metadata() else { return };
        self.blocks += meta.blocks() * 512;
        if meta.is_dir() {
            let inside = fs::read_dir(path).into_iter().flatten().flatten();
            inside.for_each(|entry| self.add(&entry.path()));
            return;
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let shard = name.starts_with(PREFIX) && path.iter().any(|part| part == "shards");
        if shard && name.contains(".compact") {
            self.unfinished += 1;
        } else if shard && name.ends_with(".couch") {
            self.files.insert(path.to_owned(), (meta.ino(), meta.len()));
        }
    }

    /// The bytes of all shards of one database.
    pub(crate) fn bytes_of(&self, database: &str) -> u64 {
        let begins = format!("{database}.");
        let own = |path: &Path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|it| it.starts_with(&begins))
        };
        self.files.iter().filter(|(path, _)| own(path)).map(|(_, (_, size))| size).sum()
    }

    /// The files that another file has replaced since an earlier listing: each was compacted.
    pub(crate) fn rewritten_since(&self, earlier: &Self) -> Rewritten {
        let mut rewritten = Rewritten::default();
        for (path, (inode, size)) in &self.files {
            if earlier.files.get(path).is_some_and(|(before, _)| before != inode) {
                rewritten.files += 1;
                rewritten.bytes += size;
            }
        }
        rewritten
    }
}
