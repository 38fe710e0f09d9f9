//! Decides what to do about one channel on one node.
//!
//! Pure: the task passes what it read and carries out the decision.

use super::{Mark, STOPPED, TakenOver};

/// Facts about one channel on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// Its concurrency now; `None` if the key is absent.
    pub(super) value: Option<&'a str>,
    /// The mark on the node.
    pub(super) mark: Option<&'a Mark>,
    /// The stored record.
    pub(super) record: Option<&'a TakenOver>,
    /// Whether this process saw the channel taken over before.
    pub(super) held: bool,
    /// Whether the channel should be taken over.
    pub(super) wanted: bool,
    /// Whether this process may change anything other than what it took over itself.
    pub(super) may: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing; the channel is not stopped.
    Leave,
    /// Nothing; somebody else stopped it.
    StoppedAlready,
    /// Nothing; this program has taken it over.
    Keep,
    /// The node has a mark but the store has no record: add the record.
    Adopt {
        /// The value before the takeover.
        was: Option<String>,
    },
    /// Take the channel over.
    Take {
        /// The current value.
        was: Option<String>,
    },
    /// Somebody changed the value while it was taken over: leave it alone and remove all records.
    Yield,
    /// Restore the channel.
    Restore {
        /// The value before the takeover.
        was: Option<String>,
    },
    /// The channel is no longer taken over: remove all records.
    Forget,
    /// Another or an earlier process stopped it, and this process must not restore it.
    Stranded,
}

/// Decides what to do.
///
/// A value counts as set by this program only if it is "0" and there is a mark: a restart of
/// CouchDB removes both, and a "0" without a mark was set by somebody else.
pub(super) fn step(seen: &Seen<'_>) -> Step {
    let stopped = seen.value == Some(STOPPED);
    let now = || seen.value.map(str::to_owned);
    let own = seen.record.is_some() || seen.held;
    if seen.wanted {
        return match (stopped, seen.mark, seen.record) {
            (true, Some(_), Some(_)) => Step::Keep,
            (true, Some(mark), None) => Step::Adopt { was: mark.was.clone() },
            (true, None, Some(_)) => Step::Forget,
            (true, None, None) => Step::StoppedAlready,
            // If this process never had it taken over, a crash between writing mark and value left
            // this.
            (false, Some(_), _) if seen.held => Step::Yield,
            (false, _, _) => Step::Take { was: now() },
        };
    }
    match (stopped, seen.mark) {
        (true, Some(mark)) if own && (seen.may || seen.held) => {
            let record = seen.record.map(|record| record.was.clone());
            Step::Restore { was: record.unwrap_or_else(|| mark.was.clone()) }
        }
        (true, Some(_)) => Step::Stranded,
        (_, _) if own && (seen.may || seen.held) => Step::Forget,
        (true, None) => Step::StoppedAlready,
        (false, _) => Step::Leave,
    }
}

#[cfg(test)]
mod tests;
