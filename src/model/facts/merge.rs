//! Merges the facts of one target from two sources, fact by fact.
//!
//! Differences that are legitimate between CouchDB and a file's header have a rule here; all other
//! differences between readings of the same state are disagreements.

use super::{FactKind, FactSource, Facts};
use crate::text::Label;
use std::time::Duration;

/// The result of comparing two readings of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingComparison {
    /// The readings show different states or come from the same source, so nothing can be concluded.
    Incomparable,
    /// The same state with the same numbers.
    Equal,
    /// The same state with numbers that differ without explanation.
    Different,
}

/// Merges `seen` into `known`, and compares the two.
///
/// The later reading wins, fact by fact; a fact that it lacks is kept if the other source provided
/// it. Three more rules apply:
///
/// * Only CouchDB knows what is running: a header does not change that.
/// * A header that was read before CouchDB's answer adds nothing.
/// * For a shard without `_local` documents, the header keeps the old compacted sequence until the
///   next commit, and CouchDB reports that old one again once it has closed the file. So the largest
///   compacted sequence read so far is correct, unless an older file replaced the current one.
pub fn merge(known: &Facts, seen: &Facts) -> (Facts, ReadingComparison) {
    let Some(now) = seen.measured_at else { return (*known, ReadingComparison::Incomparable) };
    if known.measured_at.is_none() {
        return (*seen, ReadingComparison::Incomparable);
    }
    let verdict = compare_readings(known, seen, now.source);
    if now.source == FactSource::Files
        && known.measured_at.is_some_and(|last| last.source == FactSource::Http && last.at > now.at)
    {
        return (*known, verdict);
    }
    let mut all = *seen;
    for fact in FactKind::each() {
        let other = known.source_of(fact).is_some_and(|source| source != now.source);
        let unknown = seen.get(fact).get().is_none();
        let newer = fact == FactKind::CompactedSeq && has_newer_compaction(known, seen);
        if (other && unknown) || newer {
            *all.get_mut(fact) = known.get(fact);
            all.from_files.set(fact, known.from_files.contains(fact));
        }
    }
    if now.source == FactSource::Files {
        all.flags.compact_running = known.flags.compact_running;
        all.flags.updater_running = known.flags.updater_running;
        all.flags.evidence = known.flags.evidence;
    }
    (all, verdict)
}

/// Whether the last compaction in `known` is newer than the one in `seen`.
fn has_newer_compaction(known: &Facts, seen: &Facts) -> bool {
    known.compacted_seq.get() > seen.compacted_seq.get()
        && known.update_seq.get() <= seen.update_seq.get()
}

/// Compares readings of the same state only. Files only grow at their end, so two readings with
/// equal size and sequence are of the same state.
fn compare_readings(known: &Facts, seen: &Facts, by: FactSource) -> ReadingComparison {
    let other = |fact| known.source_of(fact).is_some_and(|source| source != by);
    let both = |fact| Some((known.get(fact).get()?, seen.get(fact).get()?));
    let same = |fact| other(fact) && both(fact).is_some_and(|(one, two)| one == two);
    if went_back_in_time(known, seen) && other(FactKind::File) && other(FactKind::UpdateSeq) {
        return ReadingComparison::Different;
    }
    if !same(FactKind::File) || !same(FactKind::UpdateSeq) {
        return ReadingComparison::Incomparable;
    }
    let differ = [FactKind::Active, FactKind::External, FactKind::Docs, FactKind::DeletedDocs]
        .into_iter()
        .any(|fact| other(fact) && both(fact).is_some_and(|(one, two)| one != two));
    let (header, couchdb) = if by == FactSource::Files { (seen, known) } else { (known, seen) };
    let compacted = other(FactKind::CompactedSeq)
        && header
            .compacted_seq
            .get()
            .zip(couchdb.compacted_seq.get())
            .is_some_and(|(header, couchdb)| header > couchdb);
    if differ || compacted { ReadingComparison::Different } else { ReadingComparison::Equal }
}

/// Minimum time between two readings for one to count as later: moments have a resolution of one
/// second, and a sidecar's clock is known to within a second.
const MIN_READING_DISTANCE: Duration = Duration::from_secs(5);

/// Whether the later reading shows an earlier state, so that the two are not of the same file. A
/// lower sequence alone in a file of the same size does not show this: CouchDB counts a change of
/// the purge limit in memory until the next commit.
fn went_back_in_time(known: &Facts, seen: &Facts) -> bool {
    let (one, two) = (known.measured_at, seen.measured_at);
    let later = one.zip(two).is_some_and(|(one, two)| one.at.age(two.at) >= MIN_READING_DISTANCE);
    let less =
        known.update_seq.get().zip(seen.update_seq.get()).is_some_and(|(one, two)| two < one);
    later && less && known.file_bytes != seen.file_bytes
}

/// Compares the header of one view index with CouchDB's answer about the same file.
///
/// CouchDB commits an index seconds after it changed, so a header often shows an earlier state.
/// With equal size and sequence it shows the same state, unless the index is being built or
/// compacted. External bytes of groups without rows are missing in headers and not compared.
pub fn compare_index(header: &Facts, couchdb: &Facts) -> ReadingComparison {
    let both = |fact| Some((header.get(fact).get()?, couchdb.get(fact).get()?));
    let same = |fact| both(fact).is_some_and(|(one, two)| one == two);
    let works = couchdb.flags.updater_running || couchdb.flags.compact_running;
    if works || !same(FactKind::File) || !same(FactKind::UpdateSeq) {
        return ReadingComparison::Incomparable;
    }
    match both(FactKind::Active) {
        None => ReadingComparison::Incomparable,
        Some((one, two)) if one == two => ReadingComparison::Equal,
        Some(_) => ReadingComparison::Different,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{FactFlags, Measurement, OptionalU64};
    use wall_clock::Moment;

    fn facts(by: FactSource, at: u64, file: u64, seq: u64, active: u64, compacted: u64) -> Facts {
        let facts = Facts {
            external_bytes: OptionalU64::new(7),
            update_seq: OptionalU64::new(seq),
            compacted_seq: OptionalU64::new(compacted),
            docs: OptionalU64::new(3),
            deleted_docs: OptionalU64::new(1),
            measured_at: Some(Measurement { at: Moment::from_unix(at), source: by }),
            ..Facts::sized(file, active)
        };
        if by == FactSource::Files { facts.marked_from_files() } else { facts }
    }

    fn http(at: u64, file: u64, seq: u64, active: u64, compacted: u64) -> Facts {
        facts(FactSource::Http, at, file, seq, active, compacted)
    }

    fn files(at: u64, file: u64, seq: u64, active: u64, compacted: u64) -> Facts {
        facts(FactSource::Files, at, file, seq, active, compacted)
    }

    #[test]
    fn compares_sources_only_for_the_same_state_of_a_file() {
        for (case, known, seen, expected) in [
            ("the same", http(1, 90, 5, 40, 2), files(2, 90, 5, 40, 2), ReadingComparison::Equal),
            (
                "the other way round",
                files(1, 90, 5, 40, 2),
                http(2, 90, 5, 40, 2),
                ReadingComparison::Equal,
            ),
            (
                "it grew",
                http(1, 90, 5, 40, 2),
                files(2, 99, 6, 44, 2),
                ReadingComparison::Incomparable,
            ),
            (
                "a _local document",
                http(1, 90, 5, 40, 2),
                files(2, 99, 5, 44, 2),
                ReadingComparison::Incomparable,
            ),
            (
                "a limit raised in memory",
                http(1, 90, 6, 40, 2),
                files(2, 90, 5, 40, 2),
                ReadingComparison::Incomparable,
            ),
            (
                "other live bytes",
                http(1, 90, 5, 40, 2),
                files(2, 90, 5, 41, 2),
                ReadingComparison::Different,
            ),
            (
                "compacted, not committed",
                http(1, 90, 5, 40, 5),
                files(2, 90, 5, 40, 2),
                ReadingComparison::Equal,
            ),
            (
                "compacted unknown to CouchDB",
                http(1, 90, 5, 40, 2),
                files(2, 90, 5, 40, 5),
                ReadingComparison::Different,
            ),
            (
                "another file altogether",
                http(1, 90, 5, 40, 2),
                files(6, 80, 4, 40, 2),
                ReadingComparison::Different,
            ),
            (
                "seconds apart",
                http(2, 90, 5, 40, 2),
                files(6, 80, 4, 40, 2),
                ReadingComparison::Incomparable,
            ),
            (
                "put back, says CouchDB",
                files(1, 90, 5, 40, 2),
                http(6, 80, 4, 40, 2),
                ReadingComparison::Different,
            ),
            (
                "one source",
                files(1, 90, 5, 40, 2),
                files(2, 90, 5, 41, 2),
                ReadingComparison::Incomparable,
            ),
        ] {
            assert_eq!(merge(&known, &seen).1, expected, "{case}");
        }
    }

    #[test]
    fn only_an_idle_index_is_compared_with_its_header() {
        let header = files(1, 90, 5, 40, 0);
        let reading = |file, seq, active| Facts {
            external_bytes: OptionalU64::new(9),
            ..http(2, file, seq, active, 0)
        };
        assert_eq!(compare_index(&header, &reading(90, 5, 40)), ReadingComparison::Equal);
        assert_eq!(compare_index(&header, &reading(90, 5, 41)), ReadingComparison::Different);
        assert_eq!(
            compare_index(&header, &reading(90, 6, 41)),
            ReadingComparison::Incomparable,
            "not committed"
        );
        assert_eq!(
            compare_index(&header, &reading(94, 5, 41)),
            ReadingComparison::Incomparable,
            "a second header"
        );
        for (builds, compacts) in [(true, false), (false, true)] {
            let mut works = reading(90, 5, 41);
            works.flags.updater_running = builds;
            works.flags.compact_running = compacts;
            assert_eq!(compare_index(&header, &works), ReadingComparison::Incomparable);
        }
        let unknown = Facts { active_bytes: OptionalU64::UNKNOWN, ..reading(90, 5, 0) };
        assert_eq!(compare_index(&header, &unknown), ReadingComparison::Incomparable);
    }

    #[test]
    fn later_reading_wins_for_each_fact_separately() {
        let mut known = http(1, 90, 5, 40, 5);
        known.updates_pending = OptionalU64::new(9);
        known.flags = FactFlags { compact_running: true, ..FactFlags::default() };
        let (now, _) = merge(&known, &files(2, 99, 6, 44, 2));
        assert_eq!(
            (now.file_bytes.get(), now.active_bytes.get(), now.update_seq.get()),
            (Some(99), Some(44), Some(6))
        );
        assert_eq!(now.source_of(FactKind::File), Some(FactSource::Files));
        assert_eq!(now.compacted_seq.get(), Some(5), "the header lags");
        assert_eq!(now.source_of(FactKind::CompactedSeq), Some(FactSource::Http));
        assert_eq!(now.source_of(FactKind::UpdatesPending), Some(FactSource::Http));
        assert!(now.flags.compact_running);
        // The next header has caught up; after that, CouchDB's own reading replaces every fact.
        let (now, _) = merge(&now, &files(3, 99, 6, 44, 6));
        assert_eq!(
            (now.compacted_seq.get(), now.source_of(FactKind::CompactedSeq)),
            (Some(6), Some(FactSource::Files))
        );
        let (now, _) = merge(&now, &http(4, 99, 6, 44, 6));
        assert_eq!(now.from_files, crate::model::facts::FactSet::default());
        // The file was replaced by an earlier version.
        let (now, _) = merge(&now, &files(5, 50, 2, 20, 0));
        assert_eq!(now.compacted_seq.get(), Some(0));
    }

    #[test]
    fn missing_fact_is_kept_only_from_the_other_source() {
        let less = Facts { active_bytes: OptionalU64::UNKNOWN, ..http(2, 95, 6, 0, 5) };
        assert_eq!(merge(&http(1, 90, 5, 40, 5), &less).0, less);
        let merged = merge(&files(1, 90, 5, 40, 5), &less).0;
        assert_eq!(
            (merged.active_bytes.get(), merged.source_of(FactKind::Active)),
            (Some(40), Some(FactSource::Files))
        );
    }

    #[test]
    fn header_older_than_couchdbs_answer_is_ignored() {
        let known = http(9, 99, 6, 44, 5);
        assert_eq!(
            merge(&known, &files(8, 90, 5, 40, 5)),
            (known, ReadingComparison::Incomparable)
        );
        assert_eq!(merge(&known, &files(8, 99, 6, 45, 5)), (known, ReadingComparison::Different));
        let at_once = files(9, 99, 6, 44, 5);
        assert_eq!(merge(&known, &at_once), (at_once, ReadingComparison::Equal));
        // A clock that was set back does not block a source forever.
        let later = http(3, 99, 6, 44, 5);
        assert_eq!(merge(&known, &later).0, later);
    }

    #[test]
    fn keeps_compacted_sequence_that_couchdb_forgot() {
        let forgotten = merge(&http(1, 90, 5, 40, 5), &http(2, 90, 5, 40, 0)).0;
        assert_eq!(forgotten.compacted_seq.get(), Some(5));
        assert_eq!(forgotten.source_of(FactKind::CompactedSeq), Some(FactSource::Http));
        let again = merge(&forgotten, &http(3, 99, 9, 40, 9)).0;
        assert_eq!(again.compacted_seq.get(), Some(9));
        let replaced = merge(&forgotten, &http(3, 50, 2, 40, 0)).0;
        assert_eq!(replaced.compacted_seq.get(), Some(0), "another file");
    }

    #[test]
    fn reading_without_measurement_changes_nothing() {
        let known = http(1, 90, 5, 40, 5);
        assert_eq!(merge(&known, &Facts::default()), (known, ReadingComparison::Incomparable));
        assert_eq!(merge(&Facts::default(), &known), (known, ReadingComparison::Incomparable));
    }
}
