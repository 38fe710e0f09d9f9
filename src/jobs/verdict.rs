//! Determines from the facts of a file how its job ended. Pure.
//!
//! CouchDB does not report the end of a compaction: the task disappears, and only the file shows the result. A
//! database's header contains the sequence of its last compaction. That sequence changes when the new file replaces the
//! old one, unless nothing was written since the previous compaction; then the file size decides.

use crate::model::{
    correction::Correction,
    facts::{Facts, MAX_HEADER_BYTES, OptionalU64},
    records::{Intent, frees_little},
    rounding::to_bytes,
    target::TargetKind,
};
use std::time::Duration;
use wall_clock::Moment;

/// Whether a change from `file` to `left` bytes is too small to show that a compaction replaced the
/// file.
fn hides_compaction(file: u64, left: u64) -> bool {
    frees_little(file, left) || file.saturating_sub(left) <= MAX_HEADER_BYTES
}

/// A prediction is outdated if live bytes grew by more than this factor since the file was
/// measured.
const MAX_GROWTH: f64 = 1.2;

/// How long the old file may stay in place without a task before its compaction counts as stopped. A compaction
/// overtaken by writes shows no task until its next pass, and a loaded node begins a job late: 20 s were measured.
const STOPPED_AFTER: Duration = Duration::from_secs(60);

/// A view compaction that disappears at this progress or later counts as completed.
const NEARLY_DONE_SHARE: f64 = 0.9;

/// Facts of a file before its job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FileBefore {
    pub(super) file_bytes: Option<u64>,
    pub(super) active_bytes: Option<u64>,
    pub(super) predicted_bytes: Option<u64>,
    /// Predicted size without corrections learned from compactions.
    pub(super) fitted_bytes: Option<u64>,
    pub(super) update_seq: Option<u64>,
    pub(super) compacted_seq: Option<u64>,
    pub(super) needs_upgrade: bool,
}

impl FileBefore {
    /// The values of one file from its facts.
    pub(super) fn of(kind: TargetKind, facts: &Facts, correction: Correction) -> Self {
        Self {
            file_bytes: facts.file_bytes.get(),
            active_bytes: facts.active_bytes.get(),
            predicted_bytes: correction.predicted_bytes(kind, facts),
            fitted_bytes: Correction::NONE.predicted_bytes(kind, facts),
            update_seq: facts.update_seq.get(),
            compacted_seq: facts.compacted_seq.get(),
            needs_upgrade: facts.flags.needs_upgrade,
        }
    }

    /// The facts of each of the files that an intent compacts.
    pub(super) fn of_intent(intent: &Intent, files: usize, needs_upgrade: bool) -> Self {
        let each = |bytes: Option<u64>| Some(bytes? / files.max(1) as u64);
        Self {
            file_bytes: each(intent.file_bytes),
            active_bytes: each(intent.active_bytes),
            predicted_bytes: each(intent.predicted_bytes),
            // Earlier releases did not correct their predictions.
            fitted_bytes: each(intent.fitted_bytes.or(intent.predicted_bytes)),
            update_seq: intent.update_seq,
            compacted_seq: intent.compacted_seq,
            needs_upgrade,
        }
    }

    /// Bytes of waste that this many changes to a database cause, extrapolated from the changes
    /// since its last compaction; for a file that was never compacted, from all of its bytes.
    pub(super) fn waste_of_changes(&self, changes: u64) -> Option<u64> {
        let compacted = self.compacted_seq?;
        let since = self.update_seq?.checked_sub(compacted).filter(|since| *since > 0)?;
        let live = if compacted == 0 { 0 } else { self.active_bytes? };
        let written = self.file_bytes?.saturating_sub(live);
        Some(to_bytes(written as f64 / since as f64 * changes as f64))
    }

    /// The same facts, without the predictions if the live bytes after the compaction show that
    /// they were made for a much smaller file.
    pub(super) fn as_far_as_still_true(self, active_after: Option<u64>) -> Self {
        match self.has_grown_to(active_after) {
            true => Self { predicted_bytes: None, fitted_bytes: None, ..self },
            false => self,
        }
    }

    /// Whether the live bytes after the compaction show that these facts describe a much smaller file.
    pub(super) fn has_grown_to(&self, active_after: Option<u64>) -> bool {
        self.active_bytes.zip(active_after).is_some_and(|(then, now)| {
            now as f64 > then as f64 * MAX_GROWTH && now > then.saturating_add(MAX_HEADER_BYTES)
        })
    }

    /// Whether a file is no smaller after its compaction because of the writes during it: what the compaction freed is
    /// then unknown. `written` is the waste from writes that these facts do not include.
    pub(super) fn is_outgrown(
        &self,
        after: Option<u64>,
        active_after: Option<u64>,
        written: Option<u64>,
    ) -> bool {
        self.file_bytes.zip(after).is_some_and(|(before, after)| {
            let at_swap = before.saturating_add(written.unwrap_or_default());
            frees_little(before, after)
                && (self.has_grown_to(active_after) || !frees_little(at_swap, after))
        })
    }

    /// The same facts, with the size from the last reading before the swap, if the file was read again.
    pub(super) fn with_last_size(self, last: Option<u64>) -> Self {
        Self { file_bytes: self.file_bytes.max(last), ..self }
    }

    /// Whether facts read during a job are still those of the old file. The swap changes a database's
    /// sequence of the last compaction, unless nothing was written; then the file shrinks.
    pub(super) fn is_of_old_file(&self, facts: &Facts) -> bool {
        let sequences = self.compacted_seq.zip(facts.compacted_seq.get());
        let is_unmoved = sequences.is_some_and(|(then, now)| then == now);
        (facts.flags.compact_running || is_unmoved) && facts.file_bytes.get() >= self.file_bytes
    }

    /// The same facts without sizes, because those were measured at another time. The sequences
    /// alone still reveal a swap.
    pub(super) const fn without_sizes(self) -> Self {
        Self {
            file_bytes: None,
            active_bytes: None,
            predicted_bytes: None,
            fitted_bytes: None,
            ..self
        }
    }

    /// Whether a successful compaction would visibly shrink the file.
    fn would_shrink(&self) -> bool {
        let remaining_bytes = self.predicted_bytes.or(self.active_bytes);
        self.file_bytes
            .zip(remaining_bytes)
            .is_some_and(|(file, remaining_bytes)| !hides_compaction(file, remaining_bytes))
    }
}

/// What is known about a job whose task disappeared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DisappearedTask {
    /// When its node was polled and did not show it.
    pub(super) missed_at: Moment,
    /// Whether a poll ever showed it.
    pub(super) was_shown: bool,
    /// Whether CouchDB is known to have accepted the request.
    pub(super) was_accepted: bool,
    pub(super) last_progress: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobVerdict {
    /// The new file replaced the old one.
    Completed,
    /// The job stopped and the old file is still in place.
    Failed(String),
    /// Facts read afterwards show that the job never ran.
    NeverRan,
    /// The end can no longer be determined.
    Lost(String),
}

/// Whether a database's facts show that a compaction ended since `before` and none is running.
pub(super) fn file_was_replaced(before: &FileBefore, facts: &Facts) -> bool {
    let moved = before.compacted_seq.zip(facts.compacted_seq.get());
    !facts.flags.compact_running && moved.is_some_and(|(then, now)| then != now)
}

/// Whether two readings of a database's file show that an otherwise unknown compaction ended
/// between them. A header may be older than CouchDB's answer of the same second. A compaction keeps the file's UUID; a
/// copy that was removed and filled again has another one.
pub(super) fn was_compacted_between(before: &Facts, after: &Facts) -> bool {
    let both = |fact: fn(&Facts) -> OptionalU64| fact(before).get().zip(fact(after).get());
    let is_other_file = before.file_id.zip(after.file_id).is_some_and(|(then, now)| then != now);
    let goes_on = both(|facts| facts.update_seq).is_some_and(|(then, now)| then <= now);
    let moved = both(|facts| facts.compacted_seq).is_some_and(|(then, now)| then < now);
    let shrank =
        both(|facts| facts.file_bytes).is_some_and(|(then, now)| !hides_compaction(then, now));
    !is_other_file && goes_on && (moved || shrank)
}

/// Judges a database compaction. `None` means that the file must be read again.
///
/// A file read in the same second in which the task was found missing may have been read before
/// that. Such a reading can prove a swap, but not a failure.
pub(super) fn judge_db(
    before: &FileBefore,
    disappeared: DisappearedTask,
    facts: &Facts,
) -> Option<JobVerdict> {
    let measured =
        facts.measured_at.map(|measured| measured.at).filter(|at| *at >= disappeared.missed_at)?;
    if facts.flags.compact_running {
        return None;
    }
    let later = measured > disappeared.missed_at;
    let begun = disappeared.was_shown || disappeared.was_accepted;
    let now = facts.compacted_seq.get();
    if let (Some(then), Some(now)) = (before.compacted_seq, now) {
        if now != then {
            return Some(JobVerdict::Completed);
        }
        let shrunk =
            before.file_bytes.zip(facts.file_bytes.get()).is_some_and(|(then, now)| now < then);
        // Nothing was written since the previous compaction, so the sequence does not change. The
        // file size decides if there was something to free.
        let quiet = before.update_seq == Some(then) && !before.would_shrink();
        if shrunk || (begun && quiet) {
            return Some(JobVerdict::Completed);
        }
        return without_effect(begun, disappeared.missed_at.age(measured));
    }
    // The file was first read after the job. A header whose last change is compacted shows its end.
    let is_whole = now.is_some_and(|now| now > 0 && facts.update_seq.get() == Some(now));
    if disappeared.was_shown && is_whole {
        return Some(JobVerdict::Completed);
    }
    later.then(|| {
        JobVerdict::Lost("its sequence numbers before or after the job are unknown".into())
    })
}

/// The verdict if the old file was still in place `after` its task was missed.
fn without_effect(begun: bool, after: Duration) -> Option<JobVerdict> {
    match begun {
        false => (!after.is_zero()).then_some(JobVerdict::NeverRan),
        true => (after >= STOPPED_AFTER).then(|| JobVerdict::Failed(
            "the compaction stopped and the old file is still in place: check the node's log and its disk space".into(),
        )),
    }
}

/// Judges the compaction of one copy of a view. `measured` tells whether the facts belong to this
/// copy. `None` means that the file must be read again.
pub(super) fn judge_view(
    before: &FileBefore,
    disappeared: DisappearedTask,
    measured: bool,
    facts: &Facts,
) -> Option<JobVerdict> {
    let begun = disappeared.was_shown || disappeared.was_accepted;
    if !measured {
        // Over HTTP only one copy shows its size. For the others, the task is the only evidence.
        return Some(if begun {
            JobVerdict::Completed
        } else {
            JobVerdict::Lost("nothing shows that it ever ran".into())
        });
    }
    let at =
        facts.measured_at.map(|measured| measured.at).filter(|at| *at >= disappeared.missed_at)?;
    if facts.flags.compact_running {
        return None;
    }
    let slack = |file: Option<u64>, active: Option<u64>| Some(file?.saturating_sub(active?));
    let then = slack(before.file_bytes, before.active_bytes);
    let now = slack(facts.file_bytes.get(), facts.active_bytes.get());
    if let (Some(file), Some(then), Some(now)) = (before.file_bytes, then, now) {
        let little = hides_compaction(file, file.saturating_sub(then));
        let fell = now < then / 2;
        let nearly = disappeared.last_progress.is_some_and(|share| share >= NEARLY_DONE_SHARE);
        if fell || (begun && (little || nearly)) {
            return Some(JobVerdict::Completed);
        }
        return without_effect(begun, disappeared.missed_at.age(at));
    }
    (at > disappeared.missed_at)
        .then(|| JobVerdict::Lost("its sizes before or after the job are unknown".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{FactFlags, OptionalU64};

    const MIB: u64 = 1 << 20;

    const GONE: DisappearedTask = DisappearedTask {
        missed_at: Moment::from_unix(100),
        was_shown: true,
        was_accepted: true,
        last_progress: None,
    };

    fn before(file: u64, active: u64, seq: u64, compacted: u64) -> FileBefore {
        FileBefore {
            file_bytes: Some(file * MIB),
            active_bytes: Some(active * MIB),
            update_seq: Some(seq),
            compacted_seq: Some(compacted),
            ..FileBefore::default()
        }
    }

    fn after(at: u64, file: u64, active: u64, seq: u64, compacted: u64) -> Facts {
        Facts {
            update_seq: OptionalU64::new(seq),
            compacted_seq: OptionalU64::new(compacted),
            ..Facts::read(file * MIB, active * MIB, Moment::from_unix(at))
        }
    }

    fn verdict_name(verdict: Option<JobVerdict>) -> &'static str {
        match verdict {
            None => "again",
            Some(JobVerdict::Completed) => "done",
            Some(JobVerdict::Failed(_)) => "failed",
            Some(JobVerdict::NeverRan) => "never ran",
            Some(JobVerdict::Lost(_)) => "lost",
        }
    }

    #[test]
    fn copy_that_was_filled_again_is_not_a_compaction() {
        let facts = |file_bytes, compacted, file_id| Facts {
            update_seq: OptionalU64::new(90),
            compacted_seq: OptionalU64::new(compacted),
            file_id: std::num::NonZeroU8::new(file_id),
            ..Facts::sized(file_bytes, MIB)
        };
        let (old, new) = (facts(9 * MIB, 40, 1), facts(2 * MIB, 90, 1));
        assert!(was_compacted_between(&old, &new));
        assert!(!was_compacted_between(
            &old,
            &Facts { file_id: std::num::NonZeroU8::new(2), ..new }
        ));
    }

    #[test]
    fn a_database_compaction_is_judged_by_its_compacted_sequence() {
        let unseen = DisappearedTask { was_shown: false, ..GONE };
        let unsure = DisappearedTask { was_shown: false, was_accepted: false, ..GONE };
        let bloated = before(900, 100, 50, 10);
        let quiet = before(900, 100, 50, 50);
        let lean = before(102, 100, 50, 50);
        let cases = [
            (bloated, GONE, after(99, 100, 100, 50, 50), "again", "read before it ended"),
            (bloated, GONE, after(100, 100, 100, 50, 50), "done", "the compacted sequence moved"),
            (bloated, unseen, after(100, 100, 100, 50, 50), "done", "finished between two polls"),
            (bloated, unsure, after(100, 100, 100, 50, 50), "done", "swapped, whoever did it"),
            (bloated, GONE, after(100, 900, 100, 50, 10), "again", "may be read too early"),
            (bloated, GONE, after(130, 900, 100, 60, 10), "again", "perhaps between two passes"),
            (bloated, GONE, after(160, 900, 100, 60, 10), "failed", "nothing swapped"),
            (bloated, unsure, after(101, 900, 100, 60, 10), "never ran", "nothing swapped"),
            (lean, GONE, after(100, 102, 100, 50, 50), "done", "nothing written since"),
            (
                lean,
                unseen,
                after(100, 102, 100, 50, 50),
                "done",
                "nothing written, ended between two polls",
            ),
            (
                lean,
                unsure,
                after(101, 102, 100, 50, 50),
                "never ran",
                "nothing written, start unconfirmed",
            ),
            (quiet, GONE, after(100, 900, 100, 50, 50), "again", "may be read too early"),
            (quiet, GONE, after(160, 900, 100, 50, 50), "failed", "it would have shrunk"),
            (quiet, unseen, after(100, 100, 100, 50, 50), "done", "it shrank"),
            (quiet, unsure, after(100, 100, 100, 50, 50), "done", "it shrank, start unconfirmed"),
            (FileBefore::default(), GONE, after(101, 9, 9, 9, 8), "lost", "nothing to compare"),
            (FileBefore::default(), GONE, after(100, 9, 9, 9, 9), "done", "all is compacted"),
            (FileBefore::default(), unseen, after(101, 9, 9, 9, 9), "lost", "perhaps before it"),
        ];
        for (before, disappeared, facts, expected, why) in cases {
            assert_eq!(verdict_name(judge_db(&before, disappeared, &facts)), expected, "{why}");
        }
        let running = Facts {
            flags: FactFlags { compact_running: true, ..FactFlags::default() },
            ..after(105, 900, 100, 50, 10)
        };
        assert_eq!(
            verdict_name(judge_db(&bloated, GONE, &running)),
            "again",
            "the file is between two passes"
        );
    }

    #[test]
    fn drops_predictions_made_for_a_much_smaller_file() {
        let predicting = |active| FileBefore {
            predicted_bytes: Some(1),
            fitted_bytes: Some(1),
            ..before(900, active, 50, 10)
        };
        for (then, now, predicts) in [(100, 110, true), (100, 130, false), (100, 20, true)] {
            let result = predicting(then).as_far_as_still_true(Some(now * MIB));
            assert_eq!(result.fitted_bytes.is_some(), predicts, "{then} to {now}");
            assert_eq!(result.predicted_bytes, result.fitted_bytes);
        }
        let fresh = FileBefore { active_bytes: Some(421), ..predicting(0) };
        assert_eq!(fresh.as_far_as_still_true(Some(880_000)).predicted_bytes, None, "a bulk load");
        assert_eq!(fresh.as_far_as_still_true(Some(9_000)).predicted_bytes, Some(1), "headers");
    }

    #[test]
    fn swap_of_equally_sized_files_counts_as_completed() {
        let sized = |file, active| (Some(file), Some(active));
        // An index whose rows take less space than its header, and a database of a few documents.
        for (file, active) in [sized(4_248, 93), sized(8_348, 421), sized(24_700, 5_300)] {
            let before =
                FileBefore { file_bytes: file, active_bytes: active, ..before(0, 0, 50, 50) };
            let facts = Facts {
                file_bytes: file.into(),
                active_bytes: active.into(),
                ..after(101, 0, 0, 50, 50)
            };
            let verdicts =
                [judge_view(&before, GONE, true, &facts), judge_db(&before, GONE, &facts)];
            for verdict in verdicts {
                assert_eq!(verdict_name(verdict), "done", "{file:?}");
            }
        }
    }

    #[test]
    fn view_compaction_is_judged_by_the_size_of_the_measured_copy() {
        let bloated = before(900, 100, 50, 0);
        let lean = before(102, 100, 50, 0);
        let unsure = DisappearedTask { was_shown: false, was_accepted: false, ..GONE };
        let nearly = DisappearedTask { last_progress: Some(0.97), ..GONE };
        let cases = [
            (bloated, GONE, true, after(100, 110, 100, 50, 0), "done"),
            (bloated, GONE, true, after(100, 900, 100, 50, 0), "again"),
            (bloated, GONE, true, after(101, 900, 100, 50, 0), "again"),
            (bloated, nearly, true, after(101, 900, 100, 50, 0), "done"),
            (bloated, GONE, true, after(160, 950, 120, 60, 0), "failed"),
            (bloated, unsure, true, after(101, 900, 100, 50, 0), "never ran"),
            (lean, GONE, true, after(100, 103, 100, 50, 0), "done"),
            (bloated, GONE, false, after(1, 900, 100, 50, 0), "done"),
            (bloated, unsure, false, after(1, 900, 100, 50, 0), "lost"),
        ];
        for (at, (before, disappeared, measured, facts, expected)) in cases.into_iter().enumerate()
        {
            assert_eq!(
                verdict_name(judge_view(&before, disappeared, measured, &facts)),
                expected,
                "case {at}"
            );
        }
    }
}
