//! What the bytes of a database's files consist of, and the button that starts reading them.

use super::{
    cells::{ago, bytes, count, name},
    table::{shown, still},
};
use crate::{
    sources::xray::{DatabaseXray, NodeXray},
    text::{counted, size::format_size},
};
use maud::{Markup, html};
use wall_clock::Moment;

/// The panel on a database's page; `can_xray` says whether anyone reads its files.
pub(super) fn panel(xray: &DatabaseXray, can_xray: bool, now: Moment) -> Markup {
    html! {
        h2 { "Inside the files" }
        @if !can_xray && xray.sum.is_none() {
            p.quiet { "Unknown: neither this recliner nor a sidecar reads the files of its nodes. " a href="docs/files.html" { "Reading files" } }
        } @else {
            (found(xray, now))
            @if xray.is_running { p { "recliner is reading its files, at a limited rate. This page will show the result." } }
            @else {
                form method="post" action="database" {
                    input type="hidden" name="name" value=(xray.db);
                    p.actions { button { @if xray.at.is_some() { "Look again" } @else { "What uses the space?" } } }
                }
                p.quiet { "This reads part of the trees in its files, at a limited rate, and changes nothing." }
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
            p { "Read " (ago(at, now)) ": " (bytes(Some(sum.file_bytes))) @if !xray.unknown.is_empty() { ", not all of them" } "; a compaction would leave " (shown(&sum.left(), now)) "." }
            (still("Parts of its files", &sum.table()))
            @if let Some(limit) = sum.revs_limit { p.quiet { "It keeps up to " (count(limit)) " revisions of a document (" code { "_revs_limit" } ")." } }
            @if xray.nodes.len() > 1 { ul { @for node in &xray.nodes { li { (name(&reads(node))) } } } }
        }
        @for why in &xray.unknown { p.quiet { "Unknown: " (name(why)) } }
    }
}
