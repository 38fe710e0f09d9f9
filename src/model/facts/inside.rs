//! X-rays of files, as far as predictions and advice use them.
//!
//! Owns how long an X-ray predicts the size after a compaction, and when a compaction contradicts
//! it. Never reads a file.

use super::{Facts, OptionalU64};
use std::time::Duration;
use wall_clock::Moment;

/// The maximum age at which an X-ray is used.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// An X-ray is used until the file has grown by its size divided by this.
const MAX_GROWTH_DIVISOR: u64 = 4;

/// A size is used if its error is at most the size divided by this. An X-ray is contradicted if it
/// was wrong by more than the freed bytes divided by this.
const MAX_ERROR_DIVISOR: u64 = 10;

/// Maximum difference in file size that headers and padding alone can cause.
pub(crate) const MAX_HEADER_BYTES: u64 = 5 * 4096;

/// An X-ray of the file of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// When the file was read.
    pub at: Moment,
    /// Its size then.
    pub file_bytes: u64,
    /// Active bytes then.
    pub active_bytes: OptionalU64,
    /// The last sequence committed or indexed then.
    pub update_seq: OptionalU64,
    /// Its size after a compaction, if nothing had been written since.
    pub left_bytes: u64,
    /// With 95 % probability, the real size differs from that by no more than this; zero if everything was read.
    pub error_bytes: u64,
    /// Bytes of trees with more than a hundred revisions; databases only.
    pub revision_bytes: OptionalU64,
    /// The number of revisions that the database keeps of a document; databases only.
    pub revs_limit: OptionalU64,
}

impl Inside {
    /// The size after a compaction of a file with these facts; `None` if the file was replaced, has
    /// grown much or was read too long ago, or if the sample was too small.
    pub fn predicted_bytes(&self, facts: &Facts) -> Option<u64> {
        let file = facts.file_bytes.get()?;
        let age = facts.measured_at.map_or(Duration::ZERO, |measured| self.at.age(measured.at));
        let has_grown = file > self.file_bytes.saturating_add(self.file_bytes / MAX_GROWTH_DIVISOR);
        let is_vague = self.error_bytes > self.left_bytes / MAX_ERROR_DIVISOR;
        if !self.is_of_file(facts) || has_grown || is_vague || age > MAX_AGE {
            return None;
        }
        // Newly written bytes are live to the extent that active bytes grew.
        let (now, then) = (facts.active_bytes.get(), self.active_bytes.get());
        let (now, then) = now.zip(then).unwrap_or_default();
        Some(self.left_bytes.saturating_add(now).saturating_sub(then))
    }

    /// Whether a file with these facts is the one that was read: a file only grows until a compaction replaces it.
    pub fn is_of_file(&self, facts: &Facts) -> bool {
        // A header may name an earlier compaction than CouchDB does, and a compaction with no
        // writes after it leaves a smaller file.
        let sequences = facts.compacted_seq.get().zip(self.update_seq.get());
        let is_replaced = sequences.is_some_and(|(compacted, then)| compacted > then);
        // Facts older than the X-ray describe a smaller file.
        let is_later = facts.measured_at.is_none_or(|measured| measured.at >= self.at);
        let has_shrunk = facts.file_bytes.get().is_some_and(|file| file < self.file_bytes);
        !(is_replaced || is_later && has_shrunk)
    }

    /// Whether a compaction freed so much more or less than predicted that this X-ray was wrong.
    /// `before` are the last facts of the old file, `after` those of the new one, of which another
    /// compaction would keep `kept`. `false` if writes in between may explain the difference.
    pub fn is_contradicted(&self, before: &Facts, after: &Facts, kept: Option<u64>) -> bool {
        let Some(promised) = self.predicted_bytes(before) else { return false };
        let sequences = before.update_seq.get().zip(after.update_seq.get());
        let sizes = before.file_bytes.get().zip(after.file_bytes.get());
        let (Some((file, left)), Some((then, now))) = (sizes, sequences) else { return false };
        if then != now {
            return false;
        }
        // A compaction that caught up with writes leaves waste that the next one frees.
        let kept = kept.filter(|_| after.changes_since_compaction().is_some_and(|it| it > 0));
        let left = kept.map_or(left, |kept| left.min(kept));
        let freed = file.saturating_sub(left);
        let tolerated = (freed / MAX_ERROR_DIVISOR).saturating_add(self.error_bytes);
        promised.abs_diff(left) > tolerated.max(MAX_HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn number(value: u64) -> OptionalU64 {
        OptionalU64::new(value)
    }

    fn inside() -> Inside {
        Inside {
            at: Moment::from_unix(1_000_000),
            file_bytes: 100 * MIB,
            active_bytes: number(90 * MIB),
            update_seq: number(9),
            left_bytes: 30 * MIB,
            ..Inside::default()
        }
    }

    fn facts(file: u64, active: u64, hours: u64) -> Facts {
        let at = Moment::from_unix(1_000_000 + hours * 3600);
        Facts {
            compacted_seq: number(7),
            update_seq: number(9),
            ..Facts::read(file * MIB, active * MIB, at)
        }
    }

    #[test]
    fn xray_predicts_the_size_until_it_is_outdated() {
        let left = |facts: &Facts| inside().predicted_bytes(facts).map(|bytes| bytes / MIB);
        assert_eq!(left(&facts(100, 90, 0)), Some(30));
        assert_eq!(left(&facts(110, 95, 5)), Some(35), "five more are live");
        assert_eq!(left(&facts(110, 88, 5)), Some(28), "documents were deleted");
        assert_eq!(left(&facts(126, 90, 5)), None, "it has grown by a quarter");
        assert_eq!(left(&facts(99, 90, 5)), None, "a file does not shrink");
        let earlier = Facts::read(90 * MIB, 80 * MIB, Moment::from_unix(999_000));
        assert_eq!(left(&earlier), Some(20), "read before the X-ray");
        assert_eq!(left(&facts(100, 90, 8 * 24)), None, "a week ago");
        assert_eq!(left(&Facts { compacted_seq: number(10), ..facts(120, 90, 0) }), None);
        assert_eq!(left(&Facts::default()), None);
        let vague = Inside { error_bytes: 4 * MIB, ..inside() };
        assert_eq!(vague.predicted_bytes(&facts(100, 90, 0)), None);
    }

    #[test]
    fn xray_is_contradicted_if_a_compaction_frees_another_amount() {
        let before = facts(100, 90, 1);
        let after = |left| Facts { compacted_seq: number(9), ..facts(left, left, 2) };
        let wrong = |after: &Facts| inside().is_contradicted(&before, after, None);
        // 70 MiB were predicted to be freed: 64 to 77 are within the tolerance.
        assert!(!wrong(&after(30)) && !wrong(&after(36)) && !wrong(&after(24)));
        assert!(wrong(&after(37)) && wrong(&after(22)));
        let written = Facts { update_seq: number(10), ..after(80) };
        assert!(!wrong(&written), "writes explain it");
        let unknown = Facts { update_seq: OptionalU64::UNKNOWN, ..after(80) };
        assert!(!wrong(&unknown));
    }
}
