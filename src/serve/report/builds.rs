//! The API's view of indexes that lag behind their documents.

use super::{vocabulary, vocabulary::Word};
use crate::{
    act::warmer::{self, BuildStatus},
    text::Label,
};
use couchdb_client::Route;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Indexes that lag behind their documents, and what recliner does or would do about them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Builds {
    /// When the indexes were last checked; null if they were not yet.
    pub looked_at: Option<String>,
    /// Whether recliner starts the builds, or only names them.
    pub acting: bool,
    /// Number of indexes that lag even though CouchDB was asked to build them.
    pub stalled: u64,
    /// The indexes that lag most, at most a thousand.
    pub indexes: Vec<BuildLine>,
}

/// An index that lags behind its documents. Unknown is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildLine {
    /// The index's target id.
    pub id: String,
    /// `view` or `search`.
    #[schemars(with = "vocabulary::Kind")]
    pub kind: Word,
    /// The engine of a search index; null for a view.
    #[schemars(with = "Option<vocabulary::Engine>")]
    pub engine: Option<Word>,
    /// The database.
    pub db: String,
    /// The design document.
    pub ddoc: String,
    /// The name of a search index in its design document; null for a view.
    pub name: Option<String>,
    /// How far the index lags: far behind or a little.
    #[schemars(with = "vocabulary::BuildClass")]
    pub class: Word,
    /// Least number of changes that the index has not processed: often those of one range.
    pub updates_pending: Option<u64>,
    /// What is done about the index.
    #[schemars(with = "vocabulary::BuildDecision")]
    pub decision: Word,
    /// Why the build waits; null if it does not wait.
    #[schemars(with = "Option<vocabulary::BuildReason>")]
    pub reason: Option<Word>,
    /// Since when the index lags.
    pub since: Option<String>,
    /// Since when the index lags even though CouchDB was asked to build it.
    pub stalled_since: Option<String>,
    /// Number of builds that failed in a row.
    pub failures: u32,
    /// The request that makes CouchDB build the index; null if there is none.
    pub request: Option<String>,
}

impl From<&warmer::IndexBuilds> for Builds {
    fn from(builds: &warmer::IndexBuilds) -> Self {
        Self {
            looked_at: builds.checked_at.map(Moment::rfc3339),
            acting: builds.is_enforcing,
            stalled: builds.stalled,
            indexes: builds.indexes.iter().map(BuildLine::from).collect(),
        }
    }
}

impl From<&warmer::LaggingIndex> for BuildLine {
    fn from(line: &warmer::LaggingIndex) -> Self {
        let (decision, reason) = match line.status {
            BuildStatus::Starting => ("starts", None),
            BuildStatus::Building => ("builds", None),
            BuildStatus::Waiting(reason) => ("waits", Some(reason.label())),
        };
        Self {
            id: line.id.to_string(),
            kind: line.id.kind().label().into(),
            engine: line.search.as_ref().map(|search| search.engine.label().into()),
            db: line.db.to_string(),
            ddoc: line.design.to_string(),
            name: line.search.as_ref().map(|search| search.index.to_string()),
            class: line.class.label().into(),
            updates_pending: line.pending,
            decision: decision.into(),
            reason: reason.map(Word::Borrowed),
            since: line.lagging_since.map(Moment::rfc3339),
            stalled_since: line.stalled_since.map(Moment::rfc3339),
            failures: line.failed.as_ref().map_or(0, |failed| failed.count),
            request: request(line),
        }
    }
}

/// The request that makes CouchDB build an index; `None` if CouchDB has no such request, or if a
/// URL cannot carry the names.
fn request(line: &warmer::LaggingIndex) -> Option<String> {
    let query = line.query.as_ref()?;
    let (db, ddoc) = (&*line.db, &*query.design);
    let route = match &line.search {
        None => Route::BuildView { db, ddoc, view: &query.view },
        Some(search) if search.is_supported != Some(true) => return None,
        Some(search) => {
            Route::BuildSearch { engine: search.engine, db, ddoc, index: &search.index }
        }
    };
    Some(format!("{} {}", route.method(), route.path().ok()?))
}
