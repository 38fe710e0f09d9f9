//! recliner watches a whole CouchDB cluster from outside, scores every database shard and
//! view index for compaction, and reports to Prometheus what is queued, what could be freed,
//! and why.
//!
//! In enforce mode it also runs the compactions, and may keep indexes built. This page is for
//! developers; the book in `docs/` is for operators, and its page on the architecture repeats this one.
//!
//! # Words
//!
//! | word | means | where |
//! |---|---|---|
//! | target | a `db` shard copy, a `view` index, the `cleanup` of a database's index files, or a `search` index, which is built but never compacted | [`target`](model::target) |
//! | facts | the measurements of a target, with source and time; unknown is not zero | [`facts`](model::facts) |
//! | source | the origin of facts: CouchDB over HTTP, or the headers of its files | [`inventory`](sources::inventory), [`datadir`], [`couchdb_files`] |
//! | part | the file of a view index for one shard copy | [`datadir`] |
//! | snapshot | all targets with their facts at one moment, shared cheaply | [`snapshot`](table) |
//! | channel | a named rule: which targets it takes, and how it ranks them | [`channel`](model::channel) |
//! | miss | why one channel does not take a target | [`score`](model::score) |
//! | queue | a channel's queued targets on one node, bounded, best first | [`queue`](model::queue) |
//! | plan | each target's queue, the starts due now, and one refusal for every other queued target | [`plan`] |
//! | job | a running compaction or index build, including those that other clients started | [`job`](jobs) |
//! | outcome | how a job ended, with bytes before and after | [`records::Outcome`](model::records::Outcome) |
//! | journal | the durable, ordered record of what happened and how jobs ended | [`journal`](store::journal) |
//! | refusal | why a queued target does not start | [`plan::RefusalReason`] |
//! | answer | the response to an API route or an order; one type for server, commands and tests | [`report`](serve::report) |
//! | advice | what a rule found that an operator should do something about | [`advice`] |
//! | advised | of a compaction: recliner would have started it if it enforced; it is only counted | [`scorecard`](what_if::scorecard) |
//! | forecast | the free space of a volume ahead, with a range; kept each day and compared | [`forecast`](model::forecast) |
//! | lease | what a cluster may use for a time of the limits that clusters share; the keeper gives it to its members | [`shared_limits`] |
//! | predicted | the size after a compaction; [`estimate`](model::estimate) has the rule and its error, [`correction`](model::correction) what is learned | [`correction`](model::correction) |
//!
//! # Data flow
//!
//! ```text
//!  CouchDB (or sim)    its directories   settings <── config <── flags, recliner.yml
//!      │  couch: login gate, pace, │        │
//!      │  own addresses, typed     │ datadir│ (each task watches its part)
//!      v  answers                  v        v
//!  inventory ──observations──> scanner ──snapshot──> planner ──plan──┬──> http: metrics, API,
//!  (stages of a sweep,         (tables of    │       (score, queues, │        page, probes
//!   the poll of jobs)           all targets) │        plan: pure)    ├──> cli: scan, plan, explain
//!                                            v         ^   ^         └──> enforcer ──> CouchDB
//!  disk, pressure ────────────────────── job_state ────┘   │                 │
//!       └──────────────────────────────── (jobs, memory) ──┘ <── announced starts
//!                                            └──> journal
//! ```
//!
//! [`feed_client`](feeds::feed_client) listens to CouchDB's feeds: it reports to the scanner which databases were
//! named and since when no event was missed, and writes the events to the journal.
//!
//! [`feed_server`](feeds::feed_server) serves database events from the journal to clients of [`http`](serve::http).
//!
//! [`node_settings`](sources::node_settings) reads how each node is set, as far as what-if and advice need it.
//!
//! The [`enforcer`](act::enforcer) is the only task that starts a compaction, the [`warmer`](act::warmer) the only one that has
//! an index built, and [`takeover`](act::takeover) the only one that changes CouchDB's settings. A start is
//! stored in the [`journal`](store::journal) before its request is sent; the [`job_state`](act::job_state) tracks it until its
//! outcome. What compactions taught about predictions goes from there to the scanner, which applies it to the
//! snapshot.
//!
//! [`sharing`](act::sharing) asks the keeper for a lease; in advise mode it wants nothing. The planner bounds its
//! limits by it, and the job state checks each start against it again.
//!
//! The [`scorecard`](what_if::scorecard) follows the plans while recliner only advises, counts what would have been
//! done, and stores that in the journal.
//!
//! Each arrow between tasks is a `tokio::sync::watch`: the newest value, never a backlog. A
//! scrape or a request reads the last published value and never waits for CouchDB.
//! [`service`] starts the tasks, passes on reloads, and ends the process when one of them ends.
//! Commands that read the cluster once use [`service::ClusterMonitor`] alone.
//!
//! # Rooms
//!
//! A room is a top-level module. It may only use rooms listed below it, and crates of the
//! workspace; `tests/it/house.rs` checks this order. Code that is independent of recliner is in
//! crates under `crates/`: CouchDB's names, files, compaction settings and HTTP client, access
//! logs, a simulated cluster, the text format of metrics, and wall time.
//!
//! ```text
//!  cli
//!  service      starts, reloads and ends the tasks
//!  simulated    a simulated cluster's disks and directories
//!  serve        HTTP, metrics, the types of the JSON API, the console
//!  config       the configuration file                import   CouchDB's own settings
//!  book         the pages of docs/src as HTML
//!  feeds        CouchDB's feeds in, recliner's out
//!  act          enforcer, job_state, warmer, takeover: everything by which the service changes CouchDB
//!  ledger       every change of used bytes, by cause       reads    who reads the indexes, from access logs
//!  fleet        what other recliners answer about their clusters
//!  store        the journal and its writers
//!  advice       what to do about the cluster: the rules and their findings
//!  what_if      waste, writing and free space under any rules, days ahead; the scorecard of advice
//!  plan         queues, disks, pressure, and planned starts
//!  scan         sweeps, re-reads, polls
//!  jobs         running jobs and their outcomes
//!  sources      CouchDB over HTTP, other recliners
//!  table        the snapshot of all targets
//!  datadir      a node's own directories                shared_limits   what several clusters may do together
//!  model        targets, facts, channels, scores, estimates, settings
//!  config_format  how keys of a configuration file are described, read and written
//!  log
//!  text         sizes, durations and patterns as text   tasks    how tasks end
//! ```
//!
//! # Invariants
//!
//! 1. **Advise mode only reads and logs in.** Every request is built by [`couchdb_client::Route`];
//!    requests that change something are only sent by [`enforcer`](act::enforcer), [`warmer`](act::warmer) and [`takeover`](act::takeover), in
//!    enforce mode; and by `deploy-indexes`, which a person runs: it saves and deletes that person's design
//!    documents, and has nothing built unless the service enforces. One exception: `_info` makes CouchDB
//!    create the index of a view that was never built.
//! 2. **A name reaches CouchDB unchanged or not at all.** A name that a URL would normalise to
//!    another path is [`couchdb_client::Unaddressable`] and never sent.
//! 3. **No request is sent with a login that was refused.** One request checks the login, at start
//!    and after each change; a 401 or 403 holds back all other requests to that server until its reason is known.
//! 4. **Unknown is never zero.** It is [`facts::OptionalU64`](model::facts::OptionalU64) without a value, `null` in JSON, and
//!    no sample in metrics.
//! 5. **A failing source leaves the old facts with their age.** Only a complete answer, of the
//!    shard map or of a node's list of files, removes a target.
//! 6. **The score is exactly smoosh's** and a pure function of channel and facts
//!    ([`score::score`](model::score::score)). The plan is a pure function of snapshot, channels and now: no I/O,
//!    no clock, no logging.
//! 7. **Each target has one decision**: it would start, it has one refusal, or no channel takes it.
//!    Misses are computed on request.
//! 8. **Each state is owned by one task.** Others hold a handle. No lock is held across an `await`.
//! 9. **A configuration takes effect completely or not at all**, at start and at reload.
//! 10. **Credentials are never shown**: not in logs, errors, `/api/v1/config`, metrics or
//!     `Debug`. They are only sent to configured addresses, to recliners that a file, or a list over
//!     verified TLS, names, or to the host in a node's name if TLS verified it with the operator's own
//!     authorities, or the operator trusts it by name.
//! 11. **No external input causes a panic.** A panic in a task is a bug and ends the process, so that
//!     it never continues with inconsistent state.
//!
//! # Failures and their symptoms
//!
//! | failure | effect | where it is visible |
//! |---|---|---|
//! | a node is down (HTTP 412, no connection, no answer to two polls) | its targets keep their facts and ages; the rest of the cluster is read; requests to it pause, longer each time | `recliner_node_up` 0; `recliner_scan_errors_total` with `node_down`, `connect` or `timeout`; nothing starts there (`node_down`) |
//! | a node hangs, and with it requests that need every node | the other nodes are read in time, each with its own success; splits and views that wait for it do not delay the next sweep; each poll checks whether it is back | `recliner_node_up` 0; `recliner_scan_last_success_timestamp_seconds` of it and of `_cluster` does not advance |
//! | reading the shard map fails partway | the part that was read is used, no target is removed; the sweep continues | `recliner_scan_errors_total` of `_cluster`; `recliner_scan_last_success_timestamp_seconds` of `_cluster` does not advance |
//! | reading a node's list of files fails partway | the node's targets stay as they were | the same metrics of that node |
//! | the login is refused | nothing more is sent until the password changes or six minutes have passed | reason `login`; `problem` in `/api/v1/status`; `/-/ready` 503 before the first sweep; `scan` exits 1 |
//! | the login may not read a route | data that needs it is not read and the rest continues; without the shard map, databases are asked one by one | reason `forbidden`; `missing_rights` in `/api/v1/status` and on the page; `scan` exits 2 |
//! | an answer is malformed, too large, a redirect, or a proxy's own | that read fails, its old facts stay | reasons `malformed`, `too_large`, `redirect`, `proxy`; `recliner_couchdb_requests_total` by `code` |
//! | a target is deleted between list and read | none; the next sweep removes it | nowhere |
//! | a node has no direct address | its smoosh is not read; all other requests go through another node | `recliner_smoosh_up` absent; `own_address` false and `findings` in `/api/v1/status` |
//! | a feed breaks, goes back in time, stalls or disappears | it is reopened at growing intervals; until it works again, each sweep reads everything, as without feeds | `recliner_feed_connected` 0; `feeds` in `/api/v1/status` |
//! | a sweep takes longer than its interval | the next one starts when it ends, or on time if only a node or the cluster delays it | `recliner_scan_duration_seconds` |
//! | the configuration is invalid at start | every problem is reported with its position; no request is sent | exit 64 |
//! | the configuration is invalid at reload | the old one stays in force | `recliner_config_last_reload_successful` 0; the log; the answer of `/-/reload` |
//! | the web configuration file is invalid, or weakens access control | the old one stays in force | the log; `web_problem` in `/api/v1/status` |
//! | stored measurements cannot be read at start | they are unknown until measured again; the rest of the stored state is used | the log |
//! | a key changes that requires a restart | the old value stays in force | `needs_restart` in `/api/v1/status`; the log |
//! | the keeper of shared limits does not answer | when the lease ends, the cluster uses only its own share | `shared_limits` in `/api/v1/status`; `recliner_shared_lease_end_timestamp_seconds` absent; the log |
//! | a task ends or panics | the process ends, with status 1, or 101 after a panic; a supervisor restarts it | the scrape fails: `up` 0 |

pub mod act;
pub mod advice;
pub mod book;
pub mod cli;
pub mod config;
mod config_format;
pub mod datadir;
pub mod feeds;
pub mod fleet;
mod import;
mod jobs;
pub mod ledger;
mod log;
pub mod model;
pub mod plan;
pub mod reads;
pub mod scan;
pub mod serve;
pub mod service;
pub mod shared_limits;
#[cfg(feature = "simulator")]
pub mod simulated;
pub mod sources;
pub mod store;
pub mod table;
mod tasks;
pub mod text;
pub mod what_if;

// The harness runs tests in alphabetical order: this module's test runs first and limits the run's
// time.
#[cfg(test)]
#[path = "../tests/watchdog/mod.rs"]
pub(crate) mod a_limit;

// Helpers shared by unit tests and the integration tests in `tests/`.
#[cfg(test)]
#[path = "../tests/cases/mod.rs"]
pub(crate) mod cases;
#[cfg(test)]
#[path = "../tests/skipped/mod.rs"]
pub(crate) mod skipped;
#[cfg(test)]
#[path = "../tests/unprivileged/mod.rs"]
pub(crate) mod unprivileged;
