//! Compactions whose files grow past what they can need.

use super::files::directories_of;
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording},
    model::target::TargetId,
    table::{CompactionFiles, Node},
    text::{
        quote::{find_pattern, shell_word},
        size::format_size_short,
    },
};

pub(crate) const RULE: Rule = Rule {
    code: "oversized_compaction_file",
    finds: "Shards whose running or recent compaction has written more than it should need.",
    because: "A compaction writes the new file and one to sort ids, together at most 2.15 times the live bytes (measured on 3.5.0), plus what is written to the shard meanwhile. A few never stop writing: 450 GB for a shard of 12 GB (medic/cht-core#10223), a `.compact.meta` of 500 GB for one of 30 GB (apache/couchdb#3292). The limit is the shard's file times `advice.compaction_file_factor`. It is critical beyond twice that, or if the node has less free space than the files already take. Neither HTTP nor `_active_tasks` shows their size, so the rule is silent where no directory is read.",
    severities: &[Severity::Warning, Severity::Critical],
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let settings = situation.settings();
    for node in situation.snapshot().nodes() {
        let written = node.compactions.iter().filter(|files| !files.is_leftover && !files.of_views);
        for files in written.filter(|files| files.bytes >= settings.min_bytes) {
            let Some(shard_bytes) = files.shard_bytes else { continue };
            let limit = shard_bytes as f64 * settings.compaction_file_factor;
            let bytes = files.bytes as f64;
            if bytes <= limit {
                continue;
            }
            let free = free_bytes(situation, node);
            let is_critical = bytes > 2.0 * limit || free.is_some_and(|free| free < files.bytes);
            let severity = if is_critical { Severity::Critical } else { Severity::Warning };
            findings.offer_as(severity, Gain::Bytes(files.bytes), || finding(node, files, free));
        }
    }
}

/// Free bytes on the fullest volume of a node; none if unknown.
fn free_bytes(situation: &Situation<'_>, node: &Node) -> Option<u64> {
    let measured = situation.inputs.plan.conditions.disks.of_node(&node.name);
    let measured = measured.filter_map(|volume| Some(volume.space?.available));
    let walked = node.volume_usage.iter().filter_map(|usage| Some(usage.volume.space?.available));
    measured.chain(walked).min()
}

fn finding(node: &Node, files: &CompactionFiles, free: Option<u64>) -> Wording {
    let shard_bytes = files.shard_bytes.unwrap_or_default();
    let (name, shard) = (&*node.name, &*files.shard);
    let target = TargetId::Db { node: name.to_owned(), shard: shard.to_owned() };
    let mut evidence = vec![
        ("compaction_file_bytes", files.bytes.into()),
        ("shard_file_bytes", shard_bytes.into()),
    ];
    evidence.extend(free.map(|free| ("available_bytes", free.into())));
    Wording {
        says: format!(
            "The compaction of {} has written {} for a file of {}; it is running or wrote recently.",
            target.title(None),
            format_size_short(files.bytes),
            format_size_short(shard_bytes),
        ),
        subject: Subject::Target(target),
        evidence,
        remedy: remedy(node, shard),
    }
}

fn remedy(node: &Node, shard: &str) -> Vec<Remedy> {
    let ignored = ("smoosh.ignore", shard);
    let files =
        format!("-path {}", shell_word(&format!("*/{}.couch.compact.*", find_pattern(shard))));
    let directories = directories_of(node);
    vec![
        Remedy::set_config("Keep smoosh from starting it again:", &node.name, ignored, "true"),
        "Restart CouchDB on the node, the only way to stop a compaction. If recliner enforces, add the shard to `ignore` first.".into(),
        Remedy::find_files(
            "On the node, look at the compaction's files:",
            &directories,
            &format!("{files} -ls"),
        ),
        Remedy::find_files(
            "Five minutes after the restart, delete those that have not changed since; keep the shard's own file:",
            &directories,
            &format!("{files} -mmin +5 -delete"),
        ),
        Remedy::unset_config("Then let smoosh compact it again:", &node.name, ignored),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::{
        advice::test_cluster::{Shard, TestCluster},
        datadir::{DirectoryContent, DirectoryVolume, FileSystemSpace},
        table::VolumeUsage,
    };

    const MIB: u64 = 1 << 20;
    const NODE: &str = "couchdb@a";

    fn files(mib: u64) -> CompactionFiles {
        CompactionFiles {
            shard: "shards/00000000-ffffffff/orders.1".into(),
            of_views: false,
            is_leftover: false,
            files: 2,
            bytes: mib * MIB,
            shard_bytes: Some(100 * MIB),
        }
    }

    /// Findings with this many MiB free on the node.
    fn found(files: CompactionFiles, free: u64) -> Vec<Finding> {
        let shard = Shard::new("orders", NODE, 0, 100 * MIB);
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.add_compactions(NODE, vec![files]);
        let node = cluster.draft.get_or_add_node(NODE);
        let space = FileSystemSpace { available: free * MIB, size: 9_000 * MIB, device: 1 };
        let volume = DirectoryVolume {
            directory: "/data".into(),
            content: DirectoryContent::Both,
            space: Some(space),
        };
        let usage = VolumeUsage { volume, stale_index_bytes: 0, leftover_bytes: 0, trash_bytes: 0 };
        cluster.draft.update_node(node, |node| node.volume_usage = vec![usage]);
        cluster.findings_of(&RULE)
    }

    #[test]
    fn severity_is_critical_if_the_file_is_huge_or_space_is_short() {
        let warning = found(files(301), 301);
        let [only] = &warning[..] else { panic!("{warning:?}") };
        assert_eq!((only.severity, only.gain), (Severity::Warning, Gain::Bytes(301 * MIB)));
        assert_eq!(
            only.says,
            "The compaction of orders on couchdb@a has written 301 MiB for a file of 100 MiB; it is running or wrote recently."
        );
        let texts: Vec<&str> =
            only.remedy.iter().filter_map(|remedy| remedy.text.as_deref()).collect();
        assert!(texts[0].ends_with(
            " -X PUT -H 'Content-Type: application/json' \"$COUCHDB_URL\"/_node/couchdb@a/_config/smoosh.ignore/shards%2F00000000-ffffffff%2Forders.1 -d '\"true\"'"
        ), "{texts:?}");
        assert_eq!(
            texts[2],
            "find /data -path '*/shards/00000000-ffffffff/orders.1.couch.compact.*' -mmin +5 -delete"
        );
        assert_eq!(found(files(301), 300)[0].severity, Severity::Critical, "it cannot double");
        assert_eq!(found(files(601), 9_000)[0].severity, Severity::Critical);
        assert_eq!(found(files(600), 9_000)[0].severity, Severity::Warning);
    }

    #[test]
    fn ignores_file_that_the_compaction_may_need() {
        assert_eq!(found(files(300), 0), []);
        let small = CompactionFiles { shard_bytes: Some(MIB), ..files(63) };
        assert_eq!(found(small, 0), [], "too little to matter");
        let leftover = CompactionFiles { is_leftover: true, ..files(900) };
        assert_eq!(found(leftover, 0), [], "another rule counts these bytes");
    }

    #[test]
    fn is_silent_if_the_size_of_the_shard_is_unknown() {
        assert_eq!(found(CompactionFiles { shard_bytes: None, ..files(900) }, 0), []);
    }
}
