//! View index files that nothing uses.

use super::files::directories_of;
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    table::{Node, TargetRef},
    text::{counted, listed, size::format_size_short},
};

pub(crate) const RULE: Rule = Rule {
    code: "stale_indexes",
    finds: "View index files that no design document or no shard uses.",
    because: "CouchDB names an index file after the functions of its design document. When these change, it builds a new file and keeps the old one until `_view_cleanup`; before 3.5.2 smoosh calls that only occasionally, after it has compacted a view. No cleanup removes the index of a deleted shard. Only directories show the sizes.",
    ..Rule::info(check)
};

/// Maximum number of databases that a sentence names.
const MAX_NAMED: usize = 3;

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let min_bytes = situation.settings().min_bytes;
    let (mut unsized_count, mut unsized_cleanups) = (0_u64, Vec::new());
    for cleanup in situation.listed(&situation.survey.cleanups) {
        match cleanup.file_bytes() {
            Some(bytes) if bytes >= min_bytes => {
                findings.offer(Gain::Bytes(bytes), || of_database(cleanup, bytes));
            }
            Some(_) => {}
            None => {
                unsized_count += 1;
                if unsized_cleanups.len() < MAX_NAMED {
                    unsized_cleanups.push(cleanup);
                }
            }
        }
    }
    if unsized_count > 0 {
        findings.offer(Gain::Unknown, || of_unknown_size(&unsized_cleanups, unsized_count));
    }
    for node in situation.snapshot().nodes() {
        let Some(disk) = node.disk_usage else { continue };
        if disk.ownerless_index_bytes >= min_bytes {
            let bytes = disk.ownerless_index_bytes;
            findings.offer(Gain::Bytes(bytes), || of_node(node, bytes));
        }
    }
}

fn of_database(cleanup: TargetRef<'_>, bytes: u64) -> Wording {
    let name = cleanup.db_name().db;
    Wording {
        subject: Subject::Database(name.to_owned()),
        says: format!(
            "{name} has {} of view index files that no design document uses.",
            format_size_short(bytes)
        ),
        evidence: vec![("stale_index_bytes", bytes.into())],
        remedy: cleanups(cleanup),
    }
}

fn of_unknown_size(cleanups_named: &[TargetRef<'_>], count: u64) -> Wording {
    let mut names: Vec<String> =
        cleanups_named.iter().map(|cleanup| cleanup.db_name().db.to_owned()).collect();
    let others = count - names.len() as u64;
    if others > 0 {
        names.push(format!("{others} more"));
    }
    Wording {
        subject: Subject::Cluster,
        says: format!(
            "{} ({}) {} an index that a design document no longer uses; HTTP does not show the size of its files.",
            counted(count, "database", "databases"),
            listed(&names),
            if count == 1 { "had" } else { "each had" },
        ),
        evidence: vec![("databases", count.into())],
        remedy: cleanups_named.first().map(|first| cleanups(*first)).unwrap_or_default(),
    }
}

/// The two ways to clean up a database.
fn cleanups(cleanup: TargetRef<'_>) -> Vec<Remedy> {
    let name = cleanup.db_name().db;
    vec![
        Remedy::recliner(
            "Have a running recliner clean up, within its limits:",
            &["compact", &cleanup.id().to_string()],
        ),
        Remedy::view_cleanup("Or ask CouchDB, which deletes these files on all nodes:", name),
    ]
}

fn of_node(node: &Node, bytes: u64) -> Wording {
    let name = &*node.name;
    Wording {
        subject: Subject::Node(name.to_owned()),
        says: format!(
            "{name} has {} of view index files whose shard no longer exists there.",
            format_size_short(bytes)
        ),
        evidence: vec![("ownerless_index_bytes", bytes.into())],
        remedy: vec![
            Remedy::find_files(
                "On the node, list all index files with the name of their shard:",
                &directories_of(node),
                "-path '*/mrview/*.view' -size +1M -ls",
            ),
            "Nothing in CouchDB removes such files. Make sure that their database is deleted or complete elsewhere; then delete the directories of shards without a `.couch` file on the node."
                .into(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const MIB: u64 = 1 << 20;

    fn cluster() -> TestCluster {
        TestCluster::with_shards(&[Shard::new("orders", "couchdb@a", 0, 5 * MIB)])
    }

    fn found(cleanups: &[(&'static str, Option<u64>)], ownerless: u64) -> Vec<Finding> {
        let mut cluster = cluster();
        for (db, bytes) in cleanups {
            cluster.add_cleanup(db, *bytes);
        }
        cluster.set_disk_usage("couchdb@a", |disk| {
            disk.stale_index_bytes = 900 * MIB;
            disk.ownerless_index_bytes = ownerless;
        });
        cluster.findings_of(&RULE)
    }

    #[test]
    fn bytes_of_stale_files_are_counted_in_one_finding_only() {
        let found = found(&[("orders", Some(600 * MIB)), ("tiny", Some(MIB))], 300 * MIB);
        let says: Vec<&str> = found.iter().map(|it| &*it.says).collect();
        assert_eq!(
            says,
            [
                "orders has 600 MiB of view index files that no design document uses.",
                "couchdb@a has 300 MiB of view index files whose shard no longer exists there.",
            ]
        );
        let freed: u64 = found.iter().map(|it| it.gain.freed_bytes()).sum();
        assert_eq!(freed, 900 * MIB);
        let texts: Vec<&str> =
            found[0].remedy.iter().filter_map(|remedy| remedy.text.as_deref()).collect();
        assert_eq!(texts[0], "recliner compact cleanup:orders");
        assert!(texts[1].ends_with("/orders/_view_cleanup"), "{texts:?}");
    }

    #[test]
    fn ignores_few_stale_bytes() {
        assert_eq!(found(&[("orders", Some(63 * MIB))], 63 * MIB), []);
        assert_eq!(found(&[("orders", Some(64 * MIB))], 64 * MIB).len(), 2);
    }

    #[test]
    fn reports_sizes_as_unknown_without_directories() {
        let dbs = [("a", None), ("b", None), ("c", None), ("d", None)];
        let found = found(&dbs, 0);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.gain, Gain::Unknown);
        assert_eq!(
            only.says,
            "4 databases (a, b, c and 1 more) each had an index that a design document no longer uses; HTTP does not show the size of its files."
        );
        assert_eq!(cluster().findings_of(&RULE), []);
    }
}
