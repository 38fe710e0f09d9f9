//! What is to be done about one channel on one node.
//!
//! Pure: the task calls it with what it read, and does what it says.

use super::{Mark, STOPPED, TakenOver};

/// What is known of one channel on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// Its concurrency now; none where the key is absent.
    pub(super) value: Option<&'a str>,
    /// The mark on the node.
    pub(super) mark: Option<&'a Mark>,
    /// The record in the ledger.
    pub(super) record: Option<&'a TakenOver>,
    /// Whether this process saw it as its own before.
    pub(super) held: bool,
    /// Whether it is to be stopped.
    pub(super) wanted: bool,
    /// Whether this process may change anything but what it took itself.
    pub(super) may: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, and nobody has stopped it.
    Leave,
    /// Nothing: somebody else has stopped it.
    StoppedAlready,
    /// Nothing: it is this program's.
    Keep,
    /// The node knows that it is taken and the ledger does not: it is noted there.
    Adopt {
        /// What it was before.
        was: Option<String>,
    },
    /// It is stopped.
    Take {
        /// What it is now.
        was: Option<String>,
    },
    /// Somebody changed it while it was taken: it is theirs, and every record goes.
    Yield,
    /// It is given back.
    Restore {
        /// What it was before.
        was: Option<String>,
    },
    /// It is not this program's any more: every record goes.
    Forget,
    /// Another process stopped it, or one that is no more, and it is not for this one to
    /// give back.
    Stranded,
}

/// What is to be done about what was seen.
///
/// A value counts as this program's only where it is "0" and the mark is beside it: a
/// restart of CouchDB takes both away, and a "0" without a mark is somebody else's.
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
            // Without having held it, this is where a crash came between mark and value.
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
