//! An operator's orders over HTTP, and their responses.
//!
//! Owns only the types. The service receives the orders and passes each, with its [`Reply`], to the
//! task whose state it changes: the job state keeps suspensions and quarantine, the planner starts
//! and forgets, the scanner sweeps. Dropping a reply tells the client that recliner is stopping.

use crate::{
    advice::MuteOrder,
    model::{
        records::{JournalFailure, Mute, Suspension, SuspensionScope},
        target::{TargetId, TargetSelector},
    },
    plan::Refusal,
    serve::report::MissLine,
    table::TargetIx,
    text::Label,
};
use tokio::sync::oneshot;
use wall_clock::Moment;

/// The channel for the response to an order. The order is carried out even if nobody waits for the
/// response.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Denied>>;

/// An order with its response channel.
#[derive(Debug)]
pub enum Order {
    /// Reads the configuration again; the response is why that failed.
    Reload(oneshot::Sender<Result<(), String>>),
    /// Stops the process.
    Quit,
    /// Suspends starts in a scope.
    Suspend(Suspend, Reply<SuspendResult>),
    /// Ends suspensions.
    Resume(Resume, Reply<ResumeResult>),
    /// Compacts one target now.
    Compact(Compact, Reply<CompactResult>),
    /// Begins a sweep now, as smoosh's `enqueue_all` does.
    Rescan(Reply<RescanResult>),
    /// Empties queues.
    Flush(FlushScope, Reply<FlushResult>),
    /// Mutes advice, or ends that; the response is the mute in force.
    MuteAdvice(MuteOrder, Reply<Option<Mute>>),
    /// Takes targets out of quarantine.
    Release(Release, Reply<ReleaseResult>),
}

impl Order {
    /// Answers an order that this process cannot carry out.
    pub fn deny(self, why: Denied) {
        // The client may have disconnected.
        let _gone = match self {
            Self::Quit => true,
            Self::Reload(reply) => reply.send(Err(why.to_string())).is_err(),
            Self::Suspend(_, reply) => reply.send(Err(why)).is_err(),
            Self::Resume(_, reply) => reply.send(Err(why)).is_err(),
            Self::Compact(_, reply) => reply.send(Err(why)).is_err(),
            Self::Rescan(reply) => reply.send(Err(why)).is_err(),
            Self::MuteAdvice(_, reply) => reply.send(Err(why)).is_err(),
            Self::Flush(_, reply) => reply.send(Err(why)).is_err(),
            Self::Release(_, reply) => reply.send(Err(why)).is_err(),
        };
    }
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Denied {
    /// A name in the order does not exist, or the order does not apply to it.
    #[error("{0}")]
    Unknown(String),
    /// The target may not start now.
    #[error("{target} does not start ({}): {why}", refusal.reason.label())]
    Refused {
        /// The target.
        target: TargetId,
        /// The first refusal.
        refusal: Refusal,
        /// The refusal as a sentence.
        why: String,
        /// The request that would be sent, in advise mode.
        request: Option<String>,
    },
    /// No channel takes the target.
    #[error("no channel takes {target} ({}); --force compacts it anyway", misses_text(misses))]
    NotTaken {
        /// The target.
        target: TargetId,
        /// The misses of the channels of its kind, in their order.
        misses: Vec<MissLine>,
    },
    /// It was tried and failed, for example because the journal cannot be written or CouchDB refused.
    #[error("{0}")]
    Failed(String),
    /// The state of the previous process is not loaded yet, and the order would change it. Nothing of
    /// the order happens.
    #[error("not ordered, and nothing starts yet: {0}")]
    NotLoaded(JournalFailure),
    /// No task of this process handles such orders.
    #[error("{0}")]
    Unavailable(String),
}

/// Suspends starts in a scope. Running jobs continue: CouchDB offers no way to stop a running
/// compaction over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspend {
    /// The scope; its node and channel exist.
    pub scope: SuspensionScope,
    /// The operator's reason.
    pub why: Option<String>,
    /// Who ordered it, and from where.
    pub by: String,
}

/// The suspension is in the journal and active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendResult {
    /// Since when, by whom and why. For an existing suspension, the original time.
    pub suspension: Suspension,
    /// Whether it existed already; a new reason replaces the old one.
    pub already: bool,
    /// Compactions still running in the scope, whoever started them; `None` if unknown.
    pub running: Option<u64>,
}

/// Ends suspensions: every one for [`SuspensionScope::All`], otherwise only the one of this scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The scope; its node or channel may no longer exist.
    pub scope: SuspensionScope,
    /// Who ordered it, and from where.
    pub by: String,
}

/// The suspensions that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeResult {
    /// The suspensions that ended; empty if nothing was suspended.
    pub lifted: Vec<SuspensionScope>,
    /// The suspensions that are still active.
    pub remaining: Vec<SuspensionScope>,
}

/// Compacts one target before all others, through the same gates and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compact {
    /// The target.
    pub target: TargetId,
    /// Its position in the tables.
    pub ix: TargetIx,
    /// Whether it may start although no channel takes it because of its sizes, or although it rests
    /// after failures or a useless compaction. Never overrides a limit, a gate, the headroom or work in
    /// progress on it.
    pub force: bool,
    /// Who ordered it, and from where.
    pub by: String,
}

/// The compaction starts or waits.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactResult {
    /// The requests that will be sent, method and path; for a view that is compacted copy by copy, the
    /// first.
    pub requests: Vec<String>,
    /// What it waits for, with a sentence; `None` if it starts at once.
    pub waits: Option<(Refusal, String)>,
    /// Until when it waits.
    pub until: Moment,
}

/// The misses of channels as text.
fn misses_text(misses: &[MissLine]) -> String {
    let misses_text = |miss: &MissLine| format!("{}: {}", miss.channel, miss.says());
    misses.iter().map(misses_text).collect::<Vec<_>>().join("; ")
}

/// A sweep was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RescanResult {
    /// Whether it begins at once; otherwise it follows the running one.
    pub begins: bool,
}

/// Empties queues: their targets are forgotten until their facts change or the next sweep ends,
/// whichever is first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushScope {
    /// Only queues of this node.
    pub node: Option<String>,
    /// Only queues of this channel.
    pub channel: Option<String>,
}

/// The queues are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushResult {
    /// The number of removed targets.
    pub targets: u64,
}

/// Takes targets out of quarantine, and forgets their failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Those of the given targets that are in quarantine; [`Denied::Unknown`] if none is.
    Named {
        /// The targets.
        selector: TargetSelector,
        /// The operator's text.
        text: String,
    },
    /// All targets in quarantine.
    All,
}

/// The targets were released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseResult {
    /// The released targets.
    pub targets: Vec<TargetId>,
}
