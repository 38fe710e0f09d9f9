//! Tables for people, in as many columns as the terminal has.

mod inspected;
mod journal;
mod planned;

pub(super) use inspected::inspected;
pub(super) use journal::{Events, outcomes};
pub(super) use planned::planned;

use super::printable;
use crate::{
    clock::Moment,
    facts::Fact,
    plan::Plan,
    report::{self, VolumeLine},
    size,
    snapshot::{NodeIx, Sums, TargetRef},
    target::{Kind, Range, State},
};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;

/// Columns between two columns.
const GAP: usize = 2;

/// Rows of the list of targets; the JSON has all of them.
const ROWS: usize = 25;

/// The columns to fit in: the terminal's, or what fits everywhere.
pub(super) fn width() -> u16 {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| width.0);
    told.or_else(terminal).unwrap_or(80).clamp(60, 240)
}

/// The cluster's nodes.
pub(super) fn nodes(plan: &Plan, width: u16) -> String {
    let totals = plan.snapshot.totals();
    let head = ["node", "up", "version", "shards", "on disk", "frees", "smoosh"];
    let mut table = table(width, &head, &[3, 4, 5]);
    for (at, line) in report::nodes(plan).enumerate() {
        let node = NodeIx::from_usize(at + 1).unwrap_or_default();
        let sums = totals.of(node, Kind::Db);
        let served = |number: String| if line.served { number } else { "-".to_owned() };
        table.add_row([
            printable(&line.node),
            line.up.map_or("?", |up| if up { "yes" } else { "no" }).to_owned(),
            line.version.unwrap_or_else(|| "?".to_owned()),
            served(sums.states.iter().sum::<u64>().to_string()),
            served(sum(sums.file.get())),
            served(sum(sums.reclaimable.get())),
            line.smoosh.replace('_', " "),
        ]);
    }
    let nodes = (1..plan.snapshot.nodes().len()).filter_map(NodeIx::from_usize);
    let parts: Vec<Sums> = nodes.map(|node| totals.of(node, Kind::View)).collect();
    let of_cluster = totals.of(NodeIx::CLUSTER, Kind::View);
    let count = |sums: &Sums| sums.states.iter().sum::<u64>();
    let views = match (count(&of_cluster), parts.iter().map(count).sum::<u64>()) {
        (0, 0) => None,
        // Files alone: each shard's index by itself.
        (0, 1) => Some(("1 view index".to_owned(), parts)),
        (0, more) => Some((format!("{more} view indexes"), parts)),
        (1, _) => Some(("1 view, all copies".to_owned(), vec![of_cluster])),
        (views, _) => Some((format!("{views} views, all copies"), vec![of_cluster])),
    };
    if let Some((views, sums)) = views {
        let of_all = |bytes: fn(&Sums) -> Option<f64>| {
            sum(sums.iter().map(bytes).try_fold(0.0, |all, bytes| Some(all + bytes?)))
        };
        table.add_row([
            views,
            String::new(),
            String::new(),
            String::new(),
            of_all(|sums| sums.file.get()),
            of_all(|sums| sums.reclaimable.get()),
            String::new(),
        ]);
    }
    lines(&table)
}

/// What lies in nodes' directories beside targets; nothing where none are read.
pub(super) fn disks(plan: &Plan, width: u16) -> String {
    let head = ["on disk", "files", "stale indexes", "leftovers", "trash", "search", "other"];
    let mut table = table(width, &head, &[1, 2, 3, 4, 5, 6]);
    let mut any = false;
    let mut volumes = Vec::new();
    for (node, disk) in report::nodes(plan).filter_map(|line| Some((line.node, line.disk?))) {
        any = true;
        volumes.extend(disk.volumes.into_iter().map(|volume| (node.clone(), volume)));
        let searched = disk.nouveau_bytes.saturating_add(disk.clouseau_bytes);
        table.add_row([
            printable(&node),
            disk.files.to_string(),
            bytes(Some(disk.stale_index_bytes)),
            bytes(Some(disk.leftover_bytes)),
            bytes(Some(disk.trash_bytes)),
            bytes(Some(searched)),
            bytes(Some(disk.other_bytes)),
        ]);
    }
    let each = if volumes.is_empty() { String::new() } else { self::volumes(&volumes, width) };
    if any { format!("\n{}{each}", lines(&table)) } else { String::new() }
}

/// What each kind of cleanup would free of the file systems of nodes; where there is one node,
/// nobody asks whose.
fn volumes(volumes: &[(String, VolumeLine)], width: u16) -> String {
    let head = ["volume", "size", "free", "stale", "leftovers", "trash", "compaction"];
    let one_node = volumes.iter().all(|(node, _)| volumes.first().is_some_and(|it| it.0 == *node));
    let row = |(node, volume): &(String, VolumeLine)| {
        let directory = printable(&volume.directory);
        [
            if one_node { directory } else { format!("{} {directory}", printable(node)) },
            bytes(volume.size_bytes),
            bytes(volume.available_bytes),
            bytes(Some(volume.stale_index_bytes)),
            bytes(Some(volume.leftover_bytes)),
            bytes(Some(volume.trash_bytes)),
            bytes(volume.reclaimable_bytes),
        ]
    };
    let rows = volumes.iter().map(row).collect();
    // Where a directory is, its end tells.
    format!("\n{}", lines(&fitted(width, &head, &[1, 2, 3, 4, 5, 6], rows, |_| 0)))
}

/// The queues in which something waits or runs.
pub(super) fn queues(plan: &Plan, width: u16) -> String {
    let head = ["channel", "node", "waiting", "running", "frees", "best"];
    let mut table = table(width, &head, &[2, 3, 4, 5]);
    let mut any = false;
    for queue in plan.queues.iter().filter(|it| !it.waiting.is_empty() || it.active > 0) {
        any = true;
        let (node, channel) =
            (plan.snapshot.node(queue.node), plan.channels.list.get(queue.channel));
        let waiting = match queue.overflow {
            0 => queue.waiting.len().to_string(),
            more => format!("{} + {more}", queue.waiting.len()),
        };
        let best = queue
            .priority
            .zip(channel)
            .map(|((best, _), channel)| priority(channel.priority, best));
        table.add_row([
            channel.map_or_else(String::new, |channel| channel.name.to_string()),
            node.map_or_else(String::new, |node| printable(short_node(plan, &node.name))),
            waiting,
            queue.active.to_string(),
            size::shown(queue.reclaimable).to_string(),
            best.unwrap_or_default(),
        ]);
    }
    if any { lines(&table) } else { "Nothing waits in any channel.\n".to_owned() }
}

fn priority(kind: crate::channel::Priority, value: f64) -> String {
    use crate::channel::Priority;
    match kind {
        Priority::Ratio => format!("{value:.1} times"),
        Priority::Slack => format!("{} slack", sum(Some(value))),
        Priority::Upgrade => "upgrade".to_owned(),
        Priority::Cleanup => "stale files".to_owned(),
    }
}

/// The targets with most to free, and what stands odd to the shard map.
pub(super) fn targets(plan: &Plan, width: u16) -> String {
    // Parts are the copies of views once more; they count where no view of the cluster is known.
    let has_views = plan.snapshot.totals().of(NodeIx::CLUSTER, Kind::View) != Sums::default();
    let targets = plan.snapshot.targets().filter(|target| {
        let queued = matches!(target.state(), State::Ok | State::Resharding);
        queued && target.reclaimable().is_some_and(|bytes| bytes > 0)
    });
    let mut best: Vec<TargetRef<'_>> =
        targets.filter(|target| !has_views || !target.is_part()).collect();
    best.sort_by_key(|target| std::cmp::Reverse(target.reclaimable()));
    let head = ["most to free", "where", "on disk", "ratio", "frees", "channel"];
    let row = |target: &TargetRef<'_>| {
        let channel = plan.placement(target.ix()).map(|(channel, _)| channel.name.to_string());
        let (what, place) = what_and_where(plan, *target);
        [
            shortened(&printable(&what)),
            printable(&place),
            bytes(target.on_disk(Fact::File)),
            target.facts().ratio().map_or_else(|| "?".to_owned(), |ratio| format!("{ratio:.2}")),
            bytes(target.reclaimable()),
            channel.unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows = best.iter().take(ROWS).map(row).collect();
    let table = fitted(width, &head, &[2, 3, 4], rows, |most| most * 2 / 3);
    let mut text = if best.is_empty() { "Nothing to free.\n".to_owned() } else { lines(&table) };
    if best.len() > ROWS {
        text.push_str(&format!("and {} more; --format json has all\n", best.len() - ROWS));
    }
    text.push_str(&odd(plan, width));
    text
}

/// A name of at most forty letters; of a longer one both ends, because they tell most.
fn shortened(name: &str) -> String {
    elided(name, 40, 26)
}

/// A text of at most so many letters: of a longer one its first `head`, and its end.
fn elided(text: &str, most: usize, head: usize) -> String {
    let letters = text.chars().count();
    if letters <= most {
        return text.to_owned();
    }
    let end = most.saturating_sub(head + 1);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(letters - end)).collect()
}

/// The fewest letters that a first column is cut to.
const NARROWEST: usize = 12;

/// A table whose first column gives way, so that no row needs two lines; of what is cut so many
/// of the first letters stay.
fn fitted<const N: usize>(
    width: u16,
    head: &[&str; N],
    numbers: &[usize],
    mut rows: Vec<[String; N]>,
    first: impl Fn(usize) -> usize,
) -> Table {
    let widest = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain(head.get(at).map(|text| text.len())).max().unwrap_or_default()
    };
    let others: usize = (1..N).map(|at| widest(at) + GAP).sum();
    let most = usize::from(width).saturating_sub(others + GAP).max(NARROWEST);
    let mut table = table(width, head, numbers);
    for row in &mut rows {
        if let Some(cell) = row.first_mut() {
            *cell = elided(cell, most, first(most));
        }
    }
    table.add_rows(rows);
    table
}

/// What tells a cluster's nodes apart: their hosts where they share the part before it, the
/// part before it where they share the host, else the whole names, as of one alone.
fn short_node<'a>(plan: &Plan, name: &'a str) -> &'a str {
    if has_one_node(plan) {
        return name;
    }
    short_among(name, || plan.snapshot.nodes().iter().skip(1).map(|node| &*node.name))
}

/// Whether nobody asks whose anything is.
fn has_one_node(plan: &Plan) -> bool {
    plan.snapshot.nodes().len() <= 2
}

/// A node's name without what all of these have in common.
fn short_among<'a, 'b, N: Iterator<Item = &'b str>>(name: &'a str, all: impl Fn() -> N) -> &'a str {
    let all = || all().filter_map(|name| name.split_once('@'));
    let differ = |parts: &mut dyn Iterator<Item = &str>| {
        let parts: Vec<&str> = parts.collect();
        parts.iter().any(|part| Some(part) != parts.first())
    };
    match name.split_once('@') {
        Some((_, host)) if !differ(&mut all().map(|(before, _)| before)) => host,
        Some((before, _)) if !differ(&mut all().map(|(_, host)| host)) => before,
        _ => name,
    }
}

/// Two digits of a range tell the shards of one database apart up to q=256.
fn short_range(range: Range) -> String {
    format!("{:02x}-{:02x} ", range.from >> 24, range.to >> 24)
}

/// A target in two short columns: `app/orders` and `00-7f host`.
fn what_and_where(plan: &Plan, target: TargetRef<'_>) -> (String, String) {
    let db = target.db_name().db;
    match (target.kind(), target.view().and_then(|view| view.designs.first())) {
        (Kind::View, Some(design)) if !target.is_part() => {
            let copies = match target.copies() {
                1 => "1 copy".to_owned(),
                more => format!("{more} copies"),
            };
            (format!("{db}/{design}"), copies)
        }
        (kind, design) => {
            let range = target.range().map(short_range);
            let node = match (has_one_node(plan), &range) {
                (false, _) => short_node(plan, target.node()),
                (true, Some(_)) => "",
                (true, None) => "-",
            };
            let what = match (kind, design, target.view()) {
                (Kind::View, Some(design), _) => format!("{db}/{design}"),
                (Kind::View, None, Some(view)) => {
                    let signature = view.signature.to_string();
                    format!("{db}/{}…", signature.get(..8).unwrap_or_default())
                }
                _ => db.to_owned(),
            };
            (what, format!("{}{node}", range.unwrap_or_default()).trim_end().to_owned())
        }
    }
}

/// Copies that are where they should not be, or are not where they should.
fn odd(plan: &Plan, width: u16) -> String {
    let mut table = table(width, &["state", "target"], &[]);
    let mut count = 0;
    for target in plan.snapshot.targets().filter(|target| target.state() != State::Ok) {
        count += 1;
        if count <= ROWS {
            table.add_row([target.state().label().to_owned(), printable(&report::title(target))]);
        }
    }
    match count {
        0 => String::new(),
        _ if count > ROWS => format!("\n{}and {} more\n", lines(&table), count - ROWS),
        _ => format!("\n{}", lines(&table)),
    }
}

/// Why one target is or is not a candidate, from its JSON, whoever made that.
pub(super) fn explained(target: &Value) -> String {
    let text_of = |name: &str| target[name].as_str().map(printable);
    let number_of = |name: &str| target[name].as_u64();
    let mut text = format!("{}\n", text_of("id").unwrap_or_default());
    let mut say = |name: &str, value: &str| {
        text.push_str(&format!("  {name:<10}{value}\n"));
    };
    if let Some(name) = text_of("name") {
        match text_of("engine") {
            Some(engine) => say("index", &format!("{name}, of {engine}")),
            None => say("shard", &name),
        }
    }
    let designs = target["ddocs"].as_array().into_iter().flatten();
    let designs: Vec<String> = designs.filter_map(Value::as_str).map(printable).collect();
    if !designs.is_empty() {
        say("documents", &designs.join(", "));
    }
    say("state", &text_of("state").unwrap_or_default());
    if target["kind"] != "cleanup" {
        let copies = match number_of("copies").unwrap_or(1) {
            1 => String::new(),
            copies if target["estimated"] == true => format!(" in {copies} copies, estimated"),
            copies => format!(" in {copies} copies"),
        };
        say("on disk", &format!("{}{copies}", bytes(number_of("file_bytes"))));
    }
    // Of a search index there is nothing to compact.
    if !matches!(target["kind"].as_str(), Some("cleanup" | "search")) {
        let ratio =
            target["ratio"].as_f64().map(|ratio| format!(", the file is {ratio:.2} times that"));
        say(
            "active",
            &format!("{}{}", bytes(number_of("active_bytes")), ratio.unwrap_or_default()),
        );
        let confidence = text_of("confidence").unwrap_or_default();
        say(
            "compacted",
            &format!(
                "{} predicted, {} freed, confidence {confidence}",
                bytes(number_of("predicted_bytes")),
                bytes(number_of("reclaimable_bytes")),
            ),
        );
    }
    if let Some(problem) = target["problem"]["says"].as_str() {
        say("problem", &printable(problem));
    }
    let measured = text_of("measured_at").unwrap_or_else(|| "never".to_owned());
    let followed = target["fresh"] == "followed";
    say(
        "measured",
        &if followed { format!("{measured}, and not named by a feed since") } else { measured },
    );
    let refusal = target["refusal"]["reason"].as_str().map(|_| reason(&target["refusal"]));
    let refusal = refusal.map(|refusal| match text_of("why") {
        Some(why) => format!("{refusal}: {why}"),
        None => refusal,
    });
    match (text_of("channel"), refusal) {
        (Some(channel), refusal) => {
            say("channel", &format!("{channel}, priority {}", number(&target["priority"])));
            say("decision", &refusal.unwrap_or_else(|| "would start now".to_owned()));
        }
        (None, Some(refusal)) => say("decision", &refusal),
        (None, None) if target["start"].is_object() => say("decision", "would start now"),
        (None, None) => say("channel", "none takes it"),
    }
    if let Some(since) = target["refusal"]["since"].as_str() {
        say("since", &printable(since));
    }
    let ordered = &target["ordered"];
    if ordered.is_object() {
        let word = |name: &str| printable(ordered[name].as_str().unwrap_or_default());
        let force = if ordered["force"] == true { ", by force" } else { "" };
        let (by, since, until) = (word("by"), word("since"), word("until"));
        say("ordered", &format!("by {by} at {since}{force}; it waits until {until} at most"));
    }
    let request = [&target["start"]["request"], &ordered["request"]];
    if let Some(request) = request.iter().find_map(|request| request.as_str()) {
        say("request", &printable(request));
    }
    let misses = target["misses"].as_array().into_iter().flatten();
    for miss in misses.filter(|miss| miss["reason"] != "not_this_kind") {
        say("", &format!("{}: {}", miss["channel"].as_str().unwrap_or_default(), reason(miss)));
    }
    text
}

/// A miss or a refusal with the numbers that decided.
fn reason(of: &Value) -> String {
    let reason = of["reason"].as_str().unwrap_or_default().replace('_', " ");
    match (&of["value"], &of["limit"]) {
        (Value::Null, _) => reason,
        (value, Value::Null) => format!("{reason} ({})", number(value)),
        (value, limit) => format!("{reason} ({} against {})", number(value), number(limit)),
    }
}

fn number(value: &Value) -> String {
    match value.as_f64() {
        None => "?".to_owned(),
        Some(value) if value.fract() == 0.0 => format!("{value}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// When the tables were read, in one line.
pub(super) fn headline(plan: &Plan, simulated: bool) -> String {
    let nodes = plan.snapshot.nodes().iter().skip(1).filter(|node| node.member).count();
    let down = plan.snapshot.nodes().iter().filter(|node| node.up == Some(false)).count();
    let down = if down > 0 { format!(", {down} of them down") } else { String::new() };
    let alone = plan.snapshot.nodes().iter().skip(1).all(|node| node.files_alone);
    let what = match (simulated, alone) {
        (true, _) => "a simulated cluster",
        (false, true) if nodes > 0 => "the files",
        (false, _) => "a CouchDB cluster",
    };
    let plural = if nodes == 1 { "" } else { "s" };
    let at: Moment = plan.snapshot.generated_at();
    format!("{what} of {nodes} node{plural}{down}, read at {}\n", at.rfc3339())
}

fn table(width: u16, head: &[&str], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(head.iter().map(|text| text.to_uppercase()));
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if numbers.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn lines(table: &Table) -> String {
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "?".to_owned(), |bytes| size::shown(bytes).to_string())
}

fn sum(sum: Option<f64>) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    bytes(sum.map(|sum| sum as u64))
}

#[cfg(test)]
mod tests;
