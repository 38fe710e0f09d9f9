mod daemon;
mod equivalence;
mod lint;
mod nodes;
mod values;

use super::*;
use crate::model::{
    channel::{Channel, Channels},
    priority::PriorityKind,
};

/// A node whose settings are this ini text.
fn node(name: &str, version: &str, ini: &str) -> NodeConfig {
    NodeConfig::from_ini(name, version, [("local.ini", ini.as_bytes())])
}

fn import_one(version: &str, ini: &str) -> Imported {
    import_smoosh(&[node("n", version, ini)]).unwrap()
}

/// The findings as text, without the node's name.
fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| finding.to_string().replace(" (n)", "")).collect()
}

/// What is said of these settings beyond what is said of none.
fn said(version: &str, ini: &str) -> Vec<String> {
    let silent = findings(&node("n", version, ""));
    let said = findings(&node("n", version, ini));
    shown(&said.into_iter().filter(|finding| !silent.contains(finding)).collect::<Vec<_>>())
}

fn named(channels: &Channels) -> Vec<String> {
    channels.list.iter().map(|channel| channel.name.to_string()).collect()
}

fn channel(imported: &Imported, name: &str) -> Channel {
    imported.channels.find(name).unwrap().1.clone()
}
