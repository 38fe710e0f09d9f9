//! `/api/v1/advice`: what to do about the cluster, orders to mute it, and `/api/v1/usage`: whose bytes fill
//! the disks.

use super::{
    admin::ordered,
    api::{ApiError, in_turn, success},
    guard::{ConcurrencyLimit, Permission},
    orders::Order,
    query::NoQuery,
    state::AppState,
};
use crate::{
    advice::{AttributeBy, MuteOrder},
    model::records::{AdviceKey, Mute},
    plan::Plan,
    serve::{
        http::api::ValidQuery,
        report::{Advice, AdviceMute, Usage, orders as answers, words},
    },
    text::Label,
    text::duration,
};
use axum::{
    Extension,
    extract::{self, Request},
    response::{IntoResponse as _, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{sync::Arc, time::Duration};

/// For how long advice is muted, unless the order says otherwise.
const MUTE_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The longest time for which it may be muted: what nobody wants to hear for longer has another threshold.
const MAX_MUTE: Duration = Duration::from_secs(2 * 365 * 86_400);

/// The advice.
pub(super) async fn advice(
    extract::State(state): extract::State<AppState>,
    ValidQuery(_): ValidQuery<NoQuery>,
) -> Response {
    let view = Arc::clone(&state.advice.borrow());
    success(&Advice::of(&view, &state.plan.borrow(), state.clock.now()))
}

/// Databases or design documents to name, unless asked otherwise, and at most.
const NAMED: usize = 20;
const MAX_NAMED: usize = 10_000;

/// What bytes are attributed to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UsageQuery {
    /// `database`, which is the default, or `design`.
    #[schemars(with = "words::AttributeBy")]
    by: Option<String>,
    /// The number to name; the rest is summed. Default 20, at most 10,000.
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<usize>,
}

/// Whose bytes fill the disks.
pub(super) async fn usage(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    ValidQuery(query): ValidQuery<UsageQuery>,
) -> Response {
    let label = query.by.as_deref().unwrap_or_else(|| AttributeBy::Database.label());
    let Some(by) = AttributeBy::from_label(label) else {
        let why = format!("by is {label:?}; write database or design");
        return ApiError::bad(why).into_response();
    };
    let limit = query.limit.unwrap_or(NAMED);
    if !(1..=MAX_NAMED).contains(&limit) {
        return ApiError::bad(format!("limit must be from 1 to {MAX_NAMED}")).into_response();
    }
    let usage = in_turn(&state, &turns, move |plan| Ok(Usage::of(&plan.snapshot, by, limit)));
    usage.await.map_or_else(ApiError::into_response, |usage| success(&usage))
}

/// Mutes advice.
pub(super) async fn mute(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    let make = |body: answers::MuteOrder, _: &Plan, by, reply| {
        let span = match body.span.as_deref() {
            None => MUTE_FOR,
            Some(text) => duration::parse(text).ok_or_else(|| {
                ApiError::bad(format!("for is {text:?}; write a duration such as 30d"))
            })?,
        };
        if span.is_zero() || span > MAX_MUTE {
            let most = duration::format_exact(MAX_MUTE);
            return Err(ApiError::bad(format!("--for must be longer than 0s and at most {most}")));
        }
        let why = super::admin::reason(body.why)?;
        let key = AdviceKey { code: body.code, subject: body.subject };
        Ok(Order::MuteAdvice(MuteOrder { key, mute_for: Some(span), why, by: Some(by) }, reply))
    };
    ordered(&state, turns, Permission::Admin, request, make, muted).await
}

/// Ends the muting of advice.
pub(super) async fn unmute(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    let make = |body: answers::UnmuteOrder, _: &Plan, by, reply| {
        let key = AdviceKey { code: body.code, subject: body.subject };
        let order = MuteOrder { key, mute_for: None, why: None, by: Some(by) };
        Ok(Order::MuteAdvice(order, reply))
    };
    ordered(&state, turns, Permission::Admin, request, make, muted).await
}

fn muted(done: Option<Mute>) -> answers::Muted {
    answers::Muted { muted: done.as_ref().map(AdviceMute::of) }
}
