//! The types of orders on their way to the tasks that carry them out, and of their answers.
//!
//! The service receives the orders and passes each to the task whose state it changes: the job
//! state keeps suspensions and quarantine, the planner starts compactions and clears queues, the
//! scanner sweeps. Dropping a reply tells the client that recliner is stopping.

use crate::{
    model::{
        records::{AdviceKey, JournalFailure, LeftOut, RunScope, SuspensionScope},
        target::{TargetId, TargetSelector},
    },
    plan::Refusal,
    serve::report::{
        MissLine,
        orders::{ChangeRunOrder, OrderAnswer},
    },
    table::TargetIx,
    text::Label,
};
use std::time::Duration;
use tokio::sync::oneshot;

/// A command to the service.
#[derive(Debug)]
pub enum Command {
    /// Reads the configuration again; the response says why it failed.
    Reload(oneshot::Sender<Result<(), String>>),
    /// Stops the process.
    Quit,
    /// Carries out an order of an operator.
    Order(Order),
}

/// An order of an operator. It is carried out even if nobody waits for the response.
#[derive(Debug)]
pub struct Order {
    /// The action to carry out.
    pub action: Action,
    /// The user who ordered it, and the address it came from.
    pub by: String,
    /// The channel for the response.
    pub reply: oneshot::Sender<Result<OrderAnswer, Denied>>,
}

/// The action of an order, with its names resolved.
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
        /// Whether it may start although no channel takes it because of its sizes, or although it
        /// is paused after failures or a useless compaction. Never overrides a limit, a gate, the
        /// headroom or work in progress on the target.
        force: bool,
    },
    /// Compacts everything that is worth it in a scope, whose database or node exists.
    BeginRun {
        /// The scope.
        scope: RunScope,
        /// As `force` for one target.
        force: bool,
    },
    /// Changes a run.
    ChangeRun(ChangeRunOrder),
    /// Begins a sweep now, as smoosh's `enqueue_all` does.
    Rescan,
    /// Empties queues: their targets are forgotten until their facts change or the next sweep ends,
    /// whichever happens first.
    Flush {
        /// Only queues of this node.
        node: Option<String>,
        /// Only queues of this channel.
        channel: Option<String>,
    },
    /// Mutes advice, or unmutes it.
    MuteAdvice {
        /// The advice to mute.
        key: AdviceKey,
        /// How long to mute it; `None` to unmute it.
        mute_for: Option<Duration>,
        /// The operator's reason.
        why: Option<String>,
    },
    /// Takes those of the given targets that are in quarantine out of it, and forgets their
    /// failures; [`Denied::Unknown`] if none of them is.
    Release {
        /// The targets that may be in quarantine.
        selector: TargetSelector,
        /// The name as the operator wrote it.
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
        /// The target that was to be compacted.
        target: TargetId,
        /// The first reason that applies.
        refusal: Refusal,
        /// The reason as a sentence.
        why: String,
        /// The request that would be sent, in advise mode.
        request: Option<String>,
    },
    /// No channel takes the target.
    #[error("no channel takes {target} ({}); {}", misses_text(misses), force_says(misses))]
    NotTaken {
        /// The target that was to be compacted.
        target: TargetId,
        /// The miss of each channel for this kind, in the channels' order.
        misses: Vec<MissLine>,
    },
    /// The run may not begin.
    #[error("{why}")]
    Run {
        /// Why it may not.
        why: String,
        /// The requests that it would send first, in advise mode.
        requests: Vec<String>,
        /// What it would leave out.
        left_out: Vec<LeftOut>,
    },
    /// The order was tried and failed, for example because the journal cannot be written or CouchDB
    /// refused.
    #[error("{0}")]
    Failed(String),
    /// The state of the previous process is not loaded yet, and the order would change it. No part
    /// of the order is carried out.
    #[error("not ordered: nothing can start yet, because {0}")]
    NotLoaded(JournalFailure),
    /// No task of this process handles such orders.
    #[error("{0}")]
    Unavailable(String),
}

/// What `--force` would do about misses.
fn force_says(misses: &[MissLine]) -> &'static str {
    match misses.iter().any(MissLine::yields_to_force) {
        true => "--force compacts it anyway",
        false => "--force overrides sizes and priorities only",
    }
}

/// The misses of channels, joined for a message.
fn misses_text(misses: &[MissLine]) -> String {
    let misses_text = |miss: &MissLine| format!("{}: {}", miss.channel, miss.says());
    misses.iter().map(misses_text).collect::<Vec<_>>().join("; ")
}
