//! What the bytes of a database's files are, and the button that has them read.

use super::cells::{ago, bytes, count, name, unknown, words};
use crate::{
    sources::xray::{DatabaseXray, NodeXray, PartLine, XrayAnswer},
    text::{counted, size::format_size},
};
use maud::{Markup, html};
use wall_clock::Moment;

/// The panel on the page of a database; `is_read` says whether anything reads any of its files.
pub(super) fn panel(xray: &DatabaseXray, is_read: bool, now: Moment) -> Markup {
    html! {
        h2 { "Inside the files" }
        @if !is_read && xray.sum.is_none() {
            p.quiet { "Unknown: neither this recliner nor a sidecar reads the files of its nodes. " a href="docs/files.html" { "Reading files" } }
        } @else {
            (found(xray, now))
            @if xray.is_running { p { "Its files are being read, at a limited rate. This page shows what is found." } }
            @else {
                form method="post" action="database" {
                    input type="hidden" name="name" value=(xray.db);
                    p.actions { button { @if xray.at.is_some() { "Look again" } @else { "What takes the space?" } } }
                }
                p.quiet { "Reads a part of the trees in its files, at a limited rate, and changes nothing." }
            }
        }
    }
}

fn found(xray: &DatabaseXray, now: Moment) -> Markup {
    let reads = |node: &NodeXray| {
        let files = counted(node.files, "file", "files");
        let left = node.sum.after_compaction_bytes;
        let left = left.map_or_else(|| "unknown".to_owned(), |left| format_size(left).to_string());
        format!(
            "{}: {files} with {}, {left} after a compaction.",
            node.node,
            format_size(node.sum.file_bytes)
        )
    };
    html! {
        @if let (Some(at), Some(sum)) = (&xray.at, &xray.sum) {
            p { "Read " (ago(at, now)) ": " (bytes(Some(sum.file_bytes))) @if !xray.unknown.is_empty() { ", not all of them" } "; a compaction would leave " (within(sum.after_compaction_bytes, sum.error_bytes)) "." }
            (parts(sum))
            @if let Some(limit) = sum.revs_limit { p.quiet { "It keeps up to " (count(limit)) " revisions of a document (" code { "_revs_limit" } ")." } }
            @if xray.nodes.len() > 1 { ul { @for node in &xray.nodes { li { (name(&reads(node))) } } } }
        }
        @for why in &xray.unknown { p.quiet { "Unknown: " (name(why)) } }
    }
}

fn parts(sum: &XrayAnswer) -> Markup {
    let mut parts: Vec<&PartLine> = sum.parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    let share = |part: &PartLine| part.bytes as f64 * 100.0 / sum.file_bytes.max(1) as f64;
    html! {
        div.wide tabindex="0" role="region" aria-label="Parts of its files" { table {
            thead { tr { th { "part" } th.n { "size" } th.n { "share" } th.n.rest { "count" } } }
            tbody { @for part in parts { tr {
                td { (words(&part.part)) }
                td.n { (within(Some(part.bytes), part.error_bytes)) }
                td.n { (format!("{:.1}%", share(part))) }
                td.n.rest { (count(part.count)) }
            } } }
        } }
    }
}

/// A size with its error.
fn within(size: Option<u64>, error: Option<u64>) -> Markup {
    html! {
        @if size.is_none() { (unknown()) } @else {
            (bytes(size))
            @if let Some(error) = error.filter(|error| *error > 0) { " ± " (bytes(Some(error))) }
        }
    }
}
