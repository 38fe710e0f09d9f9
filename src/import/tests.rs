mod daemon;
mod equivalence;
mod nodes;
mod translation;
mod values;

use super::*;
use crate::model::{channel::Channels, priority::PriorityKind};
use compaction_settings::{Sections, read_smoosh};

/// A node with the settings in this ini text.
fn node(name: &str, version: &str, ini: &str) -> NodeConfig {
    NodeConfig::from_ini(name, version, [("local.ini", ini.as_bytes())])
}

fn import_one(version: &str, ini: &str) -> Imported {
    import_smoosh(&[node("n", version, ini)]).unwrap()
}

/// The findings as text, without the node's name.
fn finding_texts(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| finding.to_string().replace(" (n)", "")).collect()
}

/// The findings about the translation of these settings, except those that default settings cause
/// too.
fn translation_findings(version: &str, ini: &str) -> Vec<String> {
    let node = node("n", version, ini);
    let of_settings = read_smoosh(&node).findings;
    let silent = import_one(version, "").findings;
    let mut findings = import_smoosh(&[node]).unwrap().findings;
    findings.retain(|finding| {
        let message = &finding.message;
        !silent.contains(finding) && of_settings.iter().all(|found| found.message != *message)
    });
    finding_texts(&findings)
}

fn channel_names(channels: &Channels) -> Vec<String> {
    channels.list.iter().map(|channel| channel.name.to_string()).collect()
}

fn channel(imported: &Imported, name: &str) -> Channel {
    imported.channels.find(name).unwrap().1.clone()
}
