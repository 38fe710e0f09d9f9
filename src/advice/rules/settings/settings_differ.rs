//! Nodes of one cluster with different settings.

use super::{
    no_file_compression,
    nodes::{MAX_COMMANDS, configs, is_taken_over, nodes_in_words, value},
};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    model::settings::work::MARK_SECTION,
};
use compaction_settings::{NodeConfig, read_smoosh};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const RULE: Rule = Rule {
    code: "settings_differ",
    finds: "Settings about compaction, files and new databases that are not the same on all nodes.",
    because: "Each node has its own settings, and a `PUT` to `_config` changes only one node. Where they differ, copies of one shard are compacted by different rules, and `[cluster] q` and `n` of a new database depend on the node that got the request. recliner compares smoosh's channels, `[couchdb] file_compression`, `max_dbs_open` and `max_couch_server_shards`, `[cluster] q` and `n`, and `[disk_monitor] enable`; an unset key counts as CouchDB's default. A channel that a recliner has taken over on some nodes does not count.",
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let nodes: Vec<&NodeConfig> = configs(situation).collect();
    let advises_compression = no_file_compression::uncompressed(situation).is_some();
    let places: BTreeSet<(&str, &str)> = nodes.iter().flat_map(|node| places(node)).collect();
    for (section, key) in places {
        let channel = section.strip_prefix("smoosh.").filter(|_| key == "concurrency");
        // Stopped channels are the subject of another rule.
        let is_stopped = |node: &&NodeConfig| value(node, section, key).is_some_and(|it| it == "0");
        if channel.is_some_and(|channel| nodes.iter().any(|it| is_taken_over(it, channel)))
            || channel.is_some() && nodes.iter().any(is_stopped)
        {
            continue;
        }
        if (section, key) == no_file_compression::KEY && advises_compression {
            continue;
        }
        let mut values: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
        for node in &nodes {
            let value =
                value(node, section, key).filter(|it| !is_default(node, (section, key), it));
            values.entry(value).or_default().push(node.node.clone());
        }
        if values.len() > 1 {
            findings.offer(Gain::Unknown, || finding(section, key, &values));
        }
    }
}

/// CouchDB's defaults of keys outside smoosh (`default.ini` of 3.x).
const DEFAULTS: [((&str, &str), &str); 6] = [
    (no_file_compression::KEY, "snappy"),
    (("couchdb", "max_dbs_open"), "500"),
    (("couchdb", "max_couch_server_shards"), "16"),
    (("cluster", "q"), "2"),
    (("cluster", "n"), "3"),
    (("disk_monitor", "enable"), "false"),
];

/// Whether a value equals the one that the node would use by default.
fn is_default(node: &NodeConfig, (section, key): (&str, &str), value: &str) -> bool {
    if let Some((_, default)) = DEFAULTS.iter().find(|(place, _)| *place == (section, key)) {
        return value.trim() == *default;
    }
    if section != "smoosh" && !section.starts_with("smoosh.") {
        return false;
    }
    let mut without = node.clone();
    if let Some(keys) = without.sections.get_mut(section) {
        keys.remove(key);
    }
    let [set, unset] = [node, &without].map(read_smoosh);
    (set.channels, set.broken, set.ignored) == (unset.channels, unset.broken, unset.ignored)
}

/// Whether a setting belongs to a single node, such as a directory or the shards that smoosh
/// ignores there.
fn is_of_one_node((section, key): (&str, &str)) -> bool {
    section == MARK_SECTION
        || section == "smoosh.ignore"
        // Another rule reports that nothing reads this section.
        || section == "compactions"
        || (section, key) == ("smoosh", "state_dir")
}

/// The sections and keys of a node's settings that should be the same on all nodes.
fn places(node: &NodeConfig) -> impl Iterator<Item = (&str, &str)> {
    node.sections
        .iter()
        .flat_map(|(section, keys)| keys.keys().map(|key| (section.as_str(), key.as_str())))
        .filter(|place| !is_of_one_node(*place))
}

fn finding(section: &str, key: &str, values: &BTreeMap<Option<&str>, Vec<String>>) -> Wording {
    // The value of most nodes first.
    let mut groups: Vec<(Option<&str>, &Vec<String>)> =
        values.iter().map(|(value, nodes)| (*value, nodes)).collect();
    groups.sort_by_key(|(value, nodes)| (std::cmp::Reverse(nodes.len()), value.is_none()));
    let words = groups.iter().map(|(value, nodes)| {
        let value = value.map_or_else(|| "the default".to_owned(), |value| format!("{value:?}"));
        format!("{value} on {}", nodes_in_words(nodes))
    });
    let words: Vec<String> = words.collect();
    let (common, others) =
        groups.split_first().map_or((None, &[][..]), |((it, _), rest)| (*it, rest));
    let others = others.iter().flat_map(|(_, nodes)| nodes.iter()).take(MAX_COMMANDS);
    let settle = |node: &String| match common {
        Some(common) => {
            let says = "Choose one value. To set the value of most nodes on another node:";
            Remedy::set_config(says, node, (section, key), common)
        }
        None => {
            let says = "Choose one value. To reset a node to the default:";
            Remedy::unset_config(says, node, (section, key))
        }
    };
    let remedy = others.map(settle).collect();
    Wording {
        subject: Subject::Setting(format!("[{section}] {key}")),
        says: format!("[{section}] {key} is {}.", words.join(", and ")),
        evidence: vec![
            ("values", (values.len() as u64).into()),
            ("differs", words.join(", and ").into()),
        ],
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::test_cluster::{Shard, TestCluster};

    fn cluster(values: [Option<&str>; 3]) -> TestCluster {
        let mut cluster = TestCluster::new();
        for (node, value) in ["a", "b", "c"].into_iter().zip(values) {
            let setting = value.map(|value| ("smoosh.ratio_dbs", "concurrency", value));
            cluster.set(node, setting.as_slice());
        }
        cluster
    }

    #[test]
    fn names_the_deviating_node_and_the_value_of_the_others() {
        let found = cluster([Some("2"), Some("2"), Some("3")]).findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "[smoosh.ratio_dbs] concurrency is \"2\" on a and b, and \"3\" on c."
        );
        let command = only.remedy[0].text.as_deref().unwrap_or_default();
        assert!(
            command.ends_with("/_node/c/_config/smoosh.ratio_dbs/concurrency -d '\"2\"'"),
            "{command}"
        );
    }

    #[test]
    fn advises_deleting_a_value_that_most_nodes_do_not_set() {
        let found = cluster([None, None, Some("2")]).findings_of(&RULE);
        assert_eq!(
            found[0].says,
            "[smoosh.ratio_dbs] concurrency is the default on a and b, and \"2\" on c."
        );
        assert!(found[0].remedy[0].text.as_deref().is_some_and(|it| it.contains("-X DELETE")));
    }

    #[test]
    fn explicit_default_does_not_differ_from_unset() {
        assert_eq!(cluster([None, Some("1"), None]).findings_of(&RULE), []);
        for (section, key, value) in [
            ("couchdb", "file_compression", "snappy"),
            ("couchdb", "max_dbs_open", "500"),
            ("cluster", "q", "2"),
            ("cluster", "n", "3"),
            ("smoosh.slack_dbs", "min_size", "1048576"),
        ] {
            let mut cluster = TestCluster::new();
            cluster.set("a", &[(section, key, value)]);
            cluster.set("b", &[]);
            assert_eq!(cluster.findings_of(&RULE), [], "{section} {key}");
        }
    }

    #[test]
    fn leaves_compression_to_its_own_rule_if_data_is_large() {
        let found = |bytes| {
            let shard = |node| Shard::new("orders", node, 0, bytes);
            let mut cluster = TestCluster::with_shards(&[shard("a"), shard("b")]);
            cluster.set("a", &[("couchdb", "file_compression", "none")]);
            cluster.set("b", &[]);
            cluster.findings_of(&RULE)
        };
        assert_eq!(found(5 << 30), []);
        assert_eq!(found(1 << 20).len(), 1, "too little for the other rule");
    }

    #[test]
    fn is_silent_if_settings_are_equal_or_recliner_changed_them() {
        assert_eq!(cluster([Some("2"); 3]).findings_of(&RULE), []);
        let mut cluster = cluster([Some("2"), Some("2"), Some("0")]);
        cluster.set("c", &[("recliner", "smoosh.ratio_dbs.concurrency", "{}")]);
        assert_eq!(cluster.findings_of(&RULE), []);
    }

    #[test]
    fn leaves_stopped_channels_to_another_rule() {
        assert_eq!(cluster([None, Some("0"), None]).findings_of(&RULE), []);
    }

    #[test]
    fn ignores_directories_and_ignored_shards_of_single_nodes() {
        let mut cluster = TestCluster::new();
        for (node, directory) in [("a", "/data/a"), ("b", "/data/b")] {
            cluster
                .set(node, &[("smoosh", "state_dir", directory), ("smoosh.ignore", node, "true")]);
        }
        assert_eq!(cluster.findings_of(&RULE), []);
    }

    #[test]
    fn single_node_has_no_differences() {
        let mut cluster = TestCluster::new();
        cluster.set("a", &[("cluster", "q", "8")]);
        assert_eq!(cluster.findings_of(&RULE), []);
    }
}
