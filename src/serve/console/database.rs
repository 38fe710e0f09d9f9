//! One database: all its copies, ranges and design documents, and where copies differ.

use super::{
    Page, Part, Screen, advice,
    cells::{bytes, count, link, name, number, target_link, unknown, with_code},
    chart::{self, Segment},
    events, inside, jobs, runs, table, targets,
};
use crate::{
    serve::report::{AdviceLine, DatabaseLine, EventLine, Explained, OutcomeLine, RunLine, Target},
    sources::xray::DatabaseXray,
};
use couchdb_names::Range;
use maud::{Markup, html};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// The maximum number of jobs and of events shown about one database or target.
pub(in crate::serve) const SHOWN: usize = 20;

/// What the page shows.
pub(in crate::serve) struct DatabaseAnswers {
    pub(in crate::serve) db: String,
    /// Its line in the list of databases, if it has files.
    pub(in crate::serve) line: Option<DatabaseLine>,
    /// Its targets that are shown.
    pub(in crate::serve) targets: Vec<Explained>,
    pub(in crate::serve) total: usize,
    pub(in crate::serve) outcomes: Vec<OutcomeLine>,
    pub(in crate::serve) events: Vec<EventLine>,
    pub(in crate::serve) advice: Vec<AdviceLine>,
    /// The open runs that compact it.
    pub(in crate::serve) runs: Vec<RunLine>,
    /// What the bytes of its files consist of.
    pub(in crate::serve) xray: DatabaseXray,
    /// Whether this recliner or a sidecar reads any of them.
    pub(in crate::serve) can_xray: bool,
    /// Whether the cluster is one node, so that nothing has copies.
    pub(in crate::serve) has_one_node: bool,
    /// Whether this server accepts orders.
    pub(in crate::serve) takes_orders: bool,
    pub(in crate::serve) now: Moment,
}

/// The page at `/database`.
pub(in crate::serve) fn database(answers: &DatabaseAnswers) -> Page {
    let parts = vec![
        Part::new(
            "sums",
            html! { @if let Some(line) = &answers.line { p.note { (name(&line.says())) } (sums(line)) } },
        ),
        Part::new(
            "advice",
            html! { @if !answers.advice.is_empty() { h2 { "Advice" } ul { @for line in &answers.advice { li { span class=(advice::class_of(&line.severity)) { (line.severity) } " " (with_code(&line.says)) } } } p { a href="advice" { "What to do" } } } },
        ),
        Part::new("runs", run(answers)),
        Part::new("copies", copies(answers)),
        Part::new("inside", inside::panel(&answers.xray, answers.can_xray, answers.now)),
        jobs::of_one(&answers.outcomes, answers.now),
        events::of_one(&answers.events, answers.now, &answers.db),
    ];
    Page::live(Screen::Databases, answers.db.clone(), parts)
}

/// The database's line of the list in sentences, and as a bar.
fn sums(line: &DatabaseLine) -> Markup {
    let DatabaseLine { document_bytes, index_bytes, reclaimable_bytes, .. } = line;
    let says = line.parts_say();
    let segments = [("live", document_bytes), ("other", index_bytes), ("waste", reclaimable_bytes)];
    let segments = segments.map(|(class, size)| Segment { class, size: *size as f64 });
    html! {
        p { (says) }
        p.quiet { span.key.live {} "documents" span.key.other {} "indexes" span.key.waste {} "reclaimable" }
        (chart::stacked("volume", &segments, line.file_bytes as f64, &says))
        @if let Some(deletions) = &line.deletions { p { (deletions.says) } }
        p { a href=(link("targets", &[("db", &line.db), ("sort", "reclaimable_bytes")])) { "As a list of targets" } ", " a href=(link("preflight", &[("db", &line.db)])) { "what would a new index cost?" } ", " a href=(link("changes", &[("name", &line.db)])) { "what changed?" } }
    }
}

/// The runs that compact it, and the link that begins a new one.
fn run(answers: &DatabaseAnswers) -> Markup {
    let begin = link("act", &[("order", "runs"), ("db", &answers.db)]);
    html! {
        (runs::list(&answers.runs, answers.takes_orders, answers.now))
        @if answers.takes_orders && answers.runs.iter().all(|run| run.db.is_none()) { p.actions { a.button href=(begin) { "Compact database …" } } }
    }
}

/// Targets by range and design document: the copies of each are listed together.
fn copies(answers: &DatabaseAnswers) -> Markup {
    // On a single node there is only one file of documents, which needs no further name.
    let shards = answers.targets.iter().filter(|it| it.target.kind == "db").count();
    let has_files = answers.has_one_node && shards <= 1;
    let mut groups: BTreeMap<(u8, String), Vec<&Target>> = BTreeMap::new();
    for Explained { target, .. } in &answers.targets {
        let order = match &*target.kind {
            "db" => 0,
            "view" => 1,
            "search" => 2,
            _ => 3,
        };
        let title = match order {
            0 if has_files => "documents".to_owned(),
            0 => target.range.clone().unwrap_or_else(|| "whole".to_owned()),
            3 => "index files".to_owned(),
            _ => target.ddoc.clone().unwrap_or_else(|| target.kind.to_string()),
        };
        groups.entry((order, title)).or_default().push(target);
    }
    // The entry for the whole cluster comes before its parts.
    for group in groups.values_mut() {
        group.sort_by(|one, other| (&one.range, &one.node).cmp(&(&other.range, &other.node)));
    }
    html! {
        h2 { @if answers.has_one_node { "Files" } @else { "Copies, ranges and design documents" } }
        @if answers.total > answers.targets.len() { p.quiet { "The first " (count(answers.targets.len())) " of " (count(answers.total)) " targets." } }
        div.wide { table {
            thead { tr { th { @if has_files { "file or design document" } @else { "range or design document" } } th { "node" } th.n { "on disk" } th.n { "reclaimable" } th.n.rest { "ratio" } th.n.rest { "documents" } th.n.rest { "deleted" } th.rest { "channel" } th.rest { "why it waits" } } }
            @for ((_, title), group) in &groups { tbody {
                @for (at, line) in group.iter().enumerate() { tr {
                    td.named title=[line.range.as_ref()] { @if at == 0 { b { (name(&short(title))) } } @else if line.kind == "db" { span.quiet { (name(&short(title))) } }
                        @if let Some(range) = line.range.as_ref().filter(|_| line.kind != "db") { " " span.quiet { (name(&short(range))) } } }
                    td { (target_link(&line.id, &line.node)) @if line.state != "ok" { " " span.warn { (line.state) } } }
                    td.n { (bytes(line.file_bytes)) (differs(group, line)) }
                    td.n { (bytes(line.reclaimable_bytes)) }
                    td.n.rest { (number(line.ratio)) }
                    td.n.rest { @if line.kind == "db" { (documents(line.docs, group, line, |it| it.docs)) } }
                    td.n.rest { @if line.kind == "db" { (documents(line.deleted_docs, group, line, |it| it.deleted_docs)) } }
                    td.rest { (table::shown(&targets::channel(line), answers.now)) }
                    td.rest { (table::shown(&targets::waits(line), answers.now)) }
                } }
            } }
        } }
        (targets::meanings(&mut answers.targets.iter().map(|it| &it.target)))
        @if !answers.has_one_node { p.quiet { span.warn { "≠" } " marks a copy whose file is more than 1.5 times the smallest of its range, and document counts that differ at the same last sequence." } }
    }
}

/// A range, abbreviated; any other text unchanged.
fn short(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), Range::short)
}

/// Marks a copy that is more than 1.5 times its smallest sibling: among the copies of a range, or of a
/// view's part where each node's file was measured.
fn differs(group: &[&Target], line: &Target) -> Markup {
    let is_sibling = |it: &&&Target| it.kind == line.kind && it.range == line.range;
    let siblings = group.iter().filter(is_sibling).filter(|it| is_exact(it));
    let least = siblings.filter_map(|it| it.file_bytes).min();
    let much = line
        .file_bytes
        .zip(least)
        .is_some_and(|(file, least)| is_exact(line) && file > least + least / 2);
    html! { @if much { span.warn title="more than 1.5 times its smallest sibling" { " ≠" } } }
}

/// Whether a target is one file whose size was measured.
fn is_exact(target: &Target) -> bool {
    target.copies == 1 && !target.estimated && (target.kind == "db" || target.range.is_some())
}

/// A count of documents. Marked if another copy of the range that has seen the same changes has a
/// different count.
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
        @if differ && number.is_some() { span.warn title="a copy of this range with the same last sequence has another document count" { " ≠" } }
    }
}
