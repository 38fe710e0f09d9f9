//! Versions of CouchDB that no longer get security fixes.

use super::nodes::{versions, versions_in_words};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    text::listed,
};

pub(crate) const RULE: Rule = Rule {
    code: "version_end_of_life",
    finds: "Nodes that run a CouchDB release series without security fixes.",
    because: "The project fixes security problems only in its current release series and the one before it (CouchDB's documentation, Security Issues / CVEs). This recliner takes 3.5 as the current series, or a newer one if a node runs it.",
    untried: Some("it takes an old version of CouchDB"),
    ..Rule::info(check)
};

/// The newest release series, as far as this program knows.
const NEWEST_SERIES: (u16, u16) = (3, 5);

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let versions = versions(situation);
    let Some((newest, _)) = versions.last_key_value() else { return };
    let current = newest.series().max(NEWEST_SERIES);
    let previous = previous(current);
    let words =
        versions_in_words(versions.iter().filter(|(version, _)| version.series() < previous));
    if words.is_empty() {
        return;
    }
    let [current, previous] = [current, previous].map(|(major, minor)| format!("{major}.{minor}"));
    findings.offer(Gain::Unknown, || Wording {
        subject: Subject::Cluster,
        says: format!(
            "CouchDB before {previous} no longer gets security fixes: {}.",
            words.join("; ")
        ),
        evidence: vec![
            ("oldest_fixed_series", previous.clone().into()),
            ("nodes", listed(&words).into()),
        ],
        remedy: vec![Remedy::choice(format!(
            "Upgrade these nodes to the newest version of {current} or {previous}, one after the other."
        ))],
    });
}

/// The release series before this one; before the first of a new major version, the newest known
/// series.
fn previous((major, minor): (u16, u16)) -> (u16, u16) {
    minor.checked_sub(1).map_or(NEWEST_SERIES, |minor| (major, minor))
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
    fn reports_versions_older_than_the_last_two_series() {
        let found = found(["3.2.3", "3.3.3"]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "CouchDB before 3.4 no longer gets security fixes: 3.3.3 on b; 3.2.3 on a."
        );
    }

    #[test]
    fn is_silent_about_the_last_two_release_series() {
        assert_eq!(found(["3.4.0", "3.5.2"]), []);
        assert_eq!(found(["3.4.3", "3.4.3"]), []);
    }

    #[test]
    fn newer_release_on_a_node_raises_the_supported_minimum() {
        let found = found(["3.4.3", "3.6.0"]);
        assert!(found[0].says.starts_with("CouchDB before 3.5 no longer gets"), "{found:?}");
        assert_eq!(self::found(["3.5.2", "4.0.0"]), []);
    }

    #[test]
    fn is_silent_about_unknown_versions() {
        assert_eq!(found(["", ""]), []);
    }
}
