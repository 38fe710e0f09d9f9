//! Nodes whose CouchDB watches its disks itself, which may fail silently.

use super::nodes::{nodes_in_words, nodes_with, on_nodes};
use crate::advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording};

pub(crate) const RULE: Rule = Rule {
    code: "disk_monitor_on",
    finds: "Nodes that use CouchDB's own disk monitor, which may see no disk in a container.",
    because: "With `[disk_monitor] enable = true` (CouchDB 3.4 and later; the default is false) CouchDB refuses writes and index builds on a disk that is nearly full, with status 507. It learns how full a disk is from Erlang's `disksup`, which lists the mounts that `df` shows as local; if none of them is on the device of `database_dir`, as in some containers, CouchDB assumes an empty disk and never refuses anything (couchdb#5547). HTTP does not show what it sees, so somebody has to look once.",
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let nodes = nodes_with(situation, ("disk_monitor", "enable"), "true");
    if nodes.is_empty() {
        return;
    }
    findings.offer(Gain::Unknown, || Wording {
        subject: Subject::Setting("[disk_monitor] enable".to_owned()),
        says: format!(
            "CouchDB watches its disks itself {} (disk_monitor); in a container it may not see the data's disk, and then never refuses a write.",
            on_nodes(situation, &nodes)
        ),
        evidence: vec![("nodes", nodes_in_words(&nodes).into())],
        remedy: vec![
            Remedy::command(
                "In each container or on each node, look for the data's disk in this list:",
                "df -l",
            ),
            "If it is there, mute this advice. If not, mount the data so that df -l shows it, and rely on recliner's alerts about full volumes until then.".into(),
        ],
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::TestCluster;

    fn found(enable: Option<&str>) -> Vec<Finding> {
        let mut cluster = TestCluster::new();
        for node in ["a", "b"] {
            let setting = enable.map(|enable| ("disk_monitor", "enable", enable));
            cluster.set(node, setting.as_slice());
        }
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_monitor_that_is_on() {
        let found = found(Some("true"));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "CouchDB watches its disks itself on every node (disk_monitor); in a container it may not see the data's disk, and then never refuses a write."
        );
    }

    #[test]
    fn is_silent_if_the_monitor_is_off() {
        assert_eq!(found(Some("false")), []);
        assert_eq!(found(None), [], "the default");
    }

    #[test]
    fn is_silent_if_settings_are_unknown() {
        assert_eq!(TestCluster::new().findings_of(&RULE), []);
    }
}
