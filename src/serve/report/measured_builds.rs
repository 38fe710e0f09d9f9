//! The API's view of how fast view indexes were built. It has its own types, because the journal
//! stores the time of a build as a number.

use crate::model::records::BuildSpeed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// How fast CouchDB built view indexes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredBuilds {
    /// The last builds that took ten seconds or longer, newest first: one of each design document and node, at
    /// most 64.
    pub builds: Vec<MeasuredBuild>,
}

/// How fast the indexers of a design document worked on a node. Unknown is null.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredBuild {
    /// When it was measured.
    pub at: String,
    /// The database.
    pub db: String,
    /// The id of the design document.
    pub design: String,
    /// The node.
    pub node: String,
    /// The language of its views.
    pub language: Option<String>,
    /// Number of its views.
    pub views: Option<u32>,
    /// Changes that one indexer processed.
    pub changes: u64,
    /// Seconds that it took.
    pub seconds: u64,
    /// Indexers that ran on the node at the same time, this one included.
    pub indexers: u32,
}

impl MeasuredBuilds {
    /// The answer as the API shows it.
    pub fn of(speeds: &[BuildSpeed]) -> Self {
        let line = |speed: &BuildSpeed| {
            let BuildSpeed { db, design, node, language, views, changes, seconds, indexers, at } =
                speed.clone();
            let at = at.rfc3339();
            MeasuredBuild { at, db, design, node, language, views, changes, seconds, indexers }
        };
        Self { builds: speeds.iter().map(line).collect() }
    }

    /// The builds in another process's answer, without those that lack a time.
    pub fn into_speeds(self) -> Vec<BuildSpeed> {
        let speed = |line: MeasuredBuild| {
            let MeasuredBuild { at, db, design, node, language, views, changes, seconds, indexers } =
                line;
            let at = Moment::parse(&at)?;
            Some(BuildSpeed { db, design, node, language, views, changes, seconds, indexers, at })
        };
        self.builds.into_iter().filter_map(speed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_speeds_are_parsed_back_from_the_api_answer() {
        let speed = BuildSpeed {
            db: "orders".to_owned(),
            design: "_design/by_day".to_owned(),
            node: "couchdb@a".to_owned(),
            language: Some("javascript".to_owned()),
            views: Some(2),
            changes: 60_000,
            seconds: 40,
            indexers: 2,
            at: Moment::from_unix(1_795_222_440),
        };
        let text =
            serde_json::to_string(&MeasuredBuilds::of(std::slice::from_ref(&speed))).unwrap();
        let read: MeasuredBuilds = serde_json::from_str(&text).unwrap();
        assert_eq!(read.into_speeds(), [speed]);
    }
}
