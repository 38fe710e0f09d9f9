//! `/api/v1/facts`: the facts read from files, for a recliner that cannot read these files.
//!
//! Owns the order and paging of that list. Entries are small, because a node has a hundred thousand
//! of them and they are requested every few minutes. Pages continue after the id of the last entry,
//! so that entries that appear or disappear between two pages shift nothing.

use super::{
    answer::{Answer, StreamedData},
    error::ApiError,
    probes::unready,
    route::Route,
    state::AppState,
    turn::worked_out,
};
use crate::{
    model::{
        facts::FactSource,
        target::{TargetId, TargetKind, TargetState},
    },
    plan::Plan,
    sources::inventory::{FactsLine, FactsPage},
    table::{Snapshot, TargetIx, TargetRef},
};
use couchdb_names::{Range, ShardName, Signature};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

pub(in crate::serve::http) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/facts",
            "facts",
            facts,
            "Facts read from the headers of files, for other recliners.",
        )
        .detail("One entry per shard and part of a view, 2,000 per page; `next` is the `after` of the next page."),
    ]
}

/// The default and the maximum number of entries per response.
const LIMIT: usize = 2_000;
const LARGEST: usize = 10_000;

/// The parameters of a page.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FactsQuery {
    /// The `next` of the previous page.
    #[schemars(extend("pattern" = "^(db|view):"))]
    after: Option<String>,
    /// The maximum number of entries; default 2000.
    #[schemars(range(min = 1, max = LARGEST))]
    limit: Option<usize>,
}

/// The position of a file in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FilePosition<'a> {
    node: &'a str,
    range: Option<Range>,
    db: &'a str,
    suffix: &'a str,
    /// `None` for the file of a database.
    signature: Option<Signature>,
}

impl<'a> FilePosition<'a> {
    fn of(target: TargetRef<'a>) -> Self {
        let name = target.db_name();
        Self {
            node: target.node(),
            range: target.range(),
            db: name.db,
            suffix: name.suffix,
            signature: target.view().map(|view| view.signature),
        }
    }

    /// The position of a file by its id; the file may no longer exist.
    fn named(id: &'a TargetId) -> Option<Self> {
        let (node, shard, signature) = match id {
            TargetId::Db { node, shard } => (node, shard, None),
            TargetId::View { node, db, signature } => (node, db, Some(*signature)),
            TargetId::Cleanup { .. } | TargetId::Search { .. } => return None,
        };
        Some(match ShardName::split(shard) {
            Some(it) => {
                Self { node, range: Some(it.range), db: it.db, suffix: it.suffix, signature }
            }
            None => Self { node, range: None, db: shard, suffix: "", signature },
        })
    }
}

/// Up to `limit` files after the position `after`, and whether there are more.
fn page<'a>(
    snapshot: &'a Snapshot,
    after: Option<FilePosition<'_>>,
    limit: usize,
) -> (Vec<TargetRef<'a>>, bool) {
    let by_files = |target: &TargetRef<'_>| {
        let measured = target.facts().measured_at;
        (target.kind() == TargetKind::Db || target.is_part())
            && target.state() == TargetState::Ok
            && measured.is_some_and(|it| it.source == FactSource::Files)
    };
    let listed = snapshot.targets().filter(by_files);
    let mut found: Vec<(FilePosition<'a>, TargetRef<'a>)> = listed
        .map(|target| (FilePosition::of(target), target))
        .filter(|(place, _)| after.is_none_or(|after| *place > after))
        .collect();
    let more = found.len() > limit;
    if more {
        found.select_nth_unstable_by_key(limit, |(place, _)| *place);
        found.truncate(limit);
    }
    found.sort_unstable_by_key(|(place, _)| *place);
    (found.into_iter().map(|(_, target)| target).collect(), more)
}

/// The facts read from files, page by page.
async fn facts(state: AppState, query: FactsQuery) -> Result<Answer<FactsPage>, ApiError> {
    // Before the first read, an empty list would suggest that there are no files.
    if let Some((_, why)) = unready(&state) {
        return Err(ApiError::unavailable(why.trim_end()));
    }
    worked_out(&state, move |plan| answer(plan, &query)).await
}

fn answer(plan: Arc<Plan>, query: &FactsQuery) -> Result<StreamedData, ApiError> {
    let limit = query.limit.unwrap_or(LIMIT);
    if limit == 0 || limit > LARGEST {
        return Err(ApiError::bad(format!("limit {limit} is not between 1 and {LARGEST}")));
    }
    let after = query.after.as_deref();
    let no_file =
        |id| ApiError::bad(format!("after={id:?} is not the id of a shard or of a view's part"));
    let id = after.map(|text| text.parse::<TargetId>().map_err(|_| no_file(text))).transpose()?;
    let place = after.zip(id.as_ref());
    let place = place.map(|(text, id)| FilePosition::named(id).ok_or_else(|| no_file(text)));
    let (targets, more) = page(&plan.snapshot, place.transpose()?, limit);
    let mut last = targets.iter().rev().filter_map(|target| FactsLine::of(*target));
    let next = last.next().filter(|_| more).map(|line| line.id);
    let head = FactsPage { facts: Vec::new(), next };
    let listed: Vec<TargetIx> = targets.into_iter().map(TargetRef::ix).collect();
    let lines = listed.into_iter().filter_map(move |ix| {
        let target = plan.snapshot.target(ix)?;
        FactsLine::of(target)
    });
    Ok(StreamedData::with_list("facts", &head, lines))
}

#[cfg(test)]
mod tests;
