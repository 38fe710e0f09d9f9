//! What an operator may order over HTTP, and what is answered.
//!
//! Owns the types alone. The service holds the other end of the channel and hands each order on to
//! the task whose state it changes, with the [`Reply`] that comes along: the follower keeps
//! suspensions and quarantine, the planner starts and forgets, the scanner sweeps. A reply
//! that is dropped tells the client that recliner is stopping.

use crate::{
    model::{
        records::{Suspension, SuspensionScope},
        target::{TargetId, TargetSelector},
    },
    plan::Refusal,
    serve::report::MissLine,
    table::TargetIx,
};
use tokio::sync::oneshot;
use wall_clock::Moment;

/// Where the answer to an order goes. Nobody may wait for it any more; the order counts all
/// the same.
pub type Reply<T> = oneshot::Sender<Result<T, Denied>>;

/// An order with the way back.
#[derive(Debug)]
pub enum Order {
    /// Read the configuration again; answers with why not.
    Reload(oneshot::Sender<Result<(), String>>),
    /// Stop.
    Quit,
    /// Start nothing in a scope.
    Suspend(Suspend, Reply<Suspended>),
    /// Take that back.
    Resume(Resume, Reply<Resumed>),
    /// Compact one target now.
    Compact(Compact, Reply<Compacting>),
    /// Begin a sweep now, as smoosh's `enqueue_all` does.
    Rescan(Reply<Rescanning>),
    /// Empty queues.
    Flush(Flush, Reply<Flushed>),
    /// Take targets out of quarantine.
    Release(Release, Reply<Released>),
}

impl Order {
    /// Answers an order that nobody here can carry out.
    pub fn deny(self, why: Denied) {
        // The client may have gone.
        let _gone = match self {
            Self::Quit => true,
            Self::Reload(reply) => reply.send(Err(why.to_string())).is_err(),
            Self::Suspend(_, reply) => reply.send(Err(why)).is_err(),
            Self::Resume(_, reply) => reply.send(Err(why)).is_err(),
            Self::Compact(_, reply) => reply.send(Err(why)).is_err(),
            Self::Rescan(reply) => reply.send(Err(why)).is_err(),
            Self::Flush(_, reply) => reply.send(Err(why)).is_err(),
            Self::Release(_, reply) => reply.send(Err(why)).is_err(),
        };
    }
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Denied {
    /// What it names is not there, or is not as the order takes it to be.
    #[error("{0}")]
    Unknown(String),
    /// The target may not start now.
    #[error("{target} does not start ({}): {why}", refusal.reason.label())]
    Refused {
        /// The target.
        target: TargetId,
        /// What is in its way, the first in order.
        refusal: Refusal,
        /// The same in a sentence.
        why: String,
        /// What would be sent, where only advice is given.
        request: Option<String>,
    },
    /// No channel takes the target.
    #[error("no channel takes {target} ({}); --force compacts it anyway", said(misses))]
    NotTaken {
        /// The target.
        target: TargetId,
        /// Why not, in the order of the channels of its kind.
        misses: Vec<MissLine>,
    },
    /// It was tried and failed, as where the journal cannot be written or CouchDB said no.
    #[error("{0}")]
    Failed(String),
    /// Nothing in this process does such a thing.
    #[error("{0}")]
    Unavailable(String),
}

/// Start nothing in a scope, until it is taken back. What runs goes on: CouchDB offers
/// no way to stop a running compaction over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspend {
    /// What is suspended; its node and channel exist.
    pub scope: SuspensionScope,
    /// What the operator gave as the reason.
    pub why: Option<String>,
    /// Who ordered it, and from where.
    pub by: String,
}

/// A suspension is in the journal and in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspended {
    /// Since when, by whom and why: of one that was there already, since before.
    pub suspension: Suspension,
    /// Whether it was there already; its reason is then the new one, if one was given.
    pub already: bool,
    /// Compactions that run on in the scope, whoever started them; absent when unknown.
    pub running: Option<u64>,
}

/// Take suspensions back: of [`SuspensionScope::All`] every one, else the one of this scope alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// What is resumed; its node or channel may be gone by now.
    pub scope: SuspensionScope,
    /// Who ordered it, and from where.
    pub by: String,
}

/// Suspensions were taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Those that were taken back; none where nothing was suspended.
    pub lifted: Vec<SuspensionScope>,
    /// Those that are still in force.
    pub remaining: Vec<SuspensionScope>,
}

/// Compact one target now, before all others, through the same gates and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compact {
    /// The target.
    pub target: TargetId,
    /// Its place in the tables.
    pub ix: TargetIx,
    /// Whether it may start though no channel takes it for its sizes, or though it rests
    /// after failures or a compaction of no use. Never lifts a limit, a gate, the headroom or
    /// what is being done to it.
    pub force: bool,
    /// Who ordered it, and from where.
    pub by: String,
}

/// A compaction starts, or waits to.
#[derive(Clone, Debug, PartialEq)]
pub struct Compacting {
    /// The requests that will be sent, method and path; of a view that is compacted copy by
    /// copy, the first.
    pub requests: Vec<String>,
    /// What it waits for, with a sentence; none where it starts at once.
    pub waits: Option<(Refusal, String)>,
    /// Until when it waits.
    pub until: Moment,
}

/// Why channels do not take a target, each in its words.
fn said(misses: &[MissLine]) -> String {
    let said = |miss: &MissLine| format!("{}: {}", miss.channel, miss.says());
    misses.iter().map(said).collect::<Vec<_>>().join("; ")
}

/// A sweep was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rescanning {
    /// Whether it begins at once; else another runs, and it begins behind that.
    pub begins: bool,
}

/// Empty queues: their targets are forgotten until their facts change or the next sweep
/// ends, whichever is first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// Of this node alone.
    pub node: Option<String>,
    /// Of this channel alone.
    pub channel: Option<String>,
}

/// Queues were emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// How many targets left them.
    pub targets: u64,
}

/// Take targets out of quarantine, and forget their failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Those of these that are in quarantine; [`Denied::Unknown`] where none is.
    Named {
        /// Which.
        selector: TargetSelector,
        /// What the operator typed.
        text: String,
    },
    /// All there are.
    All,
}

/// Targets were released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Those.
    pub targets: Vec<TargetId>,
}
