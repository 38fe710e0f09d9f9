//! The cluster's smoosh settings, for what-if.
//!
//! Nodes may have different settings, but an outlook is about the whole cluster, so it uses the
//! settings that most nodes have, as `import smoosh` does, and says which nodes differ. Without any
//! settings it uses CouchDB's defaults, and says so.

use crate::{
    act::takeover,
    import::{Group, Imported, import_smoosh},
    model::channel::Channels,
    serve::report::SmooshRules,
    sources::node_settings::NodeSettings,
    text,
};
use compaction_settings::NodeConfig;
use std::collections::BTreeSet;

/// smoosh's channels as far as they are known, and their origin.
#[derive(Debug)]
pub(super) struct KnownSmoosh {
    pub(super) channels: Channels,
    pub(super) rules: SmooshRules,
}

impl KnownSmoosh {
    pub(super) fn of(settings: &NodeSettings) -> Self {
        if settings.nodes.is_empty() {
            let why = match settings.problems.first_key_value() {
                Some((_, why)) => format!("its settings cannot be read: {why}"),
                None => "the settings of no node have been read".to_owned(),
            };
            return Self::with_defaults(&why);
        }
        let nodes: Vec<NodeConfig> = settings.nodes.values().cloned().collect();
        match import_smoosh(&nodes) {
            Ok(imported) => Self::as_set(imported, settings),
            Err(why) => Self::with_defaults(&why.to_string()),
        }
    }

    fn with_defaults(why: &str) -> Self {
        let rules = SmooshRules {
            settings: "defaults".into(),
            nodes: Vec::new(),
            other_nodes: Vec::new(),
            says: format!("smoosh is shown with CouchDB's defaults, because {why}"),
        };
        Self { channels: Channels::default(), rules }
    }

    fn as_set(imported: Imported, settings: &NodeSettings) -> Self {
        let names = |group: &Group| -> Vec<String> {
            group.nodes.iter().map(|(node, _)| node.clone()).collect()
        };
        let nodes = imported.groups.first().map(names).unwrap_or_default();
        let other_nodes: Vec<String> = imported.groups.iter().skip(1).flat_map(names).collect();
        let mut says = if other_nodes.is_empty() {
            "smoosh is shown with the cluster's settings".to_owned()
        } else {
            format!(
                "smoosh is shown with the settings of {}; {} different settings",
                listed(&nodes),
                with_verb(&other_nodes)
            )
        };
        let taken: Vec<String> = taken_over(&nodes, settings).into_iter().collect();
        let one = taken.len() == 1;
        if !taken.is_empty() {
            says.push_str(&format!(
                "; {} {} shown with {} from before recliner took {} over",
                listed(&taken),
                if one { "is" } else { "are" },
                if one { "its settings" } else { "their settings" },
                if one { "it" } else { "them" }
            ));
        }
        let unread: Vec<String> = settings
            .problems
            .keys()
            .filter(|node| !settings.nodes.contains_key(*node))
            .cloned()
            .collect();
        if !unread.is_empty() {
            says.push_str(&format!("; the settings of {} cannot be read", listed(&unread)));
        }
        let rules = SmooshRules { settings: "cluster".into(), nodes, other_nodes, says };
        Self { channels: imported.channels, rules }
    }
}

/// The channels that recliner has taken over on these nodes.
fn taken_over(nodes: &[String], settings: &NodeSettings) -> BTreeSet<String> {
    let configs = nodes.iter().filter_map(|node| settings.nodes.get(node));
    let stopped = configs.flat_map(|config| takeover::undo_takeovers(&mut config.sections.clone()));
    stopped.map(|stopped| stopped.channel).collect()
}

/// Names joined for a sentence; of a long list, only the first ones and the number of the others.
fn listed(names: &[String]) -> String {
    const MOST: usize = 5;
    match names.len() {
        0 => "no node".to_owned(),
        count if count <= MOST => text::listed(names),
        count => {
            let mut first = names.get(..MOST - 1).unwrap_or_default().to_vec();
            first.push(format!("{} more", count - first.len()));
            text::listed(&first)
        }
    }
}

fn with_verb(names: &[String]) -> String {
    format!("{} {}", listed(names), if names.len() == 1 { "has" } else { "have" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use compaction_settings::Sections;

    fn section(keys: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
        keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn settings(nodes: &[(&str, Sections)], problems: &[(&str, &str)]) -> NodeSettings {
        let config = |(node, sections): &(&str, Sections)| {
            let config = NodeConfig {
                node: (*node).to_owned(),
                version: "3.5.0".to_owned(),
                sections: sections.clone(),
                problems: Vec::new(),
            };
            ((*node).to_owned(), config)
        };
        NodeSettings { nodes: nodes.iter().map(config).collect(), problems: section(problems) }
    }

    fn ratio(least: &str) -> Sections {
        [("smoosh.ratio_dbs".to_owned(), section(&[("min_priority", least)]))].into()
    }

    fn least_ratio(known: &KnownSmoosh) -> f64 {
        known.channels.find("ratio_dbs").unwrap().1.min_priority
    }

    #[test]
    fn uses_the_smoosh_settings_of_most_nodes() {
        let same = settings(&[("a", ratio("4")), ("b", ratio("4"))], &[]);
        let known = KnownSmoosh::of(&same);
        assert_eq!(least_ratio(&known).to_string(), "4");
        assert_eq!(known.rules.says, "smoosh is shown with the cluster's settings");
        assert_eq!(&*known.rules.settings, "cluster");
        let mixed =
            settings(&[("a", ratio("3")), ("b", ratio("4")), ("c", ratio("4"))], &[("d", "down")]);
        let known = KnownSmoosh::of(&mixed);
        assert_eq!(least_ratio(&known).to_string(), "4");
        assert_eq!(known.rules.nodes, ["b", "c"]);
        assert_eq!(known.rules.other_nodes, ["a"]);
        assert_eq!(
            known.rules.says,
            "smoosh is shown with the settings of b and c; a has different settings; the settings of d cannot be read"
        );
    }

    #[test]
    fn without_settings_uses_defaults_and_says_why() {
        let known = KnownSmoosh::of(&NodeSettings::default());
        assert_eq!(known.channels, Channels::default());
        assert_eq!(&*known.rules.settings, "defaults");
        assert_eq!(
            known.rules.says,
            "smoosh is shown with CouchDB's defaults, because the settings of no node have been read"
        );
        let known = KnownSmoosh::of(&settings(&[], &[("a", "a server admin is needed")]));
        assert_eq!(
            known.rules.says,
            "smoosh is shown with CouchDB's defaults, because its settings cannot be read: a server admin is needed"
        );
    }

    #[test]
    fn shows_settings_from_before_takeover() {
        let mark = r#"{"was":"3","at":1795222434}"#;
        let mut sections = ratio("4");
        sections.insert("recliner".to_owned(), section(&[("smoosh.ratio_dbs.concurrency", mark)]));
        let keys = sections.get_mut("smoosh.ratio_dbs").unwrap();
        keys.insert("concurrency".to_owned(), "0".to_owned());
        let known = KnownSmoosh::of(&settings(&[("a", sections)], &[]));
        assert_eq!(known.channels.find("ratio_dbs").unwrap().1.concurrency, 3);
        assert_eq!(
            known.rules.says,
            "smoosh is shown with the cluster's settings; ratio_dbs is shown with its settings from before recliner took it over"
        );
    }

    #[test]
    fn long_list_of_names_ends_in_a_count() {
        let names: Vec<String> = (0..9).map(|at| format!("n{at}")).collect();
        assert_eq!(listed(&names[..3]), "n0, n1 and n2");
        assert_eq!(listed(&names), "n0, n1, n2, n3 and 5 more");
    }
}
