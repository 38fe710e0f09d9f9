//! The totals over all readings of the files.

use crate::{couch::Size, writer::Written};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// A file whose size CouchDB reports.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// The path that CouchDB is asked for.
    pub(crate) path: String,
    pub(crate) view: bool,
}

/// Compactions of one kind of files.
#[derive(Clone, Copy, Debug, Default)]
struct Compactions {
    count: u64,
    freed: u64,
    rewritten: u64,
}

/// The totals so far.
#[derive(Debug)]
pub(crate) struct Tally {
    files: Vec<File>,
    last: BTreeMap<usize, Size>,
    dbs: Compactions,
    views: Compactions,
    /// The number of readings between the first write and the last, and their sums.
    looks: u64,
    wasted: u64,
    peak_files: u64,
    peak_blocks: Option<u64>,
}

/// Bytes of the blocks of everything below these directories; `None` without directories.
pub(crate) fn blocks(dirs: &[PathBuf]) -> Option<u64> {
    (!dirs.is_empty()).then(|| dirs.iter().map(|dir| below(dir)).sum())
}

/// Files that disappear meanwhile are ignored.
fn below(path: &Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else { return 0 };
    let inside = std::fs::read_dir(path).into_iter().flatten().flatten();
    meta.blocks() * 512 + inside.map(|entry| below(&entry.path())).sum::<u64>()
}

impl Tally {
    pub(crate) const fn new(files: Vec<File>) -> Self {
        let none = Compactions { count: 0, freed: 0, rewritten: 0 };
        Self {
            files,
            last: BTreeMap::new(),
            dbs: none,
            views: none,
            looks: 0,
            wasted: 0,
            peak_files: 0,
            peak_blocks: None,
        }
    }

    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// Adds one reading of all files.
    pub(crate) fn add(&mut self, sizes: BTreeMap<usize, Size>, blocks: Option<u64>, writing: bool) {
        for (at, now) in sizes {
            let Some(before) = self.last.insert(at, now) else { continue };
            let view = self.files.get(at).is_some_and(|file| file.view);
            let compacted =
                if view { now.file < before.file } else { now.compacted != before.compacted };
            if compacted {
                let of = if view { &mut self.views } else { &mut self.dbs };
                of.count += 1;
                of.freed += before.file.saturating_sub(now.file);
                of.rewritten += now.file;
            }
        }
        if writing {
            self.looks += 1;
            self.wasted += self.wasted_now();
        }
        self.peak_files = self.peak_files.max(self.sum(|size| size.file));
        self.peak_blocks = self.peak_blocks.max(blocks);
    }

    fn sum(&self, of: impl Fn(&Size) -> u64) -> u64 {
        self.last.values().map(of).sum()
    }

    fn wasted_now(&self) -> u64 {
        self.sum(|size| size.file.saturating_sub(size.active))
    }

    /// The results as a table.
    pub(crate) fn table(&self, label: &str, stream: &Written) -> String {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let counts = |of: Compactions| {
            let Compactions { count, freed, rewritten } = of;
            format!("{count}, freed {}, rewrote {}", mib(freed), mib(rewritten))
        };
        let freed = self.dbs.freed + self.views.freed;
        let rewritten = self.dbs.rewritten + self.views.rewritten;
        let lines = [
            ("documents written, refused", format!("{}, {}", stream.docs, stream.refused)),
            ("the stream was late by at most", format!("{:.1} s", stream.late.as_secs_f64())),
            ("compactions of shard copies", counts(self.dbs)),
            ("compactions of view copies", counts(self.views)),
            ("bytes freed", mib(freed)),
            ("bytes rewritten", mib(rewritten)),
            (
                "bytes freed per byte rewritten",
                format!("{:.2}", freed as f64 / rewritten.max(1) as f64),
            ),
            ("bytes wasted, mean", mib(self.wasted / self.looks.max(1))),
            ("bytes wasted, at the end", mib(self.wasted_now())),
            ("all files, peak", mib(self.peak_files)),
            ("all files, at the end", mib(self.sum(|size| size.file))),
            ("active bytes, at the end", mib(self.sum(|size| size.active))),
            ("blocks on disk, peak", self.peak_blocks.map_or_else(|| "not asked".to_owned(), mib)),
        ];
        let mut table = format!("| {label} | |\n|---|---|");
        for (what, value) in lines {
            // Writing to a string does not fail.
            let _written = write!(table, "\n| {what} | {value} |");
        }
        table
    }
}
