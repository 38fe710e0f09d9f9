//! Reports how groups of nodes differ, one setting at a time.

use super::Group;
use crate::{
    import::{Finding, NodeChannels},
    model::channel::Channel,
    text::Label,
};
use compaction_settings::Severity;
use std::collections::{BTreeMap, BTreeSet};

/// One finding for each setting that differs; no finding if there is only one group.
pub(super) fn between(groups: &[Group], node_channels: &[NodeChannels]) -> Vec<Finding> {
    let Some(first) = groups.first().filter(|_| groups.len() > 1) else { return Vec::new() };
    let sections: BTreeMap<&str, &str> = node_channels
        .iter()
        .flat_map(|node| &node.channels)
        .map(|one| (&*one.channel.name, one.section.as_str()))
        .collect();
    let written = nodes(first).join(", ");
    let mut findings = Vec::new();
    let mut compare = |section: &str, key: Option<&str>, values: Vec<(String, Vec<String>)>| {
        let values = gathered(values);
        if values.len() < 2 {
            return;
        }
        let shown: Vec<_> =
            values.iter().map(|(value, on)| format!("{value} on {}", on.join(", "))).collect();
        findings.push(Finding {
            severity: Severity::Error,
            nodes: values.into_iter().flat_map(|(_, on)| on).collect(),
            section: section.to_owned(),
            key: key.map(str::to_owned),
            message: format!(
                "differs between nodes: {}; this recliner.yml serves all nodes and follows {written}: make the settings equal, or run a separate recliner for each group of nodes",
                shown.join("; ")
            ),
        });
    };
    for (name, section) in &sections {
        let of = |group: &Group| group.channels.find(name).map(|(_, channel)| settings(channel));
        let present = groups.iter().map(|group| {
            let word = if of(group).is_some() { "in use" } else { "missing" };
            (word.to_owned(), nodes(group))
        });
        compare(section, None, present.collect());
        let with = groups.iter().filter_map(|group| Some((nodes(group), of(group)?)));
        let mut values: BTreeMap<usize, (&str, Vec<OnNodes>)> = BTreeMap::new();
        for (on, settings) in with {
            for (at, (key, value)) in settings.into_iter().enumerate() {
                values.entry(at).or_insert((key, Vec::new())).1.push((value, on.clone()));
            }
        }
        values.into_values().for_each(|(key, values)| compare(section, Some(key), values));
    }
    let shared: BTreeSet<&str> = sections
        .keys()
        .filter(|name| groups.iter().all(|group| group.channels.find(name).is_some()))
        .copied()
        .collect();
    let order = |group: &Group| -> Vec<String> {
        let names = group.channels.list.iter().map(|channel| channel.name.to_string());
        names.filter(|name| shared.contains(name.as_str())).collect()
    };
    let orders = groups.iter().map(|group| (order(group).join(", "), nodes(group))).collect();
    compare("smoosh", Some("order of channels"), orders);
    findings
}

fn nodes(group: &Group) -> Vec<String> {
    group.nodes.iter().map(|(node, _)| node.clone()).collect()
}

/// A value, and the nodes that have it.
type OnNodes = (String, Vec<String>);

/// Merges equal values, with all nodes that have them.
fn gathered(values: Vec<OnNodes>) -> Vec<OnNodes> {
    let mut gathered: Vec<OnNodes> = Vec::new();
    for (value, mut on) in values {
        match gathered.iter_mut().find(|(other, _)| *other == value) {
            Some((_, nodes)) => nodes.append(&mut on),
            None => gathered.push((value, on)),
        }
    }
    gathered
}

/// Every setting of a channel as text, always in the same order.
fn settings(channel: &Channel) -> Vec<(&'static str, String)> {
    let windows: Vec<_> = channel
        .windows
        .iter()
        .map(|window| {
            let zone = window.zone.iana_name().unwrap_or("local time");
            format!("{} to {} {zone}", window.from, window.to)
        })
        .collect();
    let (include, exclude) = channel.databases.texts();
    vec![
        ("kind", channel.kind.label().to_owned()),
        ("priority", channel.priority.label().to_owned()),
        ("min_priority", channel.min_priority.to_string()),
        ("max_priority", channel.max_priority.to_string()),
        ("min_size", channel.min_size.to_string()),
        ("max_size", channel.max_size.map_or_else(|| "none".to_owned(), |max| max.to_string())),
        ("min_changes", channel.min_changes.to_string()),
        ("capacity", channel.capacity.to_string()),
        ("concurrency", channel.concurrency.to_string()),
        ("window", if windows.is_empty() { "always".to_owned() } else { windows.join(", ") }),
        ("strict_window", channel.strict_window.to_string()),
        (
            "databases",
            format!("include [{}], exclude [{}]", include.join(", "), exclude.join(", ")),
        ),
    ]
}
