//! Smoosh channels whose targets are all taken by an earlier channel.

use super::nodes::offer_faulty_channels;
use crate::advice::{Findings, Remedy, Rule, Situation};
use compaction_settings::Fault;

pub(crate) const RULE: Rule = Rule {
    code: "smoosh_channel_shadowed",
    finds: "Channels of CouchDB's smoosh that get nothing because an earlier channel takes everything.",
    because: "smoosh gives a file to the first channel that takes it and asks no other (`smoosh_server:find_channel/3`). Since CouchDB 3.3 channels are tried in the order of their names, not of the settings, and the built-in ones cannot be removed. A channel that is meant to treat some files differently must come first by name and be narrower than later ones.",
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    offer_faulty_channels(situation, findings, Fault::Shadowed, |channel| {
        Remedy::choice(format!(
            "Rename {channel} so that it comes before the other channel in the alphabet, narrow the other one, or remove {channel}."
        ))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{Finding, test_cluster::TestCluster};

    fn found(name: &str) -> Vec<Finding> {
        let section = format!("smoosh.{name}");
        let mut cluster = TestCluster::new();
        let bounds = [(&*section, "priority", "ratio"), (&*section, "min_priority", "3.0")];
        cluster.set("a", &[("smoosh", "db_channels", name), bounds[0], bounds[1]]);
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_channel_that_comes_after_a_wider_one() {
        let found = found("urgent_dbs");
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "smoosh's channel urgent_dbs on a takes nothing: ratio_dbs is tried first and takes all of the same targets."
        );
    }

    #[test]
    fn is_silent_if_the_channel_comes_before_the_wider_one() {
        assert_eq!(found("asap_dbs"), []);
    }

    #[test]
    fn is_silent_if_settings_are_unknown() {
        assert_eq!(TestCluster::new().findings_of(&RULE), []);
    }
}
