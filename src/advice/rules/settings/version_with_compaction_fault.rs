//! Versions of CouchDB that report too many live bytes, which hides waste.

use super::nodes::{nodes_in_words, versions};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    text::listed,
};
use couchdb_names::Version;

pub(crate) const RULE: Rule = Rule {
    code: "version_with_compaction_fault",
    finds: "Nodes that run a version of CouchDB with a known compaction fault.",
    because: "Before 3.3.0 CouchDB counts the bodies of replaced revisions as live (couchdb#4264), before 3.4.3 the attachments of replaced and deleted revisions (couchdb#5347). The ratio of such a file stays low, so neither smoosh nor recliner finds it worth a compaction, however much of it is waste. The sums are stored in the files: after an upgrade they are right only for what is compacted or written again, so each file with attachments needs one compaction whatever its ratio. Up to 3.5.2 smoosh also leaves a shard open each time it joins a compaction that another process is running (couchdb#6016): it counts against `max_dbs_open` until CouchDB restarts. No release has a fix yet, so the rule does not report this.",
    untried: Some("it takes an old version of CouchDB"),
    ..Rule::info(check)
};

/// The faults: the first version without the fault, and what earlier versions do. Source: CouchDB's
/// change log and the issues that are named.
const FAULTS: [(Version, &str); 2] = [
    (
        Version::ACTIVE_WITHOUT_OLD_BODIES,
        "bodies of replaced revisions as live (couchdb#4264, until 3.3.0)",
    ),
    (
        Version::ACTIVE_WITHOUT_OLD_ATTACHMENTS,
        "attachments of replaced and deleted revisions as live (couchdb#5347, until 3.4.3)",
    ),
];

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let versions = versions(situation);
    let Some((oldest, _)) = versions.first_key_value() else { return };
    let faults = FAULTS.iter().filter(|(fixed, _)| oldest < fixed);
    let faults: Vec<String> = faults.map(|(_, fault)| (*fault).to_owned()).collect();
    let Some((fixed, _)) = FAULTS.last().filter(|_| !faults.is_empty()) else { return };
    let nodes = versions.iter().filter(|(version, _)| *version < fixed);
    let nodes: Vec<String> = nodes.flat_map(|(_, nodes)| nodes.iter().cloned()).collect();
    findings.offer(Gain::Unknown, || Wording {
        subject: Subject::Cluster,
        says: format!(
            "CouchDB {oldest} counts {}, so waste is hidden on {}.",
            listed(&faults),
            nodes_in_words(&nodes)
        ),
        evidence: vec![
            ("oldest_version", oldest.to_string().into()),
            ("nodes", nodes_in_words(&nodes).into()),
        ],
        remedy: vec![
            Remedy::choice(format!("Upgrade these nodes to CouchDB {fixed} or newer.")),
            Remedy::command(
                "After that, let a running recliner compact each file of databases with attachments once, whatever its ratio, the largest first:",
                "recliner compact --force SHARD",
            ),
        ],
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::TestCluster;

    fn found(versions: [&str; 2]) -> Vec<Finding> {
        TestCluster::with_versions(versions).findings_of(&RULE)
    }

    #[test]
    fn reports_attachments_that_hide_waste_before_3_4_3() {
        let found = found(["3.4.2", "3.5.0"]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "CouchDB 3.4.2 counts attachments of replaced and deleted revisions as live (couchdb#5347, until 3.4.3), so waste is hidden on a."
        );
    }

    #[test]
    fn reports_bodies_that_hide_waste_before_3_3() {
        let found = found(["3.2.3", "3.4.2"]);
        assert!(found[0].says.starts_with("CouchDB 3.2.3 counts bodies of replaced"), "{found:?}");
        assert!(found[0].says.ends_with("so waste is hidden on a and b."), "{found:?}");
    }

    #[test]
    fn is_silent_about_newer_and_unknown_versions() {
        assert_eq!(found(["3.4.3", "3.5.0"]), []);
        assert_eq!(found(["", ""]), []);
    }
}
