//! Databases as their owners know them: the shards and indexes of one name together, in all copies.
//!
//! One pass over all targets makes the sums; sentences are made only for the databases of the requested page.

use super::{
    DeletionAges, Target,
    columns::{Cell, Table, any, rest, wide},
    not_taken, not_taken_meaning, runs, unanswered_nodes,
    vocabulary::{self, Word},
    why,
};
use crate::{
    model::{
        deletions::DeletionRecord,
        records::{JobResult, Outcome},
        rounding::to_bytes,
        target::TargetKind,
    },
    plan::{Decision, Plan, RefusalClass, RefusalReason},
    table::{DbIx, Snapshot, TargetIx, TargetRef},
    text::{
        Label, capital, counted, duration, grouped,
        size::{bound_in_words, format_size_short},
    },
};
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

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
    /// The nodes that do not answer: sizes there are as they were last read, or unknown.
    #[serde(default)]
    pub unanswered: Vec<String>,
    /// The databases.
    pub databases: Vec<DatabaseLine>,
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
    /// file has been watched for at least half a day.
    pub growth_day_bytes: Option<u64>,
    /// Bytes by which the files will grow within seven days without compaction; null until a file has been watched for
    /// half of that.
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
    /// Why most of the reclaimable bytes are not compacted now; null if they all start, if no channel takes
    /// them, or if there are none.
    #[schemars(with = "Option<vocabulary::RefusalReason>")]
    pub reason: Option<Word>,
    /// In one or two words, why no channel takes them; null if one does.
    pub not_taken: Option<Word>,
    /// Either reason as a sentence about the largest file that it holds back.
    pub why: Option<String>,
    /// Number of shard copies and views that wait for a compaction and need no change of settings for it.
    pub waiting: u64,
    /// How fast they are compacted; null unless the database is asked for by its name.
    pub pace: Option<Pace>,
    /// How old its deleted documents are; null if there are none, nothing is recorded, or the database is not asked
    /// for by its name.
    pub deletions: Option<DeletionAges>,
}

/// How fast the files of a database are compacted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pace {
    /// Number of its compactions that freed space within the last day.
    pub freed_lately: u64,
    /// Whether there may have been more, because the journal was not searched that far.
    pub at_least: bool,
    /// Seconds until the waiting ones are done at this pace; null if nothing was freed, the journal is
    /// younger than a day, or a run compacts them.
    pub rest_seconds: Option<u64>,
}

/// The field by which databases are sorted.
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
    /// Only those whose name contains this text, ignoring case.
    pub search: Option<&'a str>,
    /// The order.
    pub sort: DatabaseSort,
    /// Whether the smallest comes first; by default, numbers begin with the largest and names with the first.
    pub is_ascending: Option<bool>,
    /// Only the database of exactly this name.
    pub name: Option<&'a str>,
    /// Number of databases to skip.
    pub offset: usize,
    /// Maximum number of databases.
    pub limit: usize,
}

/// When the last compaction of a file of each database ended, by name.
type LastCompactions = HashMap<String, Moment>;

/// The newest jobs of the journal, the newest first.
#[derive(Clone, Debug, Default)]
pub struct NewestJobs {
    /// How the jobs ended.
    pub jobs: Vec<Outcome>,
    /// Whether the journal has older ones.
    pub has_older: bool,
}

impl NewestJobs {
    /// The last compaction of each database.
    fn last_compactions(&self) -> LastCompactions {
        let mut last = LastCompactions::new();
        for job in &self.jobs {
            if !matches!(job.ending, JobResult::Failed | JobResult::Lost) {
                last.entry(job.target.database().to_owned()).or_insert(job.ended_at);
            }
        }
        last
    }

    /// The pace of a database; `None` if no job is known.
    fn pace(&self, plan: &Plan, line: &DatabaseLine, now: Moment) -> Option<Pace> {
        let oldest = self.jobs.last()?;
        let covers_day = oldest.ended_at.age(now) >= DAY;
        let of_day = self.jobs.iter().filter(|job| job.ended_at.age(now) < DAY);
        let of_db = of_day.filter(|job| job.target.database() == line.db);
        let freed = of_db.filter(|job| job.ending == JobResult::Freed).count() as u64;
        let mut runs = plan.conditions.constraints.runs.0.values();
        let has_run = runs.any(|run| runs::is_open_for(run, &line.db));
        let is_known = freed > 0 && (covers_day || self.has_older) && !has_run;
        let rest = is_known.then(|| DAY.as_secs().saturating_mul(line.waiting) / freed);
        let at_least = self.has_older && !covers_day;
        Some(Pace { freed_lately: freed, at_least, rest_seconds: rest })
    }
}

impl Databases {
    /// The databases of a plan.
    pub fn of(plan: &Plan, wanted: &WantedDatabases<'_>, jobs: &NewestJobs, now: Moment) -> Self {
        let last = jobs.last_compactions();
        let search = wanted.search.map(str::to_lowercase);
        let matches = |name: &str| {
            wanted.name.is_none_or(|only| only == name)
                && search.as_ref().is_none_or(|text| name.to_lowercase().contains(text))
        };
        let is_by_growth =
            matches!(wanted.sort, DatabaseSort::GrowthDayBytes | DatabaseSort::GrowthWeekBytes);
        let found: Vec<(&str, Sums)> = sums_by_name(&plan.snapshot, is_by_growth.then_some(now))
            .into_iter()
            .filter(|(name, _)| matches(name))
            .collect();
        let total = found.len();
        let shown = page(found, wanted, &last);
        let details = details(plan, shown.iter().map(|(name, _)| *name), now);
        let none = Details::default();
        let line = |(name, sums): (&str, Sums)| {
            let details = details.get(name).unwrap_or(&none);
            let line = sums.line(name, last.get(name), details, details.reason(plan));
            let pace = wanted.name.and_then(|_| jobs.pace(plan, &line, now));
            DatabaseLine { pace, ..line }
        };
        Self {
            generated_at: plan.snapshot.generated_at().rfc3339(),
            total,
            offset: wanted.offset,
            limit: wanted.limit,
            unanswered: unanswered_nodes(plan),
            databases: shown.into_iter().map(line).collect(),
        }
    }
}

impl Databases {
    /// The databases, sorted by fields of the API.
    pub(crate) fn table(&self) -> Table<&DatabaseLine> {
        Table::of(&self.databases)
            .text(any("database").sorted_by("db"), |it| Cell::database(&it.db))
            .number(any("on disk").sorted_by("file_bytes"), |it| it.sum(it.file_bytes))
            .number(wide("documents").sorted_by("document_bytes"), |it| it.sum(it.document_bytes))
            .number(wide("indexes").sorted_by("index_bytes"), |it| it.sum(it.index_bytes))
            .number(any("reclaimable").sorted_by("reclaimable_bytes"), |it| {
                it.sum(it.reclaimable_bytes)
            })
            .number(rest("grows a day").sorted_by("growth_day_bytes"), |it| {
                Cell::bytes(it.growth_day_bytes)
            })
            .number(wide("in 7 days").sorted_by("growth_week_bytes"), |it| {
                Cell::bytes(it.growth_week_bytes)
            })
            .text(wide("last compaction").sorted_by("last_compaction"), |it| {
                Cell::time(it.last_compaction.as_deref())
            })
            .text(rest("why it stays"), |it| match (&it.reason, &it.not_taken) {
                (Some(reason), _) => Cell::reason(reason).explained(it.why.as_deref()),
                (None, Some(word)) => Cell::words(&**word).quiet().explained(it.why.as_deref()),
                (None, None) => Cell::none(),
            })
    }
}

impl DatabaseLine {
    fn sum(&self, sum: u64) -> Cell {
        Cell::bounded(sum, self.unmeasured, self.estimated)
    }

    /// The line of the database with this name, as in the list; `None` if it has no files.
    pub fn of(plan: &Plan, name: &str, jobs: &NewestJobs, now: Moment) -> Option<Self> {
        let wanted = WantedDatabases { name: Some(name), limit: 1, ..WantedDatabases::default() };
        Databases::of(plan, &wanted, jobs, now).databases.pop()
    }

    /// Adds the ages of deleted documents, if they are recorded.
    #[must_use]
    pub fn with_deletions(
        self,
        record: Option<&DeletionRecord>,
        snapshot: &Snapshot,
        now: Moment,
    ) -> Self {
        let deletions = record.and_then(|record| DeletionAges::of(record, snapshot, &self.db, now));
        Self { deletions, ..self }
    }

    /// A summary: its size, what compactions would free, its growth, and when the waiting compactions will be done.
    pub fn says(&self) -> String {
        let [size, reclaimable] = [self.file_bytes, self.reclaimable_bytes].map(format_size_short);
        let bound = bound_in_words(self.unmeasured, self.estimated);
        let mut text = format!("{}: {bound}{size}, {reclaimable} reclaimable", self.db);
        if let Some(growth) = self.growth_day_bytes {
            text.push_str(&format!("; it grows by {} a day", format_size_short(growth)));
        }
        if let Some(pace) = self.pace.as_ref().filter(|_| self.waiting > 0) {
            let files = counted(self.waiting, "shard or view waits", "shards and views wait");
            let [least, most] =
                if pace.at_least { ["at least ", "at most"] } else { ["", "about"] };
            let freed = match pace.freed_lately {
                0 => "none".to_owned(),
                freed => grouped(freed),
            };
            text.push_str(&format!("; {files}, {least}{freed} freed space within a day"));
            if let Some(rest) = pace.rest_seconds.map(Duration::from_secs) {
                let rest = duration::format_rounded(rest);
                text.push_str(&format!(", so the rest takes {most} {rest}"));
            }
        }
        text + "."
    }

    /// A sentence about what its bytes are.
    pub fn parts_say(&self) -> String {
        let Self { document_bytes, index_bytes, reclaimable_bytes, unmeasured, .. } = self;
        let [documents, indexes, reclaimable] =
            [document_bytes, index_bytes, reclaimable_bytes].map(|bytes| format_size_short(*bytes));
        let unknown = match unmeasured {
            0 => String::new(),
            some => format!("; {} unknown", counted(*some, "size is", "sizes are")),
        };
        let bound = bound_in_words(self.unmeasured, self.estimated);
        capital(&format!(
            "{bound}{documents} of documents, {indexes} of indexes, {reclaimable} reclaimable in all files{unknown}."
        ))
    }
}

/// Expected growth in bytes, each file as far ahead as its observation allows: a new index is a single event, not a
/// rate.
#[derive(Clone, Copy, Debug, Default)]
struct ExpectedGrowth {
    day: f64,
    week: f64,
    /// The furthest that the growth of any file is known ahead.
    reach: Duration,
}

impl ExpectedGrowth {
    fn add(&mut self, target: TargetRef<'_>, now: Moment) {
        let Some(growth) = target.growth().ahead(now) else { return };
        let bytes = |span| growth.within(span).0 * f64::from(target.file_count());
        self.merge(Self { day: bytes(DAY), week: bytes(WEEK), reach: growth.reach });
    }

    fn merge(&mut self, other: Self) {
        self.day += other.day;
        self.week += other.week;
        self.reach = self.reach.max(other.reach);
    }

    /// Growth within a day or a week; `None` until a file has been watched for long enough.
    fn within(self, span: Duration) -> Option<u64> {
        let bytes = if span > DAY { self.week } else { self.day };
        (self.reach >= span).then(|| to_bytes(bytes.max(0.0)))
    }
}

/// The sums over the files of one database or index.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    document_bytes: u64,
    pub(super) index_bytes: u64,
    /// The reclaimable bytes that are in indexes.
    pub(super) index_waste_bytes: u64,
    pub(super) reclaimable_bytes: u64,
    /// Filled here only if databases are sorted by growth; otherwise computed for the databases of the page.
    growth: ExpectedGrowth,
    targets: u64,
    pub(super) unmeasured: u64,
    pub(super) estimated: u64,
}

/// Instances with the same name count together: old files remain when a database is created again.
pub(super) fn sums_by_name(
    snapshot: &Snapshot,
    with_growth: Option<Moment>,
) -> HashMap<&str, Sums> {
    // Names are compared once per instance, not for each of a million targets.
    let mut instances: Vec<Sums> = Vec::new();
    for target in snapshot.files_once() {
        let at = target.db().as_usize();
        if instances.len() <= at {
            instances.resize(at + 1, Sums::default());
        }
        if let Some(sums) = instances.get_mut(at) {
            sums.add(target, with_growth);
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
    pub(super) fn add(&mut self, target: TargetRef<'_>, with_growth: Option<Moment>) {
        self.targets += 1;
        let Some(file) = target.file_bytes() else {
            self.unmeasured += 1;
            return;
        };
        let waste = target.reclaimable_bytes();
        self.unmeasured += u64::from(waste.is_none());
        let waste = waste.unwrap_or_default();
        let live = match target.kind() {
            TargetKind::Db => &mut self.document_bytes,
            TargetKind::View | TargetKind::Cleanup | TargetKind::Search => {
                self.index_waste_bytes = self.index_waste_bytes.saturating_add(waste);
                &mut self.index_bytes
            }
        };
        *live = live.saturating_add(file.saturating_sub(waste));
        self.reclaimable_bytes = self.reclaimable_bytes.saturating_add(waste);
        self.estimated += u64::from(target.is_estimated());
        if let Some(now) = with_growth {
            self.growth.add(target, now);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.document_bytes, other.document_bytes);
        add(&mut self.index_bytes, other.index_bytes);
        add(&mut self.index_waste_bytes, other.index_waste_bytes);
        add(&mut self.reclaimable_bytes, other.reclaimable_bytes);
        add(&mut self.targets, other.targets);
        add(&mut self.unmeasured, other.unmeasured);
        add(&mut self.estimated, other.estimated);
        self.growth.merge(other.growth);
    }

    pub(super) const fn file_bytes(&self) -> u64 {
        let live = self.document_bytes.saturating_add(self.index_bytes);
        live.saturating_add(self.reclaimable_bytes)
    }

    fn line(
        &self,
        name: &str,
        last: Option<&Moment>,
        details: &Details,
        (reason, not_taken, why): Reason,
    ) -> DatabaseLine {
        DatabaseLine {
            db: name.to_owned(),
            file_bytes: self.file_bytes(),
            document_bytes: self.document_bytes,
            index_bytes: self.index_bytes,
            reclaimable_bytes: self.reclaimable_bytes,
            growth_day_bytes: details.growth.within(DAY),
            growth_week_bytes: details.growth.within(WEEK),
            targets: self.targets,
            unmeasured: self.unmeasured,
            estimated: self.estimated,
            last_compaction: last.map(|at| at.rfc3339()),
            reason,
            not_taken,
            why,
            waiting: details.waiting,
            pace: None,
            deletions: None,
        }
    }
}

/// Why a channel does not start files that it takes; why no channel takes them; and either reason as a sentence.
type Reason = (Option<Word>, Option<Word>, Option<String>);

/// Reclaimable bytes with one reason, and the target with the most of them.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    largest: (u64, TargetIx),
}

/// Values that are computed only for the databases of a page.
#[derive(Clone, Debug, Default)]
struct Details {
    growth: ExpectedGrowth,
    waiting: u64,
    by_reason: HashMap<Option<RefusalReason>, Held>,
}

impl Details {
    fn add(&mut self, plan: &Plan, target: TargetRef<'_>, now: Moment) {
        self.growth.add(target, now);
        let decision = plan.decision(target);
        let (waits, reason) = match decision {
            Decision::Start => (true, None),
            Decision::Refused(refusal) => {
                (refusal.reason.class() != RefusalClass::Never, Some(refusal.reason))
            }
            Decision::NotTaken => (false, None),
        };
        self.waiting += u64::from(waits);
        let bytes = target.reclaimable_bytes().filter(|bytes| *bytes > 0);
        let Some(bytes) = bytes.filter(|_| !matches!(decision, Decision::Start)) else { return };
        let largest = (bytes, target.ix());
        let held = self.by_reason.entry(reason).or_insert(Held { bytes: 0, largest });
        held.bytes = held.bytes.saturating_add(bytes);
        held.largest = held.largest.max(largest);
    }

    /// Why most of the reclaimable bytes are not compacted now.
    fn reason(&self, plan: &Plan) -> Reason {
        let most = self.by_reason.values().max_by_key(|held| (held.bytes, held.largest));
        let target = most.and_then(|held| plan.snapshot.target(held.largest.1));
        target.map_or((None, None, None), |target| reason_of(plan, target))
    }
}

/// One word for each database: why most of its reclaimable bytes are not compacted now.
pub fn waste_reasons(
    plan: &Plan,
    names: &BTreeSet<String>,
    now: Moment,
) -> BTreeMap<String, String> {
    let details = details(plan, names.iter().map(String::as_str), now);
    let reasons = details.into_iter().filter_map(|(name, details)| {
        let (refused, not_taken, _) = details.reason(plan);
        Some((name.to_owned(), refused.or(not_taken)?.replace('_', " ")))
    });
    reasons.collect()
}

fn details<'a>(
    plan: &'a Plan,
    names: impl Iterator<Item = &'a str>,
    now: Moment,
) -> HashMap<&'a str, Details> {
    let mut by_name: HashMap<&str, Details> =
        names.map(|name| (name, Details::default())).collect();
    let instances = plan.snapshot.databases().filter(|(_, name)| by_name.contains_key(name.db));
    let shown: HashMap<DbIx, &str> = instances.map(|(db, name)| (db, name.db)).collect();
    for target in plan.snapshot.files_once() {
        let name = shown.get(&target.db());
        if let Some(details) = name.and_then(|name| by_name.get_mut(name)) {
            details.add(plan, target, now);
        }
    }
    by_name
}

/// Why a target is not compacted now.
fn reason_of(plan: &Plan, target: TargetRef<'_>) -> Reason {
    match plan.decision(target) {
        Decision::Start => (None, None, None),
        Decision::Refused(refusal) => {
            (Some(refusal.reason.label().into()), None, Some(why(plan, target, &refusal)))
        }
        Decision::NotTaken => {
            let misses = Target::of(plan, target).misses;
            let word = not_taken(&misses);
            let meaning = word.and_then(not_taken_meaning);
            let meaning = meaning.map_or_else(String::new, |meaning| format!(": {meaning}"));
            let word = word.unwrap_or("no channel").into();
            (None, Some(word), Some(format!("no channel takes its files{meaning}")))
        }
    }
}

/// The databases of the wanted page, in order. Unknown values come last in both directions; equal ones are sorted by
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
        DatabaseSort::GrowthDayBytes => sums.growth.within(DAY),
        DatabaseSort::GrowthWeekBytes => sums.growth.within(WEEK),
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
    // Only the page's own end needs to be sorted.
    let end = wanted.offset.saturating_add(wanted.limit);
    if end < keyed.len() {
        keyed.select_nth_unstable_by(end, order);
        keyed.truncate(end);
    }
    keyed.sort_unstable_by(order);
    keyed.into_iter().skip(wanted.offset).map(|(_, name, sums)| (name, sums)).collect()
}
