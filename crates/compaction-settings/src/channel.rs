//! One channel of smoosh as it works, with every default filled in.

use crate::Opening;

/// What a channel compacts.
#[derive(strum::Display)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelKind {
    /// Database shards.
    Db,
    /// View indexes.
    View,
    /// Index files that no design document uses any more: they are deleted.
    Cleanup,
}

/// How a channel ranks the files it takes, by its word in CouchDB's settings.
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// File bytes over live bytes.
    Ratio,
    /// File bytes minus live bytes.
    Slack,
    /// One for each file that needs an upgrade of its format or collation.
    Upgrade,
    /// One for each database with stale index files.
    Cleanup,
}

/// One channel in effect.
///
/// The bounds are those of `smoosh_server:get_priority/4`: a file needs strictly more than a
/// minimum and at most a maximum. A file without live bytes gets `min_priority` itself.
#[derive(Clone, Debug, PartialEq)]
pub struct SmooshChannel {
    /// Its name in CouchDB; empty where the list of channels has an empty name.
    pub name: String,
    /// What it compacts.
    pub kind: ChannelKind,
    /// How it ranks files. `None` if smoosh has no score for any file with live bytes; then
    /// `max_priority` equals `min_priority`.
    pub priority: Option<Priority>,
    /// Strict lower bound of the priority: a ratio, or bytes of slack. `infinity` is 4 EiB, and
    /// the float `0.0` is 1e-15, because only the integer `0` means "no" to smoosh.
    pub min_priority: f64,
    /// Inclusive upper bound of the priority; infinity if there is none.
    pub max_priority: f64,
    /// Strict lower bound of the file's size, in bytes; `infinity` is 4 EiB.
    pub min_size: u64,
    /// Inclusive upper bound of the file's size, in bytes.
    pub max_size: Option<u64>,
    /// Minimum number of changes that a database needs since its last compaction.
    pub min_changes: u64,
    /// Maximum number of files that wait in it.
    pub capacity: usize,
    /// Maximum number of its jobs at a time; 0 if it never starts any.
    pub concurrency: usize,
    /// When it starts jobs, by a UTC clock.
    pub opens: Opening,
    /// Whether it suspends running jobs while it is closed.
    pub strict_window: bool,
    /// Why it takes files and never starts a job, if it never does.
    pub never_starts: Option<&'static str>,
    /// Whether it takes nothing but files without live bytes.
    pub only_empty_files: bool,
    /// Whether a file without live bytes that comes to it is lost: neither taken nor passed on to
    /// the next channel.
    pub drops_empty_files: bool,
    /// Whether `min_priority` is the default.
    pub(crate) has_default_min_priority: bool,
}

impl SmooshChannel {
    /// The section of its settings, `smoosh.ratio_dbs`.
    #[must_use]
    pub fn section(&self) -> String {
        section_of(&self.name)
    }

    /// Its name for a sentence.
    pub(crate) fn shown(&self) -> &str {
        if self.name.is_empty() { "the channel without a name" } else { &self.name }
    }
}

/// The section of a channel's settings.
pub(crate) fn section_of(name: &str) -> String {
    format!("smoosh.{name}")
}
