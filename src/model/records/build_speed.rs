//! How fast CouchDB built view indexes, according to its own counters.

use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Maximum number of builds that are stored.
const MAX_SPEEDS: usize = 64;

/// How fast the indexers of one design document worked on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildSpeed {
    /// The database, without the suffix of its files.
    pub db: String,
    /// The design document's id.
    pub design: String,
    /// The node.
    pub node: String,
    /// The language of its views; `None` if its index was not known then.
    pub language: Option<String>,
    /// Number of its views; `None` if its index was not known then.
    pub views: Option<u32>,
    /// Changes that one indexer processed.
    pub changes: u64,
    /// Seconds that the indexer took for `changes`.
    pub seconds: u64,
    /// Number of indexers that ran on the node at the same time, this one included.
    pub indexers: u32,
    /// When it was measured.
    pub at: Moment,
}

impl BuildSpeed {
    /// Changes that one indexer processed per second.
    pub fn rate(&self) -> f64 {
        self.changes as f64 / self.seconds.max(1) as f64
    }

    fn is_of_same_index(&self, other: &Self) -> bool {
        (&self.db, &self.design, &self.node) == (&other.db, &other.design, &other.node)
    }
}

/// The latest measured builds, newest first, one for each design document and node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BuildSpeeds(pub Vec<BuildSpeed>);

impl BuildSpeeds {
    /// Whether no build was measured.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a measurement, dropping the oldest one if the list is full.
    pub fn add(&mut self, speed: BuildSpeed) {
        self.0.retain(|other| !other.is_of_same_index(&speed));
        self.0.insert(0, speed);
        self.0.truncate(MAX_SPEEDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(design: u64, changes: u64) -> BuildSpeed {
        BuildSpeed {
            db: "orders".to_owned(),
            design: format!("_design/{design}"),
            node: "couchdb@a".to_owned(),
            language: Some("javascript".to_owned()),
            views: Some(1),
            changes,
            seconds: 10,
            indexers: 2,
            at: Moment::from_unix(design),
        }
    }

    #[test]
    fn keeps_newest_measurement_of_each_index() {
        let mut speeds = BuildSpeeds::default();
        speeds.add(speed(1, 100));
        speeds.add(speed(2, 200));
        speeds.add(speed(1, 300));
        let rates: Vec<f64> = speeds.0.iter().map(BuildSpeed::rate).collect();
        assert_eq!(rates, [30.0, 20.0]);
        (3..100).for_each(|design| speeds.add(speed(design, 1)));
        assert_eq!(speeds.0.len(), MAX_SPEEDS);
        assert_eq!(speeds.0[0].design, "_design/99");
    }
}
