//! Determines how a job ended from the facts of its file afterwards. Pure.
//!
//! CouchDB does not report the end of a compaction: the task disappears, and only the file shows
//! the result. A database's header holds the sequence of its last compaction. It changes when the
//! new file replaces the old one, except where nothing was written since the previous compaction;
//! there the file size decides.

use crate::{model::facts::Facts, table::TargetRef};
use wall_clock::Moment;

/// If less than this share of a file was slack, even a successful compaction shows no size change.
const SLACK: f64 = 0.05;

/// A view compaction that disappears at this progress or later counts as completed.
const NEARLY: f64 = 0.9;

/// Facts of a file before its job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Before {
    pub(super) file: Option<u64>,
    pub(super) active: Option<u64>,
    pub(super) predicted: Option<u64>,
    pub(super) update_seq: Option<u64>,
    pub(super) compacted_seq: Option<u64>,
    pub(super) needs_upgrade: bool,
}

impl Before {
    /// The facts the tables hold for one file of a target.
    pub(super) fn of(target: TargetRef<'_>) -> Self {
        let facts = target.facts();
        Self {
            file: facts.file.get(),
            active: facts.active.get(),
            predicted: crate::model::estimate::predicted(target.kind(), &facts),
            update_seq: facts.update_seq.get(),
            compacted_seq: facts.compacted_seq.get(),
            needs_upgrade: facts.flags.needs_upgrade,
        }
    }

    /// The same facts without sizes, which were measured at another time. Sequences alone still
    /// reveal a swap.
    pub(super) const fn without_sizes(self) -> Self {
        Self { file: None, active: None, predicted: None, ..self }
    }

    /// Whether a successful compaction would visibly shrink the file.
    fn would_show(&self) -> bool {
        let left = self.predicted.or(self.active);
        self.file
            .zip(left)
            .is_some_and(|(file, left)| file.saturating_sub(left) as f64 >= file as f64 * SLACK)
    }
}

/// What is known about a job whose task disappeared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gone {
    /// When its node was polled and did not show it.
    pub(super) at: Moment,
    /// Whether a poll ever showed it.
    pub(super) seen: bool,
    /// Whether CouchDB is known to have accepted the request.
    pub(super) accepted: bool,
    /// Last reported progress.
    pub(super) progress: Option<f64>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The new file replaced the old one.
    Done,
    /// The job stopped and the old file is still in place.
    Failed(String),
    /// Facts read afterwards show that the job never ran.
    NeverRan,
    /// The end can no longer be determined.
    Lost(String),
}

/// Whether a database's facts show that a compaction ended since `before` and none is running.
pub(super) fn swapped(before: &Before, facts: &Facts) -> bool {
    let moved = before.compacted_seq.zip(facts.compacted_seq.get());
    !facts.flags.compact_running && moved.is_some_and(|(then, now)| then != now)
}

/// Judges a database compaction. `None` means that the file must be read again.
///
/// A file read in the same second in which the task was found missing may have been read before
/// that. Such a reading can prove a swap, but not a failure.
pub(super) fn db(before: &Before, gone: Gone, facts: &Facts) -> Option<Verdict> {
    let measured = facts.measured_at.map(|measured| measured.at).filter(|at| *at >= gone.at)?;
    if facts.flags.compact_running {
        return None;
    }
    let later = measured > gone.at;
    let begun = gone.seen || gone.accepted;
    let now = facts.compacted_seq.get();
    if let (Some(then), Some(now)) = (before.compacted_seq, now) {
        if now != then {
            return Some(Verdict::Done);
        }
        let shrunk = before.file.zip(facts.file.get()).is_some_and(|(then, now)| now < then);
        // Nothing was written since the previous compaction, so the sequence does not change. The
        // file size decides if there was something to free.
        let quiet = before.update_seq == Some(then) && !before.would_show();
        if shrunk || (begun && quiet) {
            return Some(Verdict::Done);
        }
        if !later {
            return None;
        }
        return Some(if begun {
            Verdict::Failed(
                "the compaction stopped and the old file is still in place: check the node's log and its disk space".into(),
            )
        } else {
            Verdict::NeverRan
        });
    }
    later.then(|| Verdict::Lost("its sequence numbers before or after are unknown".into()))
}

/// Judges the compaction of one copy of a view. `measured` tells whether the facts belong to this
/// copy. `None` means that the file must be read again.
pub(super) fn view(before: &Before, gone: Gone, measured: bool, facts: &Facts) -> Option<Verdict> {
    let begun = gone.seen || gone.accepted;
    if !measured {
        // Over HTTP only one copy shows its size. For the others, the task is the only evidence.
        return Some(if begun {
            Verdict::Done
        } else {
            Verdict::Lost("there is no evidence that it ever ran".into())
        });
    }
    let at = facts.measured_at.map(|measured| measured.at).filter(|at| *at >= gone.at)?;
    if facts.flags.compact_running {
        return None;
    }
    let slack = |file: Option<u64>, active: Option<u64>| Some(file?.saturating_sub(active?));
    let then = slack(before.file, before.active);
    let now = slack(facts.file.get(), facts.active.get());
    if let (Some(file), Some(then), Some(now)) = (before.file, then, now) {
        let little = (then as f64) < file as f64 * SLACK;
        let fell = now < then / 2;
        let nearly = gone.progress.is_some_and(|share| share >= NEARLY);
        if fell || (begun && (little || nearly)) {
            return Some(Verdict::Done);
        }
        if at <= gone.at {
            return None;
        }
        return Some(if begun {
            Verdict::Failed(
                "the compaction stopped and the old file is still in place: check the node's log and its disk space".into(),
            )
        } else {
            Verdict::NeverRan
        });
    }
    (at > gone.at).then(|| Verdict::Lost("its sizes before or after are unknown".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{Flags, Known, Measured, Source};

    const GONE: Gone =
        Gone { at: Moment::from_unix(100), seen: true, accepted: true, progress: None };

    fn before(file: u64, active: u64, seq: u64, compacted: u64) -> Before {
        Before {
            file: Some(file),
            active: Some(active),
            update_seq: Some(seq),
            compacted_seq: Some(compacted),
            ..Before::default()
        }
    }

    fn after(at: u64, file: u64, active: u64, seq: u64, compacted: u64) -> Facts {
        Facts {
            file: Known::new(file),
            active: Known::new(active),
            update_seq: Known::new(seq),
            compacted_seq: Known::new(compacted),
            measured_at: Some(Measured { at: Moment::from_unix(at), by: Source::Http }),
            ..Facts::default()
        }
    }

    fn word(verdict: Option<Verdict>) -> &'static str {
        match verdict {
            None => "again",
            Some(Verdict::Done) => "done",
            Some(Verdict::Failed(_)) => "failed",
            Some(Verdict::NeverRan) => "never ran",
            Some(Verdict::Lost(_)) => "lost",
        }
    }

    #[test]
    fn a_database_compaction_is_judged_by_its_compacted_sequence() {
        let unseen = Gone { seen: false, ..GONE };
        let unsure = Gone { seen: false, accepted: false, ..GONE };
        let bloated = before(900, 100, 50, 10);
        let quiet = before(900, 100, 50, 50);
        let lean = before(102, 100, 50, 50);
        let cases = [
            (bloated, GONE, after(99, 100, 100, 50, 50), "again", "read before it ended"),
            (bloated, GONE, after(100, 100, 100, 50, 50), "done", "moved"),
            (bloated, unseen, after(100, 100, 100, 50, 50), "done", "finished between two polls"),
            (bloated, unsure, after(100, 100, 100, 50, 50), "done", "swapped, whoever did it"),
            (bloated, GONE, after(100, 900, 100, 50, 10), "again", "may be read too early"),
            (bloated, GONE, after(101, 900, 100, 60, 10), "failed", "nothing swapped"),
            (bloated, unsure, after(101, 900, 100, 60, 10), "never ran", "nothing swapped"),
            (lean, GONE, after(100, 102, 100, 50, 50), "done", "nothing written since"),
            (lean, unseen, after(100, 102, 100, 50, 50), "done", "the same, between two polls"),
            (
                lean,
                unsure,
                after(101, 102, 100, 50, 50),
                "never ran",
                "the same, start unconfirmed",
            ),
            (quiet, GONE, after(100, 900, 100, 50, 50), "again", "may be read too early"),
            (quiet, GONE, after(101, 900, 100, 50, 50), "failed", "it would have shrunk"),
            (quiet, unseen, after(100, 100, 100, 50, 50), "done", "and it did"),
            (quiet, unsure, after(100, 100, 100, 50, 50), "done", "the file tells"),
            (Before::default(), GONE, after(101, 9, 9, 9, 9), "lost", "nothing to compare"),
        ];
        for (before, gone, facts, expected, why) in cases {
            assert_eq!(word(db(&before, gone, &facts)), expected, "{why}");
        }
        let running = Facts {
            flags: Flags { compact_running: true, ..Flags::default() },
            ..after(105, 900, 100, 50, 10)
        };
        assert_eq!(word(db(&bloated, GONE, &running)), "again", "the file is between two passes");
    }

    #[test]
    fn a_view_compaction_is_judged_by_the_copy_that_shows_its_size() {
        let bloated = before(900, 100, 50, 0);
        let lean = before(102, 100, 50, 0);
        let unsure = Gone { seen: false, accepted: false, ..GONE };
        let nearly = Gone { progress: Some(0.97), ..GONE };
        let cases = [
            (bloated, GONE, true, after(100, 110, 100, 50, 0), "done"),
            (bloated, GONE, true, after(100, 900, 100, 50, 0), "again"),
            (bloated, GONE, true, after(101, 900, 100, 50, 0), "failed"),
            (bloated, nearly, true, after(101, 900, 100, 50, 0), "done"),
            (bloated, GONE, true, after(101, 950, 120, 60, 0), "failed"),
            (bloated, unsure, true, after(101, 900, 100, 50, 0), "never ran"),
            (lean, GONE, true, after(100, 103, 100, 50, 0), "done"),
            (bloated, GONE, false, after(1, 900, 100, 50, 0), "done"),
            (bloated, unsure, false, after(1, 900, 100, 50, 0), "lost"),
        ];
        for (at, (before, gone, measured, facts, expected)) in cases.into_iter().enumerate() {
            assert_eq!(word(view(&before, gone, measured, &facts)), expected, "case {at}");
        }
    }
}
