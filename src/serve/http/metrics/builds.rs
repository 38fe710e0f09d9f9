//! Indexes that lag, and what the warmer does about them.

use crate::{
    act::warmer::{Builds, Class, Ending},
    serve::http::families as f,
};
use hashbrown::HashSet;
use metrics_text::Writer;

/// Writes the families of index builds; nothing before the first look.
pub(super) fn write(writer: &mut Writer, builds: &Builds) {
    if builds.at.is_none() {
        return;
    }
    let mut samples = writer.family(&f::VIEW_UPDATES_PENDING);
    // While a database is deleted and made anew, two of its instances may lag. One name is one
    // series.
    let mut seen = HashSet::new();
    for line in builds.lines.iter().filter(|line| line.search.is_none()).take(builds.top) {
        if let Some(pending) = line.pending
            && seen.insert((&line.db, &line.design))
        {
            samples.sample(&[&line.db, &line.design], pending);
        }
    }
    let mut samples = writer.family(&f::SEARCH_UPDATES_PENDING);
    for line in builds.lines.iter().filter(|line| line.search.is_some()).take(builds.top) {
        if let (Some(pending), Some(search)) = (line.pending, &line.search) {
            let engine = search.engine.label();
            samples.sample(&[&line.db, &line.design, engine, &search.index], pending);
        }
    }
    for (family, counts) in
        [(&f::INDEX_BUILDS_RUNNING, &builds.running), (&f::INDEX_BUILDS_WAITING, &builds.waiting)]
    {
        let mut samples = writer.family(family);
        for class in Class::ALL {
            samples.sample(&[class.label()], counts.get(&class).copied().unwrap_or_default());
        }
    }
    writer.family(&f::INDEX_BUILDS_STALLED).sample(&[], builds.stalled);
    let mut samples = writer.family(&f::INDEX_BUILDS_STARTED);
    for class in Class::ALL {
        samples.sample(&[class.label()], builds.started.get(&class).copied().unwrap_or_default());
    }
    let mut samples = writer.family(&f::INDEX_BUILDS_FINISHED);
    for class in Class::ALL {
        for ending in Ending::ALL {
            let count = builds.finished.get(&(class, ending)).copied().unwrap_or_default();
            samples.sample(&[class.label(), ending.label()], count);
        }
    }
}
