//! recliner sees a whole CouchDB cluster from outside, scores every database shard and
//! view index for compaction, and tells Prometheus what waits, what could be freed, and why.
//!
//! In enforce mode it runs the compactions too, and may keep indexes built. This page is for
//! whoever changes the program; the README is for whoever runs it.
//!
//! # Words
//!
//! | word | means | where |
//! |---|---|---|
//! | target | a `db` shard copy, a `view` index, the `cleanup` of a database's index files, or a `search` index, which is only built | [`target`](model::target) |
//! | facts | what was measured of a target, by whom and when; unknown is not zero | [`facts`](model::facts) |
//! | source | where facts come from: CouchDB over HTTP, or the headers of its files | [`inventory`](sources::inventory), [`datadir`], [`couchdb_files`] |
//! | part | the file of a view index beside one shard copy | [`datadir`] |
//! | snapshot | all targets with their facts at one moment, shared cheaply | [`snapshot`](table) |
//! | channel | a named rule: which targets it takes, by what priority | [`channel`](model::channel) |
//! | miss | why one channel does not take a target | [`score`](model::score) |
//! | queue | a channel's waiting targets on one node, bounded, best first | [`queue`](model::queue) |
//! | plan | where each target stands, what would start now, and one refusal for all else | [`plan`] |
//! | job | a compaction or index build that runs, whoever started it | [`job`](jobs) |
//! | outcome | how a job ended, with bytes before and after | [`memory::Outcome`](model::memory::Outcome) |
//! | journal | the durable, ordered record of what happened and how jobs ended | [`journal`](store::journal) |
//! | refusal | why a queued target does not start | [`plan::RefusalReason`] |
//! | predicted | the size after a compaction; [`estimate`](model::estimate) states the rule and its error | [`estimate`](model::estimate) |
//!
//! # The way data flows
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
//!  disk, pressure ─────────────────────── follower ────┘   │                 │
//!       └──────────────────────────────── (jobs, memory) ──┘ <──"a start is coming"
//!                                            └──> journal
//! ```
//!
//! [`changes`](feeds::changes) listens to CouchDB's feeds beside all this: it tells the scanner which databases
//! were named and since when nothing was missed, and the journal what happened.
//!
//! [`feed`](feeds::feed) tells those who ask [`http`](serve::http) what happened to databases, out of the journal.
//!
//! The [`enforcer`](act::enforcer) is the only one that starts a compaction, the [`warmer`](act::warmer) the only one that has
//! an index built, and [`takeover`](act::takeover) the only one that changes a setting of CouchDB's. A start is
//! kept in the [`journal`](store::journal) before its request goes out; the [`follower`](act::follower) sees it through to its
//! outcome.
//!
//! Each arrow between tasks is a `tokio::sync::watch`: the newest value, never a backlog. A
//! scrape or a request reads what was published last and never waits for CouchDB.
//! [`service`] starts the tasks, hands reloads on, and ends the process when one of them
//! ends. Commands that look once use [`service::Watch`] alone.
//!
//! # Rooms
//!
//! A room names only rooms below its own, and crates of the workspace; `tests/it/house.rs` keeps
//! the list. What does not know recliner is a crate under `crates/`: CouchDB's names, files and
//! HTTP client, a simulated cluster, the text of metrics, and wall time.
//!
//! ```text
//!  cli
//!  service      the tasks, started, reloaded and ended
//!  simulated    a simulated cluster's disks and directories
//!  serve        HTTP, metrics, the JSON shape of targets and plans
//!  config       settings as they are written        import   CouchDB's own, read
//!  feeds        CouchDB's feeds in, recliner's out
//!  act          enforcer, follower, warmer, takeover: all that changes something
//!  store        the journal, and who writes to it
//!  plan         queues, disks, pressure, and what would start
//!  scan         sweeps, re-reads, polls
//!  jobs         what runs, and what came of it
//!  sources      CouchDB over HTTP, other recliners
//!  table        the snapshot of all targets
//!  datadir      a node's own directories
//!  model        targets, facts, channels, scores, estimates, settings
//!  log
//!  text         sizes, spans and patterns as text   tasks    what a task came to
//! ```
//!
//! # Invariants
//!
//! 1. **Advise reads and logs in, no more.** Every request is built by [`couchdb_client::Route`]; those
//!    that change something are sent by [`enforcer`](act::enforcer), [`warmer`](act::warmer) and [`takeover`](act::takeover) alone, in
//!    enforce mode, save that `_info` makes CouchDB create the index of a view that was never
//!    built.
//! 2. **A name reaches CouchDB whole or not at all.** What a URL would fold into another path
//!    is [`couchdb_client::Unaddressable`] and never sent.
//! 3. **No request goes out with a login that was refused.** One request proves it, at start
//!    and after each change; a 401 or 403 closes the gate for all the others.
//! 4. **Unknown is never zero.** It is [`facts::Known`](model::facts::Known) without a value, `null` in JSON, and
//!    no sample in metrics.
//! 5. **A source that fails leaves the old facts with their age.** Only a whole answer, of the
//!    map or of a node's list of files, takes a target out.
//! 6. **The score is smoosh's, to the line**, and a pure function of channel and facts
//!    ([`score::score`](model::score::score)). So is the plan, of snapshot, channels and now: no I/O, no clock, no
//!    logging.
//! 7. **Each target has one decision**: it would start, one refusal, or no channel takes it.
//!    Misses are worked out when asked for.
//! 8. **Each state has one task that owns it.** Others hold a handle. Nothing holds a lock
//!    over an `await`.
//! 9. **A configuration takes effect as a whole or not at all**, at start and at reload.
//! 10. **Credentials are never shown**: not in logs, errors, `/api/v1/config`, metrics or
//!     `Debug`. They go only to addresses that were given, or to the host in a node's name where
//!     TLS proved it under the operator's own authorities, or the operator trusts it by name.
//! 11. **Nothing panics on what comes from outside**, and a panic in a task is a bug that ends
//!     the process rather than going on with half a state.
//!
//! # What fails, and how it shows
//!
//! | what fails | what happens | where it shows |
//! |---|---|---|
//! | a node is down (HTTP 412, no connection, no answer) | its targets keep their facts and ages; the rest of the cluster is read; requests to it rest, longer each time | `recliner_node_up` 0; `recliner_scan_errors_total` with `node_down`, `connect` or `timeout`; facts older than `fresh_for` are refused as `stale` |
//! | a node hangs, and with it what needs every node | the other nodes are read in time, each with its own success; splits and views that wait for it do not hold up the next sweep; it is asked each poll whether it is back | `recliner_node_up` 0; `recliner_scan_last_success_timestamp_seconds` of it and of `_cluster` stays |
//! | the shard map breaks off | what was read is taken in, nothing is taken out; the sweep goes on | `recliner_scan_errors_total` of `_cluster`; `recliner_scan_last_success_timestamp_seconds` of `_cluster` stays |
//! | a node's list of files breaks off | the node's targets stay as they were | the same, of that node |
//! | the login is refused | nothing more is sent until the password changes or six minutes have passed | reason `login`; `problem` in `/api/v1/status`; `/-/ready` 503 before the first sweep; `scan` exits 1 |
//! | the login may not read a route | what needs it is unread and the rest goes on; without the shard map, databases are asked one by one | reason `forbidden`; `missing_rights` in `/api/v1/status` and on the page; `scan` exits 2 |
//! | an answer is garbage, too large, or a redirect | that read is unread, its old facts stay | reasons `garbage`, `too_large`, `redirect`; `recliner_couchdb_requests_total` by `code` |
//! | a target is deleted between list and read | nothing; the next sweep takes it out | nowhere |
//! | a node's own address is not known | its smoosh is not asked; all else goes through another node | `recliner_smoosh_up` absent; `own_address` false and `findings` in `/api/v1/status` |
//! | a feed breaks, goes back in time, stalls or vanishes | it is opened again ever more seldom; until it is followed anew each sweep reads everything, as without feeds | `recliner_feed_connected` 0; `feeds` in `/api/v1/status` |
//! | a sweep takes longer than its interval | the next begins when it ended, or when it is due where a node or the cluster holds it up | `recliner_scan_duration_seconds` |
//! | a configuration is bad at start | every problem is said, with its place; nothing is sent | exit 64 |
//! | a configuration is bad at reload | the old one stays in force | `recliner_config_last_reload_successful` 0; the log; the answer of `/-/reload` |
//! | the file of users and certificates is bad, or opens what was closed | the old one stays in force | the log; `web_problem` in `/api/v1/status` |
//! | what was measured before the start cannot be read | it is unknown until it is measured again; the rest of the memory stands | the log |
//! | a key changes that only a restart can take | the old value stays in force | `needs_restart` in `/api/v1/status`; the log |
//! | a task ends or panics | the process ends, with status 1, or 101 after a panic; a supervisor starts it anew | the scrape fails: `up` 0 |

pub mod act;
pub mod cli;
pub mod config;
pub mod datadir;
pub mod feeds;
pub mod import;
pub mod jobs;
pub mod log;
pub mod model;
pub mod plan;
pub mod scan;
pub mod serve;
pub mod service;
#[cfg(feature = "simulator")]
pub mod simulated;
pub mod sources;
pub mod store;
pub mod table;
pub mod tasks;
pub mod text;

// What tests of several modules share with the tests beside the library.
#[cfg(test)]
#[path = "../tests/skipped/mod.rs"]
pub(crate) mod skipped;
#[cfg(test)]
#[path = "../tests/unprivileged/mod.rs"]
pub(crate) mod unprivileged;
