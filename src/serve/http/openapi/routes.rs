//! The parameters and responses of each route.
//!
//! A new route needs an entry here: a test compares this list with the router.

use super::{HTML, JSON, Schemas, TEXT};
use crate::{
    serve::{
        http::{
            advice::UsageQuery,
            docs,
            facts::FactsQuery,
            query::{
                EventsParameters, ExplainQuery, HistoryParameters, HoursParameters, NoQuery,
                QueueQuery, TargetQuery,
            },
            scorecard::ScorecardQuery,
        },
        report::{
            Advice, Configuration, DbUpdates, Events, Explanations, Hours, Jobs, Outcomes, Planned,
            Preflight, PreflightQuestion, Queues, Scorecard, Space, Status, Success, TargetGroup,
            Targets, Usage, WhatIf, WhatIfQuestion, orders,
        },
    },
    sources::inventory::FactsPage,
};
use schemars::JsonSchema;
use serde_json::{Value, json};

/// The format of a route's errors.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// The API's envelope.
    Api,
    /// CouchDB's error format.
    CouchDb,
    /// A line of text.
    Text,
    /// A page.
    Html,
}

/// The parameters and responses of a route and method.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) path: &'static str,
    pub(super) method: &'static str,
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    /// What it does and returns beyond its summary, for readers of the document and of the book.
    pub(super) detail: Option<&'static str>,
    pub(super) parameters: fn(&mut Schemas) -> Vec<Value>,
    pub(super) body: Option<Body>,
    /// The description of a response with status 200.
    pub(super) answer: &'static str,
    /// Its content types, each with its schema.
    pub(super) answers: fn(&mut Schemas) -> Vec<(&'static str, Value)>,
    pub(super) kind: Kind,
    /// All other statuses, each with its meaning.
    pub(super) errors: &'static [(u16, &'static str)],
    /// Whether it needs no login, even if the service has users.
    pub(super) is_open: bool,
}

impl Operation {
    fn with_detail(self, detail: &'static str) -> Self {
        Self { detail: Some(detail), ..self }
    }
}

/// The body of an order.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) schema: fn(&mut Schemas) -> Value,
    pub(super) example: Value,
}

const BAD: (u16, &str) = (400, "A parameter is unknown, or has a value that it cannot have.");
const ABSENT: (u16, &str) = (404, "Nothing has this name or id.");
const NO_JOURNAL: (u16, &str) =
    (404, "Nothing has this name or id, or this recliner keeps no journal.");
const BUSY: (u16, &str) = (
    503,
    "recliner is stopping, cannot read its data, or has too many unread responses. Try again.",
);
const NOT_TRIED: (u16, &str) = (
    503,
    "The order was not carried out, or not in time. With `Retry-After`, nothing of it has happened: send it again.",
);
const FORBIDDEN: (u16, &str) =
    (403, "Such orders are off, or the request may come from a page of another site.");
const WRONG_TYPE: (u16, &str) = (415, "The body is not of type application/json.");

/// The errors of every route that reads.
const READ: &[(u16, &str)] = &[BAD, BUSY];

/// The errors of every order.
const ORDER: &[(u16, &str)] = &[
    (400, "The body is not what it should be."),
    FORBIDDEN,
    (404, "What the order names does not exist."),
    (408, "The body did not arrive within 10 seconds."),
    (409, "The order names several targets, or one that may not start; `data` says more."),
    WRONG_TYPE,
    (500, "The order was tried and failed."),
    NOT_TRIED,
];

/// The errors of preflight.
const PREFLIGHT: &[(u16, &str)] = &[
    (400, "The body is not what it should be, or holds no design document that CouchDB takes."),
    FOREIGN,
    (404, "No database has this name."),
    (408, "The body did not arrive within 10 seconds."),
    WRONG_TYPE,
    (503, "recliner is stopping, or the first sweep has not ended. Try again."),
];

/// The errors of what-if.
const WHAT_IF: &[(u16, &str)] = &[
    (400, "The body is not what it should be, or proposes what is not valid."),
    FOREIGN,
    (408, "The body did not arrive within 10 seconds."),
    (409, "No file was watched for ten minutes yet, so no growth is known."),
    WRONG_TYPE,
    (503, "recliner is stopping, or the answer would take too long."),
];

const FOREIGN: (u16, &str) = (403, "The request may come from a page of another site.");

const UNCHANGED: (u16, &str) = (304, "It did not change since the answer with this ETag.");
const NO_PAGE: (u16, &str) = (404, "The book has nothing of this name.");

/// A part of the path that is one of these words.
fn in_path(name: &str, description: &str, words: Vec<impl Into<Value>>) -> Value {
    let words: Vec<Value> = words.into_iter().map(Into::into).collect();
    json!({
        "name": name, "in": "path", "required": true, "description": description,
        "schema": { "type": "string", "enum": words },
    })
}

/// The errors of a backup.
const BACKUP: &[(u16, &str)] = &[
    BAD,
    FORBIDDEN,
    (404, "This recliner keeps no journal."),
    (409, "Another backup is in progress."),
    (500, "The copy cannot be written; the disk may be full."),
    BUSY,
];

fn text(_: &mut Schemas) -> Vec<(&'static str, Value)> {
    vec![(TEXT, json!({ "type": "string" }))]
}

fn answered<T: JsonSchema>(schemas: &mut Schemas) -> Vec<(&'static str, Value)> {
    vec![(JSON, schemas.written::<T>())]
}

/// A route of the API that reads.
fn read<Q: JsonSchema, A: JsonSchema>(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    errors: &'static [(u16, &'static str)],
) -> Operation {
    Operation {
        path,
        method: "get",
        id,
        tag: "read",
        summary,
        detail: None,
        parameters: Schemas::parameters::<Q>,
        body: None,
        answer: "What was asked for.",
        answers: answered::<Success<A>>,
        kind: Kind::Api,
        errors,
        is_open: false,
    }
}

/// An order.
fn order<B: JsonSchema, A: JsonSchema>(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    example: Value,
) -> Operation {
    Operation {
        path,
        method: "post",
        id,
        tag: "order",
        summary,
        detail: None,
        parameters: |_| Vec::new(),
        body: Some(Body { schema: Schemas::read::<B>, example }),
        answer: "The order was carried out, or is under way.",
        answers: answered::<Success<A>>,
        kind: Kind::Api,
        errors: ORDER,
        is_open: false,
    }
}

/// A route whose response is a line of text.
fn plain(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    errors: &'static [(u16, &'static str)],
) -> Operation {
    Operation {
        path,
        method: "get",
        id,
        tag: "probe",
        summary,
        detail: None,
        parameters: |_| Vec::new(),
        body: None,
        answer: "Yes.",
        answers: text,
        kind: Kind::Text,
        errors,
        is_open: false,
    }
}

/// Every route with every method, except HEAD, which every GET route supports.
pub(super) fn all() -> Vec<Operation> {
    let all = [
        watching_the_cluster(),
        judging_the_cluster(),
        looking_back(),
        ordering(),
        pages(),
        probes(),
    ];
    all.into_iter().flatten().collect()
}

/// A question: a read, although it is a POST, because its answer takes work.
fn question<B: JsonSchema, A: JsonSchema>(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    errors: &'static [(u16, &'static str)],
    example: Value,
) -> Operation {
    Operation {
        method: "post",
        parameters: |_| Vec::new(),
        body: Some(Body { schema: Schemas::read::<B>, example }),
        ..read::<NoQuery, A>(path, id, summary, errors)
    }
}

fn before_a_deployment() -> Operation {
    question::<PreflightQuestion, Preflight>(
        "/api/v1/preflight",
        "preflight",
        "What a design document will cost before it is deployed.",
        PREFLIGHT,
        json!({
            "db": "orders",
            "design": {
                "_id": "_design/by_day",
                "views": { "by_day": { "map": "function (doc) { emit(doc.day, 1); }", "reduce": "_sum" } },
            },
        }),
    )
    .with_detail(
        "For anyone who may read: recliner reads the present document of this id, and nothing else is asked of CouchDB. The answer says which views change and what is built (`build`), bytes of the new index and seconds of its build as ranges, what each node needs beside all that is there (`peak_bytes`) and whether it fits (`verdict`), what that rests on, and what to do afterwards.",
    )
}

/// What recliner sees and decides now.
fn watching_the_cluster() -> Vec<Operation> {
    vec![
        read::<NoQuery, Status>(
            "/api/v1/status",
            "status",
            "What recliner is, sees, and cannot see.",
            READ,
        )
        .with_detail(
            "Version, mode, whether the cluster is `simulated` and what that means (`simulation`), the state of each URL of `couchdb.urls` (`couchdb`), nodes, the current and the last sweep, the state of the feeds, sidecars (`peers`), what could not be read, missing rights, why the journal cannot be used (`journal_problem`), and `suspensions`: `scope`, `since`, `by` whom, `why`, and all of it in a sentence (`says`).",
        ),
        read::<NoQuery, Space>(
            "/api/v1/space",
            "space",
            "Bytes of the whole cluster, and what each volume holds and has left.",
            READ,
        )
        .with_detail(
            "All copies count. What compactions would free is predicted; of a volume, live, reclaimable and unused bytes are null where a node has several volumes. `full_at` is when a volume is full as its files grow now if compaction keeps up, `full_uncompacted_at` if nothing is compacted. `nodes_without_space` are the nodes whose free space is unknown. `usage` says whose bytes they are.",
        ),
        read::<TargetQuery, Targets>(
            "/api/v1/targets",
            "targets",
            "Targets, filtered, sorted and paged.",
            READ,
        ),
        read::<QueueQuery, Queues>(
            "/api/v1/queue",
            "queue",
            "Queues and what waits in them, the best first.",
            READ,
        )
        .with_detail(
            "Each queue with its size, capacity, reclaimable bytes and its targets. `limits` has each limit with what compactions use of it, whatever started them, each channel's `concurrency` included; `duty`, the nodes that work or rest by `limits.duty`; `windows`, for each channel, in which hours of the present week (UTC, from Monday on) it may start anything.",
        ),
        read::<QueueQuery, Planned>(
            "/api/v1/plan",
            "plan",
            "What would start now, with the exact requests, and why the rest would not.",
            READ,
        )
        .with_detail(
            "For each queue, how many targets are refused for which reason; closed gates; `suspensions` as in `status`; `orders` that wait; `builds` of indexes; and, page by page, the refused targets with their reasons in a sentence.",
        ),
        read::<FactsQuery, FactsPage>(
            "/api/v1/facts",
            "facts",
            "What was read of the headers of files, for other recliners.",
            READ,
        )
        .with_detail(
            "Shard by shard and part by part, 2,000 per page; `next` is the `after` of the next page.",
        ),
    ]
}

/// What recliner concludes from it.
fn judging_the_cluster() -> Vec<Operation> {
    vec![
        question::<WhatIfQuestion, WhatIf>(
            "/api/v1/what-if",
            "whatIf",
            "What would happen under several rules, days ahead.",
            WHAT_IF,
            json!({ "days": 7, "channels": "rent" }),
        )
        .with_detail(
            "For each of `nothing` (compacted), `smoosh` (as it is set on the cluster, or with CouchDB's defaults: the field `smoosh` says which), `in force`, and `proposed`: mean and peak waste, bytes written anew and compactions in a day, the longest wait, what stays undone and for which reasons, and over time the waste, the files and each volume's free space, with the date on which it is full. Sizes go on growing as they did; 409 while no file was watched for ten minutes. A million targets take many seconds, and requests wait for one another; work ends after five minutes, or when its client leaves. With `channels` `smoosh-as-rent`, `as_rent` has channels by rent whose horizons keep the mean waste of smoosh, as `import smoosh --as rent` prints them.",
        ),
        read::<ScorecardQuery, Scorecard>(
            "/api/v1/scorecard",
            "scorecard",
            "What recliner would have done while it only advised, beside what happened.",
            READ,
        )
        .with_detail(
            "Two sides, `real` and `advised`: mean and peak waste, bytes freed and written anew, compactions, and the most extra space at a time; `conflicts` with other programs' compactions; the seconds that this covers, and those that are missing; and `says`, whether to switch to enforce. Null where nothing is known.",
        ),
        read::<NoQuery, Advice>(
            "/api/v1/advice",
            "advice",
            "What to do about the cluster, the worst and most valuable first.",
            READ,
        )
        .with_detail(
            "Each piece with what it rests on (`evidence`), what it is worth (`gain`), what to type (`remedy`), where to read on (`learn`), and since when. Of each code the most valuable twenty; `more` counts the rest. Muted pieces stay in the list and are marked. The rules are asked once a minute.",
        ),
        before_a_deployment(),
        read::<UsageQuery, Usage>(
            "/api/v1/usage",
            "usage",
            "Bytes on disk by database or by design document, the largest first.",
            READ,
        )
        .with_detail(
            "All copies of shards and all files of indexes count. By `design`, documents that share an index are one line.",
        ),
        read::<NoQuery, Jobs>(
            "/api/v1/jobs",
            "jobs",
            "Running compactions and index builds, whatever started them.",
            READ,
        )
        .with_detail(
            "Phase, progress, since when, when CouchDB last reported progress, bytes they may still need; and when each node was last asked.",
        ),
        read::<ExplainQuery, Explanations>(
            "/api/v1/explain",
            "explain",
            "Why targets are or are not candidates.",
            &[BAD, ABSENT, BUSY],
        )
        .with_detail(
            "The targets of a name, each with `why`, a sentence; `fresh`, the rule by which its facts are fresh (`measured` or `followed`); `scores`, where it stands in each channel for its kind; `start`, what would be sent (`request`, and `url` if an address is known); `ordered`, the order that waits for it; and `part_of`, for a view's part, the view that is queued instead.",
        ),
    ]
}

/// What the journal has, and what does not change by itself.
fn looking_back() -> Vec<Operation> {
    vec![
        read::<HistoryParameters, Outcomes>(
            "/api/v1/history",
            "history",
            "How jobs ended, the newest first.",
            &[BAD, NO_JOURNAL, BUSY],
        )
        .with_detail(
            "Bytes before, after, predicted and freed, who started it and who had ordered it, `result` and why. For jobs that others started, `started_at` is the time their node reports; their size before is null if nothing was read near the start. `next_before` is the `before` of the next page.",
        ),
        read::<HoursParameters, Hours>(
            "/api/v1/history/hours",
            "historyByHour",
            "What compactions freed and wrote, hour by hour, the oldest first.",
            &[BAD, (404, "This recliner keeps no journal."), BUSY],
        )
        .with_detail(
            "Whoever started them; hours are those of UTC. At most the newest 10,000 jobs are counted; `complete` says whether these are all.",
        ),
        read::<EventsParameters, Events>(
            "/api/v1/events",
            "events",
            "What happened, the oldest first.",
            &[BAD, NO_JOURNAL, BUSY],
        )
        .with_detail(
            "Continue after `last_seq` or, if there is `more`, after the last event; a `last_seq` below your own `since` belongs to another journal.",
        ),
        read::<NoQuery, Configuration>(
            "/api/v1/config",
            "config",
            "The configuration in force; it holds no password.",
            READ,
        ),
        read::<NoQuery, orders::Permissions>(
            "/api/v1/permissions",
            "permissions",
            "Which orders the sender of this request may give.",
            READ,
        )
        .with_detail("Each order with why it would be refused, and what to set (`refused`); null where it is allowed."),
        Operation {
            answer: "The file.",
            answers: |_| vec![("application/octet-stream", json!({}))],
            detail: Some("What `recliner backup` receives. 403 without `--web.enable-admin-api`, except over the Unix socket; 409 while another one is in progress. HEAD makes no copy, so it knows no length."),
            ..read::<NoQuery, Status>(
                "/api/v1/backup",
                "backup",
                "A consistent copy of the journal, as a file.",
                BACKUP,
            )
        },
        Operation {
            answers: |_| vec![(JSON, json!({ "type": "object" }))],
            ..read::<NoQuery, Status>("/api/v1/openapi.json", "openapi", "This document.", READ)
        },
    ]
}

fn ordering() -> Vec<Operation> {
    vec![
        order::<orders::SuspendOrder, orders::Suspended>(
            "/api/v1/suspend",
            "suspend",
            "Start nothing in a scope until it is resumed.",
            json!({ "scope": "node:couchdb@couch-a", "why": "its disk is being replaced" }),
        )
        .with_detail(
            "Returns `since`, `by`, `why`, `already`, and how many compactions are still `running` there.",
        ),
        order::<orders::ResumeOrder, orders::Resumed>(
            "/api/v1/resume",
            "resume",
            "Take suspensions back.",
            json!({ "scope": "all" }),
        )
        .with_detail(
            "Returns what was `lifted` and what is `remaining`.",
        ),
        order::<orders::CompactOrder, orders::Compacting>(
            "/api/v1/compact",
            "compact",
            "Compact one target now, before all others.",
            json!({ "target": "orders/_design/reports", "force": false }),
        )
        .with_detail(
            "Returns the `requests` that will be sent; if it does not start at once, what it `waits` for (`refusal`, `why`), and `until` when at most.",
        ),
        order::<orders::ReleaseOrder, orders::Released>(
            "/api/v1/release",
            "release",
            "Take targets out of quarantine.",
            json!({ "all": true }),
        )
        .with_detail(
            "Returns those `targets`.",
        ),
        order::<orders::MuteOrder, orders::Muted>(
            "/api/v1/advice/mute",
            "muteAdvice",
            "Count advice no more, for a time.",
            json!({ "code": "orphan_shards", "for": "30d", "why": "archived in December" }),
        )
        .with_detail("Returns the mute. Without `subject`, everything of the code is muted."),
        order::<orders::UnmuteOrder, orders::Muted>(
            "/api/v1/advice/unmute",
            "unmuteAdvice",
            "Count muted advice again.",
            json!({ "code": "orphan_shards" }),
        )
        .with_detail("Returns `muted`, which is null."),
        order::<orders::RescanOrder, orders::Rescanning>(
            "/api/v1/rescan",
            "rescan",
            "Begin a sweep now.",
            json!({}),
        )
        .with_detail(
            "Returns whether it `begins` at once, or after the running one.",
        ),
        order::<orders::FlushOrder, orders::Flushed>(
            "/api/v1/flush",
            "flush",
            "Empty queues.",
            json!({ "channel": "ratio_dbs" }),
        )
        .with_detail(
            "Returns how many `targets` were removed.",
        ),
    ]
}

/// The parameters of `/_db_updates`, which are CouchDB's, with CouchDB's rules for numbers.
fn of_updates(_: &mut Schemas) -> Vec<Value> {
    const WHOLE: &str = r"^(\+?[0-9]+|-0+)$";
    let parameter = |name: &str, description: &str, schema: Value| {
        json!({
            "name": name, "in": "query", "required": false,
            "description": description, "schema": schema,
        })
    };
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    vec![
        parameter(
            "feed",
            "How events are sent.",
            json!({ "type": "string", "enum": ["normal", "longpoll", "continuous", "eventsource"] }),
        ),
        parameter(
            "since",
            "The `last_seq` of an earlier answer, `0` for everything, or `now`.",
            json!({ "type": "string" }),
        ),
        parameter("limit", "How many events to send at most.", text(WHOLE)),
        parameter("descending", "Whether to send the newest first.", json!({ "type": "string" })),
        parameter(
            "heartbeat",
            "Milliseconds from one sign of life to the next, or `true` for a minute.",
            text(r"^(true|false|\+?[0-9]+|-0+)$"),
        ),
        parameter(
            "timeout",
            "Milliseconds without an event after which the answer ends, a minute at most.",
            text(WHOLE),
        ),
    ]
}

/// Pages, metrics, and what other programs read in their own form.
fn pages() -> Vec<Operation> {
    vec![
        Operation {
            answer: "The page.",
            answers: |_| vec![(HTML, json!({ "type": "string" }))],
            detail: Some(
                "Its other pages, such as `/targets` and `/queue`, are for people and may change; programs use the routes of the API, which have all that these pages show.",
            ),
            ..plain("/", "page", "The console's first page.", &[BUSY])
        },
        Operation {
            answer: "The page.",
            answers: |_| vec![(HTML, json!({ "type": "string" }))],
            ..plain("/docs/", "book", "The first page of the book.", &[UNCHANGED])
        },
        Operation {
            answer: "The page.",
            parameters: |_| vec![in_path("page", "The name of the page.", docs::page_names())],
            answers: |_| vec![(HTML, json!({ "type": "string" }))],
            kind: Kind::Html,
            ..plain("/docs/{page}", "bookPage", "A page of the book.", &[UNCHANGED, NO_PAGE])
        },
        Operation {
            answer: "The image.",
            parameters: |_| vec![in_path("image", "The name of the image.", docs::image_names())],
            answers: |_| {
                let types = ["image/png", "image/svg+xml"];
                types.map(|kind| (kind, json!({ "type": "string" }))).into()
            },
            ..plain(
                "/docs/images/{image}",
                "bookImage",
                "An image of the book.",
                &[UNCHANGED, NO_PAGE],
            )
        },
        Operation {
            answer: "The metrics.",
            answers: |_| {
                let text = json!({ "type": "string" });
                vec![(TEXT, text.clone()), ("application/openmetrics-text", text)]
            },
            detail: Some(
                "Prometheus text 0.0.4 or OpenMetrics 1.0, as the client accepts; gzip if the client accepts it.",
            ),
            ..plain("/metrics", "metrics", "Metrics for Prometheus.", &[(503, "Too many scrapes.")])
        },
        Operation {
            answer: "Every node whose own address is known.",
            answers: answered::<Vec<TargetGroup>>,
            detail: Some(
                "Each node's own address, with its name; 503 before the first sweep has ended.",
            ),
            ..plain(
                "/sd",
                "serviceDiscovery",
                "CouchDB's nodes for Prometheus's service discovery.",
                &[(503, "The first sweep has not ended.")],
            )
        },
        Operation {
            answer: "What happened to databases.",
            parameters: of_updates,
            answers: |schemas| {
                let events = json!({ "type": "string" });
                vec![(JSON, schemas.written::<DbUpdates>()), ("text/event-stream", events)]
            },
            kind: Kind::CouchDb,
            detail: Some("GET only; unknown parameters are ignored."),
            ..plain(
                "/_db_updates",
                "dbUpdates",
                "What happened to databases, in CouchDB's form. With `feed=continuous`, a row a line.",
                &[
                    (304, "Nothing changed since the answer with this ETag."),
                    BAD,
                    (404, "This recliner keeps no journal."),
                    BUSY,
                ],
            )
        },
    ]
}

/// Whether the process works, and its end.
fn probes() -> Vec<Operation> {
    const LIFECYCLE: &[(u16, &str)] = &[FORBIDDEN, WRONG_TYPE, NOT_TRIED];
    const RELOAD: &[(u16, &str)] = &[
        FORBIDDEN,
        WRONG_TYPE,
        (500, "The new configuration is wrong; the old one stays in force."),
        NOT_TRIED,
    ];
    vec![
        Operation {
            is_open: true,
            detail: Some("200 while the process responds."),
            ..plain("/-/healthy", "healthy", "Whether the process answers.", &[])
        },
        Operation {
            is_open: true,
            detail: Some(
                "200 after the first sweep over the nodes that answer, otherwise 503 with the reason; also 503 while the journal belongs to another cluster.",
            ),
            ..plain(
                "/-/ready",
                "ready",
                "Whether the first sweep has ended.",
                &[(503, "Not yet, and why.")],
            )
        },
        Operation {
            method: "post",
            tag: "order",
            detail: Some("403 without `--web.enable-lifecycle`."),
            ..plain("/-/reload", "reload", "Read the configuration again.", RELOAD)
        },
        Operation {
            method: "post",
            tag: "order",
            detail: Some("403 without `--web.enable-lifecycle`."),
            ..plain("/-/quit", "quit", "Stop.", LIFECYCLE)
        },
    ]
}
