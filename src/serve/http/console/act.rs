//! Orders from a page: the confirmation, the order itself, and its result.
//!
//! Turns a form into an order of the API. Forms are accepted only from pages of this server, which
//! the guard checks more strictly than requests of programs; everything else, including
//! permissions, is up to the API.

use super::{MAX_FORM, failed, form_of, given, response};
use crate::{
    model::{
        channel::Mode,
        records::{Run, RunScope},
        target::TargetState,
    },
    plan::{Decision, Plan, RefusalClass, RefusalReason},
    serve::{
        console::{self, AskedCompaction, Confirmation, Given},
        http::{
            admin,
            error::ApiError,
            guard,
            state::AppState,
            turn::{in_turn, read_body},
        },
        report::{
            self, RunLine, StartLine,
            orders::{CompactOrder, OrderName, OrderRequest, RunOrder},
        },
    },
    table::TargetRef,
    text::{Label as _, capital},
};
use axum::{
    body::Body,
    extract::{self, Request},
    http::StatusCode,
    response::Response,
};
use serde_json::Value;
use std::sync::Arc;

/// A field that a person fills in: its key, its title, an example.
type Asked = (&'static str, &'static str, &'static str);

const WHY: Asked = ("why", "Why (kept in the journal):", "a backup runs");
const FORCE: Asked = ("force", "Force: ignore channel rules and cool-down", "");
const FOR: Asked = ("for", "For how long:", "30d");

const ADVISES: &str =
    "You cannot start it in advise mode. Set mode: enforce to let recliner start compactions.";

const fn fields_to_ask(name: OrderName) -> &'static [Asked] {
    match name {
        OrderName::Suspend => &[WHY],
        OrderName::Compact | OrderName::Run => &[FORCE],
        OrderName::Mute => &[FOR, WHY],
        OrderName::Resume
        | OrderName::ChangeRun
        | OrderName::Release
        | OrderName::Rescan
        | OrderName::Flush
        | OrderName::Unmute => &[],
    }
}

/// The order that an address or form names; pages name orders about advice by their last word.
fn name_of(given: &Given) -> Result<OrderName, ApiError> {
    let wanted = given.get("order");
    let is_wanted = |name: &OrderName| {
        name.label() == wanted || name.label().strip_prefix("advice/") == Some(wanted)
    };
    OrderName::each().find(is_wanted).ok_or_else(|| {
        let names = OrderName::labels().join(", ");
        ApiError::bad(format!("{wanted:?} is not an order; the orders are {names}"))
    })
}

/// Builds the order from an address or form, whose fields are those of the API.
fn order_of(name: OrderName, given: &Given) -> Result<OrderRequest, ApiError> {
    let field = |(key, text): (&str, &str)| match (key, text) {
        ("order", _) | (_, "") => None,
        ("run", number) => {
            let number =
                number.parse().map_or_else(|_| Value::String(number.to_owned()), u64::into);
            Some((key.to_owned(), number))
        }
        ("force" | "all", _) => Some((key.to_owned(), Value::Bool(text == "true"))),
        _ => Some((key.to_owned(), Value::String(text.to_owned()))),
    };
    let body = Value::Object(given.fields().filter_map(field).collect());
    admin::read_order(name, body.to_string().as_bytes())
}

/// Asks for confirmation of an order.
pub(super) async fn ask(
    extract::State(state): extract::State<AppState>,
    request: Request,
) -> Response {
    // The sender is checked before anything is awaited.
    let asked = given(request.uri()).and_then(|given| {
        let name = name_of(&given)?;
        let refused = admin::authorize(&state, name, &request).err();
        Ok((order_of(name, &given)?, refused))
    });
    let asked = async {
        let (order, refused) = asked?;
        let mut asks = fields_to_ask(order.name()).to_vec();
        let (mut compaction, mut run, mut impossible) = (None, None, None);
        if let OrderRequest::Compact(CompactOrder { target, .. }) = &order {
            match effect_of_order(&state, target).await {
                Ok(effect) => {
                    impossible.clone_from(&effect.refused);
                    compaction = Some(effect);
                }
                Err(why) => impossible = Some(why.why),
            }
        } else if let OrderRequest::Run(order) = &order {
            let (line, refused) = run_if_ordered(&state, order).await?;
            (run, impossible) = (Some(line), refused);
            if order.db.is_none() {
                asks.clear();
            }
        }
        let refused = refused.map(|refused| refused.why).or(impossible);
        Ok(Confirmation { order, asks, compaction, run, refused })
    };
    match asked.await {
        Ok(asked) => response(&state, StatusCode::OK, &console::confirmation(&asked)),
        Err(refused) => failed(&state, &refused),
    }
}

/// What a run would compact, by force if that is the only way, and why it would be refused.
async fn run_if_ordered(
    state: &AppState,
    order: &RunOrder,
) -> Result<(RunLine, Option<String>), ApiError> {
    let (scope, force) = (order.scope().map_err(ApiError::bad)?, order.force);
    in_turn(state, move |plan: Arc<Plan>| {
        admin::known_scope(&plan, &scope)?;
        let mut run = Run::beginning(scope, force, String::new(), plan.planned_at);
        let (mut line, mut refused) = RunLine::if_ordered(&plan, &run);
        // The user who confirms may force targets that no channel takes.
        if refused.is_some() && matches!(run.scope, RunScope::Database(_)) {
            run.force = true;
            let (forced, why_not) = RunLine::if_ordered(&plan, &run);
            if why_not.is_none() {
                (line, refused) = (forced, None);
            }
        }
        let advises = (plan.rules.mode == Mode::Advise).then(|| ADVISES.to_owned());
        Ok((line, advises.or(refused)))
    })
    .await
}

/// The effect of an order to compact a target, and whether it would be refused.
async fn effect_of_order(state: &AppState, text: &str) -> Result<AskedCompaction, ApiError> {
    let text = text.to_owned();
    in_turn(state, move |plan: Arc<Plan>| {
        let (ix, id) = admin::one_target(&plan, &text)?;
        let gone = || ApiError::absent(format!("{id} no longer exists"));
        let target = plan.snapshot.target(ix).ok_or_else(gone)?;
        Ok(if_ordered(&plan, target))
    })
    .await
}

/// The result if an operator ordered a compaction of this target.
pub(super) fn if_ordered(plan: &Plan, target: TargetRef<'_>) -> AskedCompaction {
    let start = plan.start_if_ordered(target).and_then(|start| StartLine::of(plan, &start));
    let (waits, needs_force) = match plan.decision(target) {
        Decision::Refused(refusal) => {
            (Some((refusal.reason, report::why(plan, target, &refusal))), is_rest(refusal.reason))
        }
        Decision::NotTaken => (held_back(plan, target), true),
        Decision::Start => (None, false),
    };
    let refused = if start.is_none() {
        Some(no_request(target).to_owned())
    } else if plan.rules.mode == Mode::Advise {
        Some(ADVISES.to_owned())
    } else {
        let for_good = waits.as_ref().filter(|(reason, _)| holds_orders_for_good(*reason));
        for_good.map(|(_, why)| [&capital(why), "."].concat())
    };
    AskedCompaction { start, waits: waits.map(|(_, why)| why), needs_force, refused }
}

/// Why all starts on a target's node are held back; `None` if they are not.
fn held_back(plan: &Plan, target: TargetRef<'_>) -> Option<(RefusalReason, String)> {
    let gates = RefusalReason::gates().filter(|gate| holds_orders_for_good(*gate));
    let refusal = gates.filter_map(|gate| plan.gate_refusal(gate, target.node_ix())).next()?;
    Some((refusal.reason, report::why(plan, target, &refusal)))
}

/// Whether a target is paused after earlier compactions, so that only force starts it.
const fn is_rest(reason: RefusalReason) -> bool {
    matches!(reason, RefusalReason::CoolDown | RefusalReason::Quarantined | RefusalReason::Futile)
}

/// Whether an order is refused for this reason: it neither passes by itself nor yields to an order.
fn holds_orders_for_good(reason: RefusalReason) -> bool {
    reason.class() == RefusalClass::Held
        || matches!(reason, RefusalReason::Excluded | RefusalReason::NoEvidence)
}

/// Why no order can start a compaction of this target.
fn no_request(target: TargetRef<'_>) -> &'static str {
    match target.state() {
        TargetState::Missing => "The node does not have this file, so there is nothing to compact.",
        TargetState::Orphan => {
            "This file is not in the shard map, so CouchDB does not use it and no channel takes it."
        }
        TargetState::Unaddressable => "No request can carry its name.",
        TargetState::Unknown => report::UNKNOWN_STATE,
        TargetState::Resharding => "Its shard is being split or moved; compact it afterwards.",
        TargetState::Ok if target.is_part() => {
            "CouchDB cannot compact one part of a view; compact the whole view."
        }
        TargetState::Ok => {
            "No channel is for targets of this kind and name; add one under channels."
        }
    }
}

/// Carries out the order of a form.
pub(super) async fn act(
    extract::State(state): extract::State<AppState>,
    request: Request,
) -> Response {
    if let Err(refused) = guard::check_form(&request) {
        return failed(&state, &ApiError::from(refused));
    }
    let (head, form) = request.into_parts();
    let read = async {
        let given = form_of(&read_body(Request::new(form), MAX_FORM).await?)?;
        Ok((name_of(&given)?, given))
    };
    let (name, given) = match read.await {
        Ok(read) => read,
        Err(refused) => return failed(&state, &refused),
    };
    let head = Request::from_parts(head, Body::empty());
    let asked =
        admin::authorize(&state, name, &head).and_then(|by| Ok((by, order_of(name, &given)?)));
    let done = async {
        let (by, order) = asked?;
        let answer = admin::carry_out(&state, by, order.clone()).await?;
        Ok((order, answer))
    };
    let done: Result<_, ApiError> = done.await;
    let code = done.as_ref().map_or_else(|refused| refused.code, |_| StatusCode::OK);
    let done = done.map_err(|refused| refused.why);
    response(&state, code, &console::done(name, given.get("target"), &done))
}
