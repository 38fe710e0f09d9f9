//! Rules of CouchDB 2's compaction daemon, which CouchDB 3 never reads.

use super::nodes::{configs, nodes_in_words, on_nodes};
use crate::advice::{Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording};
use compaction_settings::{Fault, read_smoosh};
use std::collections::BTreeMap;

pub(crate) const RULE: Rule = Rule {
    code: "old_compaction_rules",
    finds: "Rules of CouchDB 2's compaction daemon on nodes whose CouchDB has smoosh in its place.",
    because: "CouchDB 3 never reads `[compactions]`, which an upgrade from CouchDB 2 leaves in `local.ini`. Thresholds of single databases have no effect, and smoosh compacts by day too where a rule gives a window at night. A channel of smoosh has `from` and `to`, in UTC.",
    untried: Some("what to do with the rules is a choice"),
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let mut nodes_by_section: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for config in configs(situation) {
        for finding in read_smoosh(config).findings {
            if finding.fault == Some(Fault::OldRules) {
                nodes_by_section.entry(finding.message).or_default().push(config.node.clone());
            }
        }
    }
    for (why, nodes) in nodes_by_section {
        findings.offer(Severity::Warning, Gain::Unknown, || Wording {
            subject: Subject::Setting("[compactions]".to_owned()),
            says: format!("[compactions] {} {why}.", on_nodes(situation, &nodes)),
            evidence: vec![("nodes", nodes_in_words(&nodes).into()), ("reason", why.into())],
            remedy: vec![
                Remedy::command(
                    "Print channels of recliner that follow the rules; --zone is that of the servers' clocks:",
                    "recliner import compaction-daemon --couchdb.url \"$COUCHDB_URL\" --zone UTC",
                ),
                Remedy::choice(
                    "Use those channels, or give smoosh's channels the window; then delete the section from local.ini.",
                ),
            ],
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
            "[compactions] on every node does nothing: CouchDB 3.5.0 has smoosh in place of the compaction daemon and never reads these rules, not even for their windows (23:00 to 04:00): each channel of smoosh has from and to, in UTC."
        );
    }

    #[test]
    fn is_silent_without_such_rules() {
        assert_eq!(found(&[("smoosh.ratio_dbs", "min_priority", "3.0")]), []);
        assert_eq!(TestCluster::new().findings_of(&RULE), []);
    }
}
