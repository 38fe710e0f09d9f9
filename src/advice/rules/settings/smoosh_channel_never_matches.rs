//! Smoosh channels whose own bounds exclude every file.

use super::nodes::offer_faulty_channels;
use crate::advice::{Findings, Remedy, Rule, Situation};
use compaction_settings::Fault;

pub(crate) const RULE: Rule = Rule {
    code: "smoosh_channel_never_matches",
    finds: "Channels of CouchDB's smoosh whose bounds contradict each other, so that they take nothing.",
    because: "smoosh takes a file that is strictly larger than `min_size` and at most `max_size`, with a priority strictly above `min_priority` and at most `max_priority` (`smoosh_server:get_priority/4`). It does not report a channel that no file can match: the files meant for it go to other channels, or to none. A channel is sometimes switched off like this on purpose.",
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    offer_faulty_channels(situation, findings, Fault::NeverMatches, |channel| {
        Remedy::get(
            "Look at its settings on each node, and correct or delete them:",
            &["_node", "_local", "_config", &format!("smoosh.{channel}")],
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{Finding, test_cluster::TestCluster};

    fn found(min_size: &str) -> Vec<Finding> {
        let mut cluster = TestCluster::new();
        for node in ["a", "b"] {
            let channel = "smoosh.big_dbs";
            let bounds = [(channel, "min_size", min_size), (channel, "max_size", "1073741824")];
            cluster.set(node, &[("smoosh", "db_channels", "big_dbs"), bounds[0], bounds[1]]);
        }
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_contradicting_bounds_once_for_all_nodes() {
        let found = found("1073741824");
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.subject.to_string(), "big_dbs");
        assert_eq!(
            only.says,
            "smoosh's channel big_dbs on every node takes nothing: no file is both larger than min_size, 1 GiB, and no larger than max_size, 1 GiB."
        );
    }

    #[test]
    fn is_silent_if_the_bounds_admit_a_single_size() {
        assert_eq!(found("1073741823"), []);
    }

    #[test]
    fn is_silent_if_settings_are_unknown() {
        assert_eq!(TestCluster::new().findings_of(&RULE), []);
    }
}
