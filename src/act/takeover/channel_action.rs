//! Decides what to do about one channel on one node.
//!
//! Pure: the task passes what it read and carries out the decision.

use super::{STOPPED_CONCURRENCY, TakeoverMark, TakeoverRecord};

/// Facts about one channel on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChannelFacts<'a> {
    /// Its concurrency now; `None` if the key is absent.
    pub(super) value: Option<&'a str>,
    /// The mark on the node.
    pub(super) mark: Option<&'a TakeoverMark>,
    /// The stored record.
    pub(super) record: Option<&'a TakeoverRecord>,
    /// Whether this process saw the channel taken over before.
    pub(super) held: bool,
    /// Whether the channel should be taken over.
    pub(super) wanted: bool,
    /// Whether this process may change anything other than what it took over itself.
    pub(super) may: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChannelAction {
    /// Nothing; the channel is not stopped.
    Leave,
    /// Nothing; somebody else stopped it.
    StoppedByOthers,
    /// Nothing; this program has taken it over.
    KeepTakenOver,
    /// The node has a mark but the store has no record: add the record.
    AddRecord {
        /// The value before the takeover.
        was: Option<String>,
    },
    TakeOver {
        /// The current value.
        was: Option<String>,
    },
    /// Somebody changed the value while it was taken over: leave it alone and remove all records.
    LeaveToOperator,
    Restore {
        /// The value before the takeover.
        was: Option<String>,
    },
    /// The channel is no longer taken over: remove all records.
    RemoveRecords,
    /// Another or an earlier process stopped it, and this process must not restore it.
    Stranded,
}

/// Decides what to do.
///
/// A value counts as set by this program only if it is "0" and there is a mark: a restart of
/// CouchDB removes both, and a "0" without a mark was set by somebody else.
pub(super) fn decide(facts: &ChannelFacts<'_>) -> ChannelAction {
    let stopped = facts.value == Some(STOPPED_CONCURRENCY);
    let now = || facts.value.map(str::to_owned);
    let is_own = facts.record.is_some() || facts.held;
    if facts.wanted {
        return match (stopped, facts.mark, facts.record) {
            (true, Some(_), Some(_)) => ChannelAction::KeepTakenOver,
            (true, Some(mark), None) => ChannelAction::AddRecord { was: mark.was.clone() },
            (true, None, Some(_)) => ChannelAction::RemoveRecords,
            (true, None, None) => ChannelAction::StoppedByOthers,
            // If this process never took it over, a crash between writing mark and value left this.
            (false, Some(_), _) if facts.held => ChannelAction::LeaveToOperator,
            (false, _, _) => ChannelAction::TakeOver { was: now() },
        };
    }
    match (stopped, facts.mark) {
        (true, Some(mark)) if is_own && (facts.may || facts.held) => {
            let record = facts.record.map(|record| record.previous.clone());
            ChannelAction::Restore { was: record.unwrap_or_else(|| mark.was.clone()) }
        }
        (true, Some(_)) => ChannelAction::Stranded,
        (_, _) if is_own && (facts.may || facts.held) => ChannelAction::RemoveRecords,
        (true, None) => ChannelAction::StoppedByOthers,
        (false, _) => ChannelAction::Leave,
    }
}

#[cfg(test)]
mod tests;
