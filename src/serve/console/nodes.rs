//! The nodes: whether they answer, their closed gates, their own smoosh, their files.

use super::{
    Page, Part, Screen,
    cells::{ago, bytes, count, meaning, name, seconds, span_since, unknown, with_code, words},
    queue::suspend_or_resume,
};
use crate::{
    model::{rounding::to_bytes, share::Share},
    plan::{RefusalClass, RefusalReason},
    serve::report::{
        DiskLine, GateLine, NodeLine, Planned, PressureLine, SmooshChannelLine, Status,
        columns::Cell,
    },
    text::{Label, counted},
};
use maud::{Markup, html};
use wall_clock::Moment;

/// The page at `/nodes`.
pub(in crate::serve) fn nodes(status: &Status, planned: &Planned, now: Moment) -> Page {
    let parts = vec![
        Part::new("list", table(status, planned, now)),
        Part::new("gates", gates(planned, now)),
        Part::new("pressure", pressure(status)),
        Part::new("smoosh", smoosh(status)),
        Part::new("disk", disk(status, now)),
        Part::new("sidecars", sidecars(status, now)),
        Part::new("shared", shared(status)),
        Part::new("feeds", feeds(status, now)),
    ];
    Page::live(Screen::Nodes, "Nodes", parts)
}

fn table(status: &Status, planned: &Planned, now: Moment) -> Markup {
    // A single node is always asked at the address that was given.
    let has_several = status.nodes.len() > 1;
    html! {
        div.wide tabindex="0" role="region" aria-label="Nodes" { table {
            thead { tr { th { "node" } th { "answers" } th { "version" } th.rest { "last full read" } th.rest { "smoosh" } @if has_several { th.rest { "direct address" } } th { "starts" } } }
            tbody { @for node in &status.nodes { tr {
                td.named { (name(&node.node)) @if !node.member { span.warn { " no member" } } @if !node.served { span.quiet { " read by another process" } } }
                td { (answers(node)) }
                td { @match &node.version { Some(version) => { (version) } None => { (unknown()) } } }
                td.rest { @match &node.last_success { Some(at) => { (ago(at, now)) } None => { (unknown()) } } }
                td.rest { (node.smoosh_says()) (work(&node.smoosh_channels)) }
                @if has_several { td.rest { @if node.own_address { "yes" } @else { "no" } } }
                td { (held_back(planned, &node.node)) (suspend_or_resume(&status.suspensions, &node.node, None)) }
            } } }
        } }
        @if status.nodes.iter().any(|node| !node.findings.is_empty()) {
            ul { @for node in &status.nodes { @for finding in &node.findings { li { (name(&node.node)) ": " (with_code(finding)) } } } }
        }
        h2 { @if has_several { "Addresses of CouchDB" } @else { "Address of CouchDB" } }
        ul { @for entry in &status.couchdb { li {
            code { (name(&entry.url)) } " "
            @match entry.up { Some(true) => { span.good { "answers" } } Some(false) => { span.bad { "does not answer" } } None => { span.quiet { "not asked yet" } } }
            @if let Some(problem) = &entry.problem { ": " (with_code(problem)) }
        } } }
    }
}

/// The closed gates of a node that do not open as jobs end; a suspension has its own words.
fn held_back(planned: &Planned, node: &str) -> Markup {
    let is_shown = |gate: &&GateLine| {
        let reason = RefusalReason::from_label(&gate.gate);
        gate.node == node
            && reason.is_some_and(|reason| {
                reason.class() != RefusalClass::InLine
                    && !matches!(reason, RefusalReason::Mode | RefusalReason::Suspended)
            })
    };
    html! {
        @for gate in planned.gates_of_nodes().filter(is_shown) {
            span.warn { "held back: " a href={ "docs/why.html#" (gate.gate) } { (words(&gate.gate)) } } " "
        }
    }
}

/// The work of a node's smoosh, summed over its channels.
fn work(channels: &[SmooshChannelLine]) -> Markup {
    let sum = |of: fn(&SmooshChannelLine) -> u64| count(channels.iter().map(of).sum::<u64>());
    html! {
        @if !channels.is_empty() {
            ": " (sum(|it| it.active)) " active, " (sum(|it| it.starting)) " starting, " (sum(|it| it.waiting)) " waiting"
        }
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
    // The mode is the same on all nodes, so it is shown once.
    let mode = RefusalReason::Mode.label();
    let closed: Vec<&GateLine> =
        planned.gates_of_nodes().filter(|gate| gate.gate != mode).collect();
    let advises = planned.gates.iter().any(|gate| gate.gate == mode);
    html! {
        h2 { "Closed gates" }
        @if advises { p.quiet { "recliner only advises (" code { "mode: advise" } "), so nothing starts." } }
        @if closed.is_empty() {
            @if !advises { p.quiet { "No gate is closed on any node." } }
        } @else {
            div.wide tabindex="0" role="region" aria-label="Closed gates" { table {
                thead { tr { th { "node" } th { "gate" } th { "why" } th { "closed for" } } }
                tbody { @for gate in closed { (row(gate, now)) } }
            } }
        }
    }
}

/// Every pressure signal of every node with its marks, whether or not it holds starts back.
fn pressure(status: &Status) -> Markup {
    let lines = status.nodes.iter().flat_map(|node| node.pressure.iter().map(move |it| (node, it)));
    let lines: Vec<(&NodeLine, &PressureLine)> = lines.collect();
    html! {
        @if !lines.is_empty() {
            h2 { "Pressure" }
            p.quiet { "Nothing starts on a node while a signal is above its high mark, until it has fallen to its low mark. " a href="docs/why.html#pressure" { "In the book" } }
            div.wide tabindex="0" role="region" aria-label="Pressure" { table {
                thead { tr { th { "node" } th { "signal" } th.n { "now" } th.n { "low" } th.n { "high" } th { "starts" } } }
                tbody { @for (node, line) in lines { tr {
                    td { (name(&node.node)) }
                    td { (words(&line.signal)) @if line.unit == "processes" || line.unit == "changes" { span.quiet.rest { " (" (line.unit) ")" } } }
                    td.n { (amount(line, Some(line.value))) }
                    td.n { (amount(line, line.low)) }
                    td.n { (amount(line, line.high)) }
                    td { @if line.holds { span.warn { "held back" } } @else { "allowed" } }
                } } }
            } }
        }
    }
}

/// A signal's value with its unit.
fn amount(line: &PressureLine, value: Option<f64>) -> Markup {
    match value {
        Some(_) if line.unit == "seconds" => seconds(value),
        Some(value) => html! { (count(to_bytes(value))) },
        None => unknown(),
    }
}

fn row(gate: &GateLine, now: Moment) -> Markup {
    let meaning = meaning(&gate.gate);
    html! { tr {
        td { (name(&gate.node)) }
        td { a href={ "docs/why.html#" (gate.gate) } { (words(&gate.gate)) } }
        td.text { (name(gate.says.as_deref().unwrap_or(meaning))) }
        td { (span_since(gate.since.as_deref(), now)) }
    } }
}

fn smoosh(status: &Status) -> Markup {
    html! {
        @if !status.smoosh.is_empty() {
            h2 { "smoosh channels taken over" }
            ul { @for line in &status.smoosh { li {
                b { (name(&line.node)) } ": "
                @if line.taken_over.is_empty() { "none" } @else { (name(&line.taken_over.join(", "))) }
                @if !line.not_taken_over.is_empty() { "; not taken over yet: " (name(&line.not_taken_over.join(", "))) }
                @for finding in &line.findings { br; (with_code(finding)) }
                @if let Some(problem) = &line.problem { br; span.bad { (with_code(problem)) } }
            } } }
        }
        (smoosh_channels(status))
    }
}

/// The channels of each node's smoosh that have work.
fn smoosh_channels(status: &Status) -> Markup {
    let all = status
        .nodes
        .iter()
        .flat_map(|node| node.smoosh_channels.iter().map(move |line| (&node.node, line)));
    let busy: Vec<_> =
        all.filter(|(_, line)| line.active + line.starting + line.waiting > 0).collect();
    html! {
        @if !busy.is_empty() {
            h2 { "What smoosh does" }
            div.wide tabindex="0" role="region" aria-label="Channels of smoosh" { table {
                thead { tr { th { "node" } th { "channel" } th.n { "active" } th.n { "starting" } th.n { "waiting" } } }
                tbody { @for (node, line) in busy { tr {
                    td { (name(node)) }
                    td { (name(&line.channel)) }
                    td.n { (count(line.active)) }
                    td.n { (count(line.starting)) }
                    td.n { (count(line.waiting)) }
                } } }
            } }
        }
    }
}

fn shared(status: &Status) -> Markup {
    let amount = |share: Share| html! { (counted(share.jobs as u64, "job", "jobs")) " · " (bytes(Some(share.bytes_per_hour))) "/h" };
    let known = |share: Option<Share>| html! { @match share { Some(share) => { (amount(share)) } None => { (unknown()) } } };
    html! {
        @if let Some(shared) = &status.shared_limits {
            h2 { "Shared limits" }
            @if let Some(share) = &shared.share { p { (with_code(&share.says)) } }
            @if !shared.members.is_empty() {
                div.wide tabindex="0" role="region" aria-label="Members" { table {
                    thead { tr { th { "member" } th.n { "lease" } th.n { "in use at most" } th.n.rest { "without an answer" } } }
                    tbody { @for member in &shared.members { tr {
                        td.named { (name(&member.name)) }
                        td.n { @match member.lease { Some(lease) => { (amount(lease)) } None => { "none" } } }
                        td.n { (known(member.held)) }
                        td.n.rest { (amount(member.own_share)) }
                    } } }
                } }
            }
        }
    }
}

fn sidecars(status: &Status, now: Moment) -> Markup {
    html! {
        @if !status.peers.is_empty() {
            h2 { "Sidecars" }
            div.wide tabindex="0" role="region" aria-label="Sidecars" { table {
                thead { tr { th { "address" } th { "answers" } th { "last answer" } th.rest { "reads the files of" } } }
                tbody { @for line in &status.peers { tr {
                    td.named { code { (name(&line.url)) } }
                    td { @match &line.problem { None => { span.good { "yes" } } Some(problem) => { span.bad { "no" } details { summary { "why" } (with_code(problem)) } } } }
                    td { @match &line.last_answer { Some(at) => { (ago(at, now)) } None => { "never" } } }
                    td.rest { (name(&line.nodes.join(", "))) }
                } } }
            } }
        }
    }
}

fn disk(status: &Status, now: Moment) -> Markup {
    let read = status.nodes.iter().filter_map(|node| Some((&node.node, node.disk.as_ref()?)));
    let disks =
        DiskLine::table(read).text("read", |(_, it)| Cell::time(it.last_success.as_deref()));
    html! {
        @if !disks.rows.is_empty() {
            h2 { "Other files on disk" }
            (super::table::table("Directories", &disks, None, now))
        }
    }
}

fn feeds(status: &Status, now: Moment) -> Markup {
    let feeds = &status.feeds;
    // On a single node, sweeps without a feed are the normal case.
    let is_alone = status.nodes.len() == 1;
    let shown: Vec<_> = feeds.list.iter().filter(|feed| !is_alone || !feed.absent).collect();
    html! {
        h2 { "Feeds of changes" }
        @if shown.is_empty() { p.quiet { "recliner follows no feed: sweeps find the changes." } } @else {
            p.quiet {
                @match &feeds.followed_since { Some(since) => { "Followed without a gap for " (span_since(Some(since), now)) ". " } None => { "Not followed yet. " } }
                @if let Some(last) = &feeds.last_event { "The last event came " (ago(last, now)) "." }
            }
            ul { @for feed in shown { li {
                @match &feed.node { Some(node) => { (name(node)) } None if is_alone => { "the node" } None => { "the cluster" } }
                ": " (feed.failures) " failures, " (feed.rewinds) " rewinds"
                @if feed.absent { "; CouchDB has no database " code { "_global_changes" } ", so sweeps find the changes" }
                @else if let Some(problem) = &feed.problem { "; " span.bad { (with_code(problem)) } }
            } } }
        }
    }
}
