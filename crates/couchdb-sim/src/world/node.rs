//! Nodes: whether they run, their settings and their disks.

use super::{DiskUse, World, keys::File};
use crate::{
    config::{DEFAULT_VERSION, Node},
    growth::mix,
};
use couchdb_names::Version;
use std::collections::BTreeMap;

/// Settings by section and key.
type NodeSettings = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) node: Node,
    up: bool,
    /// How often it has stopped.
    stops: u64,
    disk_full: bool,
    /// The active settings.
    settings: NodeSettings,
    /// The settings in its files, which apply after a restart.
    files: NodeSettings,
    /// The server's identity in `GET /`.
    uuid: u64,
    /// How often compactions and index builds flushed a file to disk.
    pub(super) flushes: u64,
}

impl NodeState {
    pub(super) fn new(mut node: Node, seed: u64) -> Self {
        let mut settings = NodeSettings::new();
        for (section, key, value) in [
            ("couchdb", "database_dir", "/opt/couchdb/data"),
            ("couchdb", "view_index_dir", "/opt/couchdb/data"),
            ("couchdb", "max_dbs_open", "500"),
            ("smoosh", "state_dir", "/opt/couchdb/data"),
        ] {
            insert_setting(&mut settings, section, key, value);
        }
        for (section, key, value) in node.settings.drain(..) {
            insert_setting(&mut settings, &section, &key, &value);
        }
        let uuid = mix(seed, crate::growth::key_of(&node.name));
        Self {
            node,
            up: true,
            stops: 0,
            disk_full: false,
            files: settings.clone(),
            settings,
            uuid,
            flushes: 0,
        }
    }
}

fn insert_setting(
    settings: &mut NodeSettings,
    section: &str,
    key: &str,
    value: &str,
) -> Option<String> {
    settings.entry(section.to_owned()).or_default().insert(key.to_owned(), value.to_owned())
}

fn remove_setting(settings: &mut NodeSettings, section: &str, key: &str) -> Option<String> {
    let removed = settings.get_mut(section)?.remove(key);
    settings.retain(|_, keys| !keys.is_empty());
    removed
}

impl World {
    /// The nodes' names.
    pub fn nodes(&self) -> Vec<String> {
        self.nodes.iter().map(|state| state.node.name.clone()).collect()
    }

    /// How often a node flushed a file to disk; writes flush once a second.
    #[must_use]
    pub fn flushes(&self, node: &str) -> u64 {
        let written = if self.is_written { self.now.as_secs() } else { 0 };
        written + self.state(node).map_or(0, |state| state.flushes)
    }

    pub(super) fn is_up(&self, node: usize) -> bool {
        self.nodes[node].up
    }

    /// Whether a node is running; `None`: no such node.
    pub fn node_up(&self, node: &str) -> Option<bool> {
        Some(self.state(node)?.up)
    }

    /// The version of the node with this name.
    pub(crate) fn version_of(&self, node: &str) -> Version {
        self.state(node).map_or(DEFAULT_VERSION, |state| state.node.version)
    }

    /// Whether clouseau is connected to a node.
    pub(crate) fn has_clouseau(&self, node: &str) -> bool {
        self.state(node).is_some_and(|state| state.node.clouseau)
    }

    pub(crate) fn node_uuid(&self, node: &str) -> u64 {
        self.state(node).map_or(0, |state| state.uuid)
    }

    fn state(&self, node: &str) -> Option<&NodeState> {
        Some(&self.nodes[self.node_position(node)?])
    }

    fn state_mut(&mut self, node: &str) -> Option<&mut NodeState> {
        self.nodes.iter_mut().find(|state| state.node.name == node)
    }

    /// Stops a node: its jobs end without a result.
    pub fn stop_node(&mut self, node: &str) {
        let Some(place) = self.node_position(node) else { return };
        self.drop_jobs_on(&[place]);
        self.nodes[place].up = false;
        self.nodes[place].stops += 1;
    }

    /// How often a node has stopped.
    pub(crate) fn stops(&self, node: &str) -> Option<u64> {
        Some(self.state(node)?.stops)
    }

    /// Starts a node, with the settings of its files.
    pub fn start_node(&mut self, node: &str) {
        if let Some(state) = self.state_mut(node) {
            state.up = true;
            state.settings = state.files.clone();
        }
    }

    /// Turns maintenance mode on or off.
    pub fn set_maintenance(&mut self, node: &str, on: bool) {
        match on {
            true => self.set(node, "couchdb", "maintenance_mode", "true"),
            false => self.unset(node, "couchdb", "maintenance_mode"),
        };
    }

    /// Fills a node's disk completely, or frees that space. Compactions there fail at once; their
    /// temporary files remain.
    pub fn set_disk_full(&mut self, node: &str, on: bool) {
        let Some(place) = self.node_position(node) else { return };
        let sharing = self.sharing(place);
        for place in &sharing {
            self.nodes[*place].disk_full = on;
        }
        if on {
            self.drop_jobs_on(&sharing);
        }
    }

    /// The value of a node's setting; `None`: not set.
    pub fn setting(&self, node: &str, section: &str, key: &str) -> Option<&str> {
        Some(self.section(node, section)?.get(key)?.as_str())
    }

    /// One section of a node's settings.
    pub fn section(&self, node: &str, section: &str) -> Option<&BTreeMap<String, String>> {
        self.settings(node)?.get(section)
    }

    /// All settings of a node; `None`: no such node.
    pub fn settings(&self, node: &str) -> Option<&BTreeMap<String, BTreeMap<String, String>>> {
        Some(&self.state(node)?.settings)
    }

    /// Changes a setting, also in the node's files; returns the old value.
    pub fn set(&mut self, node: &str, section: &str, key: &str, value: &str) -> Option<String> {
        insert_setting(&mut self.state_mut(node)?.files, section, key, value);
        self.set_until_restart(node, section, key, value)
    }

    /// Changes a setting until the node restarts; returns the old value.
    pub fn set_until_restart(
        &mut self,
        node: &str,
        section: &str,
        key: &str,
        value: &str,
    ) -> Option<String> {
        insert_setting(&mut self.state_mut(node)?.settings, section, key, value)
    }

    /// Deletes a setting, also in the node's files; returns the old value.
    pub fn unset(&mut self, node: &str, section: &str, key: &str) -> Option<String> {
        remove_setting(&mut self.state_mut(node)?.files, section, key);
        remove_setting(&mut self.state_mut(node)?.settings, section, key)
    }

    /// Resets a setting to the value in the node's files; returns the old value.
    pub fn reset(&mut self, node: &str, section: &str, key: &str) -> Option<String> {
        let state = self.state_mut(node)?;
        let removed = remove_setting(&mut state.settings, section, key);
        if let Some(value) = state.files.get(section).and_then(|keys| keys.get(key)) {
            insert_setting(&mut state.settings, section, key, value);
        }
        removed
    }

    /// The nodes that share this node's disk, including the node itself.
    pub(super) fn sharing(&self, node: usize) -> Vec<usize> {
        let volume = |at: usize| self.nodes[at].node.volume.as_ref();
        let shares =
            |at: &usize| *at == node || volume(node).is_some() && volume(*at) == volume(node);
        (0..self.nodes.len()).filter(shares).collect()
    }

    /// The size of a node's disk; `None`: unlimited.
    fn disk_size(&self, node: usize) -> Option<u64> {
        self.nodes[*self.sharing(node).first()?].node.disk
    }

    /// Free bytes on a node's disk; `None`: unlimited, and nothing is added up.
    pub(super) fn available(&self, node: usize) -> Option<u64> {
        if self.nodes[node].disk_full {
            return Some(0);
        }
        self.disk_size(node)?;
        self.disk_of(node).available()
    }

    /// The usage of a node's disk; `None`: no such node. Adds up every file, which takes a moment
    /// in a large world.
    pub fn disk(&self, node: &str) -> Option<DiskUse> {
        Some(self.disk_of(self.node_position(node)?))
    }

    pub(super) fn disk_of(&self, node: usize) -> DiskUse {
        let mut held = DiskUse::default();
        for node in self.sharing(node) {
            held.files = held.files.saturating_add(self.files_size(node));
            held.temporary = held.temporary.saturating_add(self.temporary(node));
            held.trash = held.trash.saturating_add(self.trash(node));
        }
        let full = self.nodes[node].disk_full;
        let capacity = if full { Some(held.used()) } else { self.disk_size(node) };
        DiskUse { capacity, ..held }
    }

    /// Bytes of a node's databases and indexes.
    fn files_size(&self, node: usize) -> u64 {
        let orphans = self.orphan_indexes(node).map(|index| index.bytes).sum();
        let files = self.files_of(node).map(|file| {
            let File::Copy { db, .. } = file else { return self.sizes_of(file).file };
            let views = self.views_of(db).filter_map(|place| self.view_sizes(file, place));
            let views = views.map(|sizes| sizes.file).fold(0, u64::saturating_add);
            self.sizes_of(file).file.saturating_add(self.stale_of(file)).saturating_add(views)
        });
        files.fold(self.recoverable(node).saturating_add(orphans), u64::saturating_add)
    }
}
