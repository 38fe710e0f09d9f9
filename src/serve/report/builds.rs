//! The API's view of indexes that lag behind their documents.

use super::{words, words::Word};
use crate::{
    act::warmer::{self, BuildStatus},
    text::Label,
};
use couchdb_client::Route;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Indexes that lag, and what is done about them, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Builds {
    /// When the indexes were last looked at.
    pub looked_at: Option<String>,
    /// Whether builds are started, and not only named.
    pub acting: bool,
    /// How many indexes lag although CouchDB was asked to build them.
    pub stalled: u64,
    /// The indexes that lag most, a thousand at most.
    pub indexes: Vec<BuildLine>,
}

/// An index that lags. Unknown is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildLine {
    /// The target's id.
    pub id: String,
    /// `view` or `search`.
    #[schemars(with = "words::Kind")]
    pub kind: Word,
    /// What builds a search index.
    #[schemars(with = "Option<words::Engine>")]
    pub engine: Option<Word>,
    /// The database.
    pub db: String,
    /// The design document.
    pub ddoc: String,
    /// The name of a search index in its design document.
    pub name: Option<String>,
    /// Whether it lags far behind or a little.
    #[schemars(with = "words::BuildClass")]
    pub class: Word,
    /// How many changes it has not seen.
    pub updates_pending: Option<u64>,
    /// What is done about it.
    #[schemars(with = "words::BuildDecision")]
    pub decision: Word,
    /// Why it waits, where it does.
    #[schemars(with = "Option<words::BuildReason>")]
    pub reason: Option<Word>,
    /// Since when it lags.
    pub since: Option<String>,
    /// Since when it lags although CouchDB was asked to build it.
    pub stalled_since: Option<String>,
    /// The request that makes CouchDB build it; null where no request can.
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
