//! Rules of CouchDB 2's compaction daemon, which CouchDB 3 never reads.

use super::nodes::{configs, nodes_in_words, on_nodes};
use crate::advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording, grouped_by};
use compaction_settings::{Fault, read_smoosh};

pub(crate) const RULE: Rule = Rule {
    code: "old_compaction_rules",
    finds: "Rules of CouchDB 2's compaction daemon on nodes that use smoosh instead.",
    because: "CouchDB 3 never reads `[compactions]` and `[compaction_daemon]`, which an upgrade from CouchDB 2 leaves in `local.ini`. Thresholds of single databases have no effect, and smoosh compacts by day even if a rule allows only the night. Windows of smoosh's channels are set by `from` and `to`, in UTC.",
    untried: Some("what to do with the rules is a choice"),
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let faults = configs(situation).flat_map(|config| {
        let found = read_smoosh(config).findings.into_iter();
        let old = found.filter(|finding| finding.fault == Some(Fault::OldRules));
        old.map(|finding| ((finding.section, finding.message), config.node.clone()))
    });
    for ((section, why), nodes) in grouped_by(faults) {
        let import = (section == "compactions").then(|| {
            Remedy::command(
                "Print recliner channels that follow the rules; --zone is the time zone of the servers' clocks:",
                "recliner import compaction-daemon --couchdb.url \"$COUCHDB_URL\" --zone UTC",
            )
        });
        let choice = match import {
            Some(_) => {
                "Use those channels, or give smoosh's channels the window; then delete the section from local.ini."
            }
            None => {
                "Copy the settings that you want to keep to smoosh's channels, and delete the section from local.ini."
            }
        };
        findings.offer(Gain::Unknown, || Wording {
            subject: Subject::Setting(format!("[{section}]")),
            says: format!("[{section}] {} {why}.", on_nodes(situation, &nodes)),
            evidence: vec![("nodes", nodes_in_words(&nodes).into()), ("reason", why.into())],
            remedy: import.into_iter().chain([Remedy::choice(choice)]).collect(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::TestCluster;

    fn found(settings: &[(&str, &str, &str)]) -> Vec<Finding> {
        let mut cluster = TestCluster::new();
        for node in ["a", "b"] {
            cluster.set(node, settings);
        }
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_unread_rules_with_their_window() {
        let rule = "[{db_fragmentation, \"70%\"}, {from, \"23:00\"}, {to, \"04:00\"}]";
        let found = found(&[("compactions", "_default", rule)]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "[compactions] on every node does nothing: CouchDB 3.5.0 has smoosh instead of the compaction daemon and never reads these rules, not even for their windows (23:00 to 04:00): each smoosh channel has from and to, in UTC."
        );
    }

    #[test]
    fn reports_unread_settings_of_the_daemon() {
        let found = found(&[
            ("compaction_daemon", "check_interval", "300"),
            ("compaction_daemon", "min_file_size", "131072"),
        ]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.subject.to_string(), "[compaction_daemon]");
        assert!(only.says.contains("never reads check_interval, min_file_size"), "{}", only.says);
        assert_eq!(only.remedy.len(), 1, "there are no rules to import");
    }

    #[test]
    fn is_silent_without_settings_of_the_compaction_daemon() {
        assert_eq!(found(&[("smoosh.ratio_dbs", "min_priority", "3.0")]), []);
        assert_eq!(TestCluster::new().findings_of(&RULE), []);
    }
}
