//! Shard files that no database owns.

use super::{super::Rule, by_database, nodes_of};
use crate::{
    advice::{Finding, Findings, Gain, Remedy, Severity, Situation, Subject},
    text::{counted, size::format_size_short},
};

pub(super) const RULE: Rule = Rule {
    code: "orphan_shards",
    finds: "Shard files on disk that belong to no database of the cluster's shard map.",
    because: "CouchDB leaves such files when a database is deleted or a shard moved while a node is down or out of the cluster. Nothing opens them, no compaction and no cleanup ever removes them, and they are invisible in `_all_dbs`. They may be the last copy of a database that was deleted by mistake, so a person decides.",
    severities: &[Severity::Info],
    untried: None,
    check,
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for targets in by_database(situation, &situation.survey.orphans).into_values() {
        let known = targets.iter().filter_map(|target| target.file_bytes());
        let bytes = known.fold(0_u64, u64::saturating_add);
        if bytes < situation.settings().min_bytes {
            continue;
        }
        let Some(first) = targets.first() else { continue };
        findings.offer(Severity::Info, Gain::Bytes(bytes), || {
            let name = first.db_name();
            let files = counted(targets.len() as u64, "shard file", "shard files");
            Finding {
                severity: Severity::Info,
                subject: Subject::Database(name.db.to_owned()),
                says: format!(
                    "{files} of {name} ({}) on {} {} to no database.",
                    format_size_short(bytes),
                    nodes_of(&targets),
                    if targets.len() == 1 { "belongs" } else { "belong" },
                ),
                evidence: vec![
                    ("files", (targets.len() as u64).into()),
                    ("file_bytes", bytes.into()),
                    ("nodes", nodes_of(&targets).into()),
                ],
                gain: Gain::Bytes(bytes),
                remedy: vec![
                    Remedy::recliner("List the files:", &["explain", &first.id().to_string()]),
                    Remedy::choice(
                        "CouchDB has no request that deletes them. If nobody needs the data, delete the files in the data directory of each node; if somebody does, copy them away first.",
                    ),
                ],
            }
        });
    }
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
    fn orphans_of_one_database_are_one_finding() {
        let orphan = |node, range, mib| Shard::new("old", node, range, mib * MIB).orphan();
        let shards = [orphan("a", 0, 40), orphan("b", 1, 30), Shard::new("new", "a", 0, 900 * MIB)];
        let found = found(&shards);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.gain, Gain::Bytes(70 * MIB));
        assert_eq!(only.says, "2 shard files of old.1 (70 MiB) on a and b belong to no database.");
    }

    #[test]
    fn little_and_what_is_not_known_are_no_advice() {
        let orphan = Shard::new("old", "a", 0, 63 * MIB).orphan();
        assert_eq!(found(std::slice::from_ref(&orphan)), []);
        assert_eq!(found(&[Shard { file_bytes: None, ..orphan }]), []);
    }
}
