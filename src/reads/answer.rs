//! `/api/v1/reads`: what logs say, for people and for other recliners.

use crate::model::reads::{Hours, RECENT_DAYS, Reads, SourceReads, UseSum, date};
use access_log::{Class, Day, How, Source, UseKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// What access logs say about the readers of indexes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadsAnswer {
    /// The logs.
    pub sources: Vec<LogSource>,
    /// What could not be read, in sentences.
    pub problems: Vec<String>,
}

/// The log of a node or of a proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogSource {
    /// The node whose own log it is; null for a proxy.
    pub node: Option<String>,
    /// The path of a proxy's log; null for a node.
    pub log: Option<String>,
    /// The hours (UTC) of each day for which every request is known, one bit each, the lowest from midnight to one.
    pub covered: BTreeMap<String, u32>,
    /// The uses.
    pub uses: Vec<LogUse>,
}

/// One use of a design document, or of a database's Mango indexes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogUse {
    /// The database.
    pub db: String,
    /// The id of the design document; empty for a Mango query, because the log does not name its index.
    pub ddoc: String,
    /// The view or search index (`_search/x`, `_nouveau/x`); empty if none was read, or if the log does not name it.
    pub view: String,
    /// How it was used: `read`; `find`, by a Mango query; `function`, a filter, update or show function; `seen`, its
    /// document was read; `refused`, a view or function was requested but does not exist; or `written`.
    #[schemars(with = "String")]
    pub how: How,
    /// By which clients, as far as the log has user agents: `browser`, `replicator`, `library` or `unknown`.
    #[schemars(with = "String")]
    pub class: Class,
    /// The first day.
    pub first: String,
    /// The last day.
    pub last: String,
    /// Number of requests on each of the latest days with one, at most 30.
    pub days: BTreeMap<String, u64>,
}

impl ReadsAnswer {
    /// The reads as the API shows them.
    pub fn of(reads: &Reads) -> Self {
        let sources = reads.sources.iter().map(|(source, it)| LogSource::of(source, it)).collect();
        Self { sources, problems: reads.problems.clone() }
    }

    /// The sources in another recliner's answer; invalid entries are left out.
    pub fn into_sources(self) -> BTreeMap<Source, SourceReads> {
        self.sources.into_iter().filter_map(LogSource::into_source).collect()
    }
}

impl LogSource {
    fn of(source: &Source, reads: &SourceReads) -> Self {
        let (node, log) = match source.clone() {
            Source::Node(name) => (Some(name), None),
            Source::Proxy(log) => (None, Some(log)),
        };
        let covered = reads.days.iter().map(|(day, hours)| (date(*day), hours.covered()));
        let uses = reads.uses.iter().map(|(key, sum)| LogUse {
            db: key.db.clone(),
            ddoc: key.design.clone(),
            view: key.view.clone(),
            how: key.how,
            class: key.class,
            first: date(sum.first),
            last: date(sum.last),
            days: sum.recent.iter().map(|(day, count)| (date(*day), *count)).collect(),
        });
        Self { node, log, covered: covered.collect(), uses: uses.collect() }
    }

    fn into_source(self) -> Option<(Source, SourceReads)> {
        let source = match (self.node, self.log) {
            (Some(node), _) => Source::Node(node),
            (None, log) => Source::Proxy(log?),
        };
        let mut reads = SourceReads::default();
        for (day, seen) in self.covered {
            reads.days.insert(day_of(&day)?, Hours { seen, broken: 0 });
        }
        for it in self.uses {
            let (view, how, class) = (it.view, it.how, it.class);
            let recent = it.days.iter().filter_map(|(day, count)| Some((day_of(day)?, *count)));
            let recent = recent.take(RECENT_DAYS as usize).collect();
            let (first, last) = day_of(&it.first).zip(day_of(&it.last))?;
            let key = UseKey { db: it.db, design: it.ddoc, view, how, class };
            reads.uses.insert(key, UseSum { first, last, recent });
        }
        Some((source, reads))
    }
}

fn day_of(text: &str) -> Option<Day> {
    Moment::parse(&format!("{text}T00:00:00Z")).map(|at| Day::of(at.unix()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use access_log::LogReads;

    #[test]
    fn serialised_reads_are_parsed_back_by_another_recliner() {
        let lines = [
            "[notice] 2026-11-26T05:00:00.8Z a@b <0.1.0> b5 h 127.0.0.1 admin GET /db/_design/d/_view/v 200 ok 36",
            "[notice] 2026-11-27T05:00:00.8Z a@b <0.1.0> b5 h 127.0.0.1 admin POST /db/_find 200 ok 36",
            r#"192.0.2.1 - - [27/Nov/2026:23:00:00 +0000] "GET /db/_design/d/_view/v HTTP/1.1" 200 12 "-" "Mozilla/5.0""#,
        ];
        let text = format!("{}\n", lines.join("\n"));
        let mut logs = LogReads::default();
        let read = crate::reads::read_stream(text.as_bytes(), "/log", &mut logs).unwrap();
        assert_eq!((read.lines, read.requests, read.bytes), (3, 3, text.len() as u64));
        let reads = Reads::of_logs(&logs);
        let sent = serde_json::to_string(&ReadsAnswer::of(&reads)).unwrap();
        let received: ReadsAnswer = serde_json::from_str(&sent).unwrap();
        assert_eq!(received.into_sources(), reads.sources);
        assert_eq!(reads.sources.len(), 2);
    }
}
