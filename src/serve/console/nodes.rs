//! Nodes: whether they answer, what holds starts back there, their own smoosh, their files.

use super::{
    Page, Part, Screen,
    cells::{ago, bytes, count, link, name, number, unknown, words},
};
use crate::serve::report::{GateLine, NodeLine, Planned, Status};
use maud::{Markup, html};
use wall_clock::Moment;

/// The page at `/nodes`.
pub(in crate::serve) fn nodes(status: &Status, planned: &Planned, now: Moment) -> Page {
    let parts = vec![
        Part::new("list", table(status, now)),
        Part::new("gates", gates(planned, now)),
        Part::new("smoosh", smoosh(status)),
        Part::new("disk", disk(status, now)),
        Part::new("feeds", feeds(status, now)),
    ];
    Page::live(Screen::Nodes, "Nodes", parts)
}

fn table(status: &Status, now: Moment) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Nodes" { table {
            thead { tr { th { "node" } th { "answers" } th { "version" } th.rest { "all read" } th.rest { "its smoosh" } th.rest { "own address" } th { "starts" } } }
            tbody { @for node in &status.nodes { tr {
                td.named { (name(&node.node)) @if !node.member { span.warn { " no member" } } @if !node.served { span.quiet { " read by another process" } } }
                td { (answers(node)) }
                td { @match &node.version { Some(version) => { (version) } None => { (unknown()) } } }
                td.rest { @match &node.last_success { Some(at) => { (ago(at, now)) } None => { (unknown()) } } }
                td.rest { (node.smoosh_says()) }
                td.rest { @if node.own_address { "yes" } @else { "no" } }
                td { a href=(link("act", &[("order", "suspend"), ("scope", &format!("node:{}", node.node))])) { "Suspend …" } }
            } } }
        } }
        @if status.nodes.iter().any(|node| !node.findings.is_empty()) {
            ul { @for node in &status.nodes { @for finding in &node.findings { li { (name(&node.node)) ": " (finding) } } } }
        }
        h2 { "Addresses of CouchDB" }
        ul { @for entry in &status.couchdb { li {
            code { (name(&entry.url)) } " "
            @match entry.up { Some(true) => { span.good { "answers" } } Some(false) => { span.bad { "does not answer" } } None => { span.quiet { "not asked yet" } } }
            @if let Some(problem) = &entry.problem { ": " (name(problem)) }
        } } }
    }
}

fn answers(node: &NodeLine) -> Markup {
    match node.up {
        Some(true) => html! { span.good { "yes" } },
        Some(false) => html! { span.bad { "no" } },
        None => unknown(),
    }
}

fn gates(planned: &Planned, now: Moment) -> Markup {
    html! {
        h2 { "What holds starts back" }
        @if planned.gates.is_empty() { p.quiet { "No gate is closed on any node." } } @else {
            div.wide tabindex="0" role="region" aria-label="Closed gates" { table {
                thead { tr { th { "node" } th { "gate" } th.n { "measured" } th.n { "limit" } th { "closed" } } }
                tbody { @for gate in &planned.gates { (row(gate, now)) } }
            } }
        }
    }
}

fn row(gate: &GateLine, now: Moment) -> Markup {
    let measured = |value: Option<f64>| html! { @if value.is_some() { (number(value)) } };
    html! { tr {
        td { (name(&gate.node)) }
        td { a href={ "docs/why.html#" (gate.gate) } { (words(&gate.gate)) } }
        td.n { (measured(gate.value)) }
        td.n { (measured(gate.limit)) }
        td { @if let Some(since) = &gate.since { (ago(since, now)) } }
    } }
}

fn smoosh(status: &Status) -> Markup {
    html! {
        @if !status.smoosh.is_empty() {
            h2 { "Smoosh beside recliner" }
            ul { @for line in &status.smoosh { li {
                b { (name(&line.node)) } ": "
                @if line.taken_over.is_empty() { "nothing is taken over" } @else { "taken over: " (name(&line.taken_over.join(", "))) }
                @if !line.not_taken_over.is_empty() { "; should be and is not: " (name(&line.not_taken_over.join(", "))) }
                @for finding in &line.findings { br; (name(finding)) }
                @if let Some(problem) = &line.problem { br; span.bad { (name(problem)) } }
            } } }
        }
    }
}

fn disk(status: &Status, now: Moment) -> Markup {
    let read = status.nodes.iter().filter_map(|node| Some((node, node.disk.as_ref()?)));
    let read: Vec<_> = read.collect();
    html! {
        @if !read.is_empty() {
            h2 { "What the directories hold besides targets" }
            div.wide tabindex="0" role="region" aria-label="Directories" { table {
                thead { tr { th { "node" } th.n { "files" } th.n { "stale indexes" } th.n { "leftovers" } th.n { "trash" } th.n.rest { "search" } th.n.rest { "other" } th { "read" } } }
                tbody { @for (node, disk) in &read { tr {
                    td { (name(&node.node)) }
                    td.n { (count(disk.files)) }
                    td.n { (bytes(Some(disk.stale_index_bytes))) }
                    td.n { (bytes(Some(disk.leftover_bytes))) }
                    td.n { (bytes(Some(disk.trash_bytes))) }
                    td.n.rest { (bytes(Some(disk.nouveau_bytes.saturating_add(disk.clouseau_bytes)))) }
                    td.n.rest { (bytes(Some(disk.other_bytes))) }
                    td { @match &disk.last_success { Some(at) => { (ago(at, now)) } None => { (unknown()) } } }
                } } }
            } }
        }
    }
}

fn feeds(status: &Status, now: Moment) -> Markup {
    let feeds = &status.feeds;
    html! {
        h2 { "Feeds of changes" }
        @if feeds.list.is_empty() { p.quiet { "No feed is followed." } } @else {
            p.quiet {
                @match &feeds.followed_since { Some(since) => { "Followed without a gap since " (ago(since, now)) ". " } None => { "Not followed yet. " } }
                @if let Some(last) = &feeds.last_event { "The last event came " (ago(last, now)) "." }
            }
            ul { @for feed in &feeds.list { li {
                @match &feed.node { Some(node) => { (name(node)) } None => { "the cluster" } }
                ": " (feed.failures) " failures, " (feed.rewinds) " rewinds"
                @if let Some(problem) = &feed.problem { "; " span.bad { (name(problem)) } }
            } } }
        }
    }
}
