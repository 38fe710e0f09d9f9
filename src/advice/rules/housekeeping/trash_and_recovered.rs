//! Deleted files that stay on the disk.

use super::files::directories_of;
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    table::Node,
    text::size::format_size_short,
};

pub(crate) const RULE: Rule = Rule {
    code: "trash_and_recovered",
    finds: "Files that CouchDB deleted or set aside and that are still on a node's disk.",
    because: "CouchDB moves a file to `.delete` and then deletes it; files that a crash or `[couchdb] delete_after_rename = false` leaves there are deleted when the node starts. With `[couchdb] enable_database_recovery = true` a deleted database is only renamed, with its indexes, and nothing ever deletes it. Files in `.delete` count after an hour. The rule is silent where no directory is read.",
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for node in situation.snapshot().nodes() {
        let Some(disk) = node.disk_usage else { continue };
        let deleted = disk.trash_bytes.saturating_sub(disk.recoverable_bytes);
        let deleted = deleted.saturating_sub(disk.recent_trash_bytes);
        let bytes = deleted.saturating_add(disk.recoverable_bytes);
        if bytes >= situation.settings().min_bytes {
            findings.offer(Gain::Bytes(bytes), || finding(node, deleted, disk.recoverable_bytes));
        }
    }
}

fn finding(node: &Node, deleted: u64, recoverable: u64) -> Wording {
    let name = &*node.name;
    let (in_trash, kept) = (format_size_short(deleted), format_size_short(recoverable));
    let says = match (deleted, recoverable) {
        (_, 0) => {
            format!("{name} has had {in_trash} of deleted files in .delete for over an hour.")
        }
        (0, _) => format!("{name} keeps {kept} of deleted databases for recovery."),
        _ => format!(
            "{name} keeps {kept} of deleted databases for recovery, and has had {in_trash} of deleted files in .delete for over an hour."
        ),
    };
    Wording {
        subject: Subject::Node(name.to_owned()),
        says,
        evidence: vec![
            ("recoverable_bytes", recoverable.into()),
            ("deleted_bytes", deleted.into()),
        ],
        remedy: remedy(node, deleted, recoverable),
    }
}

fn remedy(node: &Node, deleted: u64, recoverable: u64) -> Vec<Remedy> {
    let directories = directories_of(node);
    let mut remedy = Vec::new();
    if recoverable > 0 {
        remedy.push(Remedy::find_files(
            "On the node, list the deleted databases and their indexes:",
            &directories,
            "-type f -path '*.deleted*' -ls",
        ));
        remedy.push(
            "Delete those that nobody wants back. Nothing reads them; the file name contains the time of deletion in UTC."
                .into(),
        );
    }
    if deleted > 0 {
        remedy.push(Remedy::find_files(
            "On the node, list the files in .delete:",
            &directories,
            "-type f -path '*/.delete/*' -ls",
        ));
        remedy.push("Restart CouchDB on the node, which empties .delete, or delete these files; if [couchdb] delete_after_rename is false, set it to true.".into());
    }
    remedy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const MIB: u64 = 1 << 20;
    const NODE: &str = "couchdb@a";

    /// Findings with `trash` MiB in `.delete`, `recent` of them recent, and `recoverable` MiB kept
    /// for recovery.
    fn found(trash: u64, recent: u64, recoverable: u64) -> Vec<Finding> {
        let mut cluster = TestCluster::with_shards(&[Shard::new("orders", NODE, 0, 5 * MIB)]);
        cluster.set_disk_usage(NODE, |disk| {
            disk.trash_bytes = (trash + recoverable) * MIB;
            disk.recent_trash_bytes = recent * MIB;
            disk.recoverable_bytes = recoverable * MIB;
        });
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_files_kept_for_recovery_and_old_trash() {
        let some = found(100, 30, 200);
        let [both] = &some[..] else { panic!("{some:?}") };
        assert_eq!(both.gain, Gain::Bytes(270 * MIB));
        assert_eq!(
            both.says,
            "couchdb@a keeps 200 MiB of deleted databases for recovery, and has had 70 MiB of deleted files in .delete for over an hour."
        );
        assert_eq!(
            found(0, 0, 200)[0].says,
            "couchdb@a keeps 200 MiB of deleted databases for recovery."
        );
        assert_eq!(
            found(70, 0, 0)[0].says,
            "couchdb@a has had 70 MiB of deleted files in .delete for over an hour."
        );
    }

    #[test]
    fn ignores_few_bytes_and_recently_deleted_files() {
        assert_eq!(found(900, 837, 0), []);
        assert_eq!(found(0, 0, 63), []);
        assert_eq!(found(0, 0, 64).len(), 1);
    }

    #[test]
    fn is_silent_if_no_directory_is_read() {
        let shard = Shard::new("orders", NODE, 0, 5 * MIB);
        assert_eq!(TestCluster::with_shards(&[shard]).findings_of(&RULE), []);
    }
}
