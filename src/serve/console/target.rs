//! One target: what was measured, where it stands in each channel, what is decided and why.

use super::{
    Page, Part, Screen,
    cells::{
        ago, bytes, capital, count, database_link, link, name, number, score, seconds, unknown,
        words,
    },
    chart, events, jobs,
};
use crate::serve::report::{ChannelScore, EventLine, Explained, OutcomeLine, StartLine, Target};
use maud::{Markup, html};
use wall_clock::Moment;

/// What the page shows.
pub(in crate::serve) struct TargetAnswers {
    pub(in crate::serve) explained: Explained,
    pub(in crate::serve) outcomes: Vec<OutcomeLine>,
    pub(in crate::serve) events: Vec<EventLine>,
    pub(in crate::serve) now: Moment,
}

/// The page at `/target`.
pub(in crate::serve) fn target(answers: &TargetAnswers) -> Page {
    let Explained { target, .. } = &answers.explained;
    let parts = vec![
        Part::new("decision", decision(&answers.explained, answers.now)),
        Part::new("measured", measured(target, answers.now)),
        Part::new("scores", scores(target, &answers.explained.scores)),
        Part::new(
            "jobs",
            html! { h2 { "How its jobs ended" } (jobs::ended(&answers.outcomes, answers.now)) },
        ),
        Part::new(
            "events",
            html! { h2 { "What happened" } (events::list(&answers.events, answers.now)) },
        ),
    ];
    Page::live(Screen::Targets, title(target), parts)
}

/// What a target is called: its shard and node, its view, or its index files.
pub(super) fn title(target: &Target) -> String {
    let db = &target.db;
    match (&*target.kind, &target.ddoc) {
        ("view", Some(ddoc)) => format!("{db}/{ddoc}{}", of_node(target)),
        ("search", Some(ddoc)) => format!("{db}/{ddoc}/{}", target.name.as_deref().unwrap_or("?")),
        ("cleanup", _) => format!("index files of {db}"),
        _ => match &target.range {
            Some(range) => format!("{db} {range}"),
            None => db.clone(),
        },
    }
}

/// A part of a view belongs to a range of a node.
fn of_node(target: &Target) -> String {
    target.range.as_ref().map_or_else(String::new, |range| format!(" {range}"))
}

/// What a start is called.
pub(super) fn start_title(line: &StartLine) -> String {
    match (&*line.kind, &line.ddoc, &line.range) {
        ("view", Some(ddoc), _) => format!("{}/{ddoc}", line.db),
        ("cleanup", ..) => format!("index files of {}", line.db),
        (_, _, Some(range)) => format!("{} {range}", line.db),
        _ => line.db.clone(),
    }
}

fn decision(explained: &Explained, now: Moment) -> Markup {
    let Explained { target, why, start, ordered, part_of, .. } = explained;
    html! {
        p.quiet { (target.kind) " of " (database_link(&target.db)) " on " (name(&target.node)) " · " code { (name(&target.id)) } }
        @if target.state != "ok" { p.banner { "This target is " (target.state) " compared with the shard map." } }
        @if let Some(problem) = &target.problem { p.banner { (problem.says) } }
        p.note {
            @match (why, start, &target.channel) {
                (_, Some(start), _) => { "It starts now, by channel " (name(&start.channel)) "." }
                (Some(why), _, _) => { (name(&capital(why))) "." }
                (None, None, Some(channel)) => { "Channel " (name(channel)) " takes it." }
                (None, None, None) => { "No channel takes it, so nothing compacts it." }
            }
            @if let Some(since) = target.refusal.as_ref().and_then(|refusal| refusal.since.as_ref()) { " Since " (ago(since, now)) "." }
        }
        @if let Some(ordered) = ordered { p { "Ordered by " (name(&ordered.by)) "; it counts until " (ago(&ordered.until, now)) "." } }
        @if let Some(view) = part_of { p { "No request compacts a part alone: the decision is about " a href=(link("target", &[("id", view)])) { "the whole view" } "." } }
        @if let Some(start) = start {
            p { "The request: " code { (name(&start.request)) } }
            p.quiet { "It frees " (bytes(start.gain_bytes)) ", writes " (bytes(start.rewrite_bytes)) ", needs " (bytes(Some(start.peak_bytes))) " more at its peak, and takes " (seconds(start.duration_seconds)) "." }
        }
        @if target.kind != "search" && part_of.is_none() {
            p.actions {
                a.button href=(link("act", &[("order", "compact"), ("target", &target.id)])) { "Compact now …" }
                a.button href=(link("act", &[("order", "release"), ("target", &target.id)])) { "Release from quarantine …" }
            }
        }
    }
}

fn measured(target: &Target, now: Moment) -> Markup {
    let by = |fact: &str| target.sources.get(fact).map(|source| words(source));
    let lines: [(&str, &str, Markup); 10] = [
        ("on disk", "file_bytes", bytes(target.file_bytes)),
        ("live, as CouchDB counts", "active_bytes", bytes(target.active_bytes)),
        ("uncompressed", "external_bytes", bytes(target.external_bytes)),
        ("after a compaction, predicted", "", bytes(target.predicted_bytes)),
        ("reclaimable", "", bytes(target.reclaimable_bytes)),
        ("ratio of file to live bytes", "", number(target.ratio)),
        ("documents", "docs", counted(target.docs)),
        ("deleted documents", "deleted_docs", counted(target.deleted_docs)),
        ("last sequence", "update_seq", counted(target.update_seq)),
        ("sequence at the last compaction", "compacted_seq", counted(target.compacted_seq)),
    ];
    html! {
        h2 { "What was measured" }
        p.quiet {
            @match &target.measured_at { Some(at) => { "Measured " (ago(at, now)) ". " } None => { "Not measured yet. " } }
            @if target.copies > 1 { "Bytes are those of all " (target.copies) " files together" @if target.estimated { ": one copy's times their number" } ". " }
            "How far the prediction can be trusted: " (words(&target.confidence)) "."
        }
        dl.facts {
            @for (title, fact, value) in &lines {
                dt { (title) }
                dd { (value) @if let Some(source) = by(fact) { span.quiet { " · from " (source) } } }
            }
            @if let Some(pending) = target.updates_pending { dt { "changes that it has not seen" } dd { (count(pending)) } }
            @if let Some(signature) = &target.signature { dt { "signature" } dd { code { (signature) } } }
            @if target.ddocs.len() > 1 { dt { "design documents that share it" } dd { @for ddoc in &target.ddocs { (name(ddoc)) " " } } }
            @if let Some(running) = target.compact_running { dt { "compaction runs" } dd { @if running { "yes" } @else { "no" } } }
        }
    }
}

fn counted(number: Option<u64>) -> Markup {
    number.map_or_else(unknown, |number| html! { (count(number)) })
}

fn scores(target: &Target, scores: &[ChannelScore]) -> Markup {
    html! {
        h2 { "Where it stands" }
        @if scores.is_empty() { p.quiet { "No channel is for targets of its kind." } } @else {
            p.quiet { "The line in the middle of each scale is the least with which the channel takes it; a step is a factor of ten." }
            div.wide tabindex="0" role="region" aria-label="Scores" { table {
                thead { tr { th { "channel" } th { "by" } th.n { "its score" } th.n { "needs more than" } th.rest { "scale" } th { "takes it" } } }
                tbody { @for line in scores { tr {
                    td { (name(&line.channel)) }
                    td { (line.priority) }
                    td.n { (score(line.score, line.in_bytes)) }
                    td.n { (score(Some(line.min_priority), line.in_bytes)) }
                    td.rest { @if let Some(score) = line.score { (chart::against_threshold(score, line.min_priority, &format!("score {score:.2}, threshold {:.2}", line.min_priority))) } }
                    td.text { @match (&line.miss, target.channel.as_deref() == Some(&line.channel)) { (_, true) => { span.good { "yes" } } (Some(miss), _) => { (name(miss)) } (None, false) => { "an earlier channel does" } } }
                } } }
            } }
        }
    }
}
