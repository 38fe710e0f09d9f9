//! One target: its measurements, its score in each channel, and the decision with its reason.

use super::{
    Page, Part, Screen,
    cells::{
        ago, bytes, count, database_link, link, name, number, score, span_since, unknown,
        with_code, words,
    },
    chart,
    confirm::{AskedCompaction, request},
    events, jobs,
};
use crate::{
    model::{
        priority::PriorityKind,
        target::{TargetId, TargetState},
    },
    plan::RefusalReason,
    serve::report::{ChannelScore, EventLine, Explained, OutcomeLine, Target},
    text::{Label, capital, three_digits_short},
};
use maud::{Markup, html};
use wall_clock::Moment;

/// The answers that the page shows.
pub(in crate::serve) struct TargetAnswers {
    pub(in crate::serve) explained: Explained,
    /// The result of an order to compact it; `None` for a target that is never compacted by itself.
    pub(in crate::serve) if_ordered: Option<AskedCompaction>,
    /// Whether recliner itself starts compactions.
    pub(in crate::serve) enforces: bool,
    /// Whether this server accepts orders.
    pub(in crate::serve) takes_orders: bool,
    pub(in crate::serve) outcomes: Vec<OutcomeLine>,
    pub(in crate::serve) events: Vec<EventLine>,
    pub(in crate::serve) now: Moment,
}

/// The page at `/target`.
pub(in crate::serve) fn target(answers: &TargetAnswers) -> Page {
    let Explained { target, .. } = &answers.explained;
    let heading = heading(target);
    let parts = vec![
        Part::new("decision", decision(answers)),
        Part::new("measured", measured(&answers.explained, answers.now)),
        Part::new("scores", scores(target, &answers.explained.scores)),
        jobs::of_one(&answers.outcomes, answers.now),
        events::of_one(&answers.events, answers.now, &heading),
    ];
    Page::live(Screen::Targets, heading, parts)
}

/// A target's name with its node, which distinguishes the copies of one range.
fn heading(target: &Target) -> String {
    let id = target.id.parse::<TargetId>();
    id.map_or_else(|_| target.id.clone(), |id| id.title(target.ddoc.as_deref()))
}

fn decision(answers: &TargetAnswers) -> Markup {
    let now = answers.now;
    let Explained { target, why, start, ordered, part_of, .. } = &answers.explained;
    html! {
        p.quiet { (target.kind) " of " (database_link(&target.db)) " on " (name(&target.node)) " · " code { (name(&target.id)) } }
        @if let Some(says) = state_says(&target.state) { p.banner { (says) } }
        @if let Some(problem) = &target.problem { p.banner { (problem.says) } }
        p.note {
            @match (why, start, &target.channel) {
                (_, Some(start), _) => { @if answers.enforces { "It starts now" } @else { "It would start now if recliner enforced" } ", by channel " (name(&start.channel)) "." }
                (Some(why), _, _) => { (name(&capital(why))) "." }
                (None, None, Some(channel)) => { "Channel " (name(channel)) " takes it." }
                (None, None, None) => { "No channel takes it, so recliner does not compact it." }
            }
            @if let Some(since) = target.refusal.as_ref().and_then(|refusal| refusal.since.as_deref()) { " Waiting for " (span_since(Some(since), now)) "." }
        }
        (changes(&answers.explained, now))
        @if let Some(ordered) = ordered { p { "Ordered by " (name(&ordered.by)) "; the order expires " (ago(&ordered.until, now)) "." } }
        @if let Some(view) = part_of { p { "CouchDB cannot compact this part alone; see the decision about " a href=(link("target", &[("id", view)])) { "the whole view" } "." } }
        (orders(answers))
    }
}

/// The meaning of a state that is not normal.
fn state_says(state: &str) -> Option<&'static str> {
    Some(match TargetState::from_label(state)? {
        TargetState::Ok => return None,
        TargetState::Orphan => "This file is not in the shard map.",
        TargetState::Missing => "The shard map lists this copy, but the node does not have it.",
        TargetState::Resharding => "This shard is being split or moved.",
        TargetState::Unaddressable => "No request can carry its name.",
        TargetState::Unknown => crate::serve::report::UNKNOWN_STATE,
    })
}

/// What must change for the target to start.
fn changes(explained: &Explained, now: Moment) -> Markup {
    let Explained { target, start, .. } = explained;
    let refusal = target.refusal.as_ref().filter(|_| start.is_none());
    let reason = refusal.and_then(|refusal| RefusalReason::from_label(&refusal.reason));
    let is_taken = target.channel.is_some();
    let due = target.rent.as_ref().filter(|_| !is_taken).and_then(|rent| rent.due_at.as_deref());
    // A misplaced file does not become eligible by growing.
    let can_be_taken = !is_taken && target.state == TargetState::Ok.label();
    let misses = target.misses.iter().filter(|_| can_be_taken);
    let misses: Vec<_> =
        misses.filter_map(|miss| Some((&miss.channel, miss.would_take()?))).collect();
    html! {
        @if reason.is_some() || due.is_some() || !misses.is_empty() {
            h2 { "What would change it" }
            ul {
                @if let Some(reason) = reason { li { "It waits until " (with_code(reason.ends_when())) } }
                @if let Some(due) = due { li { "Its rent is due " (ago(due, now)) " if its sizes stay as they are." } }
                @for (channel, when) in misses { li { "Channel " (name(channel)) " takes it when " (name(&when)) "." } }
            }
        }
    }
}

/// The request that an order would send, and the orders that are possible.
fn orders(answers: &TargetAnswers) -> Markup {
    let target = &answers.explained.target;
    let is_quarantined =
        target.refusal.as_ref().is_some_and(|it| it.reason == RefusalReason::Quarantined.label());
    let is_running = target.compact_running == Some(true)
        || target.refusal.as_ref().is_some_and(|it| it.reason == RefusalReason::Running.label());
    let can_compact =
        !is_running && answers.if_ordered.as_ref().is_some_and(|asked| asked.refused.is_none());
    html! {
        @if let Some(asked) = &answers.if_ordered {
            @if let Some(start) = &asked.start { (request(start)) }
            @if let Some(refused) = &asked.refused { p.quiet { (with_code(refused)) } }
        }
        @if answers.takes_orders && (can_compact || is_quarantined) {
            p.actions {
                @if can_compact { a.button href=(link("act", &[("order", "compact"), ("target", &target.id)])) { "Compact now …" } }
                @if is_quarantined { a.button href=(link("act", &[("order", "release"), ("target", &target.id)])) { "Release from quarantine …" } }
            }
        } @else if can_compact || is_quarantined {
            p.quiet { "Orders over HTTP are off: start recliner with " code { "--web.enable-admin-api" } " to give them here." }
        }
    }
}

/// A fact: its title, its name in the API, its value, whether it is known, and the kinds of target
/// that must show it.
type Fact<'a> = (&'a str, &'a str, Markup, bool, &'a [&'a str]);

/// The facts to show for a target: the known ones, and the unknown ones that its kind should have.
fn facts(explained: &Explained) -> Vec<Fact<'_>> {
    let Explained { target, reclaimable_by_sizes: by_sizes, .. } = explained;
    const FILES: &[&str] = &["db", "view"];
    let size =
        |title, fact, value: Option<u64>| (title, fact, bytes(value), value.is_some(), FILES);
    let of = |title, fact, value: Option<u64>, kinds: &'static [&'static str]| {
        (title, fact, counted(value), value.is_some(), kinds)
    };
    let ratio = target.ratio;
    let all: [Fact<'_>; 11] = [
        size("on disk", "file_bytes", target.file_bytes),
        size("live, as CouchDB counts", "active_bytes", target.active_bytes),
        size("uncompressed", "external_bytes", target.external_bytes),
        size("after a compaction, predicted", "", target.predicted_bytes),
        size("reclaimable", "", target.reclaimable_bytes),
        (
            "reclaimable if nothing is written meanwhile",
            "",
            bytes(*by_sizes),
            by_sizes.is_some(),
            &[],
        ),
        ("ratio of file to live bytes", "", number(ratio), ratio.is_some(), FILES),
        of("documents", "docs", target.docs, &["db"]),
        of("deleted documents", "deleted_docs", target.deleted_docs, &["db"]),
        of("last sequence", "update_seq", target.update_seq, FILES),
        of("sequence at the last compaction", "compacted_seq", target.compacted_seq, &["db"]),
    ];
    let is_there = target.state != TargetState::Missing.label();
    let applies = |(.., is_known, kinds): &Fact<'_>| {
        *is_known || (is_there && kinds.contains(&&*target.kind))
    };
    all.into_iter().filter(applies).collect()
}

fn measured(explained: &Explained, now: Moment) -> Markup {
    let target = &explained.target;
    let by = |fact: &str| target.sources.get(fact).map(|source| words(source));
    html! {
        h2 { "What was measured" }
        p.quiet {
            @match &target.measured_at { Some(at) => { "Measured " (ago(at, now)) ". " } None => { "Not measured yet. " } }
            @if target.copies > 1 { "Bytes are those of all " (target.copies) " files together" @if target.estimated { ", extrapolated from one copy" } ". " }
            @if target.kind == "cleanup" { "A cleanup has no file of its own: it removes index files that nothing uses." }
            @else if let Some(xray) = explained.xray.as_ref().filter(|_| target.confidence == "xray") { "The prediction is based on the file's contents, read " (ago(&xray.measured_at, now)) "." }
            @else if target.predicted_bytes.is_some() { "Confidence of the prediction: " (words(&target.confidence)) "." }
        }
        dl.facts {
            @for (title, fact, value, ..) in facts(explained) {
                dt { (title) }
                dd { (value) @if let Some(source) = by(fact) { span.quiet { " · from " (source) } } }
            }
            @if let Some(pending) = target.updates_pending { dt { "changes not yet indexed" } dd { (count(pending)) } }
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
        h2 { "Scores by channel" }
        @if scores.is_empty() { p.quiet { "No channel is for targets of its kind." } } @else {
            p.quiet { "The line is the channel's threshold; the scale is logarithmic." }
            div.wide tabindex="0" role="region" aria-label="Scores" { table {
                thead { tr { th { "channel" } th { "by" } th.n { "score" } th.n { "threshold" } th.rest { "scale" } th { "eligible" } } }
                tbody { @for line in scores { (score_row(target, line)) } }
            } }
        }
    }
}

fn score_row(target: &Target, line: &ChannelScore) -> Markup {
    // A channel with a condition has no score to compare: it takes every target that meets the
    // condition.
    let priority = PriorityKind::from_label(&line.priority);
    let compares = priority.is_none_or(|priority| priority.unit().is_some());
    let says = |score: f64| {
        let [score, threshold] = [score, line.min_priority].map(three_digits_short);
        format!("score {score}, threshold {threshold}")
    };
    html! { tr {
        td { (name(&line.channel)) }
        td { (line.priority) }
        td.n { @if compares { (score(line.score, line.in_bytes)) } }
        td.n { @if compares { (score(Some(line.min_priority), line.in_bytes)) } }
        td.rest { @if let Some(score) = line.score.filter(|_| compares) { (chart::against_threshold(score, line.min_priority, &says(score))) } }
        td.text { @match (&line.miss, target.channel.as_deref() == Some(&line.channel)) { (_, true) => { span.good { "yes" } } (Some(miss), _) => { "no: " (name(miss)) } (None, false) => { "no: an earlier channel takes it" } } }
    } }
}
