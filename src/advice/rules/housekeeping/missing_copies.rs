//! Copies of shards that are not on their nodes' disks.

use super::{super::Rule, by_database, nodes_of};
use crate::{
    advice::{Finding, Findings, Gain, Remedy, Severity, Situation, Subject},
    model::target::{TargetKind, TargetState},
    table::{DbIx, TargetRef},
    text::{counted, size::format_size_short},
};
use couchdb_names::Range;
use std::collections::BTreeMap;

pub(super) const RULE: Rule = Rule {
    code: "missing_copies",
    finds: "Copies of a shard that the shard map lists and that are not on their node's disk.",
    because: "Until a missing copy is there again, its range has fewer copies than its database asks for, and reads and writes that need a quorum rest on the others. CouchDB creates and fills it when its shards are synchronised, not by itself at once. It is critical if no copy of a range is left: then its documents cannot be read at all.",
    severities: &[Severity::Warning, Severity::Critical],
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
        let of_range = |target: &TargetRef<'_>| copies.get(&(*db, target.range())).copied();
        let lost = targets.iter().filter(|target| of_range(target).is_none()).count() as u64;
        let known = targets.iter().filter_map(of_range);
        let bytes = known.fold(0_u64, |sum, (_, bytes)| sum.saturating_add(bytes));
        let severity = if lost > 0 { Severity::Critical } else { Severity::Warning };
        findings.offer(severity, Gain::Risk(bytes), || {
            let name = first.db_name().db;
            let total = first.shard_map().copies;
            let mut says = format!(
                "{name} lacks {} of its {total} on {}",
                counted(targets.len() as u64, "shard copy", "shard copies"),
                nodes_of(targets),
            );
            says.push_str(&if lost > 0 {
                format!("; of {} no copy is left.", counted(lost, "range", "ranges"))
            } else {
                format!("; the other copies of these ranges have {}.", format_size_short(bytes))
            });
            Finding {
                severity,
                subject: Subject::Database(name.to_owned()),
                says,
                evidence: vec![
                    ("missing_copies", (targets.len() as u64).into()),
                    ("ranges_without_copy", lost.into()),
                    ("copies", total.into()),
                    ("nodes", nodes_of(targets).into()),
                ],
                gain: Gain::Risk(bytes),
                remedy: remedy(name, lost),
            }
        });
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

/// The ranges of these databases of which a copy is on some disk, with the bytes of the largest.
fn present_copies(
    situation: &Situation<'_>,
    of: &BTreeMap<DbIx, Vec<TargetRef<'_>>>,
) -> BTreeMap<(DbIx, Option<Range>), (u64, u64)> {
    let mut copies: BTreeMap<(DbIx, Option<Range>), (u64, u64)> = BTreeMap::new();
    let shards = situation.snapshot().targets().filter(|target| {
        target.kind() == TargetKind::Db
            && target.state() != TargetState::Missing
            && of.contains_key(&target.db())
    });
    for target in shards {
        let (count, bytes) = copies.entry((target.db(), target.range())).or_default();
        *count += 1;
        *bytes = (*bytes).max(target.file_bytes().unwrap_or_default());
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
    fn it_is_critical_when_no_copy_of_a_range_is_left() {
        let shard = |node, range| Shard::new("orders", node, range, 5 * MIB);
        let two = [shard("a", 0), shard("b", 0).missing(), shard("a", 1), shard("b", 1)];
        let warning = found(&two);
        let [only] = &warning[..] else { panic!("{warning:?}") };
        assert_eq!((only.severity, only.gain), (Severity::Warning, Gain::Risk(5 * MIB)));
        assert_eq!(
            only.says,
            "orders lacks 1 shard copy of its 4 on b; the other copies of these ranges have 5 MiB."
        );
        let [one, other, ..] = two;
        let critical = found(&[one.missing(), other, shard("a", 1)]);
        assert_eq!(critical[0].severity, Severity::Critical);
        assert!(critical[0].says.ends_with("of 2 ranges no copy is left."), "{}", critical[0].says);
    }

    #[test]
    fn a_complete_cluster_has_none() {
        assert_eq!(found(&[Shard::new("orders", "a", 0, MIB)]), []);
    }
}
