//! View and search indexes that lag behind their databases, and their builds.

use crate::{
    act::warmer::{BuildClass, BuildResult, IndexBuilds},
    text::Label,
};
use hashbrown::HashSet;
use metrics_text::{Writer, families};
use std::collections::BTreeMap;

families! {
    VIEW_UPDATES_PENDING: Gauge None "recliner_view_updates_pending" ["db", "ddoc"]
        "Least number of changes that the view index has not processed; only for the indexes that lag most.";
    SEARCH_UPDATES_PENDING: Gauge None
        "recliner_search_updates_pending" ["db", "ddoc", "engine", "index"]
        "Least number of changes that the search index has not processed; only for the indexes that lag most.";
    INDEX_BUILDS_RUNNING: Gauge None "recliner_index_builds_running" ["class"]
        "Number of running index builds that this recliner started.";
    INDEX_BUILDS_WAITING: Gauge None "recliner_index_builds_waiting" ["class"]
        "Number of indexes that lag behind their database and wait to be built.";
    INDEX_BUILDS_STALLED: Gauge None "recliner_index_builds_stalled" []
        "Number of lagging indexes that made no progress although a build was tried or an indexer runs.";
    INDEX_BUILDS_STARTED: Counter None "recliner_index_builds_started_total" ["class"]
        "Index builds that this recliner started.";
    INDEX_BUILDS_FINISHED: Counter None "recliner_index_builds_finished_total" ["class", "result"]
        "Index builds that this recliner started and that ended, by result.";
}

/// Writes nothing before the indexes have been checked once.
pub(super) fn write(writer: &mut Writer, builds: &IndexBuilds) {
    if builds.checked_at.is_none() {
        return;
    }
    let mut samples = writer.family(&VIEW_UPDATES_PENDING);
    // While a database is deleted and created again, indexes of both instances may lag; only one of
    // them gets the series of their common name.
    let mut seen = HashSet::new();
    for line in builds.indexes.iter().filter(|line| line.search.is_none()).take(builds.top) {
        if let Some(pending) = line.pending
            && seen.insert((&line.db, &line.design))
        {
            samples.sample(&[&line.db, &line.design], pending);
        }
    }
    let mut samples = writer.family(&SEARCH_UPDATES_PENDING);
    for line in builds.indexes.iter().filter(|line| line.search.is_some()).take(builds.top) {
        if let (Some(pending), Some(search)) = (line.pending, &line.search) {
            let engine = search.engine.label();
            samples.sample(&[&line.db, &line.design, engine, &search.index], pending);
        }
    }
    let by_class = |counts: &BTreeMap<BuildClass, u64>| {
        let count = |class| counts.get(&class).copied().unwrap_or_default();
        BuildClass::each().map(|class| ([class.label()], count(class))).collect::<Vec<_>>()
    };
    writer.write(&INDEX_BUILDS_RUNNING, by_class(&builds.running));
    writer.write(&INDEX_BUILDS_WAITING, by_class(&builds.waiting));
    writer.write(&INDEX_BUILDS_STALLED, [([], builds.stalled)]);
    writer.write(&INDEX_BUILDS_STARTED, by_class(&builds.started));
    let mut samples = writer.family(&INDEX_BUILDS_FINISHED);
    for class in BuildClass::each() {
        for ending in BuildResult::each() {
            let count = builds.finished.get(&(class, ending)).copied().unwrap_or_default();
            samples.sample(&[class.label(), ending.label()], count);
        }
    }
}
