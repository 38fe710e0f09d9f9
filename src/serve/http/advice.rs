//! `/api/v1/advice`: what to do about the cluster, and orders to mute it.

use super::{
    AppState, Order,
    admin::ordered,
    api::{ApiError, success},
    guard::{ConcurrencyLimit, Permission},
    query::NoQuery,
};
use crate::{
    advice::{MuteOrder, Waste},
    model::records::{AdviceKey, Mute},
    plan::Plan,
    serve::{
        http::api::ValidQuery,
        report::{Advice, AdviceMute, orders as answers},
    },
    text::duration,
};
use axum::{
    Extension,
    extract::{self, Request},
    response::Response,
};
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
    let waste = Waste::of(&state.plan.borrow().snapshot);
    success(&Advice::of(&view, waste, state.clock.now()))
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
            return Err(ApiError::bad(format!("for must be more than nothing and at most {most}")));
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
