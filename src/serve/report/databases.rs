//! Databases as their owners know them: the shards and indexes of one name together, in all copies.
//!
//! One pass over all targets makes the sums; sentences are made for the databases of a page alone.

use super::{
    Listing, Target, not_taken, not_taken_meaning,
    vocabulary::{self, Word},
    why,
};
use crate::{
    model::{
        growth::{ExpectedRate, TimeAhead},
        rounding::to_bytes,
        target::{TargetKind, TargetState},
    },
    plan::{Decision, Plan, RefusalReason},
    table::{DbIx, Snapshot, TargetIx, TargetRef},
    text::Label,
};
use hashbrown::{HashMap, HashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

const DAY: Duration = Duration::from_secs(86_400);

/// A page of the list of databases, in the requested order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Databases {
    /// When the targets were read.
    pub generated_at: String,
    /// Number of databases that match.
    pub total: usize,
    /// Number of matching databases before this page.
    pub offset: usize,
    /// Maximum number of databases on a page.
    pub limit: usize,
    /// The databases.
    pub databases: Vec<DatabaseLine>,
}

impl Listing for Databases {
    const LIST: &'static str = "databases";
    type Item = DatabaseLine;
}

/// One database. Bytes are those of all copies; files of unknown size are counted in `unmeasured` and add no
/// bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatabaseLine {
    /// The database's name.
    pub db: String,
    /// Bytes of all files: live documents, live indexes and what compactions would free.
    pub file_bytes: u64,
    /// Live bytes of shards.
    pub document_bytes: u64,
    /// Live bytes of view indexes.
    pub index_bytes: u64,
    /// Bytes that compactions would free.
    pub reclaimable_bytes: u64,
    /// Bytes by which the files will grow within a day at the current rate without compaction; null until a
    /// file was watched for ten minutes.
    pub growth_day_bytes: Option<u64>,
    /// Bytes by which the files will grow within seven days without compaction; null if `growth_day_bytes` is.
    pub growth_week_bytes: Option<u64>,
    /// Number of shard copies and views.
    pub targets: u64,
    /// Number of shard copies and views whose size is unknown; if there are any, the sums are lower bounds.
    pub unmeasured: u64,
    /// Number of views of which some copies were not measured; they count as large as the measured one.
    pub estimated: u64,
    /// When the last compaction of one of the database's files ended, as far back as the journal was searched;
    /// null if none was found.
    pub last_compaction: Option<String>,
    /// Why most of the reclaimable bytes are not compacted now; null if all of them start, no channel takes
    /// them, or there are none.
    #[schemars(with = "Option<vocabulary::RefusalReason>")]
    pub reason: Option<Word>,
    /// The reason as a sentence about the largest such file, also if no channel takes it.
    pub why: Option<String>,
}

/// What databases are sorted by.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DatabaseSort {
    /// What compactions would free.
    #[default]
    ReclaimableBytes,
    /// Bytes of all files.
    FileBytes,
    /// Live bytes of shards.
    DocumentBytes,
    /// Live bytes of indexes.
    IndexBytes,
    /// Growth within a day.
    GrowthDayBytes,
    /// Growth within seven days.
    GrowthWeekBytes,
    /// The last compaction.
    LastCompaction,
    /// The name.
    Db,
}

/// Which databases are listed.
#[derive(Clone, Debug, Default)]
pub struct WantedDatabases<'a> {
    /// Only those with this text in their name, whatever its case.
    pub search: Option<&'a str>,
    /// The order.
    pub sort: DatabaseSort,
    /// Whether the least comes first; otherwise, numbers begin with the greatest and names with the first.
    pub is_ascending: Option<bool>,
    /// Databases to leave out first.
    pub offset: usize,
    /// Databases at most.
    pub limit: usize,
}

/// When the last compaction of a file of each database ended, by name.
pub type LastCompactions = HashMap<String, Moment>;

impl Databases {
    /// The databases of a plan.
    #[must_use]
    pub fn of(
        plan: &Plan,
        wanted: &WantedDatabases<'_>,
        last: &LastCompactions,
        now: Moment,
    ) -> Self {
        let search = wanted.search.map(str::to_lowercase);
        let matches =
            |name: &str| search.as_ref().is_none_or(|text| name.to_lowercase().contains(text));
        let found: Vec<(&str, Sums)> = sums_by_name(&plan.snapshot, now)
            .into_iter()
            .filter(|(name, _)| matches(name))
            .collect();
        let total = found.len();
        let shown = page(found, wanted, last);
        let reasons = main_reasons(plan, shown.iter().map(|(name, _)| *name));
        let line = |(name, sums): (&str, Sums)| {
            sums.line(name, last.get(name), reasons.get(name).cloned().unwrap_or_default())
        };
        Self {
            generated_at: plan.snapshot.generated_at().rfc3339(),
            total,
            offset: wanted.offset,
            limit: wanted.limit,
            databases: shown.into_iter().map(line).collect(),
        }
    }
}

/// What the files of one database add up to.
#[derive(Clone, Debug, Default)]
struct Sums {
    document_bytes: u64,
    index_bytes: u64,
    reclaimable_bytes: u64,
    growth: Option<ExpectedRate>,
    targets: u64,
    unmeasured: u64,
    estimated: u64,
}

/// Everything that takes space, once.
fn files(snapshot: &Snapshot) -> impl Iterator<Item = TargetRef<'_>> {
    snapshot.targets_once().filter(|target| {
        let has_file = matches!(target.kind(), TargetKind::Db | TargetKind::View);
        has_file && target.state() != TargetState::Missing
    })
}

/// Instances of a database with one name are one: old files beside a database that was made anew.
fn sums_by_name(snapshot: &Snapshot, now: Moment) -> HashMap<&str, Sums> {
    // Names are compared once for each instance, and not for each of a million targets.
    let mut instances: Vec<Sums> = Vec::new();
    for target in files(snapshot) {
        let at = target.db().as_usize();
        if instances.len() <= at {
            instances.resize(at + 1, Sums::default());
        }
        if let Some(sums) = instances.get_mut(at) {
            sums.add(target, now);
        }
    }
    let mut by_name: HashMap<&str, Sums> = HashMap::new();
    for (db, name) in snapshot.databases() {
        if let Some(sums) = instances.get(db.as_usize()).filter(|sums| sums.targets > 0) {
            by_name.entry(name.db).or_default().merge(sums);
        }
    }
    by_name
}

impl Sums {
    fn add(&mut self, target: TargetRef<'_>, now: Moment) {
        self.targets += 1;
        let Some(file) = target.file_bytes() else {
            self.unmeasured += 1;
            return;
        };
        let waste = target.reclaimable_bytes().unwrap_or_default();
        let live = match target.kind() {
            TargetKind::Db => &mut self.document_bytes,
            TargetKind::View | TargetKind::Cleanup | TargetKind::Search => &mut self.index_bytes,
        };
        *live = live.saturating_add(file.saturating_sub(waste));
        self.reclaimable_bytes = self.reclaimable_bytes.saturating_add(waste);
        self.estimated += u64::from(target.is_estimated());
        if let Some((rate, _)) = target.growth().expected(now) {
            let copies = f64::from(target.file_count());
            self.add_growth(ExpectedRate { hours: rate.hours * copies, days: rate.days * copies });
        }
    }

    fn add_growth(&mut self, more: ExpectedRate) {
        let growth = self.growth.get_or_insert_default();
        growth.hours += more.hours;
        growth.days += more.days;
    }

    fn merge(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.document_bytes, other.document_bytes);
        add(&mut self.index_bytes, other.index_bytes);
        add(&mut self.reclaimable_bytes, other.reclaimable_bytes);
        add(&mut self.targets, other.targets);
        add(&mut self.unmeasured, other.unmeasured);
        add(&mut self.estimated, other.estimated);
        if let Some(growth) = other.growth {
            self.add_growth(growth);
        }
    }

    const fn file_bytes(&self) -> u64 {
        let live = self.document_bytes.saturating_add(self.index_bytes);
        live.saturating_add(self.reclaimable_bytes)
    }

    fn growth_within(&self, span: Duration) -> Option<u64> {
        let bytes = self.growth?.bytes_between(TimeAhead::default(), TimeAhead::after(span));
        Some(to_bytes(bytes.max(0.0)))
    }

    fn line(&self, name: &str, last: Option<&Moment>, (reason, why): Reason) -> DatabaseLine {
        DatabaseLine {
            db: name.to_owned(),
            file_bytes: self.file_bytes(),
            document_bytes: self.document_bytes,
            index_bytes: self.index_bytes,
            reclaimable_bytes: self.reclaimable_bytes,
            growth_day_bytes: self.growth_within(DAY),
            growth_week_bytes: self.growth_within(7 * DAY),
            targets: self.targets,
            unmeasured: self.unmeasured,
            estimated: self.estimated,
            last_compaction: last.map(|at| at.rfc3339()),
            reason,
            why,
        }
    }
}

/// One of a closed set where a channel takes the files, and a sentence.
type Reason = (Option<Word>, Option<String>);

/// Reclaimable bytes with one reason, and the target that has most of them.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    largest: (u64, TargetIx),
}

/// Why most of what is reclaimable in each of these databases is not compacted now.
fn main_reasons<'a>(
    plan: &'a Plan,
    names: impl Iterator<Item = &'a str>,
) -> HashMap<&'a str, Reason> {
    let names: HashSet<&str> = names.collect();
    let instances = plan.snapshot.databases().filter(|(_, name)| names.contains(name.db));
    let mut held: HashMap<DbIx, (&str, HashMap<Option<RefusalReason>, Held>)> =
        instances.map(|(db, name)| (db, (name.db, HashMap::new()))).collect();
    for target in files(&plan.snapshot) {
        let bytes = target.reclaimable_bytes().filter(|bytes| *bytes > 0);
        let Some((bytes, (_, by_reason))) = bytes.zip(held.get_mut(&target.db())) else { continue };
        let reason = match plan.decision(target) {
            Decision::Start => continue,
            Decision::Refused(refusal) => Some(refusal.reason),
            Decision::NotTaken => None,
        };
        let largest = (bytes, target.ix());
        let held = by_reason.entry(reason).or_insert(Held { bytes: 0, largest });
        held.bytes = held.bytes.saturating_add(bytes);
        held.largest = held.largest.max(largest);
    }
    let most = held.into_values().filter_map(|(name, by_reason)| {
        let held = by_reason.into_values().max_by_key(|held| (held.bytes, held.largest))?;
        Some((name, (held.bytes, held.largest.1)))
    });
    // Of instances with one name, the one with most to reclaim counts.
    let mut by_name: HashMap<&str, (u64, TargetIx)> = HashMap::new();
    for (name, held) in most {
        let known = by_name.entry(name).or_insert(held);
        *known = (*known).max(held);
    }
    let says = |(name, (_, ix))| Some((name, reason_of(plan, plan.snapshot.target(ix)?)));
    by_name.into_iter().filter_map(says).collect()
}

/// Why a target is not compacted now.
fn reason_of(plan: &Plan, target: TargetRef<'_>) -> Reason {
    match plan.decision(target) {
        Decision::Start => (None, None),
        Decision::Refused(refusal) => {
            (Some(refusal.reason.label().into()), Some(why(plan, target, &refusal)))
        }
        Decision::NotTaken => {
            let misses = Target::of(plan, target).misses;
            let meaning = not_taken(&misses).and_then(not_taken_meaning);
            let meaning = meaning.map_or_else(String::new, |meaning| format!(": {meaning}"));
            (None, Some(format!("no channel takes its files{meaning}")))
        }
    }
}

/// The databases of the wanted page, in order. What is unknown comes last in both directions, and equal ones stand by
/// name.
fn page<'a>(
    found: Vec<(&'a str, Sums)>,
    wanted: &WantedDatabases<'_>,
    last: &LastCompactions,
) -> Vec<(&'a str, Sums)> {
    let key = |name: &str, sums: &Sums| match wanted.sort {
        DatabaseSort::ReclaimableBytes => Some(sums.reclaimable_bytes),
        DatabaseSort::FileBytes => Some(sums.file_bytes()),
        DatabaseSort::DocumentBytes => Some(sums.document_bytes),
        DatabaseSort::IndexBytes => Some(sums.index_bytes),
        DatabaseSort::GrowthDayBytes => sums.growth_within(DAY),
        DatabaseSort::GrowthWeekBytes => sums.growth_within(7 * DAY),
        DatabaseSort::LastCompaction => last.get(name).map(|at| at.unix()),
        DatabaseSort::Db => None,
    };
    let is_by_name = wanted.sort == DatabaseSort::Db;
    let is_ascending = wanted.is_ascending.unwrap_or(is_by_name);
    let mut keyed: Vec<(Option<u64>, &str, Sums)> =
        found.into_iter().map(|(name, sums)| (key(name, &sums), name, sums)).collect();
    let order = |one: &(Option<u64>, &str, Sums), other: &(Option<u64>, &str, Sums)| {
        let (by_key, by_name) = (one.0.cmp(&other.0), one.1.cmp(other.1));
        let by_key = if is_ascending { by_key } else { by_key.reverse() };
        let by_name = if is_by_name && !is_ascending { by_name.reverse() } else { by_name };
        one.0.is_none().cmp(&other.0.is_none()).then(by_key).then(by_name)
    };
    // A page needs no more than its own end sorted.
    let end = wanted.offset.saturating_add(wanted.limit);
    if end < keyed.len() {
        keyed.select_nth_unstable_by(end, order);
        keyed.truncate(end);
    }
    keyed.sort_unstable_by(order);
    keyed.into_iter().skip(wanted.offset).map(|(_, name, sums)| (name, sums)).collect()
}
