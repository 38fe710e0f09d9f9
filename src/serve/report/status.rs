//! The state of recliner: what it is, what it sees, and what it cannot see.

use super::{NodeLine, SharedLimits, SuspensionLine, vocabulary, vocabulary::Word};
use crate::{
    act::takeover::Takeovers,
    feeds::feed_client,
    fleet::Overview,
    scan,
    text::{counted, size::format_size_short},
};
use couchdb_client::EntryStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wall_clock::Moment;

/// The state of recliner: what it sees, and what it cannot read. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// recliner's version.
    pub version: String,
    /// The commit that recliner was built from, or `unknown`.
    pub revision: String,
    /// The date of that commit in UTC, or `unknown`.
    pub date: String,
    /// The path of the book on this server.
    pub book: String,
    /// Whether the cluster is simulated.
    pub simulated: bool,
    /// What is simulated, as a sentence; null if nothing is.
    pub simulation: Option<String>,
    /// The results of the preceding week in the simulation, under each program; empty if nothing is simulated.
    #[serde(default)]
    pub simulated_weeks: Vec<SimulatedWeek>,
    /// The mode in force.
    #[schemars(with = "vocabulary::Mode")]
    pub mode: Word,
    /// Whether the first sweep over the nodes that answer has ended, and the journal belongs to this cluster.
    pub ready: bool,
    /// When the targets were read.
    pub generated_at: String,
    /// The state of each URL of `couchdb.urls`.
    pub couchdb: Vec<EntryLine>,
    /// The nodes.
    pub nodes: Vec<NodeLine>,
    /// The suspensions in force.
    pub suspensions: Vec<SuspensionLine>,
    /// The running sweep and the last one.
    pub sweep: Sweep,
    /// Failed reads since the start, by node and reason.
    pub errors: Vec<ReadErrors>,
    /// The last failed read, in a sentence.
    pub last_error: Option<String>,
    /// When the last failed read was observed; it stays here after a recovery.
    #[serde(default)]
    pub last_error_at: Option<String>,
    /// Why nothing can be read at all; null if something can.
    pub problem: Option<String>,
    /// Why many shards could not be read in the last sweep; null if they could.
    pub unread_shards: Option<String>,
    /// Which few shards of the shard map had no file in the last sweep; null if all had one.
    pub absent_shards: Option<String>,
    /// Why the journal cannot be used: it is not loaded yet, cannot be written, or belongs to another cluster.
    /// Until then nothing starts.
    pub journal_problem: Option<String>,
    /// What the CouchDB user is not allowed to read, in sentences.
    pub missing_rights: Vec<String>,
    /// The state of CouchDB's feeds.
    pub feeds: Feeds,
    /// The takeover of smoosh, by node.
    pub smoosh: Vec<TakeoverLine>,
    /// The sidecars under `peers` that were asked.
    #[serde(default)]
    pub peers: Vec<PeerLine>,
    /// Limits that several clusters share; null if this recliner has no share of any.
    #[serde(default)]
    pub shared_limits: Option<SharedLimits>,
    /// The state of the configuration.
    pub config: ConfigLine,
    /// An overview of the whole cluster; `/api/v1/fleet` collects it.
    pub overview: Option<Overview>,
}

impl Status {
    /// Who starts compactions, in a sentence.
    pub fn who_compacts(&self) -> String {
        if self.mode != "enforce" {
            return "recliner only advises: smoosh and people start compactions.".to_owned();
        }
        let stopped = self.smoosh.iter().filter(|line| !line.taken_over.is_empty()).count();
        match (stopped, self.smoosh.len()) {
            (0, _) => "recliner starts compactions, beside smoosh.".to_owned(),
            (all, nodes) if all == nodes => {
                "recliner starts compactions; it has stopped smoosh's channels on all nodes."
                    .to_owned()
            }
            (some, nodes) => format!(
                "recliner starts compactions; it has stopped smoosh's channels on {some} of {nodes} nodes."
            ),
        }
    }
}

/// The results of a simulated week under one program's compactions, from the same start and with the same writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SimulatedWeek {
    /// The program: `recliner` or `smoosh`.
    pub by: String,
    /// Files that were compacted; each copy, and each file of a view, counts separately.
    pub compactions: u64,
    /// Compactions that freed less than a twentieth of their file.
    pub futile: u64,
    /// Bytes that compactions wrote.
    pub rewritten_bytes: u64,
    /// Bytes that compactions freed.
    pub freed_bytes: u64,
    /// Bytes that compactions would still free at the end.
    pub reclaimable_bytes: u64,
    /// The most bytes that any disk held at one time.
    pub peak_disk_bytes: u64,
}

impl SimulatedWeek {
    /// The week in a sentence.
    #[must_use]
    pub fn says(&self) -> String {
        format!(
            "{}, {} of them for almost nothing: wrote {}, freed {}; {} still reclaimable",
            counted(self.compactions, "file compacted", "files compacted"),
            self.futile,
            format_size_short(self.rewritten_bytes),
            format_size_short(self.freed_bytes),
            format_size_short(self.reclaimable_bytes)
        )
    }
}

/// A sidecar that reads the files of some nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeerLine {
    /// The sidecar's URL.
    pub url: String,
    /// The nodes whose files the sidecar reads, according to its last answer.
    pub nodes: Vec<String>,
    /// When the sidecar last answered.
    pub last_answer: Option<String>,
    /// Why the sidecar did not answer when it was last asked; null if it did.
    pub problem: Option<String>,
}

impl PeerLine {
    /// Every sidecar that was polled.
    pub fn all(status: &scan::ScanStatus) -> Vec<Self> {
        let line = |(url, peer): (&Arc<str>, &scan::PeerStatus)| Self {
            url: url.to_string(),
            nodes: peer.nodes.iter().map(ToString::to_string).collect(),
            last_answer: peer.last_answer.map(Moment::rfc3339),
            problem: peer.problem.clone(),
        };
        status.peers.iter().map(line).collect()
    }
}

/// The state of one URL of CouchDB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EntryLine {
    /// The URL, without a password.
    pub url: String,
    /// Whether a server answered there when it was last asked; null if it was not asked yet.
    pub up: Option<bool>,
    /// Why no server answered; null if one did.
    pub problem: Option<String>,
}

impl From<&EntryStatus> for EntryLine {
    fn from(entry: &EntryStatus) -> Self {
        Self { url: entry.url.as_str().to_owned(), up: entry.up, problem: entry.why.clone() }
    }
}

/// The running sweep and the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// Number of sweeps that have ended.
    pub ended: u64,
    /// When the running sweep began; null if none runs.
    pub running_since: Option<String>,
    /// Number of targets that the running sweep has read.
    pub done: Option<usize>,
    /// Number of targets that the running sweep has to read.
    pub total: Option<usize>,
    /// Where the facts of shards came from in the last sweep.
    pub shards: scan::SweptShards,
    /// When the last sweep ended.
    pub last_end: Option<String>,
    /// When a sweep was last complete.
    pub last_success: Option<String>,
    /// Duration of the last sweep, in seconds.
    pub last_duration_seconds: Option<f64>,
}

impl From<&scan::ScanStatus> for Sweep {
    fn from(status: &scan::ScanStatus) -> Self {
        Self {
            ended: status.sweeps,
            running_since: status.progress.map(|progress| progress.since.rfc3339()),
            done: status.progress.map(|progress| progress.done),
            total: status.progress.and_then(|progress| progress.total),
            shards: status.shards,
            last_end: status.last_end.map(Moment::rfc3339),
            last_success: status.last_success.map(Moment::rfc3339),
            last_duration_seconds: status.last_duration.map(|took| took.as_secs_f64()),
        }
    }
}

/// Number of failed reads on one node, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadErrors {
    /// The node, or `_cluster`.
    pub node: String,
    /// Why the reads failed.
    pub reason: Word,
    /// Number of failed reads.
    pub count: u64,
}

impl ReadErrors {
    /// Every read that failed since the start, counted by node and reason.
    pub fn all(status: &scan::ScanStatus) -> Vec<Self> {
        let errors = status.errors.iter();
        let line = |((node, reason), count): (&(_, &'static str), &u64)| Self {
            node: AsRef::<str>::as_ref(node).to_owned(),
            reason: Word::Borrowed(reason),
            count: *count,
        };
        errors.map(line).collect()
    }
}

/// The state of CouchDB's feeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Feeds {
    /// Since when no event of a database was missed; null while some may be.
    pub followed_since: Option<String>,
    /// When the last event arrived.
    pub last_event: Option<String>,
    /// Number of events that wait to be written to the journal.
    pub pending_events: usize,
    /// The feeds; empty if none is followed.
    pub list: Vec<FeedLine>,
}

/// One of CouchDB's feeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeedLine {
    /// The feed's name in CouchDB.
    pub feed: String,
    /// Whether the connection is open and the feed has caught up.
    pub connected: bool,
    /// Whether the cluster does not offer the feed.
    pub absent: bool,
    /// Since when the feed missed no event.
    pub followed_since: Option<String>,
    /// The sequence from which the feed continues.
    pub seq: Option<String>,
    /// The node that is asked; null unless it is a single one.
    pub node: Option<String>,
    /// How often the feed went back to earlier events.
    pub rewinds: u64,
    /// How often the connection broke or could not be opened.
    pub failures: u64,
    /// What is wrong with the feed; null if nothing is.
    pub problem: Option<String>,
}

impl From<&feed_client::FeedClientStatus> for Feeds {
    fn from(status: &feed_client::FeedClientStatus) -> Self {
        let list = status.feeds.iter().map(|(name, feed)| FeedLine {
            feed: (*name).to_owned(),
            connected: feed.connected,
            absent: feed.absent,
            followed_since: feed.followed_since.map(Moment::rfc3339),
            seq: feed.seq.clone(),
            node: feed.node.as_deref().map(str::to_owned),
            rewinds: feed.rewinds,
            failures: feed.failures,
            problem: feed.problem.clone(),
        });
        Self {
            followed_since: status.followed_since.map(Moment::rfc3339),
            last_event: status.last_event_at.map(Moment::rfc3339),
            pending_events: status.pending_events,
            list: list.collect(),
        }
    }
}

/// The takeover of smoosh on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakeoverLine {
    /// The node.
    pub node: String,
    /// Channels of smoosh that are stopped because recliner does their work.
    pub taken_over: Vec<String>,
    /// Channels that should be stopped but are not.
    pub not_taken_over: Vec<String>,
    /// What an operator should know, in sentences.
    pub findings: Vec<String>,
    /// Why the node's settings could not be read or changed; null if they could.
    pub problem: Option<String>,
}

impl TakeoverLine {
    /// Every node whose smoosh was checked.
    pub fn all(takeovers: &Takeovers) -> Vec<Self> {
        let line = |(node, state): (&String, &crate::act::takeover::NodeTakeover)| Self {
            node: node.clone(),
            taken_over: state.taken_over.iter().cloned().collect(),
            not_taken_over: state.not_taken_over.keys().cloned().collect(),
            findings: state.findings.clone(),
            problem: state.problem.clone(),
        };
        takeovers.nodes.iter().map(line).collect()
    }
}

/// The state of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigLine {
    /// When the configuration in force was loaded.
    pub loaded_at: String,
    /// Whether the last reload succeeded.
    pub last_reload_successful: bool,
    /// Keys whose new value takes effect only after a restart.
    pub needs_restart: Vec<String>,
    /// Why the changed `--web.config.file` is not in force; null if it is.
    pub web_problem: Option<String>,
}

/// The configuration in force, in the form of `recliner.yml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Configuration(serde_json::Map<String, serde_json::Value>);
