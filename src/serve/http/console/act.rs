//! Orders from a page: what a person is asked before, the order itself, and how it went.
//!
//! Owns the way from a form to an order of the API. A form is sent only by a page of this server, which
//! the guard checks more strictly than for programs; everything else, the permissions too, is the API's.

use super::{failed, form_of, given, response};
use crate::{
    model::{channel::Mode, target::TargetState},
    plan::{Decision, Plan, RefusalReason},
    serve::{
        console::{self, AskedCompaction, Confirmation, Given, capital},
        http::{
            admin, advice,
            api::{ApiError, ValidQuery, in_turn, success},
            guard::{self, ConcurrencyLimit, Permission},
            query::NoQuery,
            state::AppState,
        },
        report::{
            self, StartLine,
            orders::{CompactOrder, OrderPermission, Permissions, ResumeOrder, SuspendOrder},
        },
    },
    table::TargetRef,
};
use axum::{
    Extension,
    body::{self, Body},
    extract::{self, Request},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The longest answer to an order, in bytes.
const MAX_ANSWER: usize = 1 << 22;

/// A field that a person fills in: its key, what to write, an example.
type Asked = (&'static str, &'static str, &'static str);

const WHY: Asked = ("why", "Why (kept in the journal):", "a backup runs");
const FORCE: Asked = ("force", "Force: ignore channel rules and cool-down", "");
const FOR: Asked = ("for", "For how long:", "30d");

/// An order that a page offers.
struct Offer {
    /// Its route in the API, without the prefix.
    order: &'static str,
    permission: Permission,
    /// Fields that the link gives.
    fields: &'static [&'static str],
    asks: &'static [Asked],
    /// What it does.
    does: fn(&Given) -> String,
}

const OFFERS: [Offer; 8] = [
    Offer {
        order: "suspend",
        permission: Permission::Suspend,
        fields: &["scope"],
        asks: &[WHY],
        does: |of| SuspendOrder { scope: Some(of.get("scope").to_owned()), why: None }.does(),
    },
    Offer {
        order: "resume",
        permission: Permission::Suspend,
        fields: &["scope"],
        asks: &[],
        does: |of| ResumeOrder { scope: Some(of.get("scope").to_owned()) }.does(),
    },
    Offer {
        order: "compact",
        permission: Permission::Admin,
        fields: &["target"],
        asks: &[FORCE],
        does: |of| CompactOrder { target: of.get("target").to_owned(), force: false }.does(),
    },
    Offer {
        order: "release",
        permission: Permission::Admin,
        fields: &["target", "all"],
        asks: &[],
        does: |of| match of.get("target") {
            "" => "All quarantined targets may start again.".to_owned(),
            target => format!("{target} may start again."),
        },
    },
    Offer {
        order: "rescan",
        permission: Permission::Admin,
        fields: &[],
        asks: &[],
        does: |_| "A sweep over all targets begins now.".to_owned(),
    },
    Offer {
        order: "flush",
        permission: Permission::Admin,
        fields: &["node", "channel"],
        asks: &[],
        does: |_| "The queues are emptied; targets are queued again at the next sweep.".to_owned(),
    },
    Offer {
        order: "advice/mute",
        permission: Permission::Admin,
        fields: &["code", "subject"],
        asks: &[FOR, WHY],
        does: |of| match of.get("subject") {
            "" => format!("Mutes all advice {} for that time.", of.get("code")),
            subject => format!("Mutes advice {} for {subject} for that time.", of.get("code")),
        },
    },
    Offer {
        order: "advice/unmute",
        permission: Permission::Admin,
        fields: &["code", "subject"],
        asks: &[],
        does: |of| match of.get("subject") {
            "" => format!("Advice {} counts again.", of.get("code")),
            subject => format!("Advice {} for {subject} counts again.", of.get("code")),
        },
    },
];

/// The offer of a name; pages call orders about advice by their last word.
fn offer(given: &Given) -> Result<&'static Offer, ApiError> {
    let wanted = given.get("order");
    let named = |offer: &&Offer| {
        offer.order == wanted || offer.order.strip_prefix("advice/") == Some(wanted)
    };
    OFFERS.iter().find(named).ok_or_else(|| {
        let known: Vec<&str> = OFFERS.iter().map(|offer| offer.order).collect();
        ApiError::bad(format!("{wanted:?} is not an order; orders: {}", known.join(", ")))
    })
}

/// Which orders the sender of this request may give, for programs that offer them too.
pub(in crate::serve::http) async fn permissions(
    extract::State(state): extract::State<AppState>,
    ValidQuery(NoQuery {}): ValidQuery<NoQuery>,
    request: Request,
) -> Response {
    let permission = |offer: &Offer| OrderPermission {
        order: offer.order.into(),
        refused: guard::may_order(&state.allow, offer.permission, &request)
            .err()
            .map(|why| why.to_string()),
    };
    success(&Permissions { orders: OFFERS.iter().map(permission).collect() })
}

/// Asks whether an order should be carried out.
pub(super) async fn ask(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    // Who asks is settled before anything is awaited.
    let asked = given(request.uri()).and_then(|given| {
        let offer = offer(&given)?;
        let refused = guard::may_order(&state.allow, offer.permission, &request).err();
        Ok((offer, given, refused))
    });
    let asked = async {
        let (offer, given, refused) = asked?;
        let compaction = match offer.order {
            "compact" => asked_for(&state, &turns, given.get("target")).await.map(Some),
            _ => Ok(None),
        };
        let (compaction, impossible) = match compaction {
            Ok(compaction) => {
                let refused = compaction.as_ref().and_then(|it| it.refused.clone());
                (compaction, refused)
            }
            Err(why) => (None, Some(why.why)),
        };
        let fields = offer.fields.iter().filter(|key| !given.get(key).is_empty());
        Ok(Confirmation {
            order: offer.order.to_owned(),
            does: (offer.does)(&given),
            fields: fields.map(|key| ((*key).to_owned(), given.get(key).to_owned())).collect(),
            asks: offer.asks.to_vec(),
            compaction,
            refused: refused.map(|why| why.to_string()).or(impossible),
        })
    };
    match asked.await {
        Ok(asked) => response(&state, StatusCode::OK, &console::confirmation(&asked)),
        Err(refused) => failed(&state, &refused),
    }
}

/// What an order to compact a target would send and do, and whether it would be refused.
async fn asked_for(
    state: &AppState,
    turns: &ConcurrencyLimit,
    text: &str,
) -> Result<AskedCompaction, ApiError> {
    let text = text.to_owned();
    in_turn(state, turns, move |plan: Arc<Plan>| {
        let (ix, id) = admin::one_target(&plan, &text)?;
        let gone = || ApiError::absent(format!("{id} no longer exists"));
        let target = plan.snapshot.target(ix).ok_or_else(gone)?;
        Ok(if_ordered(&plan, target))
    })
    .await
}

/// What would happen if an operator ordered a compaction of a target.
pub(super) fn if_ordered(plan: &Plan, target: TargetRef<'_>) -> AskedCompaction {
    let start = plan.start_if_ordered(target).and_then(|start| StartLine::of(plan, &start));
    let (waits, needs_force) = match plan.decision(target) {
        Decision::Refused(refusal) => {
            (Some((refusal.reason, report::why(plan, target, &refusal))), is_rest(refusal.reason))
        }
        Decision::NotTaken => (None, true),
        Decision::Start => (None, false),
    };
    let refused = if start.is_none() {
        Some(no_request(target).to_owned())
    } else if plan.rules.mode == Mode::Advise {
        Some("recliner only advises, so it starts nothing. Set mode: enforce to let it.".to_owned())
    } else {
        let for_good = waits.as_ref().filter(|(reason, _)| holds_orders_for_good(*reason));
        for_good.map(|(_, why)| [&capital(why), "."].concat())
    };
    AskedCompaction { start, waits: waits.map(|(_, why)| why), needs_force, refused }
}

/// Whether a target rests after what happened to it, so that only force starts it.
const fn is_rest(reason: RefusalReason) -> bool {
    matches!(reason, RefusalReason::CoolDown | RefusalReason::Quarantined | RefusalReason::Futile)
}

/// Whether an order that waits for the end of this would wait for a change of the settings.
const fn holds_orders_for_good(reason: RefusalReason) -> bool {
    matches!(reason, RefusalReason::Mode | RefusalReason::Excluded | RefusalReason::NoEvidence)
}

/// Why no order starts a compaction of a target.
fn no_request(target: TargetRef<'_>) -> &'static str {
    match target.state() {
        TargetState::Missing => "The node does not have this file, so there is nothing to compact.",
        TargetState::Orphan => {
            "This file is not in the shard map, so CouchDB serves it to nobody and no channel takes it."
        }
        TargetState::Unaddressable => "No request can carry its name.",
        TargetState::Unknown => report::UNKNOWN_STATE,
        TargetState::Resharding => "Its shard is being split or moved; compact it afterwards.",
        TargetState::Ok if target.is_part() => {
            "CouchDB has no request that compacts one part of a view; compact the whole view."
        }
        TargetState::Ok => {
            "No channel is for targets of this kind and name; add one under channels."
        }
    }
}

/// Carries out the order of a form.
pub(super) async fn act(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<ConcurrencyLimit>,
    request: Request,
) -> Response {
    if let Err(refused) = guard::check_form(&request) {
        return failed(&state, &ApiError::forbidden(refused));
    }
    let (mut parts, form) = request.into_parts();
    let read = async {
        let given = form_of(form).await?;
        Ok((offer(&given)?, given))
    };
    let (offer, given) = match read.await {
        Ok(read) => read,
        Err(refused) => return failed(&state, &refused),
    };
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.remove(header::CONTENT_LENGTH);
    let order = Request::from_parts(parts, Body::from(json(offer, &given).to_string()));
    let (shown, turns) = (extract::State(state.clone()), Extension(turns));
    let answer = match offer.order {
        "suspend" => admin::suspend(shown, turns, order).await,
        "resume" => admin::resume(shown, turns, order).await,
        "compact" => admin::compact(shown, turns, order).await,
        "release" => admin::release(shown, turns, order).await,
        "rescan" => admin::rescan(shown, turns, order).await,
        "flush" => admin::flush(shown, turns, order).await,
        "advice/mute" => advice::mute(shown, turns, order).await,
        _ => advice::unmute(shown, turns, order).await,
    };
    let code = answer.status();
    let page = console::done(offer.order, &given, &said(answer).await);
    response(&state, code, &page)
}

/// The body of the order that a form means.
fn json(offer: &Offer, given: &Given) -> Value {
    let asked = offer.asks.iter().map(|(key, ..)| *key);
    let keys = offer.fields.iter().copied().chain(asked);
    let field = |key: &str| match (key, given.get(key)) {
        (_, "") => None,
        ("force" | "all", text) => Some((key.to_owned(), Value::Bool(text == "true"))),
        (_, text) => Some((key.to_owned(), Value::String(text.to_owned()))),
    };
    Value::Object(keys.filter_map(field).collect::<Map<_, _>>())
}

/// What the API answered: its data, or why not.
async fn said(answer: Response) -> Result<Value, String> {
    let is_done = answer.status().is_success();
    let bytes =
        body::to_bytes(answer.into_body(), MAX_ANSWER).await.map_err(|why| why.to_string())?;
    let answer: Value = serde_json::from_slice(&bytes).map_err(|why| why.to_string())?;
    match is_done {
        true => Ok(answer.get("data").cloned().unwrap_or(Value::Null)),
        false => Err(answer
            .get("error")
            .and_then(Value::as_str)
            .unwrap_or("the order failed")
            .to_owned()),
    }
}
