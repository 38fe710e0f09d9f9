//! The state of recliner: what it is, what it sees, and what it cannot see.

use super::{NodeLine, SuspensionLine, words, words::Word};
use crate::{act::takeover::Takeovers, feeds::feed_client, scan};
use couchdb_client::EntryStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wall_clock::Moment;

/// What recliner is, sees, and cannot see. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The version of recliner.
    pub version: String,
    /// The commit it was built from, or `unknown`.
    pub revision: String,
    /// The date of that commit in UTC, or `unknown`.
    pub date: String,
    /// The path of the book on this server.
    pub book: String,
    /// Whether the cluster is simulated.
    pub simulated: bool,
    /// What that means, where it is.
    pub simulation: Option<String>,
    /// The mode in force.
    #[schemars(with = "words::Mode")]
    pub mode: Word,
    /// Whether one pass over the nodes that answer has ended, and the journal is this cluster's.
    pub ready: bool,
    /// When the targets were read.
    pub generated_at: String,
    /// How each URL of `couchdb.urls` answers.
    pub couchdb: Vec<EntryLine>,
    /// The nodes.
    pub nodes: Vec<NodeLine>,
    /// What operators suspended.
    pub suspensions: Vec<SuspensionLine>,
    /// The sweep that runs, and the last one.
    pub sweep: Sweep,
    /// What could not be read since the start, by node and reason.
    pub errors: Vec<ReadErrors>,
    /// The last thing that could not be read, in a sentence.
    pub last_error: Option<String>,
    /// Why nothing can be read at all.
    pub problem: Option<String>,
    /// What kept nearly all shards from being read in the last sweep.
    #[serde(default)]
    pub unread_shards: Option<String>,
    /// Why the journal cannot be used: it is not loaded yet, cannot be written, or belongs to another
    /// cluster. Nothing starts meanwhile.
    pub journal_problem: Option<String>,
    /// What the login may not read, in sentences.
    pub missing_rights: Vec<String>,
    /// CouchDB's feeds.
    pub feeds: Feeds,
    /// What is taken over from smoosh, node by node.
    pub smoosh: Vec<TakeoverLine>,
    /// The sidecars under `peers` that were asked.
    #[serde(default)]
    pub peers: Vec<PeerLine>,
    /// The configuration.
    pub config: ConfigLine,
}

/// A sidecar that reads the files of some nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeerLine {
    /// Its URL.
    pub url: String,
    /// The nodes whose files it reads, as it said last.
    pub nodes: Vec<String>,
    /// When it last answered.
    pub last_answer: Option<String>,
    /// Why it did not answer when it was last asked; null if it did.
    pub problem: Option<String>,
}

impl PeerLine {
    /// Every sidecar that was polled.
    #[must_use]
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

/// How a URL of CouchDB answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EntryLine {
    /// The URL; it never holds a password.
    pub url: String,
    /// Whether a server answered there when it was last asked.
    pub up: Option<bool>,
    /// Why it did not.
    pub problem: Option<String>,
}

impl From<&EntryStatus> for EntryLine {
    fn from(entry: &EntryStatus) -> Self {
        Self { url: entry.url.as_str().to_owned(), up: entry.up, problem: entry.why.clone() }
    }
}

/// The sweep that runs, and the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// How many sweeps ended.
    pub ended: u64,
    /// When the sweep that runs began.
    pub running_since: Option<String>,
    /// How many targets it has read.
    pub done: Option<usize>,
    /// How many it has to read.
    pub total: Option<usize>,
    /// Where the last sweep had the facts of shards from.
    pub shards: SweptShards,
    /// When the last sweep ended.
    pub last_end: Option<String>,
    /// When a sweep was last complete.
    pub last_success: Option<String>,
    /// How long the last sweep took.
    pub last_duration_seconds: Option<f64>,
}

/// Shards of one sweep, by where their facts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweptShards {
    /// CouchDB was asked.
    pub asked: u64,
    /// CouchDB was not asked, because the headers were read and say the same.
    pub spared: u64,
    /// CouchDB was not asked, because the feeds name what changes.
    pub followed: u64,
}

impl From<&scan::ScanStatus> for Sweep {
    fn from(status: &scan::ScanStatus) -> Self {
        Self {
            ended: status.sweeps,
            running_since: status.progress.map(|progress| progress.since.rfc3339()),
            done: status.progress.map(|progress| progress.done),
            total: status.progress.and_then(|progress| progress.total),
            shards: SweptShards {
                asked: status.shards.asked,
                spared: status.shards.covered,
                followed: status.shards.followed,
            },
            last_end: status.last_end.map(Moment::rfc3339),
            last_success: status.last_success.map(Moment::rfc3339),
            last_duration_seconds: status.last_duration.map(|took| took.as_secs_f64()),
        }
    }
}

/// How often something on a node could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadErrors {
    /// The node, or `_cluster`.
    pub node: String,
    /// Why.
    pub reason: Word,
    /// How many times.
    pub count: u64,
}

impl ReadErrors {
    /// Every read that failed since the start, counted by node and reason.
    #[must_use]
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

/// CouchDB's feeds, as far as they are followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Feeds {
    /// Since when nothing that happened to a database was missed; null while something may be.
    pub followed_since: Option<String>,
    /// When the last event came.
    pub last_event: Option<String>,
    /// Events that wait to be written to the journal.
    pub pending_events: usize,
    /// The feeds; empty if none are followed.
    pub list: Vec<FeedLine>,
}

/// One of CouchDB's feeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeedLine {
    /// Its name in CouchDB.
    pub feed: String,
    /// Whether it is open and has caught up.
    pub connected: bool,
    /// Whether the cluster does not have it.
    pub absent: bool,
    /// Since when it missed nothing.
    pub followed_since: Option<String>,
    /// The sequence from which it goes on.
    pub seq: Option<String>,
    /// The node that is asked, where it is one.
    pub node: Option<String>,
    /// How often it went back in time.
    pub rewinds: u64,
    /// How often it broke off or could not be opened.
    pub failures: u64,
    /// What is wrong with it.
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

/// What is taken over from the smoosh of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakeoverLine {
    /// The node.
    pub node: String,
    /// Channels of smoosh that are stopped, so that recliner acts in their place.
    pub taken_over: Vec<String>,
    /// Channels that should be stopped and are not.
    pub not_taken_over: Vec<String>,
    /// What an operator should know, in sentences.
    pub findings: Vec<String>,
    /// Why the node could not be read, or changed.
    pub problem: Option<String>,
}

impl TakeoverLine {
    /// Every node whose smoosh was checked.
    #[must_use]
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

/// The configuration that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigLine {
    /// When it took effect.
    pub loaded_at: String,
    /// Whether the last reload took effect.
    pub last_reload_successful: bool,
    /// Keys whose new value needs a restart.
    pub needs_restart: Vec<String>,
    /// Why the newest file of users and certificates is not in force, if it is not.
    pub web_problem: Option<String>,
}

/// The configuration in force, in the form of `recliner.yml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Configuration(serde_json::Map<String, serde_json::Value>);
