//! Files that interrupted compactions left behind.

use super::files::directories_of;
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    model::target::{TargetId, TargetState},
    table::{DiskUsage, Node, NodeIx, TargetRef},
    text::{counted, size::format_size_short},
};
use std::collections::BTreeSet;

pub(crate) const RULE: Rule = Rule {
    code: "compaction_leftovers",
    finds: "Files that interrupted compactions left in a node's directories.",
    because: "A node that stops during a compaction keeps the compaction's files, and CouchDB does not continue by itself: the next compaction of the same shard continues from them and removes them at its end (measured on 3.5.0), but a compaction of a view starts over. A file counts once it has not changed for ten minutes and no job of its shard runs, or for a day where running jobs are unknown. The rule is silent where no directory is read.",
    ..Rule::info(check)
};

/// Maximum number of shards with a command of their own.
const MAX_COMMANDS: usize = 3;

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for (at, node) in situation.snapshot().nodes().iter().enumerate() {
        let Some((ix, disk)) = NodeIx::from_usize(at).zip(node.disk_usage) else { continue };
        if disk.leftover_bytes >= situation.settings().min_bytes {
            let gain = Gain::Bytes(disk.leftover_bytes);
            findings.offer(gain, || finding(node, &disk, &resharding_on(situation, ix)));
        }
    }
}

/// The shards on a node that are being split; no compaction of them may start before that ends.
fn resharding_on(situation: &Situation<'_>, node: NodeIx) -> BTreeSet<String> {
    let shards = situation.shards_on(node).filter(|it| it.state() == TargetState::Resharding);
    shards.filter_map(TargetRef::shard_name).collect()
}

fn finding(node: &Node, disk: &DiskUsage, resharding: &BTreeSet<String>) -> Wording {
    let name = &*node.name;
    Wording {
        subject: Subject::Node(name.to_owned()),
        says: format!(
            "{name} has {} in {} left behind by interrupted compactions.",
            format_size_short(disk.leftover_bytes),
            counted(disk.leftover_files, "file", "files"),
        ),
        evidence: vec![
            ("leftover_bytes", disk.leftover_bytes.into()),
            ("leftover_files", disk.leftover_files.into()),
        ],
        remedy: remedy(node, resharding),
    }
}

fn remedy(node: &Node, resharding: &BTreeSet<String>) -> Vec<Remedy> {
    let listed = node.compactions.iter().filter(|files| files.is_leftover && !files.of_views);
    let listed = listed.filter(|files| !resharding.contains(&*files.shard));
    let of_shards = listed.filter(|files| files.shard_bytes.is_some()).take(MAX_COMMANDS);
    let mut remedy: Vec<Remedy> = of_shards
        .map(|files| {
            let shard = files.shard.to_string();
            let id = TargetId::Db { node: node.name.to_string(), shard };
            let bytes = format_size_short(files.bytes);
            Remedy::compact(
                format!("Compact the shard, which continues from its {bytes} and removes them:"),
                &id.to_string(),
            )
        })
        .collect();
    remedy.push(Remedy::find_files(
        "Or list them on the node, with what CouchDB would do with each:",
        &directories_of(node),
        "-name '*.compact*' -mmin +10 -size +1M -exec recliner inspect {} +",
    ));
    remedy.push("Those that end in .compact.data, .compact.meta or .compact.view may be deleted while no compaction of their shard runs; the next one then starts over. Never delete one that ends in .compact: it is the database if the shard's own file is missing.".into());
    remedy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::{
        advice::test_cluster::{Shard, TestCluster},
        table::CompactionFiles,
    };

    const MIB: u64 = 1 << 20;
    const NODE: &str = "couchdb@a";

    fn found(bytes: u64) -> Vec<Finding> {
        let shard = Shard::new("orders", NODE, 0, 5 * MIB);
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.set_disk_usage(NODE, |disk| {
            (disk.leftover_bytes, disk.leftover_files) = (bytes, 2);
        });
        let files = |shard: &str, is_leftover, shard_bytes| CompactionFiles {
            shard: shard.into(),
            of_views: false,
            is_leftover,
            files: 1,
            bytes: bytes / 2,
            shard_bytes,
        };
        cluster.add_compactions(
            NODE,
            vec![
                files("shards/00000000-ffffffff/orders.1", true, Some(9)),
                files("shards/00000000-ffffffff/gone.1", true, None),
                files("shards/00000000-ffffffff/running.1", false, Some(9)),
            ],
        );
        cluster.findings_of(&RULE)
    }

    #[test]
    fn gives_a_command_for_each_existing_shard_with_leftovers() {
        let found = found(900 * MIB);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.gain, Gain::Bytes(900 * MIB));
        assert_eq!(
            only.says,
            "couchdb@a has 900 MiB in 2 files left behind by interrupted compactions."
        );
        let texts: Vec<&str> =
            only.remedy.iter().filter_map(|remedy| remedy.text.as_deref()).collect();
        assert_eq!(
            texts,
            [
                "recliner compact --force db:couchdb@a/shards%2F00000000-ffffffff%2Forders.1",
                "find \"$COUCHDB_DATA\" -name '*.compact*' -mmin +10 -size +1M -exec recliner inspect {} +",
            ]
        );
    }

    #[test]
    fn a_shard_that_is_being_split_is_not_compacted() {
        let shard = Shard { state: TargetState::Resharding, ..Shard::new("orders", NODE, 0, MIB) };
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.set_disk_usage(NODE, |disk| disk.leftover_bytes = 900 * MIB);
        cluster.add_compactions(
            NODE,
            vec![CompactionFiles {
                shard: "shards/00000000-1ffffffe/orders.1".into(),
                of_views: false,
                is_leftover: true,
                files: 1,
                bytes: 900 * MIB,
                shard_bytes: Some(MIB),
            }],
        );
        let found = cluster.findings_of(&RULE);
        let texts = found[0].remedy.iter().filter_map(|remedy| remedy.text.as_deref());
        assert!(texts.clone().all(|text| !text.contains("compact db:")), "{found:?}");
        assert_eq!(texts.count(), 1);
    }

    #[test]
    fn ignores_few_leftover_bytes() {
        assert_eq!(found(63 * MIB), []);
        assert_eq!(found(64 * MIB).len(), 1);
    }

    #[test]
    fn is_silent_if_no_directory_is_read() {
        let shard = Shard::new("orders", NODE, 0, 5 * MIB);
        assert_eq!(TestCluster::with_shards(&[shard]).findings_of(&RULE), []);
    }
}
