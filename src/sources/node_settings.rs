//! The settings of each node, as far as advice and what-if need them.
//!
//! Owns the settings as last read: the sections that decide what smoosh does, the marks of a
//! takeover, which show the values from before it, and a few keys of three other sections. Asks for
//! no section that may hold secrets, and never changes anything. A node that does not answer keeps
//! its settings, and delays those of the others by no more than a moment.

use super::{couchdb::describe, nodes_changed};
use crate::{model::settings::work::MARK_SECTION, table::Snapshot};
use compaction_settings::{NodeConfig, smoosh_sections};
use couchdb_client::{Client, Error};
use futures::{StreamExt as _, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

/// Time between two reads of all nodes.
const INTERVAL: Duration = Duration::from_secs(300);

/// Sections of which only these keys are kept: recliner has no use for the others.
const KEPT_KEYS: [(&str, &[&str]); 3] = [
    ("couchdb", &["file_compression", "max_couch_server_shards", "max_dbs_open"]),
    ("cluster", &["n", "q"]),
    ("disk_monitor", &["enable"]),
];

const NODE_TIMEOUT: Duration = Duration::from_secs(30);

/// Answers within this time of each other are published together, because every publication causes work in other tasks.
const TOGETHER: Duration = Duration::from_secs(2);

/// The settings of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSettings {
    /// The settings of each node that was ever read, by its name.
    pub nodes: BTreeMap<String, NodeConfig>,
    /// Why a node could not be read the last time, by its name.
    pub problems: BTreeMap<String, String>,
}

/// The task that reads the nodes' settings.
#[derive(Debug)]
pub struct NodeSettingsTask {
    client: watch::Receiver<Client>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    settings: watch::Sender<Arc<NodeSettings>>,
}

impl NodeSettingsTask {
    /// Creates the task, and a receiver of the settings read last.
    pub fn new(
        client: watch::Receiver<Client>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
    ) -> (Self, watch::Receiver<Arc<NodeSettings>>) {
        let (settings, reader) = watch::channel(Arc::default());
        (Self { client, snapshots, settings }, reader)
    }

    /// Reads all nodes until `stop`: every few minutes, when the set of reachable nodes changes,
    /// and when `writer`, the state of a task that writes settings, changes.
    pub async fn run<T>(mut self, mut writer: watch::Receiver<T>, stop: CancellationToken) {
        let mut polled_nodes = BTreeSet::new();
        loop {
            let read = async {
                tokio::select! {
                    () = nodes_changed(&mut self.snapshots, &polled_nodes) => {}
                    Ok(()) = writer.changed() => {}
                    () = time::sleep(INTERVAL) => {}
                }
                polled_nodes = self.snapshots.borrow().reachable_nodes();
                let client = self.client.borrow().clone();
                let mut reads: FuturesUnordered<_> = polled_nodes
                    .iter()
                    .map(async |node| (node.clone(), read_in_time(&client, node).await))
                    .collect();
                loop {
                    let (mut answered, end) = (Vec::new(), Instant::now() + TOGETHER);
                    while let Ok(Some(one)) = time::timeout_at(end, reads.next()).await {
                        answered.push(one);
                    }
                    let is_last = reads.is_empty();
                    if is_last || !answered.is_empty() {
                        self.apply(answered, &polled_nodes);
                    }
                    if is_last {
                        break;
                    }
                }
            };
            if stop.run_until_cancelled(read).await.is_none() {
                return;
            }
        }
    }

    /// Applies the answers of some of the polled nodes.
    fn apply(
        &self,
        answered: Vec<(String, Result<NodeConfig, String>)>,
        polled_nodes: &BTreeSet<String>,
    ) {
        let members: BTreeSet<String> = {
            let snapshot = self.snapshots.borrow();
            let members = snapshot.nodes().iter().filter(|node| node.is_member);
            members.map(|node| node.name.to_string()).collect()
        };
        let mut settings = NodeSettings::clone(&self.settings.borrow());
        settings.problems.retain(|node, _| polled_nodes.contains(node));
        for (node, result) in answered {
            settings.problems.remove(&node);
            match result {
                Ok(config) => {
                    settings.nodes.insert(node, config);
                }
                Err(why) => {
                    settings.problems.insert(node, why);
                }
            }
        }
        settings.nodes.retain(|node, _| members.contains(node));
        self.settings.send_replace(Arc::new(settings));
    }
}

async fn read_in_time(client: &Client, node: &str) -> Result<NodeConfig, String> {
    match time::timeout(NODE_TIMEOUT, read(client, node)).await {
        Ok(read) => read.map_err(|why| describe(&why)),
        Err(_) => Err(format!("{node} did not send its settings within {NODE_TIMEOUT:?}")),
    }
}

/// The settings of one node.
async fn read(client: &Client, node: &str) -> Result<NodeConfig, Error> {
    let version = client.node_welcome(node).await?.version.unwrap_or_default();
    // A takeover marks a channel before it stops it, and restores it before it removes the mark. So
    // the marks are read before and after the channels: one of the two reads finds the mark of
    // every stopped channel.
    let mut marks = client.config_section(node, MARK_SECTION).await?;
    let own = ("smoosh".to_owned(), client.config_section(node, "smoosh").await?);
    let sections = [own].into();
    let mut config = NodeConfig { node: node.to_owned(), version, sections, problems: Vec::new() };
    for section in smoosh_sections(&config) {
        let keys = client.config_section(node, &section).await?;
        config.sections.insert(section, keys);
    }
    for (section, kept) in KEPT_KEYS {
        let mut keys = client.config_section(node, section).await?;
        keys.retain(|key, _| kept.contains(&key.as_str()));
        config.sections.insert(section.to_owned(), keys);
    }
    marks.extend(client.config_section(node, MARK_SECTION).await?);
    config.sections.insert(MARK_SECTION.to_owned(), marks);
    config.sections.retain(|_, keys| !keys.is_empty());
    Ok(config)
}

#[cfg(test)]
mod tests;
