//! Nodes of one cluster that run different versions of CouchDB.

use super::nodes::{versions, versions_in_words};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    text::listed,
};

pub(crate) const RULE: Rule = Rule {
    code: "mixed_versions",
    finds: "Nodes of one cluster that run different versions of CouchDB.",
    because: "A rolling upgrade passes through this state and should not stay in it. What counts as live bytes, how smoosh orders its channels and when index files are deleted changed between versions (3.2, 3.3, 3.4.3, 3.5.2), so copies of one shard are judged and compacted differently,  and a fix works on some nodes only.",
    untried: Some("it takes two versions of CouchDB"),
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let versions = versions(situation);
    let Some((newest, _)) = versions.last_key_value().filter(|_| versions.len() > 1) else {
        return;
    };
    let words = versions_in_words(versions.iter());
    findings.offer(Gain::Unknown, || Wording {
        subject: Subject::Cluster,
        says: format!("The nodes run different versions of CouchDB: {}.", words.join("; ")),
        evidence: vec![
            ("versions", (versions.len() as u64).into()),
            ("nodes", listed(&words).into()),
        ],
        remedy: vec![Remedy::choice(format!(
            "Finish the upgrade: bring all nodes to {newest} or a newer version, one after the other."
        ))],
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
    fn reports_two_versions_newest_first() {
        let found = found(["3.4.2", "3.5.0"]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "The nodes run different versions of CouchDB: 3.5.0 on b; 3.4.2 on a."
        );
    }

    #[test]
    fn builds_of_one_version_count_as_one() {
        assert_eq!(found(["3.5.0-rc.1", "3.5.0"]), []);
    }

    #[test]
    fn ignores_unknown_versions() {
        assert_eq!(found(["", "3.5.0"]), []);
    }
}
