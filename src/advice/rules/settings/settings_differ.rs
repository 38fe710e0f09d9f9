//! Nodes of one cluster with different settings.

use super::{super::Rule, MAX_COMMANDS, configs, is_taken_over, nodes_in_words, value};
use crate::{
    advice::{Finding, Findings, Gain, Remedy, Severity, Situation, Subject},
    model::settings::work::MARK_SECTION,
};
use compaction_settings::NodeConfig;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULE: Rule = Rule {
    code: "settings_differ",
    finds: "Settings about compaction, files and new databases that are not the same on all nodes.",
    because: "CouchDB reads settings on each node, and a `PUT` to `_config` changes one node alone, so a change is easily made on some of them. Then copies of one shard are compacted by different rules, and `[cluster] q` and `n` of a new database depend on the node that got the request. Compared are smoosh's channels, `[couchdb] file_compression` and `max_dbs_open`, and `[cluster] q` and `n`. A channel that a recliner has taken over on some nodes does not count.",
    severities: &[Severity::Info],
    check,
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let nodes: Vec<&NodeConfig> = configs(situation).collect();
    let places: BTreeSet<(&str, &str)> = nodes.iter().flat_map(|node| places(node)).collect();
    for (section, key) in places {
        let channel = section.strip_prefix("smoosh.").filter(|_| key == "concurrency");
        if channel.is_some_and(|channel| nodes.iter().any(|node| is_taken_over(node, channel))) {
            continue;
        }
        let mut values: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
        for node in &nodes {
            values.entry(value(node, section, key)).or_default().push(node.node.clone());
        }
        if values.len() > 1 {
            findings.offer(Severity::Info, Gain::Unknown, || finding(section, key, &values));
        }
    }
}

/// A directory of each node's own.
const OF_ONE_NODE: (&str, &str) = ("smoosh", "state_dir");

/// The sections and keys of a node's settings that should be the same on all nodes.
fn places(node: &NodeConfig) -> impl Iterator<Item = (&str, &str)> {
    let sections = node.sections.iter().filter(|(section, _)| *section != MARK_SECTION);
    sections
        .flat_map(|(section, keys)| keys.keys().map(|key| (section.as_str(), key.as_str())))
        .filter(|place| *place != OF_ONE_NODE)
}

fn finding(section: &str, key: &str, values: &BTreeMap<Option<&str>, Vec<String>>) -> Finding {
    // The value of most nodes first.
    let mut groups: Vec<(Option<&str>, &Vec<String>)> =
        values.iter().map(|(value, nodes)| (*value, nodes)).collect();
    groups.sort_by_key(|(value, nodes)| (std::cmp::Reverse(nodes.len()), value.is_none()));
    let words = groups.iter().map(|(value, nodes)| {
        let value = value.map_or_else(|| "not set".to_owned(), |value| format!("{value:?}"));
        format!("{value} on {}", nodes_in_words(nodes))
    });
    let words: Vec<String> = words.collect();
    let (common, others) =
        groups.split_first().map_or((None, &[][..]), |((it, _), rest)| (*it, rest));
    let others = others.iter().flat_map(|(_, nodes)| nodes.iter()).take(MAX_COMMANDS);
    let settle = |node: &String| match common {
        Some(common) => {
            let says = "Decide on one value; to set that of most nodes on another:";
            Remedy::set_config(says, node, (section, key), common)
        }
        None => {
            let says = "Decide on one value; to return to CouchDB's default on a node:";
            Remedy::unset_config(says, node, (section, key))
        }
    };
    let remedy = others.map(settle).collect();
    Finding {
        severity: Severity::Info,
        subject: Subject::Setting(format!("[{section}] {key}")),
        says: format!("[{section}] {key} is {}.", words.join(", and ")),
        evidence: vec![
            ("values", (values.len() as u64).into()),
            ("differs", words.join(", and ").into()),
        ],
        gain: Gain::Unknown,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::test_cluster::TestCluster;

    fn cluster(values: [Option<&str>; 3]) -> TestCluster {
        let mut cluster = TestCluster::new();
        for (node, value) in ["a", "b", "c"].into_iter().zip(values) {
            let setting = value.map(|value| ("smoosh.ratio_dbs", "concurrency", value));
            cluster.set(node, setting.as_slice());
        }
        cluster
    }

    #[test]
    fn the_odd_node_is_named_with_the_value_of_the_others() {
        let found = cluster([Some("2"), Some("2"), Some("1")]).findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "[smoosh.ratio_dbs] concurrency is \"2\" on a and b, and \"1\" on c."
        );
        let command = only.remedy[0].text.as_deref().unwrap_or_default();
        assert!(
            command.ends_with("/_node/c/_config/smoosh.ratio_dbs/concurrency -d '\"2\"'"),
            "{command}"
        );
    }

    #[test]
    fn a_value_that_most_nodes_do_not_set_is_deleted() {
        let found = cluster([None, None, Some("1")]).findings_of(&RULE);
        assert_eq!(
            found[0].says,
            "[smoosh.ratio_dbs] concurrency is not set on a and b, and \"1\" on c."
        );
        assert!(found[0].remedy[0].text.as_deref().is_some_and(|it| it.contains("-X DELETE")));
    }

    #[test]
    fn equal_settings_and_a_takeover_are_silent() {
        assert_eq!(cluster([Some("2"); 3]).findings_of(&RULE), []);
        let mut cluster = cluster([Some("2"), Some("2"), Some("0")]);
        cluster.set("c", &[("recliner", "smoosh.ratio_dbs.concurrency", "{}")]);
        assert_eq!(cluster.findings_of(&RULE), []);
    }

    #[test]
    fn each_node_has_a_directory_of_its_own() {
        let mut cluster = TestCluster::new();
        for (node, directory) in [("a", "/data/a"), ("b", "/data/b")] {
            cluster.set(node, &[("smoosh", "state_dir", directory)]);
        }
        assert_eq!(cluster.findings_of(&RULE), []);
    }

    #[test]
    fn one_node_differs_from_nobody() {
        let mut cluster = TestCluster::new();
        cluster.set("a", &[("cluster", "q", "8")]);
        assert_eq!(cluster.findings_of(&RULE), []);
    }
}
