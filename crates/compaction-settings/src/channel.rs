//! A smoosh channel as it works, with all defaults filled in.

use crate::Opening;

/// The kind of targets that a channel compacts.
#[derive(strum::Display)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelKind {
    /// Database shards.
    Db,
    /// View indexes.
    View,
    /// Index files that no design document uses any more, which are deleted.
    Cleanup,
}

/// Why a channel takes files but never starts a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NeverStarts {
    /// No job may run, which is CouchDB's own way to pause a channel.
    Concurrency,
    /// `concurrency` is not a number.
    InvalidConcurrency,
    /// `capacity` is not a number above 0.
    Capacity,
    /// `from` and `to` leave no time.
    Window,
    /// `min_priority` is infinity, since CouchDB 3.3.
    InfiniteMinimum,
}

impl NeverStarts {
    /// The cause, as a clause.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::Concurrency => "its concurrency is below 1",
            Self::InvalidConcurrency => "its concurrency makes it crash",
            Self::Capacity => "its capacity makes it crash",
            Self::Window => "its window never opens",
            Self::InfiniteMinimum => {
                "its min_priority is infinity, which fails on every target that it takes"
            }
        }
    }

    /// The keys of the channel's section that cause it.
    #[must_use]
    pub const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Concurrency | Self::InvalidConcurrency => &["concurrency"],
            Self::Capacity => &["capacity"],
            Self::Window => &["from", "to"],
            Self::InfiniteMinimum => &["min_priority"],
        }
    }
}

/// How a channel ranks the files it takes, named as in CouchDB's settings.
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// File bytes over live bytes.
    Ratio,
    /// File bytes minus live bytes.
    Slack,
    /// The same rank for every file that needs an upgrade of its format or collation.
    Upgrade,
    /// The same rank for every database with stale index files.
    Cleanup,
}

/// A channel in effect.
///
/// The bounds are those of `smoosh_server:get_priority/4`: a file needs strictly more than a
/// minimum and at most a maximum. A file without live bytes gets `min_priority` itself.
#[derive(Clone, Debug, PartialEq)]
pub struct SmooshChannel {
    /// The channel's name in CouchDB; empty if the list of channels contains an empty name.
    pub name: String,
    /// The kind of targets that the channel compacts.
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
    /// Maximum number of files in the channel's queue.
    pub capacity: usize,
    /// Maximum number of jobs at a time; 0 if the channel never starts any.
    pub concurrency: usize,
    /// When the channel starts jobs, in UTC.
    pub opens: Opening,
    /// Whether the channel suspends running jobs while its window is closed.
    pub strict_window: bool,
    /// Why the channel takes files but never starts a job, if this is so.
    pub never_starts: Option<NeverStarts>,
    /// Whether the channel takes only files without live bytes.
    pub only_empty_files: bool,
    /// Whether files without live bytes that reach the channel are lost: neither taken nor passed
    /// on to the next channel.
    pub drops_empty_files: bool,
    /// Whether `min_priority` has its default.
    pub(crate) has_default_min_priority: bool,
}

impl SmooshChannel {
    /// The section of the channel's settings, such as `smoosh.ratio_dbs`.
    pub fn section(&self) -> String {
        section_of(&self.name)
    }

    /// The channel's name within a sentence.
    pub(crate) fn shown(&self) -> &str {
        if self.name.is_empty() { "the channel without a name" } else { &self.name }
    }
}

/// The section of a channel's settings.
pub(crate) fn section_of(name: &str) -> String {
    format!("smoosh.{name}")
}
