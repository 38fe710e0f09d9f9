//! A small cluster for the tests of rules.

use super::{AdviceInputs, Finding, Findings, Rule, Situation, Survey};
use crate::{
    model::{
        channel::Channels,
        facts::{FactFlags, FactSource, Facts, Measurement},
        settings::advice::AdviceSettings,
        target::TargetState,
    },
    plan::{Conditions, Queues, Rules},
    scan::ScanStatus,
    table::{CompactionFiles, DbName, DiskUsage, Draft, ShardMapEntry},
};
use couchdb_names::Range;
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

/// The present of these tests.
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
        Self { db, node, range, file_bytes: bytes, active_bytes: bytes, docs: None, state }
    }

    pub(crate) const fn orphan(self) -> Self {
        Self { state: TargetState::Orphan, ..self }
    }

    pub(crate) const fn missing(self) -> Self {
        Self { state: TargetState::Missing, file_bytes: None, active_bytes: None, ..self }
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

/// A cluster under construction.
#[derive(Debug)]
pub(crate) struct TestCluster {
    pub(crate) draft: Draft,
    pub(crate) channels: Channels,
    pub(crate) conditions: Conditions,
    pub(crate) rules: Rules,
    pub(crate) status: ScanStatus,
    pub(crate) settings: AdviceSettings,
}

impl TestCluster {
    pub(crate) fn new() -> Self {
        Self {
            draft: Draft::new(5),
            channels: Channels::default(),
            conditions: Conditions::default(),
            rules: Rules::default(),
            status: ScanStatus::default(),
            settings: AdviceSettings::default(),
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

    pub(crate) fn add_shard(&mut self, shard: &Shard) {
        let node = self.draft.get_or_add_node(shard.node);
        self.draft.update_node(node, |node| {
            (node.is_member, node.is_served, node.is_up) = (true, true, Some(true));
        });
        let db = self.draft.get_or_add_db(DbName { db: shard.db, suffix: ".1" });
        let width = u32::MAX / RANGES;
        let from = shard.range * width;
        let range = Range { from, to: from + (width - 1) };
        let ix = self.draft.get_or_add_shard(node, db, Some(range));
        self.draft.set_facts(ix, shard.facts());
        self.draft.set_state(ix, shard.state);
    }

    /// A cleanup of a database for which there is evidence, with the bytes of its stale index files.
    pub(crate) fn add_cleanup(&mut self, db: &str, file_bytes: Option<u64>) {
        let db = self.draft.get_or_add_db(DbName { db, suffix: ".1" });
        let ix = self.draft.get_or_add_cleanup(db);
        let flags = FactFlags { evidence: true, ..FactFlags::default() };
        let measured_at = Some(Measurement { at: NOW, source: FactSource::Files });
        let file_bytes = file_bytes.into();
        self.draft.set_facts(ix, Facts { file_bytes, flags, measured_at, ..Facts::default() });
    }

    /// Makes a node one whose directories are read.
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

    /// What the rules are asked about.
    pub(crate) fn inputs(mut self) -> AdviceInputs {
        let snapshot = self.draft.publish(NOW);
        let rules = Arc::new(self.rules);
        let mut queues = Queues::new(Arc::new(self.channels));
        queues.apply_snapshot(&snapshot, NOW);
        queues.update_prices(&snapshot, &self.conditions, &rules, NOW);
        let plan = queues.make_plan(&snapshot, &self.conditions, &rules, NOW);
        AdviceInputs {
            plan: Arc::new(plan),
            status: Arc::new(self.status),
            settings: self.settings,
        }
    }

    /// What one rule finds, best first.
    pub(crate) fn findings_of(self, rule: &Rule) -> Vec<Finding> {
        let inputs = self.inputs();
        let survey = Survey::of(&inputs.plan.snapshot);
        let mut findings = Findings::default();
        (rule.check)(&Situation { inputs: &inputs, survey: &survey, now: NOW }, &mut findings);
        findings.into_parts().0
    }
}
