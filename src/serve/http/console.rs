//! The console's routes: which answers each page needs, and where they come from.
//!
//! Decides which page a path leads to; [`console`] decides how it looks. A page is gathered the same
//! way whether a browser loads it or keeps it open: [`live`] renders it again, [`act`] leads to
//! orders.

mod act;
mod live;
mod preflight;
mod what_if;

use super::{
    advice::advice_of,
    changes::changes_of,
    compression,
    concurrency_limit::QuestionLimits,
    databases::{DatabaseQuery, deletion_record, newest_jobs},
    docs,
    error::ApiError,
    explain::{meant, no_match},
    fleet::fleet_of,
    guard,
    journal::{self, EventsParameters, HistoryParameters, journal_of},
    probes,
    reads::indexes_of,
    route::{self, Route},
    state::AppState,
    status::status_of,
    targets::TargetQuery,
    turn::{Place, Turn, in_turn},
    xray::begin_xray,
};
use crate::{
    config,
    model::{
        channel::Mode,
        priority::PriorityUnit,
        settings::Settings,
        target::{TargetKind, TargetSelector, TargetState},
    },
    plan::{Plan, RefusalClass},
    serve::{
        console::{
            self, Around, AskedCompaction, DatabaseAnswers, Given, JobAnswers, OverviewAnswers,
            Page, QueueAnswers, Shown, TargetAnswers, TargetFilter,
        },
        report::{
            self, AdviceLine, DatabaseLine, Databases, EventLine, Events, Explained, Found, Jobs,
            OutcomeLine, Outcomes, Planned, Queue, Queues, RefusedLine, RunList, Scorecard, Space,
            SuspensionLine, Target, Targets, Wanted, WholeViews,
        },
    },
    store::journal::{EventType, EventsQuery, HistoryQuery},
    text::Label,
};
use axum::{
    Extension, Router,
    body::Body,
    extract::{self, Query, Request},
    http::{HeaderMap, StatusCode, Uri, header},
    middleware,
    response::{IntoResponse as _, Redirect, Response},
    routing::get,
};
use couchdb_client::ClientSettings;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use std::{collections::BTreeSet, sync::Arc};
use wall_clock::Moment;

/// Targets on the page of a database.
const COPIES: usize = 500;

/// Hours that the overview looks back before the present one.
const HOURS: u64 = 47;

/// The longest form, in bytes.
const MAX_FORM: usize = 1 << 16;

const WEEK: u64 = 7 * 86_400;

/// The pages but the first, by path.
const PAGES: [&str; 17] = [
    "/fleet",
    "/databases",
    "/targets",
    "/target",
    "/database",
    "/indexes",
    "/queue",
    "/jobs",
    "/events",
    "/changes",
    "/nodes",
    "/advice",
    "/what-if",
    "/preflight",
    "/configuration",
    "/status",
    "/act",
];

/// The route of the first page; the other routes are for people only.
pub(super) fn first_page_route() -> Vec<Route> {
    let first = get(show).layer(middleware::from_fn(compression::compress));
    vec![Route::page("/", "page", first, "The console's first page.", &[route::BUSY]).detail(
        "The other pages, such as `/targets` and `/queue`, are for people and may change; programs should use the API, which has everything that these pages show.",
    )]
}

/// The routes of the console.
pub(super) fn routes() -> Router<AppState> {
    let mut router = Router::new();
    for path in PAGES {
        let page = match path {
            "/act" => get(act::ask).post(act::act),
            "/what-if" => get(what_if::show).post(what_if::ask),
            "/preflight" => get(preflight::show).post(preflight::ask),
            "/database" => get(show).post(look_inside),
            _ => get(show),
        };
        router = router.route(path, page);
    }
    router
        .route("/live", get(live::live))
        .route("/assets/{name}", get(asset))
        .layer(Extension(live::LivePages::default()))
}

/// A page.
async fn show(extract::State(state): extract::State<AppState>, uri: Uri) -> Response {
    match gather(&state, &uri).await {
        Ok(page) => response(&state, StatusCode::OK, &page),
        Err(refused) => failed(&state, &refused),
    }
}

/// Has a database's files read, and leads back to its page.
async fn look_inside(
    extract::State(state): extract::State<AppState>,
    request: Request,
) -> Response {
    let begun = async {
        let (_place, _turn, given) =
            asked_in_turn(&state.limits.preflights, request, MAX_FORM).await?;
        let db = wanted(&given, "name")?;
        begin_xray(&state, db).await?;
        Ok(console::link("database", &[("name", db)]))
    };
    match begun.await {
        Ok(page) => Redirect::to(&page).into_response(),
        Err(refused) => failed(&state, &refused),
    }
}

/// The response for an unknown path: a page for a browser, a line for a program.
pub(super) async fn not_found(
    extract::State(state): extract::State<AppState>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or_default();
    // Links of a page are relative, so that it works behind a proxy: in a directory they would lead nowhere.
    let is_in_directory = uri.path().trim_start_matches('/').contains('/');
    if !accepts.contains("text/html") || is_in_directory {
        return probes::not_found().into_response();
    }
    failed(&state, &ApiError::absent(format!("There is no page at {}.", uri.path())))
}

/// A page as it is sent.
fn response(state: &AppState, code: StatusCode, page: &Page) -> Response {
    let mode = state.config.borrow().mode;
    let around = Around {
        version: state.about.version,
        mode: mode.label(),
        simulation: state.about.simulation(mode),
        shown: match state.fleet.borrow().is_configured {
            true => Shown::ClusterAndFleet,
            false => Shown::Cluster,
        },
    };
    guard::page(code, console::document(page, &around))
}

/// The page that says why there is no page.
fn failed(state: &AppState, refused: &ApiError) -> Response {
    let title = if refused.code == StatusCode::NOT_FOUND { "Not found" } else { "Not possible" };
    let mut response = response(state, refused.code, &console::failed(title, &refused.why));
    if let Some(pause) = &refused.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, pause.clone());
    }
    response
}

/// A style sheet or script.
pub(super) async fn asset(
    extract::Path(name): extract::Path<String>,
    headers: HeaderMap,
) -> Response {
    match console::asset(&name) {
        Some(found) => {
            docs::cached(found.content_type, Body::from(found.text), found.hash, &headers)
        }
        None => (StatusCode::NOT_FOUND, "the console has no such file\n").into_response(),
    }
}

/// The page of a path and query, with what is suspended.
async fn gather(state: &AppState, uri: &Uri) -> Result<Page, ApiError> {
    let mut page = own_page(state, uri).await?;
    let suspensions = SuspensionLine::all(&state.plan.borrow());
    page.insert_suspended(console::suspended(&suspensions));
    Ok(page)
}

/// The page for just this path and query.
async fn own_page(state: &AppState, uri: &Uri) -> Result<Page, ApiError> {
    let given = given(uri)?;
    match uri.path() {
        "/" => overview(state).await,
        "/fleet" => Ok(console::fleet(&fleet_of(state), state.clock.now())),
        "/databases" => databases(state, given).await,
        "/targets" => targets(state, given).await,
        "/target" => target(state, wanted(&given, "id")?).await,
        "/database" => database(state, wanted(&given, "name")?).await,
        "/queue" => queue(state).await,
        "/jobs" => jobs(state, given).await,
        "/events" => events(state, given).await,
        "/changes" => {
            let found = changes_of(state, parsed(&given)?).await.map_err(|refused| refused.why);
            Ok(console::changes(&given, &found, state.clock.now()))
        }
        "/indexes" => {
            let found = indexes_of(state, parsed(&given)?).await.map_err(|refused| refused.why);
            Ok(console::indexes(&given, &found))
        }
        "/nodes" => {
            let page = |plan: &Plan, state: &AppState| {
                let planned = Planned::outline(plan, Wanted::default()).0;
                console::nodes(&status_of(state, plan), &planned, state.clock.now())
            };
            with_plan(state, page).await
        }
        "/advice" => Ok(console::advice(&advice_of(state), state.clock.now())),
        "/configuration" => {
            let page = |plan: &Plan, state: &AppState| {
                let shown = Arc::clone(&state.config.borrow());
                let line = status_of(state, plan).config;
                let defaults = config::to_json(&Settings::new(ClientSettings::new(Vec::new())));
                console::configuration(&shown.shown, &defaults, &line, state.clock.now())
            };
            with_plan(state, page).await
        }
        "/status" => {
            let page = |plan: &Plan, state: &AppState| {
                console::status(&status_of(state, plan), state.clock.now())
            };
            with_plan(state, page).await
        }
        path => Err(ApiError::absent(format!("there is no page at {path}"))),
    }
}

/// The parameters of an address.
fn given(uri: &Uri) -> Result<Given, ApiError> {
    let Query(given) = Query::try_from_uri(uri).map_err(ApiError::bad_query)?;
    Ok(Given::new(given))
}

/// The fields of a form of at most `max` bytes.
fn form_of(form: &[u8]) -> Result<Given, ApiError> {
    let text = std::str::from_utf8(form).map_err(ApiError::bad)?;
    let decoded = |part: &str| -> Result<String, ApiError> {
        let spaced = part.replace('+', " ");
        Ok(percent_decode_str(&spaced).decode_utf8().map_err(ApiError::bad)?.into_owned())
    };
    let pairs = text.split('&').map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decoded(key)?, decoded(value)?))
    });
    Ok(Given::new(pairs.collect::<Result<_, ApiError>>()?))
}

/// A page of a question that a link opens, with the form filled in.
fn unanswered(state: &AppState, uri: &Uri, page: impl FnOnce(&Given) -> Page) -> Response {
    match given(uri) {
        Ok(given) => response(state, StatusCode::OK, &page(&given)),
        Err(refused) => failed(state, &refused),
    }
}

/// A page of a question that a form opens, with the answer.
fn answered<T>(
    state: &AppState,
    answer: Result<T, ApiError>,
    page: impl FnOnce(&Result<T, String>) -> Page,
) -> Response {
    let code = answer.as_ref().map_or_else(|refused| refused.code, |_| StatusCode::OK);
    response(state, code, &page(&answer.map_err(|refused| refused.why)))
}

/// A question that a form of this server asks, once it is its turn, and its permits.
async fn asked_in_turn(
    limits: &QuestionLimits,
    request: Request,
    max: usize,
) -> Result<(Place, Turn, Given), ApiError> {
    guard::check_question_form(&request).map_err(ApiError::from)?;
    let place = limits.place().await?;
    let given = form_of(&place.body(request, max).await?)?;
    let turn = place.turn().await?;
    Ok((place, turn, given))
}

fn wanted<'a>(given: &'a Given, key: &str) -> Result<&'a str, ApiError> {
    match given.get(key) {
        "" => Err(ApiError::bad(format!("The address needs ?{key}=…"))),
        value => Ok(value),
    }
}

/// Converts parameters into one of the API's own queries.
fn parsed<Q: DeserializeOwned>(given: &Given) -> Result<Q, ApiError> {
    let uri: Uri = given.link("/", &[]).parse().map_err(ApiError::bad)?;
    let Query(query) = Query::try_from_uri(&uri).map_err(ApiError::bad_query)?;
    Ok(query)
}

/// Replaces the pseudo-node by the only node, or by `all nodes`.
fn put_in_place(plan: &Plan) -> impl Fn(&mut String) {
    let only_node = plan.snapshot.only_node().map(|node| node.name.to_string());
    move |node| *node = report::place(node, only_node.as_deref()).to_owned()
}

/// Replaces the pseudo-node in outcomes and events.
fn for_people(plan: &Plan, outcomes: &mut [OutcomeLine], events: &mut [EventLine]) {
    let put = put_in_place(plan);
    outcomes.iter_mut().for_each(|line| put(&mut line.node));
    events.iter_mut().filter_map(|line| line.node.as_mut()).for_each(put);
}

/// A page made of the plan alone, on a blocking thread.
async fn with_plan(
    state: &AppState,
    page: impl FnOnce(&Plan, &AppState) -> Page + Send + 'static,
) -> Result<Page, ApiError> {
    let owned = state.clone();
    in_turn(state, move |plan| Ok(page(&plan, &owned))).await
}

async fn overview(state: &AppState) -> Result<Page, ApiError> {
    let now = state.clock.now();
    let since = Moment::from_unix(now.unix().saturating_sub(HOURS * 3_600));
    // The status reports a journal that cannot be read; the rest of the page remains useful.
    let hours = journal::hours_since(state, since).await;
    let hours = hours.map(|found| found.hours).unwrap_or_default();
    let advice = advice_of(state);
    let week = Moment::from_unix(now.unix().saturating_sub(WEEK));
    let scorecard = Scorecard::of(&state.scorecard.borrow(), week, now);
    let page = move |plan: &Plan, state: &AppState| {
        let (planned, waiting) = planned_for_people(plan, console::SHOWN_WAITING);
        console::overview(&OverviewAnswers {
            status: status_of(state, plan),
            space: Space::of(plan, &state.advice.borrow()),
            jobs: Jobs::of(plan, &state.builds.borrow()),
            planned,
            waiting,
            advice,
            scorecard,
            hours,
            now,
        })
    };
    with_plan(state, page).await
}

/// The plan, and the best of what waits.
fn planned_for_people(plan: &Plan, shown: usize) -> (Planned, Vec<RefusedLine>) {
    let mut planned = Planned::outline(plan, Wanted::default()).0;
    let mut waiting = RefusedLine::best(plan, shown);
    let put = put_in_place(plan);
    planned.starts.iter_mut().for_each(|line| put(&mut line.node));
    waiting.iter_mut().for_each(|line| put(&mut line.node));
    (planned, waiting)
}

async fn databases(state: &AppState, mut given: Given) -> Result<Page, ApiError> {
    given.set_default("sort", "reclaimable_bytes");
    let query: DatabaseQuery = parsed(&given)?;
    let (jobs, now) = (newest_jobs(state).await, state.clock.now());
    in_turn(state, move |plan| {
        let wanted = query.wanted().map_err(ApiError::bad)?;
        Ok(console::databases(&given, &Databases::of(&plan, &wanted, &jobs, now), now))
    })
    .await
}

async fn targets(state: &AppState, mut given: Given) -> Result<Page, ApiError> {
    given.set_default("sort", "reclaimable_bytes");
    let query: TargetQuery = parsed(&given)?;
    in_turn(state, move |plan| {
        let (head, shown) = query.select(&plan).map_err(ApiError::bad)?;
        let lines =
            shown.iter().filter_map(|ix| Some(Target::of(&plan, plan.snapshot.target(*ix)?)));
        let mut lines: Vec<Target> = lines.collect();
        let put = put_in_place(&plan);
        lines.iter_mut().for_each(|line| put(&mut line.node));
        let found = Targets { targets: lines, ..head };
        let filter =
            TargetFilter { given, choices: choices(&plan), in_bytes: ranked_by_bytes(&plan) };
        Ok(console::targets(&filter, &found))
    })
    .await
}

/// What the filter offers to choose from.
fn choices(plan: &Plan) -> Vec<(&'static str, Vec<String>)> {
    let has_one_node = plan.snapshot.only_node().is_some();
    let words = |list: &mut dyn Iterator<Item = &str>| list.map(ToOwned::to_owned).collect();
    let mut choices = vec![
        ("kind", words(&mut TargetKind::labels().into_iter())),
        ("node", words(&mut plan.snapshot.nodes().iter().map(|node| &*node.name))),
        ("channel", words(&mut plan.channels.list.iter().map(|channel| &*channel.name))),
        ("state", words(&mut TargetState::labels().into_iter())),
        ("class", words(&mut RefusalClass::labels().into_iter())),
    ];
    choices.retain(|(key, _)| *key != "node" || !has_one_node);
    choices
}

fn ranked_by_bytes(plan: &Plan) -> BTreeSet<String> {
    let channels = plan.channels.list.iter();
    let of_bytes = channels.filter(|it| it.priority.unit() == Some(PriorityUnit::Bytes));
    of_bytes.map(|channel| channel.name.to_string()).collect()
}

/// Targets that a text means, with what is decided about each.
struct Meant {
    explained: Vec<Explained>,
    total: usize,
    selector: TargetSelector,
    /// The ids by which advice about the targets is found.
    subjects: BTreeSet<String>,
    /// What an order to compact it would do, where such an order is shown; `None` for a search index, which is
    /// never compacted.
    if_ordered: Option<AskedCompaction>,
}

async fn find(state: &AppState, text: &str, limit: usize) -> Result<Meant, ApiError> {
    let (text, status) = (text.to_owned(), Arc::clone(&state.status.borrow()));
    in_turn(state, move |plan| {
        let (text, found) = meant(&plan, &text, None);
        if found == Found::None {
            return Err(no_match(&plan, &status, text));
        }
        let all = found.all();
        let shown: Vec<_> = all.iter().copied().take(limit).collect();
        let views = WholeViews::of(&plan, &shown);
        let only = if let [only] = *shown { plan.snapshot.target(only) } else { None };
        let only = only.filter(|it| it.kind() != TargetKind::Search);
        let of = |ix: &_| Some(Explained::of(&plan, plan.snapshot.target(*ix)?, &views));
        let mut explained: Vec<Explained> = shown.iter().filter_map(of).collect();
        let put = put_in_place(&plan);
        explained.iter_mut().for_each(|it| put(&mut it.target.node));
        Ok(Meant {
            subjects: explained.iter().map(|it| it.target.id.clone()).collect(),
            selector: report::selector(&plan, text),
            total: all.len(),
            explained,
            if_ordered: only.map(|target| act::if_ordered(&plan, target)),
        })
    })
    .await
}

/// The last jobs and events of some targets; none where there is no journal.
async fn remembered(
    state: &AppState,
    selector: TargetSelector,
) -> Result<(Vec<OutcomeLine>, Vec<EventLine>), ApiError> {
    let Some(kept) = &state.journal else { return Ok((Vec::new(), Vec::new())) };
    let target = Some(selector);
    let query = HistoryQuery {
        target: target.clone(),
        limit: console::SHOWN_OF_ONE,
        ..HistoryQuery::default()
    };
    let outcomes = journal::in_turn(state, kept.history(query)).await?;
    let outcomes = outcomes.entries.iter().map(|(seq, outcome)| OutcomeLine::of(*seq, outcome));
    let mut outcomes: Vec<OutcomeLine> = outcomes.collect();
    let query = EventsQuery { target, limit: console::SHOWN_OF_ONE, ..EventsQuery::default() };
    let mut events = newest_events(state, query).await?.events;
    events.reverse();
    for_people(&state.plan.borrow(), &mut outcomes, &mut events);
    Ok((outcomes, events))
}

/// The events of a query; without a time or number, the newest. Where no type is asked for, that a database
/// was written to is left out: it happens all the time.
async fn newest_events(state: &AppState, mut query: EventsQuery) -> Result<Events, ApiError> {
    let kept = journal_of(state)?;
    if query.types.is_empty() {
        query.types = EventType::each().filter(|it| *it != EventType::Updated).collect();
    }
    let last_seq = kept.health().borrow().last_seq;
    let newest = journal::start_at_newest(state, &mut query).await?;
    let limit = query.limit;
    let found = journal::in_turn(state, kept.events(query)).await?;
    let events = EventLine::all(&found.entries, &state.plan.borrow().snapshot);
    Ok(Events { limit, events, more: found.has_more && !newest, last_seq })
}

async fn target(state: &AppState, id: &str) -> Result<Page, ApiError> {
    let mut found = find(state, id, 1).await?;
    let (outcomes, events) = remembered(state, found.selector).await?;
    let explained = found
        .explained
        .pop()
        .ok_or_else(|| ApiError::absent(format!("{id:?} no longer exists")))?;
    let if_ordered = found.if_ordered.filter(|_| explained.part_of.is_none());
    let enforces = state.config.borrow().mode == Mode::Enforce;
    let (takes_orders, now) = (state.allow.admin, state.clock.now());
    let answers =
        TargetAnswers { explained, if_ordered, enforces, takes_orders, outcomes, events, now };
    Ok(console::target(&answers))
}

async fn database(state: &AppState, db: &str) -> Result<Page, ApiError> {
    let found = find(state, db, COPIES).await?;
    let (outcomes, events) = remembered(state, found.selector).await?;
    let (jobs, now) = (newest_jobs(state).await, state.clock.now());
    let (name, record) = (db.to_owned(), deletion_record(state, db).await);
    let line = move |plan: Arc<Plan>| {
        let line = DatabaseLine::of(&plan, &name, &jobs, now);
        Ok(line.map(|line| line.with_deletions(record.as_ref(), &plan.snapshot, now)))
    };
    let line = in_turn(state, line).await?;
    let design = format!("{db}/");
    let about = |line: &AdviceLine| {
        let subject = &line.subject.name;
        line.muted.is_none()
            && (subject == db || subject.starts_with(&design) || found.subjects.contains(subject))
    };
    let advice = advice_of(state).advice.into_iter().filter(about).collect();
    let (name, xrays) = (db.to_owned(), state.xrays.clone());
    let of_plan = move |plan: Arc<Plan>| {
        Ok((RunList::of_database(&plan, &name), xrays.can_read(&plan.snapshot, &name)))
    };
    let (RunList { runs }, can_xray) = in_turn(state, of_plan).await?;
    Ok(console::database(&DatabaseAnswers {
        db: db.to_owned(),
        line,
        targets: found.explained,
        total: found.total,
        outcomes,
        events,
        advice,
        runs,
        xray: state.xrays.kept.borrow().of(db),
        can_xray,
        has_one_node: state.plan.borrow().snapshot.only_node().is_some(),
        takes_orders: state.allow.admin,
        now,
    }))
}

async fn queue(state: &AppState) -> Result<Page, ApiError> {
    let page = |plan: &Plan, state: &AppState| {
        let now = state.clock.now();
        let queues = plan.waiting().filter_map(|(queue, waiting)| {
            let node = plan.snapshot.node(queue.node)?;
            let channel = plan.channels.list.get(queue.channel_index)?;
            Some(Queue::of(&node.name, &channel.name, (queue, waiting)))
        });
        let queues = Queues { queues: queues.collect(), ..Queues::head(plan, 0, 0, now) };
        let (planned, waiting) = planned_for_people(plan, console::SHOWN_IN_QUEUE);
        let in_bytes = ranked_by_bytes(plan);
        console::queue(&QueueAnswers { planned, waiting, queues, in_bytes, now })
    };
    with_plan(state, page).await
}

/// The journal's selector for the targets that a filter names.
async fn selected(
    state: &AppState,
    text: Option<String>,
) -> Result<Option<TargetSelector>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    in_turn(state, move |plan| Ok(Some(report::selector(&plan, &text)))).await
}

async fn jobs(state: &AppState, given: Given) -> Result<Page, ApiError> {
    let now = state.clock.now();
    let parameters: HistoryParameters = parsed(&given)?;
    let target = selected(state, parameters.target.clone()).await?;
    let query = HistoryQuery { target, ..parameters.read(now).map_err(ApiError::bad)? };
    let limit = query.limit;
    let outcomes = match journal_of(state) {
        Err(none) => Err(none.why),
        Ok(kept) => {
            let found = journal::in_turn(state, kept.history(query)).await?;
            let last = found.entries.last().map(|(seq, _)| *seq);
            let lines = found.entries.iter().map(|(seq, outcome)| OutcomeLine::of(*seq, outcome));
            let mut outcomes: Vec<OutcomeLine> = lines.collect();
            for_people(&state.plan.borrow(), &mut outcomes, &mut []);
            Ok(Outcomes { limit, outcomes, next_before: last.filter(|_| found.has_more) })
        }
    };
    let jobs = Jobs::of(&state.plan.borrow().clone(), &state.builds.borrow());
    let RunList { runs } = in_turn(state, |plan| Ok(RunList::of(&plan))).await?;
    let takes_orders = state.allow.admin;
    Ok(console::jobs(&JobAnswers { jobs, runs, takes_orders, outcomes, given, now }))
}

async fn events(state: &AppState, given: Given) -> Result<Page, ApiError> {
    let now = state.clock.now();
    let parameters: EventsParameters = parsed(&given)?;
    let target = selected(state, parameters.target.clone()).await?;
    let (query, _) = parameters.read(now).map_err(ApiError::bad)?;
    let query = EventsQuery { target, ..query };
    let found = match journal_of(state) {
        Err(none) => Err(none.why),
        Ok(_) => {
            let mut found = newest_events(state, query).await?;
            for_people(&state.plan.borrow(), &mut [], &mut found.events);
            Ok(found)
        }
    };
    Ok(console::events(&given, &found, now))
}
