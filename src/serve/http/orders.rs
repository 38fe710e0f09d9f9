//! Orders on their way to the tasks that carry them out, and how they are answered.
//!
//! Owns only the types. The service receives the orders and passes each to the task whose state it
//! changes: the job state keeps suspensions and quarantine, the planner starts and forgets, the
//! scanner sweeps. Dropping a reply tells the client that recliner is stopping.

use crate::{
    model::{
        records::{AdviceKey, JournalFailure, SuspensionScope},
        target::{TargetId, TargetSelector},
    },
    plan::Refusal,
    serve::report::{MissLine, orders::OrderAnswer},
    table::TargetIx,
    text::Label,
};
use std::time::Duration;
use tokio::sync::oneshot;

/// What the service is told to do.
#[derive(Debug)]
pub enum Command {
    /// Reads the configuration again; the response is why that failed.
    Reload(oneshot::Sender<Result<(), String>>),
    /// Stops the process.
    Quit,
    /// Carries out an order of an operator.
    Order(Order),
}

/// An order of an operator. It is carried out even if nobody waits for the response.
#[derive(Debug)]
pub struct Order {
    /// What to do.
    pub action: Action,
    /// Who ordered it, and from where.
    pub by: String,
    /// Where the response goes.
    pub reply: oneshot::Sender<Result<OrderAnswer, Denied>>,
}

/// What is ordered, with names resolved to what they mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Suspends starts in a scope. Running jobs continue: CouchDB offers no way to stop a running
    /// compaction over HTTP.
    Suspend {
        /// The scope; its node and channel exist.
        scope: SuspensionScope,
        /// The operator's reason, which replaces that of an existing suspension.
        why: Option<String>,
    },
    /// Ends suspensions: every one for [`SuspensionScope::All`], otherwise only the one of this scope,
    /// whose node or channel may no longer exist.
    Resume(SuspensionScope),
    /// Compacts one target before all others, through the same gates and limits.
    Compact {
        /// The target.
        target: TargetId,
        /// Its position in the tables.
        ix: TargetIx,
        /// Whether it may start although no channel takes it because of its sizes, or although it rests
        /// after failures or a useless compaction. Never overrides a limit, a gate, the headroom or work in
        /// progress on it.
        force: bool,
    },
    /// Begins a sweep now, as smoosh's `enqueue_all` does.
    Rescan,
    /// Empties queues: their targets are forgotten until their facts change or the next sweep ends,
    /// whichever is first.
    Flush {
        /// Only queues of this node.
        node: Option<String>,
        /// Only queues of this channel.
        channel: Option<String>,
    },
    /// Mutes advice, or ends that.
    MuteAdvice {
        /// What is muted.
        key: AdviceKey,
        /// For how long; none to end it.
        mute_for: Option<Duration>,
        /// The operator's reason.
        why: Option<String>,
    },
    /// Takes those of the given targets that are in quarantine out of it, and forgets their failures;
    /// [`Denied::Unknown`] if none is.
    Release {
        /// The targets.
        selector: TargetSelector,
        /// The operator's text.
        text: String,
    },
    /// Takes all targets out of quarantine.
    ReleaseAll,
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

/// The misses of channels as text.
fn misses_text(misses: &[MissLine]) -> String {
    let misses_text = |miss: &MissLine| format!("{}: {}", miss.channel, miss.says());
    misses.iter().map(misses_text).collect::<Vec<_>>().join("; ")
}
