//! Shard ranges that hold much more than their siblings.

use super::split::{split, split_progress};
use crate::{
    advice::{Findings, Gain, Rule, Situation, Subject, Wording},
    model::{rounding::to_bytes, target::TargetState},
    table::DbIx,
    text::{counted, size::format_size_short},
};
use couchdb_names::Range;
use std::collections::BTreeMap;

pub(crate) const RULE: Rule = Rule {
    code: "skewed_range",
    finds: "Shard ranges that hold many times the live data of the other ranges of their database.",
    because: "Documents go to ranges by a hash of their ids, which spreads them evenly. A range becomes larger through a few very large documents, a large partition, whose documents share one hash, or a split of only some ranges. Its nodes do more work than the others, and its compaction needs the most free space. A split divides a range in two in all its copies, writes both halves beside the old files and builds their indexes before the old files are deleted, so it needs room for another copy on each of these nodes; a partition stays in one half. The factor is `advice.skewed_range`; ranges below `advice.min_moved` are ignored.",
    ..Rule::info(check)
};

/// The largest range of a database beside its siblings; live bytes are those of the largest copy.
#[derive(Debug)]
struct Skew {
    range: Range,
    bytes: u64,
    siblings: u64,
    mean: f64,
}

impl Skew {
    /// The skew; `None` if the live bytes of any range are unknown, if a range is being split, or
    /// if there are no other ranges.
    fn of(situation: &Situation<'_>, db: DbIx) -> Option<Self> {
        let mut ranges: BTreeMap<Range, u64> = BTreeMap::new();
        for shard in situation.shards_of(db) {
            if shard.state() == TargetState::Resharding {
                return None;
            }
            let bytes = ranges.entry(shard.range()?).or_default();
            *bytes = (*bytes).max(shard.active_bytes()?);
        }
        if ranges.len() < situation.snapshot().shard_map(db).ranges as usize {
            return None;
        }
        let (range, bytes) = ranges.iter().max_by_key(|(_, bytes)| **bytes)?;
        let siblings = (ranges.len() as u64).checked_sub(1).filter(|others| *others > 0)?;
        let sum = ranges.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        let mean = sum.saturating_sub(*bytes) as f64 / siblings as f64;
        Some(Self { range: *range, bytes: *bytes, siblings, mean })
    }
}

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let settings = situation.settings();
    for (ix, db) in situation.survey.dbs() {
        let Some((largest, _)) = db.largest else { continue };
        let copies = situation.copies_of(ix);
        let others = u64::from(db.shards).saturating_sub(copies);
        let rest = db.active_bytes.saturating_sub(largest.saturating_mul(copies));
        let limit = |mean: f64| mean * settings.skewed_range_factor;
        let is_even = (largest as f64) < limit(rest as f64 / others.max(1) as f64);
        if largest < settings.min_moved_bytes || others == 0 || is_even {
            continue;
        }
        let skew = Skew::of(situation, ix).filter(|skew| skew.bytes as f64 >= limit(skew.mean));
        let Some(skew) = skew else { continue };
        let excess = to_bytes(skew.bytes as f64 - skew.mean).saturating_mul(copies);
        findings.offer(Gain::Risk(excess), || finding(situation.db_name(ix), &skew));
    }
}

fn finding(db: &str, skew: &Skew) -> Wording {
    let mean = to_bytes(skew.mean);
    let siblings = counted(skew.siblings, "sibling", "siblings");
    let compared = if mean == 0 {
        format!("its {siblings} have none")
    } else {
        let times = skew.bytes as f64 / skew.mean;
        format!("{times:.1} times the mean of its {siblings} ({})", format_size_short(mean))
    };
    Wording {
        subject: Subject::Database(db.to_owned()),
        says: format!(
            "The range {} of {db} has {} of live data in each copy, {compared}.",
            skew.range.text().as_str(),
            format_size_short(skew.bytes),
        ),
        evidence: vec![
            ("range", skew.range.text().as_str().to_owned().into()),
            ("live_bytes", skew.bytes.into()),
            ("mean_live_bytes_of_siblings", mean.into()),
            ("siblings", skew.siblings.into()),
        ],
        remedy: vec![
            "If the database is partitioned, first look for a partition that is too large: a split does not divide it.".into(),
            split(
                "Split the range; each node with a copy needs room for its live data once more:",
                db,
                Some(skew.range),
            ),
            split_progress(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::{
        Severity,
        test_cluster::{Shard, TestCluster},
    };

    const GIB: u64 = 1 << 30;

    fn shards(first_gib: u64) -> Vec<Shard> {
        let shard = |node, range, gib| Shard::new("orders", node, range, gib * GIB);
        let small = (1..4).flat_map(|range| [shard("a", range, 2), shard("b", range, 2)]);
        small.chain([shard("a", 0, first_gib), shard("b", 0, first_gib)]).collect()
    }

    fn found(shards: &[Shard]) -> Vec<Finding> {
        TestCluster::with_shards(shards).findings_of(&RULE)
    }

    #[test]
    fn advises_splitting_a_range_four_times_its_siblings() {
        let found = found(&shards(8));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "The range 00000000-1ffffffe of orders has 8 GiB of live data in each copy, 4.0 times the mean of its 3 siblings (2 GiB)."
        );
        assert_eq!((only.severity, only.gain), (Severity::Info, Gain::Risk(12 * GIB)));
        assert_eq!(
            only.remedy[1].text.as_deref().unwrap_or_default(),
            "curl -u \"$COUCHDB_USER\" -X POST -H 'Content-Type: application/json' \"$COUCHDB_URL\"/_reshard/jobs -d '{\"db\":\"orders\",\"range\":\"00000000-1ffffffe\",\"type\":\"split\"}'"
        );
    }

    #[test]
    fn is_silent_if_skew_or_size_is_small_or_there_are_no_siblings() {
        assert_eq!(found(&shards(7)), []);
        let small = shards(8).into_iter().map(|shard| {
            let bytes = shard.file_bytes.map(|bytes| bytes / 9);
            Shard { file_bytes: bytes, active_bytes: bytes, ..shard }
        });
        assert_eq!(found(&small.collect::<Vec<_>>()), []);
        assert_eq!(found(&[Shard::new("orders", "a", 0, 90 * GIB)]), [], "it has no siblings");
    }

    #[test]
    fn is_silent_while_a_range_is_unknown_or_being_split() {
        let mut unknown = shards(80);
        unknown[1].active_bytes = None;
        assert_eq!(found(&unknown), []);
        let mut split = shards(80);
        split[0].state = TargetState::Resharding;
        assert_eq!(found(&split), []);
    }
}
