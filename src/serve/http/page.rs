//! The landing page: what this is, what it sees, where to read more.

use super::AppState;
use crate::{
    model::{channel::Mode, rounding::to_bytes, target::TargetKind},
    plan::RefusalReason,
    serve::report,
    table::NodeIx,
    text::{duration, escape, size},
};
use axum::{extract, response::Html};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::sync::Arc;
use wall_clock::Moment;

/// The style of every page.
const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --quiet: #666; --accent: #c0392b; }
@media (prefers-color-scheme: dark) { :root { --quiet: #aaa; --accent: #ff7b6b; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin: 0; } h2 { margin: 2rem 0 .5rem; font-size: 1.1rem; }
.quiet { color: var(--quiet); } .note { border-left: 4px solid var(--accent); padding: .4rem .8rem; }
.bad { color: var(--accent); font-weight: 600; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem 1.5rem .25rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
@media (max-width: 44rem) { th, td { padding-right: .7rem; } table { font-size: .85rem; } .rest { display: none; } td:first-child { white-space: normal; overflow-wrap: anywhere; } }
.long { white-space: normal; }
th:last-child, td:last-child { padding-right: 0; }
th { font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: .95em; } li { margin: .15rem 0; overflow-wrap: anywhere; }";

/// The page at `/`.
pub(super) async fn landing(extract::State(state): extract::State<AppState>) -> Html<String> {
    Html(page(&state).into_string())
}

fn page(state: &AppState) -> Markup {
    let plan = Arc::clone(&state.plan.borrow());
    let status = Arc::clone(&state.status.borrow());
    let config = Arc::clone(&state.config.borrow());
    let body = html! {
        h1 { "recliner" }
        p.quiet {
            "What waits for compaction in a CouchDB cluster, and what it would free. Version "
            (state.about.version) ", mode " (config.mode.label())
        }
        @if let Some(says) = state.about.simulation(config.mode) {
            p.note { (says) }
        }
        @if let Some(problem) = &status.problem {
            p.note { "Nothing can be read: " (problem) }
        }
        @if let Some((_, problem)) = &plan.conditions.constraints.journal_failure {
            p.note { "Nothing starts, because the journal cannot be used: " (problem) }
        }
        @if !status.missing_rights.is_empty() {
            p.note { "The login lacks rights:" }
            ul { @for right in &status.missing_rights { li { (right) } } }
        }
        @for suspension in report::SuspensionLine::all(&plan) {
            p.note { (capital(&suspension.says)) }
        }
        p { (sweep_line(&status)) }
        (nodes(&plan))
        (queues(&plan))
        (advice(state))
        h2 { "Read more" }
        ul {
            li { a href="/docs/" { "/docs/" } ": the book, with a runbook for every alert" }
            li { a href="/metrics" { "/metrics" } " for Prometheus" }
            li { a href="/api/v1/status" { "/api/v1/status" } ": the state of recliner, and what it cannot read" }
            li { a href="/api/v1/targets?sort=reclaimable_bytes" { "/api/v1/targets?sort=reclaimable_bytes" } ": shards and views, most reclaimable first" }
            li { a href="/api/v1/queue" { "/api/v1/queue" } ": queued targets, best first" }
            li { a href="/api/v1/plan" { "/api/v1/plan" } ": what would start now, and why the rest would not" }
            li { a href="/api/v1/jobs" { "/api/v1/jobs" } ": running jobs" }
            li { a href="/api/v1/history" { "/api/v1/history" } ": how jobs ended" }
            li { a href="/api/v1/events" { "/api/v1/events" } ": what happened" }
            li { a href="/_db_updates" { "/_db_updates" } ": changed databases, as in CouchDB" }
            li { code { "/api/v1/explain?target=" } " an id, a shard file, a database, or " code { "<db>/_design/<name>" } ": why it is or is not a candidate" }
            li { a href="/api/v1/config" { "/api/v1/config" } ": the active configuration" }
            li { a href="/sd" { "/sd" } ": CouchDB's nodes for Prometheus's service discovery" }
            li { a href="/-/ready" { "/-/ready" } " and " a href="/-/healthy" { "/-/healthy" } " for supervisors" }
        }
    };
    document("recliner", "", &body)
}

/// A whole document for people. `style` is what it needs beyond [`STYLE`].
pub(super) fn document(title: &str, style: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body { (body) }
        }
    }
}

/// The notice as a separate sentence.
fn capital(says: &str) -> String {
    let (first, rest) = says.split_at(says.chars().next().map_or(0, char::len_utf8));
    [&first.to_uppercase(), rest].concat()
}

fn sweep_line(status: &crate::scan::ScanStatus) -> String {
    let ended = match (status.last_end, status.last_duration) {
        (Some(at), Some(took)) => {
            format!(
                "The last sweep ended at {} and took {}.",
                at.rfc3339(),
                duration::format_rounded(took)
            )
        }
        _ => "No sweep has ended yet.".to_owned(),
    };
    match status.progress {
        Some(progress) => {
            let total = progress.total.map_or_else(String::new, |total| format!(" of {total}"));
            format!("{ended} One is running: {}{total} read.", progress.done)
        }
        None => ended,
    }
}

fn bytes(bytes: Option<f64>) -> String {
    // Sums are whole bytes; the table shows three digits.
    bytes.map_or_else(|| "?".to_owned(), |bytes| size::format_size(to_bytes(bytes)).to_string())
}

fn nodes(plan: &crate::plan::Plan) -> Markup {
    let lines: Vec<_> = report::nodes(plan).collect();
    let totals = plan.snapshot.totals();
    let views = totals.sums_of(NodeIx::CLUSTER, TargetKind::View);
    let count: u64 = views.counts_by_state.iter().sum();
    html! {
        h2 { "Nodes" }
        div.wide { table {
            tr { th { "node" } th { "up" } th.rest { "version" } th.n { "shards" } th.n { "on disk" } th.n { "reclaimable" } th.rest { "smoosh" } }
            @for (at, line) in lines.iter().enumerate() {
                @let sums = NodeIx::from_usize(at + 1).map(|node| totals.sums_of(node, TargetKind::Db)).unwrap_or_default();
                tr {
                    td { (escape::escape_line(&line.node)) }
                    td {
                        @match line.up {
                            Some(true) => "yes",
                            Some(false) => span.bad { "no" },
                            None => "?",
                        }
                    }
                    td.rest { (line.version.as_deref().unwrap_or("?")) }
                    td.n { (sums.counts_by_state.iter().sum::<u64>()) }
                    td.n { (bytes(sums.file_bytes.get())) }
                    td.n { (bytes(sums.reclaimable_bytes.get())) }
                    td.rest { (line.smoosh_says()) }
                }
            }
        } }
        @if lines.iter().any(|line| !line.findings.is_empty()) {
            ul {
                @for line in &lines {
                    @for finding in &line.findings { li { (line.node) ": " (finding) } }
                }
            }
        }
        p.quiet { "Shard counts and bytes are those of databases." }
        @if count > 0 {
            p {
                (count) " views of the whole cluster, with all their copies: " (bytes(views.file_bytes.get()))
                " on disk, " (bytes(views.reclaimable_bytes.get())) " reclaimable."
            }
        }
    }
}

fn queues(plan: &crate::plan::Plan) -> Markup {
    html! {
        h2 { "Queues" }
        div.wide { table {
            tr { th { "node" } th { "channel" } th.n { "waiting" } th.n.rest { "running" } th.n { "reclaimable" } th.n.rest { "longest wait" } }
            @for queue in plan.queues.iter().filter(|queue| queue.queued().len() > 0 || queue.active_jobs > 0) {
                tr {
                    td { (escape::escape_line(plan.snapshot.node(queue.node).map_or("", |node| &node.name))) }
                    td { (plan.channels.list.get(queue.channel_index).map_or("", |channel| &channel.name)) }
                    td.n { (queue.queued().len()) @if queue.overflow > 0 { " + " (queue.overflow) } }
                    td.n.rest { (queue.active_jobs) }
                    td.n { (size::format_size(queue.reclaimable_bytes)) }
                    td.n.rest title=[queue.oldest_queued_at.map(Moment::rfc3339)] {
                        (queue.oldest_queued_at.map(|since| duration::format_rounded(since.age(plan.planned_at))).unwrap_or_default())
                    }
                }
            }
        } }
        @if plan.queues.iter().all(|queue| queue.queued().len() == 0) {
            p.quiet { "Nothing waits." }
        } @else {
            (decided(plan))
            p.quiet { "Views and index cleanups wait once for the whole cluster, under " code { "_cluster" } "." }
        }
    }
}

/// What enforcing would have meant, if something is known of it.
fn advice(state: &AppState) -> Markup {
    let now = state.clock.now();
    let week = Moment::from_unix(now.unix().saturating_sub(7 * 86_400));
    let scorecard = report::Scorecard::of(&state.scorecard.borrow(), week, now);
    html! {
        @if let Some(advised) = &scorecard.advised {
            h2 { "Had recliner enforced" }
            p {
                "In the last week, as far as it advised, recliner would have freed " (size::format_size(advised.freed_bytes))
                " in " (advised.compactions) " compactions. " (scorecard.says) " "
                a href="/api/v1/scorecard?since=7d" { "All numbers" }
            }
        }
    }
}

/// The number of targets that would start now, and of refusals by reason, most first.
fn decided(plan: &crate::plan::Plan) -> Markup {
    let starts: u64 = plan.decision_counts.iter().map(|counts| counts.starts).sum();
    let refused = |reason| plan.decision_counts.iter().map(|counts| counts.refusals(reason)).sum();
    let mut reasons: Vec<(u64, RefusalReason)> =
        RefusalReason::ALL.map(|reason| (refused(reason), reason)).into();
    reasons.retain(|(count, _)| *count > 0);
    reasons.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(*count));
    let starts = match (plan.rules.mode, starts) {
        (Mode::Advise, 0) => "Nothing would start now.".to_owned(),
        (Mode::Enforce, 0) => "Nothing starts now.".to_owned(),
        (Mode::Advise, starts) => format!("Would start {starts} now."),
        (Mode::Enforce, starts) => format!("Starts {starts} now."),
    };
    html! {
        p { (starts) }
        @if !reasons.is_empty() {
            div.wide { table {
                tr { th.n { "waiting" } th { "why" } th { "which means" } }
                @for (count, reason) in &reasons {
                    tr {
                        td.n { (count) }
                        td { (reason.label().replace('_', " ")) }
                        td.long { (reason.meaning()) }
                    }
                }
            } }
        }
    }
}
