//! The result of a scan: nodes, directories, queues, and the targets with most to reclaim.

use super::{
    super::printable,
    layout::{self, Grid, bytes, paragraph, partial, shortened, sum},
    planned::legend,
};
use crate::{
    model::{
        priority::{PriorityKind, PriorityUnit},
        target::{CLUSTER_NODE, TargetKind, TargetState},
    },
    plan::Plan,
    serve::report::{
        self, DiskLine, MissLine, VolumeLine,
        columns::{Cell, Table},
    },
    table::{NodeIx, PartialSum, TargetRef, TargetSums, Waste},
    text::{Label, counted, size},
};
use couchdb_names::Range;
use std::collections::BTreeSet;
use wall_clock::Moment;

/// Maximum number of rows in the list of targets; the JSON has all of them.
const ROWS: usize = 25;

/// What was read and when, in one line.
pub(in crate::cli) fn headline(plan: &Plan) -> String {
    let nodes = plan.snapshot.nodes().iter().skip(1).filter(|node| node.is_member).count();
    let down = plan.snapshot.nodes().iter().filter(|node| node.is_down()).count();
    let down = if down > 0 { format!(", {down} of them down") } else { String::new() };
    let alone = plan.snapshot.nodes().iter().skip(1).all(|node| node.files_only);
    let what = match (alone, nodes) {
        (true, 1..) => "the files",
        (false, 1) => "a CouchDB node",
        (true, 0) | (false, _) => "a CouchDB cluster",
    };
    let nodes = match (alone, nodes) {
        (false, 1) => String::new(),
        _ => format!(" of {}", counted(nodes as u64, "node", "nodes")),
    };
    let at: Moment = plan.snapshot.generated_at();
    format!("{what}{nodes}{down}, read at {}\n", at.rfc3339())
}

/// The cluster's nodes, with their full names if those fit.
pub(in crate::cli) fn nodes(plan: &Plan, width: u16) -> String {
    let whole = nodes_named(plan, |name| name);
    let table = if whole.fits(width) { whole } else { nodes_named(plan, report::short_node) };
    table.wrapped(width)
}

fn nodes_named<'a>(plan: &'a Plan, named: impl Fn(&'a str) -> &'a str) -> Grid {
    let totals = plan.snapshot.totals();
    let head = ["node", "up", "version", "shards", "on disk", "reclaimable", "smoosh"];
    let mut table = Grid::new(head, &[3, 4, 5]);
    for (at, line) in report::nodes(plan).enumerate() {
        let node = NodeIx::from_usize(at + 1).unwrap_or_default();
        let sums = totals.sums_of(node, TargetKind::Db);
        let served = |number: String| if line.served { number } else { "-".to_owned() };
        let smoosh = line.smoosh_says().to_owned();
        let name = plan.snapshot.node(node).map_or("", |node| &node.name);
        table.push([
            printable(named(name)),
            line.up.map_or("?", |up| if up { "yes" } else { "no" }).to_owned(),
            line.version.unwrap_or_else(|| "?".to_owned()),
            served(sums.counts_by_state.iter().sum::<u64>().to_string()),
            served(partial(sums.file_bytes)),
            served(partial(sums.reclaimable_bytes)),
            smoosh,
        ]);
    }
    let nodes = (1..plan.snapshot.nodes().len()).filter_map(NodeIx::from_usize);
    let parts: Vec<TargetSums> = nodes.map(|node| totals.sums_of(node, TargetKind::View)).collect();
    let of_cluster = totals.sums_of(NodeIx::CLUSTER, TargetKind::View);
    let count = |sums: &TargetSums| sums.counts_by_state.iter().sum::<u64>();
    let views = match (count(&of_cluster), parts.iter().map(count).sum::<u64>()) {
        (0, 0) => None,
        // Only files were read, so each shard's index counts separately.
        (0, 1) => Some(("1 view index".to_owned(), parts)),
        (0, more) => Some((format!("{more} view indexes"), parts)),
        (views, _) => {
            let copies = if plan.snapshot.only_node().is_some() { "" } else { ", all copies" };
            Some((format!("{}{copies}", counted(views, "view", "views")), vec![of_cluster]))
        }
    };
    if let Some((views, sums)) = views {
        let of_all = |bytes: fn(&TargetSums) -> PartialSum| {
            sums.iter().map(bytes).fold(PartialSum::default(), PartialSum::and)
        };
        let sums = [of_all(|sums| sums.file_bytes), of_all(|sums| sums.reclaimable_bytes)];
        table.push(sums_row(views, String::new(), sums));
    }
    let nodes = (1..plan.snapshot.nodes().len()).filter_map(NodeIx::from_usize);
    let shards: u64 = nodes.map(|at| count(&totals.sums_of(at, TargetKind::Db))).sum();
    let all = Waste::of(&plan.snapshot);
    let sums = [all.shards_and_views(), all.reclaimable()];
    table.push(sums_row("total".to_owned(), shards.to_string(), sums));
    table
}

/// The row for the sums of several nodes: on disk, and reclaimable.
fn sums_row(name: String, shards: String, sums: [PartialSum; 2]) -> [String; 7] {
    let none = String::new;
    let [on_disk, reclaimable] = sums.map(partial);
    [name, none(), none(), shards, on_disk, reclaimable, none()]
}

/// Other files in the nodes' directories; empty if no directory is read.
pub(in crate::cli) fn disks(plan: &Plan, width: u16) -> String {
    let disks: Vec<_> =
        report::nodes(plan).filter_map(|line| Some((line.node, line.disk?))).collect();
    let volumes: Vec<(&String, &VolumeLine)> = disks
        .iter()
        .flat_map(|(node, disk)| disk.volumes.iter().map(move |volume| (node, volume)))
        .collect();
    if disks.is_empty() {
        return String::new();
    }
    let each = if volumes.is_empty() { String::new() } else { self::volumes(&volumes, width) };
    let table = DiskLine::table(disks.iter().map(|(node, disk)| (node, disk)));
    format!("\n{}{each}", table.wrapped(width))
}

/// How much each kind of cleanup would free on the nodes' file systems. Node names are left out if
/// there is only one node.
fn volumes(volumes: &[(&String, &VolumeLine)], width: u16) -> String {
    let one_node = volumes.iter().all(|(node, _)| volumes.first().is_some_and(|it| it.0 == *node));
    let name = |(node, volume): &(&String, &VolumeLine)| match one_node {
        true => printable(&volume.directory),
        false => format!("{} {}", printable(node), printable(&volume.directory)),
    };
    let table = Table::of(volumes)
        .text("volume", name)
        .number("size", |(_, it)| bytes(it.size_bytes))
        .number("free", |(_, it)| bytes(it.available_bytes))
        .number("stale", |(_, it)| bytes(Some(it.stale_index_bytes)))
        .number("leftovers", |(_, it)| bytes(Some(it.leftover_bytes)))
        .number("trash", |(_, it)| bytes(Some(it.trash_bytes)))
        .number("compaction", |(_, it)| bytes(it.reclaimable_bytes))
        .into_grid(width);
    // The end of a directory is its most significant part.
    format!("\n{}", table.one_line_each(width, |_| 0))
}

/// The queues with waiting or running targets.
pub(in crate::cli) fn queues(plan: &Plan, width: u16) -> String {
    let head = ["channel", "node", "waiting", "running", "reclaimable", "best"];
    let mut table = Grid::new(head, &[2, 3, 4, 5]);
    let (mut waiting_in_all, mut running, mut reclaimable) = (0, 0, 0_u64);
    for (queue, waits) in plan.waiting().filter(|(it, waits)| *waits > 0 || it.active_jobs > 0) {
        waiting_in_all += waits + queue.overflow;
        running += queue.active_jobs;
        reclaimable = reclaimable.saturating_add(queue.reclaimable_bytes);
        let (node, channel) =
            (plan.snapshot.node(queue.node), plan.channels.list.get(queue.channel_index));
        let waiting = match queue.overflow {
            0 => waits.to_string(),
            more => format!("{waits} + {more}"),
        };
        let best = queue
            .priority_range
            .zip(channel)
            .map(|((best, _), channel)| priority(channel.priority, best));
        table.push([
            channel.map_or_else(String::new, |channel| channel.name.to_string()),
            node.map_or_else(String::new, |node| place(plan, &node.name)),
            waiting,
            queue.active_jobs.to_string(),
            size::format_size(queue.reclaimable_bytes).to_string(),
            best.unwrap_or_default(),
        ]);
    }
    if table.is_empty() {
        return "All queues are empty.\n".to_owned();
    }
    table.push([
        "total".to_owned(),
        String::new(),
        waiting_in_all.to_string(),
        running.to_string(),
        size::format_size(reclaimable).to_string(),
        String::new(),
    ]);
    table.wrapped(width)
}

fn priority(kind: PriorityKind, value: f64) -> String {
    match kind.unit() {
        Some(PriorityUnit::Ratio) => format!("{} {value:.1}", kind.noun()),
        Some(PriorityUnit::Bytes) => format!("{} {}", kind.noun(), sum(Some(value))),
        None => kind.noun().to_owned(),
    }
}

/// The targets with most to reclaim, and files that do not match the shard map.
pub(in crate::cli) fn targets(plan: &Plan, width: u16) -> String {
    let targets = plan.snapshot.targets_once().filter(|target| {
        let queued = matches!(target.state(), TargetState::Ok | TargetState::Resharding);
        queued && target.reclaimable_bytes().is_some_and(|bytes| bytes > 0)
    });
    let mut best: Vec<TargetRef<'_>> = targets.collect();
    best.sort_by_key(|target| std::cmp::Reverse(target.reclaimable_bytes()));
    let shown = best.get(..ROWS).unwrap_or(&best);
    let words = shown.iter().filter_map(|it| no_channel_word(plan, *it)).collect();
    let ratio = |it: &TargetRef<'_>| it.facts().ratio().map(|ratio| format!("{ratio:.2}"));
    let table = Table::of(shown)
        .text("target", |it| shortened(&printable(&what_and_where(plan, *it)[0])))
        .text("range", |it| what_and_where(plan, *it)[1].clone());
    // A single node is named above the table, and rows are long.
    let table = match plan.snapshot.only_node() {
        Some(_) => table,
        None => table.text("node", |it| printable(&what_and_where(plan, *it)[2])),
    };
    let table = table
        .number("on disk", |it| Cell::bounded(it.file_bytes(), 0, it.is_estimated().into()))
        .number("ratio", |it| ratio(it).unwrap_or_else(|| "?".to_owned()))
        .number("reclaimable", |it| {
            Cell::bounded(it.reclaimable_bytes(), 0, it.is_estimated().into())
        })
        .text("channel", |it| channel(plan, *it))
        .one_line_each(width);
    let mut text = match shown {
        [] if Waste::of(&plan.snapshot).unmeasured() > 0 => {
            "No reclaimable space found, but some sizes could not be read.\n".to_owned()
        }
        [] => "Nothing to reclaim.\n".to_owned(),
        _ => format!("Most reclaimable:\n\n{table}"),
    };
    if best.len() > ROWS {
        text.push_str(&format!("and {} more; --format json has all\n", best.len() - ROWS));
    }
    text.push_str(&no_channel_legend("none", &words, width));
    text.push_str(&unmatched(plan, width));
    text
}

/// The channel that takes a target, or why none does.
fn channel(plan: &Plan, target: TargetRef<'_>) -> String {
    if let Some((channel, _)) = plan.placement(target.ix()) {
        return channel.name.to_string();
    }
    if target.is_part() && plan.snapshot.has_views() {
        return "with its view".to_owned();
    }
    match no_channel_word(plan, target) {
        Some(why) => format!("none: {why}"),
        None => "none".to_owned(),
    }
}

/// A few words for why no channel takes a target; `None` if one does.
fn no_channel_word(plan: &Plan, target: TargetRef<'_>) -> Option<String> {
    if plan.placement(target.ix()).is_some() {
        return None;
    }
    let misses: Vec<MissLine> =
        plan.misses(target).map(|(channel, miss)| MissLine::new(channel, miss)).collect();
    report::not_taken(&misses).map(ToOwned::to_owned)
}

/// Explains `label`, which stands for "no channel", and the words that follow it.
pub(super) fn no_channel_legend(label: &str, words: &BTreeSet<String>, width: u16) -> String {
    if words.is_empty() {
        return String::new();
    }
    let means = "no channel takes the target, so recliner does not compact it";
    let means = paragraph(&format!("{label}: {means}"), width);
    let meaning = |word: &String| Some((word.clone(), report::not_taken_meaning(word)?));
    let words = legend(&words.iter().filter_map(meaning).collect(), width);
    format!("\n{means}{}", words.trim_start_matches('\n'))
}

fn place(plan: &Plan, node: &str) -> String {
    layout::place(node, plan.snapshot.only_node().map(|node| &*node.name))
}

/// A target in three short columns: name, range and node, such as `app/orders`, `00-7f` and `host`;
/// a view has the number of its copies instead of a node.
fn what_and_where(plan: &Plan, target: TargetRef<'_>) -> [String; 3] {
    let db = target.db_name().db;
    match (target.kind(), target.view().and_then(|view| view.designs.first())) {
        (TargetKind::View, Some(design)) if !target.is_part() => {
            let copies = match target.file_count() {
                _ if plan.snapshot.only_node().is_some() => place(plan, CLUSTER_NODE),
                1 => "1 copy".to_owned(),
                more => format!("{more} copies"),
            };
            [format!("{db}/{design}"), "-".to_owned(), copies]
        }
        (kind, design) => {
            let whole = plan.snapshot.only_node().is_some() && target.shard_map().ranges == 1;
            let range = target.range().filter(|_| !whole).map(Range::short);
            let what = match (kind, design, target.view()) {
                (TargetKind::View, Some(design), _) => format!("{db}/{design}"),
                (TargetKind::View, None, Some(view)) => {
                    let signature = view.signature.to_string();
                    format!("{db}/{}…", signature.get(..8).unwrap_or_default())
                }
                _ => db.to_owned(),
            };
            let node = place(plan, target.node());
            [what, range.unwrap_or_else(|| "-".to_owned()), node]
        }
    }
}

/// Copies that do not match the shard map.
fn unmatched(plan: &Plan, width: u16) -> String {
    let mut table = Grid::new(["state", "files that do not match the shard map"], &[]);
    let mut count = 0;
    for target in plan.snapshot.targets().filter(|target| target.state() != TargetState::Ok) {
        count += 1;
        if count <= ROWS {
            table.push([target.state().label().to_owned(), printable(&report::title(target))]);
        }
    }
    match count {
        0 => String::new(),
        _ if count > ROWS => format!("\n{}and {} more\n", table.wrapped(width), count - ROWS),
        _ => format!("\n{}", table.wrapped(width)),
    }
}

#[cfg(test)]
mod tests;
