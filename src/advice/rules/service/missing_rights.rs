//! Parts of the cluster that the login may not read.

use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    sources::couchdb::NO_USER,
    text::counted,
};
use serde_json::json;

pub(crate) const RULE: Rule = Rule {
    code: "missing_rights",
    finds: "Parts of the cluster that recliner cannot read because CouchDB refuses its login.",
    because: "What cannot be read has no score, no queue and no advice: the cluster looks smaller and better than it is. Only server admins can read nodes' own interfaces, the shard map and the list of running tasks; members can also read their database. The `_metrics` role gives access to none of these (tried on CouchDB 3.5.0).",
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let rights = &situation.inputs.status.missing_rights;
    if rights.is_empty() {
        return;
    }
    findings.offer(Gain::Unknown, || {
        let refused: Vec<&str> = rights.iter().map(String::as_str).collect();
        let refused = refused.join("; ");
        let kinds = counted(rights.len() as u64, "reason", "reasons");
        Wording {
            subject: Subject::Setting("couchdb.username".to_owned()),
            says: format!("recliner does not see the whole cluster, for {kinds}: {refused}."),
            evidence: vec![
                ("missing_rights", (rights.len() as u64).into()),
                ("refused", refused.clone().into()),
            ],
            remedy: remedy(rights.contains(NO_USER), &refused),
        }
    });
}

fn remedy(has_no_user: bool, refused: &str) -> Vec<Remedy> {
    let mut remedy = Vec::new();
    if has_no_user || refused.contains("server admin") {
        remedy.push(Remedy::couchdb(
            "On each node, log in as an admin and create a server admin for recliner (CouchDB stores a hash of the password):",
            "PUT",
            &["_node", "_local", "_config", "admins", "recliner"],
            Some(&json!("a long random password")),
        ));
        remedy.push(Remedy::configuration(
            "Then give that login to recliner:",
            "couchdb:\n  username: recliner\n  password_file: /etc/recliner/couchdb.password",
        ));
    }
    if refused.contains("member") {
        remedy.push(
            "If recliner must not be a server admin, add its login to the members in `_security` of each database that it should see."
                .into(),
        );
    }
    remedy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::TestCluster;

    fn found(rights: &[&str]) -> Vec<Finding> {
        let mut cluster = TestCluster::new();
        cluster.status.missing_rights = rights.iter().map(|right| (*right).to_owned()).collect();
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_refusal_with_what_to_grant() {
        let found = found(&[
            "smoosh's status (/_smoosh/status) requires a server admin",
            "some databases cannot be read, because the login is not a member of them",
        ]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "recliner does not see the whole cluster, for 2 reasons: smoosh's status (/_smoosh/status) requires a server admin; some databases cannot be read, because the login is not a member of them."
        );
        let first = only.remedy[0].text.as_deref().unwrap_or_default();
        assert!(first.contains("/_node/_local/_config/admins/recliner"), "{first}");
        assert_eq!(only.remedy.len(), 3);
    }

    #[test]
    fn advises_creating_a_server_admin_if_no_user_is_configured() {
        assert_eq!(found(&[NO_USER])[0].remedy.len(), 2);
    }

    #[test]
    fn is_silent_if_the_login_reads_everything() {
        assert_eq!(found(&[]), []);
    }
}
