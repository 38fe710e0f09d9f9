//! View indexes and who reads them.

use super::{
    SpreadLine,
    columns::{Cell, Table, Value, wide},
    vocabulary,
    vocabulary::Word,
};
use crate::{
    advice::{AskedIndex, Survey, covered_days, duplicates, preflight::rebuild_seconds},
    model::{
        reads::{Readers, Reads, date},
        target::TargetKind,
    },
    plan::Plan,
    table::{DbIx, TargetIx, TargetRef},
    text::{Label as _, counted, three_digits_short},
};
use access_log::{Class, Day};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use wall_clock::Moment;

/// Maximum number of views listed for an index.
const MAX_VIEWS: usize = 50;

/// View indexes with their readers, the largest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Indexes {
    /// When the answer was made.
    pub generated_at: String,
    /// What the logs cover, in a sentence.
    pub says: String,
    /// The first day since which every request to every node is known without a gap; null if there is none.
    pub covered_since: Option<String>,
    /// The last such day.
    pub covered_until: Option<String>,
    /// What could not be read, in sentences.
    pub problems: Vec<String>,
    /// Number of indexes that match.
    pub total: usize,
    /// The indexes.
    pub indexes: Vec<IndexLine>,
}

/// An index. Bytes are those of all copies; unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IndexLine {
    /// The id of its target.
    pub id: String,
    /// Whether it is a view index or a search index.
    #[schemars(with = "vocabulary::Kind")]
    pub kind: Word,
    /// The database.
    pub db: String,
    /// The ids of the design documents that share it.
    pub ddocs: Vec<String>,
    /// Another design document whose index has all of its functions.
    pub also_in: Option<String>,
    /// Whether some copies were not measured and are assumed to be as large as a measured one.
    #[serde(default)]
    pub estimated: bool,
    /// Bytes of its files.
    pub file_bytes: Option<u64>,
    /// Bytes that its compaction would free.
    pub reclaimable_bytes: Option<u64>,
    /// Seconds that building it again takes.
    pub build_seconds: Option<SpreadLine>,
    /// Number of its views; null if its design documents were not read.
    pub view_count: Option<usize>,
    /// The last day on which it, or another function of its design documents, was read; null if no log shows a read.
    /// A Mango query counts for all Mango indexes of its database.
    pub last_read: Option<String>,
    /// Reads per day, over the latest 30 days with a log; null if there is none.
    pub reads_per_day: Option<f64>,
    /// The classes of clients that read it: `browser`, `replicator`, `library` or `unknown`.
    pub readers: Vec<String>,
    /// The day since which every request is known and none read it; null if it was read since, or if requests are
    /// not known.
    pub unread_since: Option<String>,
    /// The number of days since then.
    pub unread_days: Option<u32>,
    /// Its views that appear in logs.
    pub views: Vec<ViewReads>,
}

/// A view that appears in logs. Dropping one of several views rebuilds the index of all others: `recliner preflight`
/// predicts the cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ViewReads {
    /// Its name.
    pub view: String,
    /// The last day on which it was read.
    pub last_read: Option<String>,
    /// Reads per day, over the latest 30 days with a log.
    pub reads_per_day: Option<f64>,
    /// The classes of clients that read it.
    pub readers: Vec<String>,
}

impl Indexes {
    /// The indexes with their readers.
    pub(crate) fn table(&self) -> Table<&IndexLine> {
        Table::of(&self.indexes)
            .text("index", |it| {
                let designs = Cell::target(&it.id, &it.ddocs.join(", "));
                Cell::database(&it.db).and(Cell::words("/")).and(designs)
            })
            .number("size", |it| Cell::bounded(it.file_bytes, 0, it.estimated.into()))
            .number("waste", |it| Cell::bounded(it.reclaimable_bytes, 0, it.estimated.into()))
            .number(wide("build"), |it| it.build_seconds.map(|it| Cell::words(it.says_seconds())))
            .text("last read", IndexLine::when_read)
            .number("a day", |it| it.reads_per_day.map(three_digits_short))
            .text(wide("by"), |it| it.readers.join(", "))
    }

    /// Sentences about indexes that another design document also has.
    pub(crate) fn repeated(&self) -> impl Iterator<Item = String> {
        let both = self.indexes.iter().filter_map(|it| Some((it.name(), it.also_in.as_deref()?)));
        both.map(|(index, other)| format!("{other} contains all functions of {index}."))
    }

    /// The largest indexes, at most `limit`, of one database or of all.
    pub fn of(plan: &Plan, reads: &Reads, db: Option<&str>, limit: usize, now: Moment) -> Self {
        let snapshot = &plan.snapshot;
        let is_index = |it: &TargetRef<'_>| {
            matches!(it.kind(), TargetKind::View | TargetKind::Search) && !it.is_part()
        };
        let wanted = snapshot.targets().filter(is_index);
        let mut indexes: Vec<TargetRef<'_>> =
            wanted.filter(|it| db.is_none_or(|db| it.db_name().db == db)).collect();
        let total = indexes.len();
        indexes.sort_by_key(|it| std::cmp::Reverse((it.file_bytes(), std::cmp::Reverse(it.ix()))));
        indexes.truncate(limit);
        let covered = covered_days(reads, snapshot, now);
        let survey = Survey::of(snapshot, now);
        let dbs: BTreeSet<DbIx> = indexes.iter().map(|it| it.db()).collect();
        let views_of = |db| survey.views_of(db).filter_map(|row| snapshot.target_at(row));
        let doubled = dbs.into_iter().flat_map(|db| duplicates(views_of(db)));
        let doubled: HashMap<TargetIx, TargetRef<'_>> =
            doubled.map(|it| (it.index.ix(), it.other)).collect();
        let lines = indexes.iter().map(|index| {
            let also_in = doubled.get(&index.ix()).and_then(|it| it.view()?.designs.first());
            IndexLine {
                also_in: also_in.map(ToString::to_string),
                build_seconds: rebuild_seconds(plan, &survey, *index).map(SpreadLine::from),
                ..IndexLine::of(*index, reads, covered, now)
            }
        });
        Self {
            generated_at: now.rfc3339(),
            says: coverage(reads, covered, now),
            covered_since: covered.map(|(first, _)| date(first)),
            covered_until: covered.map(|(_, last)| date(last)),
            problems: reads.problems.clone(),
            total,
            indexes: lines.collect(),
        }
    }
}

/// A sentence about what the logs cover.
fn coverage(reads: &Reads, covered: Option<(Day, Day)>, now: Moment) -> String {
    if reads.sources.is_empty() {
        return "It is unknown who reads the indexes, because recliner follows no access log: list the logs in reads.logs.".to_owned();
    }
    match covered {
        None => "The logs do not cover all nodes without a gap until yesterday, so an index without reads may have readers.".to_owned(),
        Some((first, last)) => {
            let days = last.since(first) + 1;
            let until = if Day::of(now.unix()).since(last) <= 1 { "yesterday".to_owned() } else { date(last) };
            format!("The logs cover all nodes without a gap from {} until {until}: {}.", date(first), counted(days.into(), "day", "days"))
        }
    }
}

impl IndexLine {
    fn of(index: TargetRef<'_>, reads: &Reads, covered: Option<(Day, Day)>, now: Moment) -> Self {
        let asked = AskedIndex::of(index);
        let readers = reads.readers(asked.whole(), now);
        let unread = reads.unread(asked.whole(), covered, now);
        let named = match &asked.search {
            None => reads.views(asked.db, &asked.designs),
            Some(_) => BTreeSet::new(),
        };
        let views = named.into_iter().take(MAX_VIEWS).map(|view| {
            let Readers { last, per_day, classes } = reads.readers(asked.view(view), now);
            ViewReads {
                view: view.to_owned(),
                last_read: last.map(date),
                reads_per_day: per_day,
                readers: names_of(&classes),
            }
        });
        Self {
            id: index.id().to_string(),
            kind: index.kind().label().into(),
            db: asked.db.to_owned(),
            ddocs: asked.designs.iter().map(|design| (*design).to_owned()).collect(),
            also_in: None,
            estimated: index.is_estimated(),
            file_bytes: index.file_bytes(),
            reclaimable_bytes: index.reclaimable_bytes(),
            build_seconds: None,
            view_count: index.view().map(|view| view.functions.len()).filter(|count| *count > 0),
            last_read: readers.last.map(date),
            reads_per_day: readers.per_day,
            readers: names_of(&readers.classes),
            unread_since: unread.map(|(since, _)| date(since)),
            unread_days: unread.map(|(_, days)| days),
            views: views.collect(),
        }
    }

    /// When it was last read, or since when it has not been; with the views that appear in logs.
    fn when_read(&self) -> Cell {
        let when: Cell = match (&self.last_read, self.unread_days) {
            (Some(day), _) => Cell::words(day),
            (None, Some(days)) => {
                Cell::words(format!("not in {}", counted(days.into(), "day", "days")))
            }
            (None, None) => Value::Unknown.into(),
        };
        let view = |it: &ViewReads| {
            let last = it.last_read.as_deref().unwrap_or("?");
            let reads = it.reads_per_day.map_or_else(|| "?".to_owned(), three_digits_short);
            format!("{}: {last}, {reads} a day", it.view)
        };
        match &*self.views {
            [] => when,
            views => when.and(Cell::details(
                format!("{} read", views.len()),
                views.iter().map(view).collect(),
            )),
        }
    }

    /// Its name for people.
    pub fn name(&self) -> String {
        format!("{}/{}", self.db, self.ddocs.join(", "))
    }
}

fn names_of(classes: &BTreeSet<Class>) -> Vec<String> {
    classes.iter().map(|class| class.label().to_owned()).collect()
}

#[cfg(test)]
impl Indexes {
    /// Two indexes, of which one is read; a third has all functions of the first.
    pub(crate) fn example() -> Self {
        use crate::advice::test_cluster::{Index, NOW, Shard, TestCluster};
        let shards =
            ["couchdb@a", "couchdb@b"].map(|node| Shard::new("orders", node, 0, 500 << 20));
        let mut cluster = TestCluster::with_shards(&shards);
        for (signature, design, functions) in [
            (1, "_design/reports", vec![1, 4]),
            (2, "_design/old", vec![7]),
            (3, "_design/all", vec![1, 4, 9]),
        ] {
            let index = Index::new("orders", design, signature);
            let bytes = Some(u64::from(signature) << 28);
            cluster.add_index(&Index { functions, bytes, ..index });
        }
        let mut logs = access_log::LogReads::default();
        let today = NOW.unix() / 86_400;
        for (ago, hour) in (1..=30).flat_map(|ago| (0..24).map(move |hour| (ago, hour))) {
            let at = (today - ago) * 86_400 + hour * 3_600;
            for node in ["couchdb@a", "couchdb@b"] {
                let line = |path: &str| {
                    let time = Moment::from_unix(at).rfc3339();
                    format!("[notice] {time} {node} <0.1.0> b5 h 127.0.0.1 jan GET {path} 200 ok 3")
                };
                for path in
                    ["/orders/_design/old", "/orders/_design/reports/_view/by%20day", "/_up"]
                {
                    let line = line(path);
                    let access_log::Line::Request(request) = access_log::read_line(line.as_bytes())
                    else {
                        continue;
                    };
                    logs.add(request, "");
                }
            }
        }
        Self::of(&cluster.plan(), &Reads::of_logs(&logs), None, 10, NOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::test_cluster::{NOW, Shard, TestCluster};

    #[test]
    fn answer_states_when_and_how_often_each_index_is_read() {
        let found = Indexes::example();
        assert_eq!(
            found.says,
            "The logs cover all nodes without a gap from 2026-10-22 until yesterday: 30 days."
        );
        let of = |design: &str| found.indexes.iter().find(|it| it.ddocs == [design]).unwrap();
        let reports = of("_design/reports");
        assert_eq!(reports.last_read.as_deref(), Some("2026-11-20"));
        assert_eq!(reports.reads_per_day, Some(48.0));
        assert_eq!((reports.unread_days, reports.also_in.as_deref()), (None, Some("_design/all")));
        assert_eq!(reports.views[0].view, "by day");
        let old = of("_design/old");
        assert_eq!((old.last_read.as_deref(), old.unread_days), (None, Some(30)));
        let all = of("_design/all");
        assert_eq!((all.last_read.as_deref(), all.unread_days), (None, None), "it may be new");
    }

    #[test]
    fn without_logs_readers_are_unknown() {
        let mut cluster = TestCluster::with_shards(&[Shard::new("orders", "a", 0, 500)]);
        let found = Indexes::of(&cluster.plan(), &Reads::default(), None, 10, NOW);
        assert!(found.says.contains("recliner follows no access log"), "{}", found.says);
        assert_eq!(found.covered_since, None);
    }
}
