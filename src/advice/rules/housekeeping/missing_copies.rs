//! Copies of shards that are not on their nodes' disks.

use super::{super::Rule, by_database, nodes_of};
use crate::{
    advice::{Finding, Findings, Gain, Remedy, Severity, Situation, Subject},
    model::target::{TargetKind, TargetState},
    table::{DbIx, TargetRef},
    text::{counted, size::format_size_short},
};
use couchdb_names::Range;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULE: Rule = Rule {
    code: "missing_copies",
    finds: "Copies of a shard that the shard map lists and that are not on their node's disk.",
    because: "Until a missing copy is there again, its range has fewer copies than its database asks for, and reads and writes that need a quorum rest on the others. CouchDB creates and fills it when its shards are synchronised, not by itself at once. It is critical if no copy of a range is left: then its documents cannot be read at all.",
    severities: &[Severity::Warning, Severity::Critical],
    untried: None,
    check,
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let missing = by_database(situation, &situation.survey.missing);
    if missing.is_empty() {
        return;
    }
    let copies = present_copies(situation, &missing);
    for (db, targets) in &missing {
        let Some(first) = targets.first() else { continue };
        let loss = Loss::of(*db, targets, &copies);
        let severity = if loss.ranges > 0 { Severity::Critical } else { Severity::Warning };
        let gain = loss.bytes_at_risk.map_or(Gain::Unknown, Gain::Risk);
        findings.offer(severity, gain, || finding(*first, targets, &loss, (severity, gain)));
    }
}

/// What the missing copies of a database put at risk.
struct Loss {
    /// Ranges of which a copy is missing and another is left.
    thin_ranges: u64,
    /// Ranges without a copy.
    ranges: u64,
    /// Bytes of the remaining copies, one of each thin range; none if a size is unknown.
    remaining: Option<u64>,
    /// The same with those of the lost ranges, which are taken to be as large as the largest range that is left;
    /// none if nothing tells.
    bytes_at_risk: Option<u64>,
}

impl Loss {
    fn of(db: DbIx, targets: &[TargetRef<'_>], copies: &Copies) -> Self {
        let ranges: BTreeSet<Option<Range>> = targets.iter().map(|it| it.range()).collect();
        let left: Vec<Option<u64>> =
            ranges.iter().filter_map(|range| copies.get(&(db, *range)).copied()).collect();
        let lost = (ranges.len() - left.len()) as u64;
        let remaining =
            left.iter().try_fold(0_u64, |sum, bytes| Some(sum.saturating_add((*bytes)?)));
        let largest = copies.iter().filter(|((of, _), _)| *of == db).filter_map(|it| *it.1).max();
        let of_lost = if lost == 0 { Some(0) } else { largest.map(|it| it.saturating_mul(lost)) };
        let bytes_at_risk = remaining.zip(of_lost).map(|(one, two)| one.saturating_add(two));
        Self { thin_ranges: left.len() as u64, ranges: lost, remaining, bytes_at_risk }
    }

    /// The second half of the sentence.
    fn says(&self) -> String {
        match (self.ranges, self.remaining) {
            (0, remaining) => {
                let ranges = if self.thin_ranges == 1 { "its range" } else { "their ranges" };
                match remaining {
                    Some(bytes) => {
                        let bytes = format_size_short(bytes);
                        format!("the remaining copies of {ranges} hold {bytes}")
                    }
                    None => format!("the size of the remaining copies of {ranges} is unknown"),
                }
            }
            (1, _) => "1 range has no copy left".to_owned(),
            (lost, _) => format!("{lost} ranges have no copy left"),
        }
    }
}

fn finding(
    first: TargetRef<'_>,
    targets: &[TargetRef<'_>],
    loss: &Loss,
    (severity, gain): (Severity, Gain),
) -> Finding {
    let name = first.db_name().db;
    let total = first.shard_map().copies;
    let missing = targets.len() as u64;
    Finding {
        severity,
        subject: Subject::Database(name.to_owned()),
        says: format!(
            "{missing} of {name}'s {} {} missing on {}; {}.",
            counted(total.into(), "shard copy", "shard copies"),
            if missing == 1 { "is" } else { "are" },
            nodes_of(targets),
            loss.says(),
        ),
        evidence: vec![
            ("missing_copies", missing.into()),
            ("ranges_without_copy", loss.ranges.into()),
            ("copies", total.into()),
            ("nodes", nodes_of(targets).into()),
        ],
        gain,
        remedy: remedy(name, loss.ranges),
    }
}

fn remedy(db: &str, lost: u64) -> Vec<Remedy> {
    let sync = Remedy::couchdb(
        "Have CouchDB create the missing copies and fill them from the others:",
        "POST",
        &[db, "_sync_shards"],
        None,
    );
    if lost == 0 {
        return vec![sync];
    }
    let first = "If the files were moved or a disk is not mounted, put them back before anything else; otherwise restore those ranges from a backup.";
    vec![Remedy::choice(first), sync]
}

/// The bytes of the largest copy of each range that has one; none if no size is known.
type Copies = BTreeMap<(DbIx, Option<Range>), Option<u64>>;

/// The ranges of these databases of which a copy is on some disk.
fn present_copies(situation: &Situation<'_>, of: &BTreeMap<DbIx, Vec<TargetRef<'_>>>) -> Copies {
    let mut copies = Copies::new();
    let shards = situation.snapshot().targets().filter(|target| {
        target.kind() == TargetKind::Db
            && target.state() != TargetState::Missing
            && of.contains_key(&target.db())
    });
    for target in shards {
        let bytes = copies.entry((target.db(), target.range())).or_default();
        *bytes = (*bytes).max(target.file_bytes());
    }
    copies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const MIB: u64 = 1 << 20;

    fn found(shards: &[Shard]) -> Vec<Finding> {
        TestCluster::with_shards(shards).findings_of(&RULE)
    }

    #[test]
    fn a_missing_copy_is_a_warning_with_what_is_left() {
        let shard = |node, range| Shard::new("orders", node, range, 5 * MIB);
        let warning =
            found(&[shard("a", 0), shard("b", 0).missing(), shard("a", 1), shard("b", 1)]);
        let [only] = &warning[..] else { panic!("{warning:?}") };
        assert_eq!((only.severity, only.gain), (Severity::Warning, Gain::Risk(5 * MIB)));
        assert_eq!(
            only.says,
            "1 of orders's 4 shard copies is missing on b; the remaining copies of its range hold 5 MiB."
        );
    }

    #[test]
    fn it_is_critical_when_no_copy_of_a_range_is_left_and_each_range_counts_once() {
        let shard = |node, range| Shard::new("orders", node, range, 5 * MIB);
        let critical = found(&[shard("a", 0).missing(), shard("b", 0).missing(), shard("a", 1)]);
        assert_eq!(
            (critical[0].severity, critical[0].gain),
            (Severity::Critical, Gain::Risk(5 * MIB)),
            "as much as the range that is left"
        );
        assert_eq!(
            critical[0].says,
            "2 of orders's 3 shard copies are missing on a and b; 1 range has no copy left."
        );
        let all = found(&[shard("a", 0).missing(), shard("a", 1).missing()]);
        assert_eq!((all[0].severity, all[0].gain), (Severity::Critical, Gain::Unknown));
        assert!(all[0].says.ends_with("; 2 ranges have no copy left."), "{}", all[0].says);
    }

    #[test]
    fn an_unknown_size_is_not_called_nothing() {
        let shard = |node| Shard::new("orders", node, 0, MIB);
        let unmeasured = Shard { file_bytes: None, active_bytes: None, ..shard("a") };
        let found = found(&[unmeasured, shard("b").missing()]);
        assert_eq!(found[0].gain, Gain::Unknown);
        assert_eq!(
            found[0].says,
            "1 of orders's 2 shard copies is missing on b; the size of the remaining copies of its range is unknown."
        );
    }

    #[test]
    fn a_complete_cluster_has_none() {
        assert_eq!(found(&[Shard::new("orders", "a", 0, MIB)]), []);
    }
}
