//! How a job ended, from what its file says afterwards. Pure.
//!
//! CouchDB tells nobody: a task is gone, and the file says the rest. A database's header
//! holds the sequence of its last compaction, which moves with the swap and stays where
//! nothing was written since the one before; there the size of the file says the rest.

use crate::{model::facts::Facts, table::TargetRef};
use wall_clock::Moment;

/// A file of which less than this part was slack has nothing to show for a compaction that
/// worked.
const SLACK: f64 = 0.05;

/// From here on a view's compaction that is gone is taken to have ended well.
const NEARLY: f64 = 0.9;

/// What was known of a file before its job.
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
    /// What the tables say of one file of a target.
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

    /// The same without sizes, which are of another moment: sequences tell a swap all the same.
    pub(super) const fn without_sizes(self) -> Self {
        Self { file: None, active: None, predicted: None, ..self }
    }

    /// Whether a compaction that worked would show in the size of the file.
    fn would_show(&self) -> bool {
        let left = self.predicted.or(self.active);
        self.file
            .zip(left)
            .is_some_and(|(file, left)| file.saturating_sub(left) as f64 >= file as f64 * SLACK)
    }
}

/// What is known of a job that is not shown any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gone {
    /// When its node was asked and did not show it.
    pub(super) at: Moment,
    /// Whether it was ever shown.
    pub(super) seen: bool,
    /// Whether CouchDB accepted the request, as far as that is known.
    pub(super) accepted: bool,
    /// Its last progress.
    pub(super) progress: Option<f64>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The new file took the old one's place.
    Done,
    /// It stopped and the old file is still there.
    Failed(String),
    /// What was read since shows that it never ran.
    NeverRan,
    /// Nothing can be known any more.
    Lost(String),
}

/// Whether a database's file shows that a compaction ended since, and none runs.
pub(super) fn swapped(before: &Before, facts: &Facts) -> bool {
    let moved = before.compacted_seq.zip(facts.compacted_seq.get());
    !facts.flags.compact_running && moved.is_some_and(|(then, now)| then != now)
}

/// Judges a database's compaction; `None`: its file has to be read again.
///
/// A file read in the second in which the job was missed may have been read before: that
/// proves a swap, and no failure.
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
        // Nothing was written since the compaction before: the sequence is set to the same, and
        // the size tells, where there was something to free.
        let quiet = before.update_seq == Some(then) && !before.would_show();
        if shrunk || (begun && quiet) {
            return Some(Verdict::Done);
        }
        if !later {
            return None;
        }
        return Some(if begun {
            Verdict::Failed(
                "it stopped and its file is the old one: see the log of the node, and its disk"
                    .into(),
            )
        } else {
            Verdict::NeverRan
        });
    }
    later.then(|| Verdict::Lost("its sequences before or after are not known".into()))
}

/// Judges the compaction of one copy of a view; `measured` says whether the facts are of
/// this copy. `None`: it has to be read again.
pub(super) fn view(before: &Before, gone: Gone, measured: bool, facts: &Facts) -> Option<Verdict> {
    let begun = gone.seen || gone.accepted;
    if !measured {
        // Over HTTP one copy shows its size; of the others only the task did.
        return Some(if begun {
            Verdict::Done
        } else {
            Verdict::Lost("nothing shows whether it ever ran".into())
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
                "it stopped and its file is the old one: see the log of the node, and its disk"
                    .into(),
            )
        } else {
            Verdict::NeverRan
        });
    }
    (at > gone.at).then(|| Verdict::Lost("its sizes before or after are not known".into()))
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
    fn a_database_is_judged_by_the_sequence_of_its_compaction() {
        let unseen = Gone { seen: false, ..GONE };
        let unsure = Gone { seen: false, accepted: false, ..GONE };
        let bloated = before(900, 100, 50, 10);
        let quiet = before(900, 100, 50, 50);
        let lean = before(102, 100, 50, 50);
        let cases = [
            (bloated, GONE, after(99, 100, 100, 50, 50), "again", "read before it ended"),
            (bloated, GONE, after(100, 100, 100, 50, 50), "done", "moved"),
            (bloated, unseen, after(100, 100, 100, 50, 50), "done", "too fast to be seen"),
            (bloated, unsure, after(100, 100, 100, 50, 50), "done", "whoever did it"),
            (bloated, GONE, after(100, 900, 100, 50, 10), "again", "may be read too early"),
            (bloated, GONE, after(101, 900, 100, 60, 10), "failed", "nothing swapped"),
            (bloated, unsure, after(101, 900, 100, 60, 10), "never ran", "nothing swapped"),
            (lean, GONE, after(100, 102, 100, 50, 50), "done", "nothing written since"),
            (lean, unseen, after(100, 102, 100, 50, 50), "done", "the same, too fast"),
            (lean, unsure, after(101, 102, 100, 50, 50), "never ran", "the same, not sure"),
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
        assert_eq!(word(db(&bloated, GONE, &running)), "again", "between two passes");
    }

    #[test]
    fn a_view_is_judged_by_the_one_copy_that_shows_its_size() {
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
