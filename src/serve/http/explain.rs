//! `/api/v1/explain`: why targets are or are not candidates.

use super::{
    answer::{Answer, StreamedData},
    error::ApiError,
    query::{LARGEST, PageRange, ValidQuery, written},
    route::{self, Route},
    state::AppState,
    turn::worked_out,
};
use crate::{
    model::target::TargetId,
    plan::Plan,
    scan,
    serve::report::{self, Explained, Explanations, Found, WholeViews},
};
use axum::{
    extract::{self, RawQuery},
    routing::get,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::api::<ExplainQuery, Explanations>(
            "/api/v1/explain",
            "explain",
            get(explain),
            "Why targets are or are not candidates.",
        )
        .errors(&[route::BAD, route::ABSENT, route::BUSY])
        .detail("The targets that a name matches, each with `why`, a sentence; `fresh`, why its facts are fresh (`measured` or `followed`); `scores`, how it compares with each channel for its kind; `start`, what would be sent (`request`, and `url` if an address is known); `ordered`, the order that waits for it; `part_of`, for a view's part, the view that is queued instead; and `advice`, what rules found about it."),
    ]
}

/// The target to explain.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["target"]))]
pub(super) struct ExplainQuery {
    /// An id, a shard file's name, a database, or `<db>/_design/<name>`.
    target: Option<String>,
    /// The maximum number of targets; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// The number of targets to skip.
    #[schemars(range(max = usize::MAX))]
    offset: Option<usize>,
}

async fn explain(
    extract::State(state): extract::State<AppState>,
    RawQuery(raw): RawQuery,
    ValidQuery(query): ValidQuery<ExplainQuery>,
) -> Result<Answer<Explanations>, ApiError> {
    let status = Arc::clone(&state.status.borrow());
    let (advice, now) = (Arc::clone(&state.advice.borrow()), state.clock.now());
    worked_out(&state, move |plan| {
        let page = PageRange::new(query.offset, query.limit).map_err(ApiError::bad)?;
        let Some(text) = &query.target else {
            return Err(ApiError::bad(
                "give a target: ?target= with an id, a shard file, a database, or <db>/_design/<name>",
            ));
        };
        let (text, found) = meant(&plan, text, raw.as_deref());
        if found == Found::None {
            return Err(no_match(&plan, &status, text));
        }
        let found = found.all();
        let head = Explanations {
            generated_at: plan.snapshot.generated_at().rfc3339(),
            total: found.len(),
            offset: page.offset,
            limit: page.limit,
            only_node: plan.snapshot.only_node().map(|node| node.name.to_string()),
            unanswered: report::unanswered_nodes(&plan),
            targets: Vec::new(),
        };
        let views = WholeViews::of(&plan, page.of(&found));
        let shown = page.of(&found).to_vec().into_iter();
        let lines = shown.filter_map(move |ix| {
            let target = plan.snapshot.target(ix)?;
            Some(Explained::of(&plan, target, &views).advised(target, &advice, now))
        });
        Ok(StreamedData::with_list("targets", &head, lines))
    })
    .await
}

/// The targets that a text in a URL matches, and the reading of the text that matched.
///
/// An id that was pasted into a URL as printed has lost one layer of encoding, and a plus sign was
/// decoded as a space; so if the decoded text matches nothing, the text as written in the URL is
/// tried.
pub(super) fn meant<'a>(plan: &Plan, text: &'a str, raw: Option<&'a str>) -> (&'a str, Found) {
    let found = report::find(plan, text);
    let Some(written) = raw.and_then(|raw| written(raw, "target")).filter(|_| found == Found::None)
    else {
        return (text, found);
    };
    let found = report::find(plan, written);
    // An id may belong to a deleted target.
    let is_meant = found != Found::None || written.parse::<TargetId>().is_ok();
    (if is_meant { written } else { text }, found)
}

/// The error that no known target has this name or id.
pub(super) fn no_match(plan: &Plan, status: &scan::ScanStatus, text: &str) -> ApiError {
    let known = status.is_ready(plan.snapshot.version());
    let yet =
        if known { "" } else { " (the first sweep has not ended yet; try again in a moment)" };
    ApiError::absent(report::no_match(plan, text) + yet)
}
