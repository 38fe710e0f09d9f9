//! A small cluster for the tests of rules.

use super::{
    AdviceInputs, CopyHistory, Finding, Findings, ForecastsByVolume, LagHistory, Rule, Situation,
    Survey,
};
use crate::{
    jobs::{FailedBuildsByIndex, Job, JobKey, JobKind, JobPhase},
    model::{
        channel::Channels,
        facts::{FactFlags, FactSource, Facts, Inside, Measurement, Overhead},
        reads::Reads,
        records::JobOwner,
        settings::advice::{AdviceSettings, RemedySettings},
        target::{TargetKind, TargetState},
    },
    plan::{
        Conditions, Plan, Queues, Rules,
        disk::{Disks, Volume, VolumeSpace},
    },
    scan::ScanStatus,
    sources::node_settings::NodeSettings,
    table::{
        CompactionFiles, DbName, DiskUsage, Draft, IndexQuery, NodeIx, ShardMapEntry, TargetIx,
        TargetRef, View,
    },
};
use compaction_settings::NodeConfig;
use couchdb_names::{Range, Signature};
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// The current time in these tests.
pub(crate) const NOW: Moment = Moment::from_unix(1_795_222_434);

/// Number of ranges that shards may have.
const RANGES: u32 = 8;

/// One shard copy.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) db: &'static str,
    pub(crate) node: &'static str,
    pub(crate) range: u32,
    pub(crate) file_bytes: Option<u64>,
    pub(crate) active_bytes: Option<u64>,
    pub(crate) docs: Option<(u64, u64)>,
    pub(crate) state: TargetState,
    /// An earlier reading: seconds ago, bytes and live bytes.
    pub(crate) before: Option<(u64, u64, u64)>,
}

impl Shard {
    /// A copy without waste on a node; ranges are numbered from zero.
    pub(crate) const fn new(
        db: &'static str,
        node: &'static str,
        range: u32,
        file_bytes: u64,
    ) -> Self {
        let bytes = Some(file_bytes);
        let state = TargetState::Ok;
        let (file_bytes, active_bytes) = (bytes, bytes);
        Self { db, node, range, file_bytes, active_bytes, docs: None, state, before: None }
    }

    pub(crate) const fn orphan(self) -> Self {
        Self { state: TargetState::Orphan, ..self }
    }

    pub(crate) const fn missing(self) -> Self {
        Self { state: TargetState::Missing, file_bytes: None, active_bytes: None, ..self }
    }

    pub(crate) const fn with_active(self, active_bytes: u64) -> Self {
        Self { active_bytes: Some(active_bytes), ..self }
    }

    /// Sets its size and live bytes of some seconds ago.
    pub(crate) const fn grown_from(self, seconds: u64, file: u64, active: u64) -> Self {
        Self { before: Some((seconds, file, active)), ..self }
    }

    pub(crate) const fn with_docs(self, docs: u64, deleted: u64) -> Self {
        Self { docs: Some((docs, deleted)), ..self }
    }

    fn facts(&self) -> Facts {
        Facts {
            file_bytes: self.file_bytes.into(),
            active_bytes: self.active_bytes.into(),
            docs: self.docs.map(|docs| docs.0).into(),
            deleted_docs: self.docs.map(|docs| docs.1).into(),
            measured_at: Some(Measurement { at: NOW, source: FactSource::Http }),
            ..Facts::default()
        }
    }
}

/// The index of one design document; sizes are those of one copy.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) db: &'static str,
    pub(crate) design: &'static str,
    pub(crate) signature: u8,
    /// Live bytes of its file.
    pub(crate) bytes: Option<u64>,
    /// All bytes of its file that are not live.
    pub(crate) waste: u64,
    pub(crate) pending: Option<u64>,
    /// The last purge that it has processed.
    pub(crate) purges: Option<u64>,
    pub(crate) functions: Vec<u64>,
    pub(crate) build_query: Option<IndexQuery>,
}

impl Index {
    /// An index of 100 MiB in each copy, with the view `all`.
    pub(crate) fn new(db: &'static str, design: &'static str, signature: u8) -> Self {
        let build_query = IndexQuery { design: design.into(), view: "all".into() };
        Self {
            db,
            design,
            signature,
            bytes: Some(100 << 20),
            waste: 0,
            pending: Some(0),
            purges: None,
            functions: Vec::new(),
            build_query: Some(build_query),
        }
    }
}

/// A build on the first node that someone else started, without progress for some seconds.
pub(crate) fn build_job(db: &str, design: &str, seconds: u64) -> Job {
    let at = Moment::from_unix(NOW.unix() - seconds);
    let kind = JobKind::BuildView(design.into());
    let shard = format!("shards/00000000-1ffffffe/{db}.1").into();
    let node = NodeIx::from_usize(1).unwrap();
    Job {
        key: JobKey { node, shard, kind },
        target: None,
        target_kind: TargetKind::View,
        owner: JobOwner::Other,
        channel: None,
        started_at: at,
        phase: JobPhase::Running,
        progress: Some(0.5),
        last_progress_at: at,
        reserved_bytes: 0,
        file_bytes: Some(50 << 20),
        predicted_bytes: None,
    }
}

/// A cluster under construction.
#[derive(Debug)]
pub(crate) struct TestCluster {
    pub(crate) draft: Draft,
    pub(crate) channels: Channels,
    pub(crate) conditions: Conditions,
    pub(crate) rules: Rules,
    pub(crate) status: ScanStatus,
    pub(crate) node_settings: NodeSettings,
    pub(crate) forecasts: ForecastsByVolume,
    pub(crate) lags: LagHistory,
    pub(crate) copies: CopyHistory,
    pub(crate) reads: Reads,
    pub(crate) failed_builds: FailedBuildsByIndex,
    pub(crate) settings: AdviceSettings,
    pub(crate) remedy_settings: RemedySettings,
}

impl TestCluster {
    pub(crate) fn new() -> Self {
        Self {
            draft: Draft::new(5),
            channels: Channels::default(),
            conditions: Conditions::default(),
            rules: Rules::default(),
            status: ScanStatus::default(),
            node_settings: NodeSettings::default(),
            forecasts: ForecastsByVolume::new(),
            lags: LagHistory::default(),
            copies: CopyHistory::default(),
            reads: Reads::default(),
            failed_builds: FailedBuildsByIndex::new(),
            settings: AdviceSettings::default(),
            remedy_settings: RemedySettings::default(),
        }
    }

    /// A cluster of these shards; each database has the ranges and copies that are given.
    pub(crate) fn with_shards(shards: &[Shard]) -> Self {
        let mut cluster = Self::new();
        let mut maps: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for shard in shards {
            cluster.add_shard(shard);
            if shard.state != TargetState::Orphan {
                maps.entry(shard.db).or_default().push(shard.range);
            }
        }
        for (db, ranges) in maps {
            let copies = u32::try_from(ranges.len()).unwrap();
            let last = ranges.into_iter().max().unwrap_or_default();
            let map = ShardMapEntry { copies, ranges: last + 1 };
            let db = cluster.draft.get_or_add_db(DbName { db, suffix: ".1" });
            cluster.draft.set_shard_map(db, map, &[]);
        }
        cluster
    }

    /// Two nodes, `a` and `b`, with these versions; an empty version is unknown.
    pub(crate) fn with_versions(versions: [&str; 2]) -> Self {
        let mut cluster = Self::new();
        for (node, version) in ["a", "b"].into_iter().zip(versions) {
            let ix = cluster.draft.get_or_add_node(node);
            cluster.draft.update_node(ix, |node| {
                (node.is_member, node.is_served) = (true, true);
                node.build = version.parse().ok();
            });
        }
        cluster
    }

    pub(crate) fn add_shard(&mut self, shard: &Shard) {
        self.add_shard_of(shard, ".1");
    }

    /// Adds a shard copy of the database instance with this suffix.
    pub(crate) fn add_shard_of(&mut self, shard: &Shard, suffix: &str) {
        let node = self.draft.get_or_add_node(shard.node);
        self.draft.update_node(node, |node| {
            (node.is_member, node.is_served, node.is_up) = (true, true, Some(true));
        });
        let db = self.draft.get_or_add_db(DbName { db: shard.db, suffix });
        let width = u32::MAX / RANGES;
        let from = shard.range * width;
        let range = Range { from, to: from + (width - 1) };
        let ix = self.draft.get_or_add_shard(node, db, Some(range));
        if let Some((seconds, file, active)) = shard.before {
            let at = Moment::from_unix(NOW.unix() - seconds);
            let earlier = Facts {
                file_bytes: Some(file).into(),
                active_bytes: Some(active).into(),
                measured_at: Some(Measurement { at, source: FactSource::Http }),
                ..shard.facts()
            };
            self.draft.set_facts(ix, earlier);
        }
        self.draft.set_facts(ix, shard.facts());
        self.draft.set_state(ix, shard.state);
    }

    /// Sets the overhead that was read of every shard of a database.
    pub(crate) fn set_overhead(&mut self, db: &str, overhead: Overhead) {
        let shards = self.draft.current().targets().filter(|it| it.kind() == TargetKind::Db);
        let shards = shards.filter(|it| it.db_name().db == db);
        let shards: Vec<_> = shards.map(|it| (it.ix(), it.facts())).collect();
        for (ix, facts) in shards {
            self.draft.set_facts(ix, Facts { overhead, ..facts });
        }
    }

    /// Sets what X-rays of a database's shards showed.
    pub(crate) fn set_inside(&mut self, db: &str, inside: Inside) {
        let shards = self.draft.current().targets().filter(|it| it.kind() == TargetKind::Db);
        let shards: Vec<_> = shards.filter(|it| it.db_name().db == db).map(|it| it.ix()).collect();
        for ix in shards {
            assert!(self.draft.set_inside(ix, inside));
        }
    }

    /// Adds a cleanup of a database, with evidence and the bytes of its stale index files.
    pub(crate) fn add_cleanup(&mut self, db: &str, file_bytes: Option<u64>) {
        let db = self.draft.get_or_add_db(DbName { db, suffix: ".1" });
        let ix = self.draft.get_or_add_cleanup(db);
        let flags = FactFlags { evidence: true, ..FactFlags::default() };
        let measured_at = Some(Measurement { at: NOW, source: FactSource::Files });
        let file_bytes = file_bytes.into();
        self.draft.set_facts(ix, Facts { file_bytes, flags, measured_at, ..Facts::default() });
    }

    /// Makes recliner read the directories of a node.
    pub(crate) fn set_disk_usage(&mut self, node: &str, change: impl FnOnce(&mut DiskUsage)) {
        let mut usage = DiskUsage { last_success: Some(NOW), ..DiskUsage::default() };
        change(&mut usage);
        let node = self.draft.get_or_add_node(node);
        self.draft.update_node(node, |node| node.disk_usage = Some(usage));
    }

    /// Sets the files of compactions on a node.
    pub(crate) fn add_compactions(&mut self, node: &str, files: Vec<CompactionFiles>) {
        let node = self.draft.get_or_add_node(node);
        self.draft.update_node(node, |node| node.compactions = files);
    }

    /// Gives each of these nodes a volume of its own, named after it, without a known size.
    pub(crate) fn set_free_space(&mut self, nodes: &[(&str, Option<u64>)]) {
        let names: Vec<String> = nodes.iter().map(|(node, _)| format!("data-{node}")).collect();
        let volumes = nodes.iter().zip(&names);
        self.set_volumes(volumes.map(|((node, available), name)| (&**name, *node, *available)));
    }

    /// Sets all volumes: each with its name, its node, and its free bytes if these are known.
    pub(crate) fn set_volumes<'a>(
        &mut self,
        volumes: impl IntoIterator<Item = (&'a str, &'a str, Option<u64>)>,
    ) {
        let volume = |(name, node, available): (&str, &str, Option<u64>)| Volume {
            name: name.into(),
            nodes: vec![node.into()],
            space: available.map(|available| VolumeSpace {
                available,
                size: None,
                held: None,
                measured_at: NOW,
            }),
            is_stated: false,
            falling_since: None,
            problem: None,
        };
        let volumes = volumes.into_iter().map(volume).collect();
        self.conditions.disks = Arc::new(Disks { volumes });
    }

    pub(crate) fn add_index(&mut self, index: &Index) -> TargetIx {
        self.add_index_of(index, Signature([index.signature; 16]))
    }

    /// Adds an index with this whole signature.
    pub(crate) fn add_index_of(&mut self, index: &Index, signature: Signature) -> TargetIx {
        let db = self.draft.get_or_add_db(DbName { db: index.db, suffix: ".1" });
        let view = View {
            signature,
            designs: Arc::new([index.design.into()]),
            functions: index.functions.clone().into(),
            build_query: index.build_query.clone(),
            ..View::default()
        };
        let ix = self.draft.add_view(db, view);
        let facts = Facts {
            file_bytes: index.bytes.map(|live| live + index.waste).into(),
            active_bytes: index.bytes.into(),
            updates_pending: index.pending.into(),
            purge_seq: index.purges.into(),
            measured_at: Some(Measurement { at: NOW, source: FactSource::Http }),
            ..Facts::default()
        };
        self.draft.set_facts(ix, facts);
        ix
    }

    /// Adds a running job; the target of a job on an index is the index of that design document.
    pub(crate) fn add_job(&mut self, mut job: Job) {
        if let JobKind::BuildView(design) | JobKind::CompactView(design) = &job.key.kind {
            let index = self.draft.current().targets().find(|it| {
                it.view().is_some_and(|view| view.designs.iter().any(|id| id == design))
            });
            job.target = index.map(TargetRef::ix);
        }
        Arc::make_mut(&mut self.conditions.jobs).list.push(job);
    }

    /// Makes the running jobs of every node known.
    pub(crate) fn poll_all_nodes(&mut self) {
        let nodes = 1..self.draft.current().nodes().len();
        let polled = nodes.filter_map(|at| Some((NodeIx::from_usize(at)?, NOW)));
        Arc::make_mut(&mut self.conditions.jobs).polled_nodes = polled.collect();
    }

    /// A node's settings, as section, key and value; also adds the node.
    pub(crate) fn set(&mut self, node: &str, settings: &[(&str, &str, &str)]) {
        let ix = self.draft.get_or_add_node(node);
        self.draft.update_node(ix, |node| (node.is_member, node.is_served) = (true, true));
        let config = self.node_settings.nodes.entry(node.to_owned()).or_insert_with(|| {
            let (node, version) = (node.to_owned(), "3.5.0".to_owned());
            NodeConfig { node, version, ..NodeConfig::default() }
        });
        for (section, key, value) in settings {
            let keys = config.sections.entry((*section).to_owned()).or_default();
            keys.insert((*key).to_owned(), (*value).to_owned());
        }
    }

    /// Publishes the cluster and makes its plan.
    pub(crate) fn plan(&mut self) -> Plan {
        let snapshot = self.draft.publish(NOW);
        let rules = Arc::new(self.rules.clone());
        let mut queues = Queues::new(Arc::new(self.channels.clone()));
        queues.apply_snapshot(&snapshot, NOW);
        queues.update_prices(&snapshot, &self.conditions, &rules, NOW);
        queues.make_plan(&snapshot, &self.conditions, &rules, NOW)
    }

    /// The inputs of the rules.
    pub(crate) fn inputs(mut self) -> AdviceInputs {
        AdviceInputs {
            plan: Arc::new(self.plan()),
            status: Arc::new(self.status),
            node_settings: Arc::new(self.node_settings),
            forecasts: Arc::new(self.forecasts),
            lags: Arc::new(self.lags),
            copies: Arc::new(self.copies),
            reads: Arc::new(self.reads),
            failed_builds: Arc::new(self.failed_builds),
            settings: self.settings,
            remedy_settings: self.remedy_settings,
        }
    }

    /// What one rule finds, best first.
    pub(crate) fn findings_of(self, rule: &Rule) -> Vec<Finding> {
        let inputs = self.inputs();
        let survey = Survey::of(&inputs.plan.snapshot, NOW);
        let mut findings = Findings::of(rule.severities);
        (rule.check)(&Situation { inputs: &inputs, survey: &survey, now: NOW }, &mut findings);
        findings.into_parts().0
    }
}
