//! The nodes: whether they answer, their load, their own smoosh, their directories and file systems.

use super::{
    columns::{Cell, Table, rest},
    vocabulary::{self, Word},
};
use crate::{
    datadir::DirectoryContent,
    model::{rounding::to_bytes, target::TargetKind},
    plan::{
        Plan,
        pressure::{NodePressure, Pressures, Signal},
    },
    table::{DiskUsage, Node, NodeIx, NodeSmoosh, SmooshChannel, Totals, VolumeUsage},
    text::Label,
};
use couchdb_client::OwnAddress;
use couchdb_names::Build;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeLine {
    /// The node's name.
    pub node: String,
    /// Whether the node answered when it was last asked; null if it was not asked yet.
    pub up: Option<bool>,
    /// Whether the node is a member of the cluster.
    pub member: bool,
    /// Whether this process reads the node's shards; it knows nothing about the shards of other nodes.
    pub served: bool,
    /// The node's CouchDB version; null unless the node's own address is known.
    pub version: Option<String>,
    /// Whether the node is asked at its own address.
    pub own_address: bool,
    /// What an operator could do about the node, in sentences.
    pub findings: Vec<Word>,
    /// When all of the node's targets were last read without a failure.
    pub last_success: Option<String>,
    /// What is known of the node's smoosh: `not_read`, `no_direct_address`, `not_offered`, `failed` or `up`.
    #[schemars(with = "vocabulary::Smoosh")]
    pub smoosh: Word,
    /// The channels of the node's smoosh; empty if they are not known.
    #[serde(default)]
    pub smoosh_channels: Vec<SmooshChannelLine>,
    /// The node's load, by each signal under `pressure` that could be read.
    #[serde(default)]
    pub pressure: Vec<PressureLine>,
    /// What the node's directories hold besides targets; null if they are not read.
    pub disk: Option<DiskLine>,
    /// Number of targets for which CouchDB and the file's header report different facts; null unless both were
    /// read.
    pub source_disagreements: Option<u64>,
}

impl NodeLine {
    /// The state of the node's own smoosh, in words.
    pub fn smoosh_says(&self) -> &str {
        match &*self.smoosh {
            "not_read" => "not read",
            "no_direct_address" => "no direct address",
            "not_offered" => "needs CouchDB 3.4",
            other => other,
        }
    }

    /// Describes the node at `at`.
    fn of(plan: &Plan, node: &Node, at: NodeIx) -> Self {
        let totals = plan.snapshot.totals();
        let volumes =
            || node.volume_usage.iter().map(|on| VolumeLine::of(on, totals, at)).collect();
        Self {
            node: node.name.to_string(),
            up: node.is_up,
            member: node.is_member,
            served: node.is_served,
            version: node.build.as_ref().map(Build::to_string),
            own_address: node.own_address.found().is_some(),
            findings: findings(node, plan.conditions.pressures.nodes.get(&at)),
            last_success: node.last_success.map(Moment::rfc3339),
            smoosh: Word::Borrowed(match node.smoosh {
                NodeSmoosh::NotRead => "not_read",
                NodeSmoosh::NoDirectAddress => "no_direct_address",
                NodeSmoosh::Unsupported => "not_offered",
                NodeSmoosh::Failed => "failed",
                NodeSmoosh::Channels(_) => "up",
            }),
            smoosh_channels: SmooshChannelLine::all(&node.smoosh),
            pressure: PressureLine::all(&plan.conditions.pressures, at),
            disk: node.disk_usage.map(|disk| DiskLine::of(disk, volumes())),
            source_disagreements: node.disagreements,
        }
    }
}

/// Advice about a node for the operator.
fn findings(node: &Node, load: Option<&NodePressure>) -> Vec<Word> {
    let needs_address = node.is_served && matches!(node.own_address, OwnAddress::NotConfigured);
    let finding = Word::Borrowed(
        "no direct address: list it under couchdb.nodes, or repeat --couchdb.url for it",
    );
    let foreign = node.foreign_directory.as_deref().map(|problem| Word::Owned(problem.to_owned()));
    let unread = node.unread_tasks.as_deref();
    let unread = unread.map(|why| Word::Owned(format!("its running jobs are unknown: {why}")));
    let maintenance = load.and_then(|load| load.maintenance_since).map(|since| {
        Word::Owned(format!("in maintenance mode since {}: nothing starts there", since.rfc3339()))
    });
    let upgrade = load.and_then(|load| load.upgrade_since).map(|since| {
        Word::Owned(format!(
            "marked as being upgraded ([couchdb] upgrade_in_progress) since {}: nothing starts there",
            since.rfc3339()
        ))
    });
    let findings = [maintenance, upgrade, needs_address.then_some(finding), foreign, unread];
    findings.into_iter().flatten().collect()
}

/// The nodes of a plan, without the pseudo node.
pub fn nodes(plan: &Plan) -> impl Iterator<Item = NodeLine> {
    let nodes = plan.snapshot.nodes().iter().enumerate().skip(1);
    nodes.filter_map(|(at, node)| Some(NodeLine::of(plan, node, NodeIx::from_usize(at)?)))
}

/// One signal of load on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PressureLine {
    /// The signal.
    #[schemars(with = "vocabulary::Signal")]
    pub signal: Word,
    /// The unit of the values: `seconds`, `processes`, `changes` or `indexers`.
    #[schemars(with = "vocabulary::SignalUnit")]
    pub unit: Word,
    /// The median of recent readings.
    pub value: f64,
    /// Nothing starts above this value; null if there is no threshold.
    pub high: Option<f64>,
    /// Starts resume at or below this value; null if there is no threshold.
    pub low: Option<f64>,
    /// Whether the signal holds back starts now.
    pub holds: bool,
}

impl PressureLine {
    /// Every pressure signal of a node that could be read.
    pub(super) fn all(pressures: &Pressures, node: NodeIx) -> Vec<Self> {
        let Some(of_node) = pressures.nodes.get(&node) else { return Vec::new() };
        let line = |(signal, value): (&Signal, &f64)| {
            let marks = pressures.marks.get(signal);
            Self {
                signal: signal.label().into(),
                unit: signal.unit().into(),
                value: *value,
                high: marks.map(|marks| marks.high),
                low: marks.map(|marks| marks.low),
                holds: of_node.hold.is_some_and(|hold| hold.signal == *signal),
            }
        };
        of_node.signals.iter().map(line).collect()
    }
}

/// One channel of a node's smoosh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SmooshChannelLine {
    /// The channel's name.
    pub channel: String,
    /// Number of running compactions.
    pub active: u64,
    /// Number of compactions about to start.
    pub starting: u64,
    /// Number of queued files.
    pub waiting: u64,
}

impl SmooshChannelLine {
    /// Every channel of a node's smoosh.
    pub(super) fn all(smoosh: &NodeSmoosh) -> Vec<Self> {
        let NodeSmoosh::Channels(channels) = smoosh else { return Vec::new() };
        let line = |channel: &SmooshChannel| Self {
            channel: channel.name.to_string(),
            active: channel.active,
            starting: channel.starting,
            waiting: channel.waiting,
        };
        channels.iter().map(line).collect()
    }
}

/// What a node's directories hold besides targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskLine {
    /// Number of files found.
    pub files: u64,
    /// Bytes of view index files that nothing uses.
    pub stale_index_bytes: u64,
    /// Whether design documents were known: without them, only index files whose shard is gone count as stale.
    pub designs_known: bool,
    /// Bytes of files that compactions left behind.
    pub leftover_bytes: u64,
    /// Bytes of files that CouchDB deleted and that are still on the disk.
    pub trash_bytes: u64,
    /// Bytes of Nouveau's indexes in these directories.
    pub nouveau_bytes: u64,
    /// Bytes of Clouseau's indexes in these directories.
    pub clouseau_bytes: u64,
    /// Bytes of files that do not belong to CouchDB.
    pub other_bytes: u64,
    /// The file systems of these directories, and what can be freed on each.
    pub volumes: Vec<VolumeLine>,
    /// Duration of the last walk through the directories, in seconds.
    pub duration_seconds: f64,
    /// When a walk last read everything; null if none has.
    pub last_success: Option<String>,
}

impl DiskLine {
    /// Other files in the directories of these nodes.
    pub(crate) fn table<'a>(
        of_nodes: impl Iterator<Item = (&'a String, &'a Self)>,
    ) -> Table<(&'a String, &'a Self)> {
        Table::of(of_nodes)
            .text("node", |(node, _)| Cell::from(&**node))
            .number(rest("files"), |(_, it)| Cell::count(it.files))
            .number("stale indexes", |(_, it)| Cell::bytes(it.stale_index_bytes))
            .number("leftovers", |(_, it)| Cell::bytes(it.leftover_bytes))
            .number("trash", |(_, it)| Cell::bytes(it.trash_bytes))
            .number(rest("search"), |(_, it)| {
                Cell::bytes(it.nouveau_bytes.saturating_add(it.clouseau_bytes))
            })
            .number(rest("other"), |(_, it)| Cell::bytes(it.other_bytes))
    }

    fn of(disk: DiskUsage, volumes: Vec<VolumeLine>) -> Self {
        Self {
            files: disk.files,
            stale_index_bytes: disk.stale_index_bytes,
            designs_known: disk.designs_known,
            leftover_bytes: disk.leftover_bytes,
            trash_bytes: disk.trash_bytes,
            nouveau_bytes: disk.nouveau_bytes,
            clouseau_bytes: disk.clouseau_bytes,
            other_bytes: disk.other_bytes,
            volumes,
            duration_seconds: disk.took_ms as f64 / 1e3,
            last_success: disk.last_success.map(Moment::rfc3339),
        }
    }
}

/// A file system, and what each kind of cleanup would free on it, in bytes. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeLine {
    /// The directory on the file system; if there are two, that of databases.
    pub directory: String,
    /// Size of the file system.
    pub size_bytes: Option<u64>,
    /// Bytes that can still be written.
    pub available_bytes: Option<u64>,
    /// Bytes of view index files that nothing uses.
    pub stale_index_bytes: u64,
    /// Bytes of files that compactions left behind.
    pub leftover_bytes: u64,
    /// Bytes of files that CouchDB deleted and that are still on the disk.
    pub trash_bytes: u64,
    /// Bytes that compacting everything on it is predicted to free.
    pub reclaimable_bytes: Option<u64>,
}

impl VolumeLine {
    pub(super) fn of(on: &VolumeUsage, totals: &Totals, node: NodeIx) -> Self {
        let frees = |kind| totals.sums_of(node, kind).reclaimable_bytes.get();
        let reclaimable = match on.volume.content {
            DirectoryContent::Databases => frees(TargetKind::Db),
            DirectoryContent::Views => frees(TargetKind::View),
            DirectoryContent::Both => {
                frees(TargetKind::Db).zip(frees(TargetKind::View)).map(|(dbs, views)| dbs + views)
            }
        };
        Self {
            directory: on.volume.directory.to_string(),
            size_bytes: on.volume.space.map(|space| space.size),
            available_bytes: on.volume.space.map(|space| space.available),
            stale_index_bytes: on.stale_index_bytes,
            leftover_bytes: on.leftover_bytes,
            trash_bytes: on.trash_bytes,
            reclaimable_bytes: reclaimable.map(to_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        datadir::{DirectoryVolume, FileSystemSpace},
        model::facts::{FactSource, Facts, Measurement, OptionalU64},
        table::{DbName, Draft},
    };
    use couchdb_names::Signature;

    #[test]
    fn findings_say_that_running_tasks_could_not_be_read() {
        let unread = Some("GET /_node/couchdb@a/_active_tasks: larger than 16 MiB".into());
        let found = findings(&Node { unread_tasks: unread, ..Node::default() }, None);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert!(only.starts_with("its running jobs are unknown: GET /_node/"), "{only}");
        assert_eq!(findings(&Node::default(), None).len(), 0);
    }

    #[test]
    fn findings_say_why_nothing_starts_on_a_node() {
        let load = NodePressure {
            maintenance_since: Some(Moment::from_unix(1_795_222_434)),
            ..NodePressure::default()
        };
        let found = findings(&Node::default(), Some(&load));
        assert_eq!(found, ["in maintenance mode since 2026-11-21T00:53:54Z: nothing starts there"]);
    }

    #[test]
    fn reclaimable_bytes_of_a_directory_match_its_content() {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
        let facts = |file, active| Facts {
            file_bytes: OptionalU64::new(file),
            active_bytes: active,
            measured_at: Some(Measurement { at: Moment::from_unix(7), source: FactSource::Files }),
            ..Facts::default()
        };
        let shard = draft.get_or_add_shard(node, db, None);
        draft.set_facts(shard, facts(90 << 20, OptionalU64::new(10 << 20)));
        let part = draft.get_or_add_part(node, db, None, Signature([1; 16]));
        draft.set_facts(part, facts(70 << 20, OptionalU64::UNKNOWN));
        let snapshot = draft.publish(Moment::from_unix(7));
        let space = FileSystemSpace { available: 5, size: 9, device: 1 };
        let line = |holds, space| {
            let volume = DirectoryVolume { directory: "/data".into(), content: holds, space };
            let on =
                VolumeUsage { volume, stale_index_bytes: 1, leftover_bytes: 2, trash_bytes: 3 };
            VolumeLine::of(&on, snapshot.totals(), node)
        };
        let dbs = line(DirectoryContent::Databases, Some(space));
        assert_eq!((dbs.available_bytes, dbs.size_bytes), (Some(5), Some(9)));
        assert!(dbs.reclaimable_bytes.is_some_and(|bytes| bytes > 70 << 20), "{dbs:?}");
        let views = line(DirectoryContent::Views, None);
        assert_eq!((views.available_bytes, views.reclaimable_bytes), (None, None));
        assert_eq!(line(DirectoryContent::Both, None).reclaimable_bytes, None);
    }
}
