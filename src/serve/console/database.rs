//! One database: all its copies, ranges and design documents, and where copies differ.

use super::{
    Page, Part, Screen, advice,
    cells::{bytes, count, link, name, number, reason, target_link, unknown, with_code},
    chart::{self, Segment},
    events, jobs, runs, targets,
};
use crate::{
    serve::report::{AdviceLine, EventLine, Explained, OutcomeLine, RunLine, Target},
    text::{counted, size::format_size_short},
};
use maud::{Markup, html};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// What the page shows.
pub(in crate::serve) struct DatabaseAnswers {
    pub(in crate::serve) db: String,
    /// Its targets, as many as are shown.
    pub(in crate::serve) targets: Vec<Explained>,
    pub(in crate::serve) total: usize,
    pub(in crate::serve) outcomes: Vec<OutcomeLine>,
    pub(in crate::serve) events: Vec<EventLine>,
    pub(in crate::serve) advice: Vec<AdviceLine>,
    /// The open runs that compact it.
    pub(in crate::serve) runs: Vec<RunLine>,
    /// Whether this server accepts orders.
    pub(in crate::serve) takes_orders: bool,
    pub(in crate::serve) now: Moment,
}

/// The page at `/database`.
pub(in crate::serve) fn database(answers: &DatabaseAnswers) -> Page {
    let now = answers.now;
    let parts = vec![
        Part::new("sums", sums(answers)),
        Part::new(
            "advice",
            html! { @if !answers.advice.is_empty() { h2 { "Advice" } ul { @for line in &answers.advice { li { span class=(advice::class_of(&line.severity)) { (line.severity) } " " (with_code(&line.says)) } } } p { a href="advice" { "What to do" } } } },
        ),
        Part::new("runs", run(answers)),
        Part::new("copies", copies(answers)),
        Part::new(
            "jobs",
            html! { h2 { "How its jobs ended" } (jobs::ended(&answers.outcomes, now)) },
        ),
        Part::new(
            "events",
            html! { h2 { "What happened" } (events::list(&answers.events, now, Some(&answers.db))) },
        ),
    ];
    Page::live(Screen::Databases, answers.db.clone(), parts)
}

/// Shards and views of the whole cluster: parts of views are counted in these.
fn whole(targets: &[Explained]) -> impl Iterator<Item = &Explained> {
    targets.iter().filter(|it| it.part_of.is_none() && it.target.kind != "cleanup")
}

fn sums(answers: &DatabaseAnswers) -> Markup {
    let (mut documents, mut views, mut waste, mut unmeasured) = (0_u64, 0_u64, 0_u64, 0_u64);
    let is_estimated = whole(&answers.targets).any(|it| it.target.estimated);
    for Explained { target, .. } in whole(&answers.targets) {
        let waste_here = target.reclaimable_bytes.unwrap_or(0);
        let Some(file) = target.file_bytes else {
            unmeasured += 1;
            continue;
        };
        let live = file.saturating_sub(waste_here);
        waste += waste_here;
        if target.kind == "db" { documents += live } else { views += live }
    }
    let all = documents + views + waste;
    let says = format!(
        "{}{} of documents, {} of views, {} reclaimable, in all copies",
        if unmeasured > 0 {
            "At least "
        } else if is_estimated {
            "About "
        } else {
            ""
        },
        format_size_short(documents),
        format_size_short(views),
        format_size_short(waste)
    );
    let segments = [("live", documents), ("other", views), ("waste", waste)];
    let segments = segments.map(|(class, size)| Segment { class, size: size as f64 });
    html! {
        p { (says) @if unmeasured > 0 { "; " (counted(unmeasured, "size is", "sizes are")) " unknown" } "." }
        p.quiet { span.key.live {} "documents" span.key.other {} "views" span.key.waste {} "reclaimable" }
        (chart::stacked("volume", &segments, all as f64, &says))
        p { a href=(link("targets", &[("db", &answers.db), ("sort", "reclaimable_bytes")])) { "As a list of targets" } }
    }
}

/// The runs that compact it, and the order that begins one.
fn run(answers: &DatabaseAnswers) -> Markup {
    let begin = link("act", &[("order", "runs"), ("db", &answers.db)]);
    html! {
        (runs::list(&answers.runs, answers.takes_orders, answers.now))
        @if answers.takes_orders && answers.runs.iter().all(|run| run.db.is_none()) { p.actions { a.button href=(begin) { "Compact database …" } } }
    }
}

/// Targets by range and design document: the copies of one stand together.
fn copies(answers: &DatabaseAnswers) -> Markup {
    let mut groups: BTreeMap<(u8, String), Vec<&Target>> = BTreeMap::new();
    for Explained { target, .. } in &answers.targets {
        let order = match &*target.kind {
            "db" => 0,
            "view" => 1,
            "search" => 2,
            _ => 3,
        };
        let title = match order {
            0 => target.range.clone().unwrap_or_else(|| "whole".to_owned()),
            _ => target.ddoc.clone().unwrap_or_else(|| target.kind.to_string()),
        };
        groups.entry((order, title)).or_default().push(target);
    }
    // What stands for the whole cluster comes before its parts.
    for group in groups.values_mut() {
        group.sort_by(|one, other| (&one.range, &one.node).cmp(&(&other.range, &other.node)));
    }
    html! {
        h2 { "Copies, ranges and design documents" }
        @if answers.total > answers.targets.len() { p.quiet { "The first " (count(answers.targets.len())) " of " (count(answers.total)) " targets." } }
        div.wide { table {
            thead { tr { th { "range or design document" } th { "node" } th.n { "on disk" } th.n { "reclaimable" } th.n.rest { "ratio" } th.n.rest { "documents" } th.n.rest { "deleted" } th.rest { "channel" } th.rest { "why it waits" } } }
            @for ((_, title), group) in &groups { tbody {
                @for (at, line) in group.iter().enumerate() { tr {
                    td.named { @if at == 0 { b { (name(title)) } } @else if line.kind == "db" { span.quiet { (name(title)) } }
                        @if let Some(range) = line.range.as_ref().filter(|_| line.kind != "db") { " " span.quiet { (name(range)) } } }
                    td { (target_link(&line.id, &line.node)) @if line.state != "ok" { " " span.warn { (line.state) } } }
                    td.n { (bytes(line.file_bytes)) (differs(group, line)) }
                    td.n { (bytes(line.reclaimable_bytes)) }
                    td.n.rest { (number(line.ratio)) }
                    td.n.rest { @if line.kind == "db" { (documents(line.docs, group, line, |it| it.docs)) } }
                    td.n.rest { @if line.kind == "db" { (documents(line.deleted_docs, group, line, |it| it.deleted_docs)) } }
                    td.rest { (targets::channel(line)) }
                    td.rest { @if let Some(refusal) = &line.refusal { (reason(&refusal.reason)) } }
                } }
            } }
        } }
        (targets::meanings(&mut answers.targets.iter().map(|it| &it.target)))
        p.quiet { span.warn { "≠" } " marks a copy whose file is more than half larger than the smallest of its range, and counts of documents that differ at the same last sequence." }
    }
}

/// Marks a copy that is more than half larger than its smallest sibling: of a range, or of a view's part where
/// each node's file was measured.
fn differs(group: &[&Target], line: &Target) -> Markup {
    let is_sibling = |it: &&&Target| it.kind == line.kind && it.range == line.range;
    let siblings = group.iter().filter(is_sibling).filter(|it| is_exact(it));
    let least = siblings.filter_map(|it| it.file_bytes).min();
    let much = line
        .file_bytes
        .zip(least)
        .is_some_and(|(file, least)| is_exact(line) && file > least + least / 2);
    html! { @if much { span.warn title="more than half larger than its smallest sibling" { " ≠" } } }
}

/// Whether a target is one file whose size was measured.
fn is_exact(target: &Target) -> bool {
    target.copies == 1 && !target.estimated && (target.kind == "db" || target.range.is_some())
}

/// A count of documents, marked where a copy of the range that has seen the same changes has another.
fn documents(
    number: Option<u64>,
    group: &[&Target],
    line: &Target,
    of: impl Fn(&Target) -> Option<u64>,
) -> Markup {
    let same = group.iter().filter(|it| it.update_seq == line.update_seq && it.range == line.range);
    let mut others = same.filter_map(|it| of(it));
    let differ = line.update_seq.is_some() && others.any(|other| Some(other) != number);
    html! {
        @match number { Some(number) => { (count(number)) } None => { (unknown()) } }
        @if differ && number.is_some() { span.warn title="a copy of this range with the same last sequence counts differently" { " ≠" } }
    }
}
