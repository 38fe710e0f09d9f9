//! Tables for people, in as many columns as the terminal has.

use crate::{
    clock::Moment,
    plan::Plan,
    report::{self, Target},
    size,
    snapshot::{NodeIx, TargetRef},
    target::{Kind, State},
};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

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
        table.add_row([
            line.node,
            line.up.map_or("?", |up| if up { "yes" } else { "no" }).to_owned(),
            line.version.unwrap_or_else(|| "?".to_owned()),
            sums.states.iter().sum::<u64>().to_string(),
            sum(sums.file.get()),
            sum(sums.reclaimable.get()),
            line.smoosh.replace('_', " "),
        ]);
    }
    let views = totals.of(NodeIx::CLUSTER, Kind::View);
    let count: u64 = views.states.iter().sum();
    if count > 0 {
        table.add_row([
            format!("{count} views, all copies"),
            String::new(),
            String::new(),
            String::new(),
            sum(views.file.get()),
            sum(views.reclaimable.get()),
            String::new(),
        ]);
    }
    lines(&table)
}

/// The queues in which something waits or runs.
pub(super) fn queues(plan: &Plan, width: u16) -> String {
    let head = ["channel", "node", "waiting", "running", "frees", "best"];
    let mut table = table(width, &head, &[2, 3, 4, 5]);
    let mut any = false;
    for queue in plan.queues.iter().filter(|it| !it.waiting.is_empty() || it.active > 0) {
        any = true;
        let channel = plan.channels.list.get(queue.channel);
        let waiting = match queue.overflow {
            0 => queue.waiting.len().to_string(),
            more => format!("{} + {more}", queue.waiting.len()),
        };
        let best = queue.priority.zip(channel).map(|((best, _), channel)| {
            priority(channel.priority, best)
        });
        table.add_row([
            channel.map_or_else(String::new, |channel| channel.name.to_string()),
            plan.snapshot.node(queue.node).map_or_else(String::new, |node| node.name.to_string()),
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
    let mut best: Vec<TargetRef<'_>> = Kind::ALL
        .iter()
        .flat_map(|kind| plan.snapshot.top().of(*kind))
        .filter_map(|ix| plan.snapshot.target(*ix))
        .collect();
    best.sort_by_key(|target| std::cmp::Reverse(target.reclaimable()));
    let head = ["most to free", "on disk", "ratio", "frees", "channel"];
    let mut table = table(width, &head, &[1, 2, 3]);
    for target in best.iter().take(ROWS) {
        let channel = plan.placement(target.ix()).map(|(channel, _)| channel.name.to_string());
        table.add_row([
            report::title(*target),
            bytes(target.on_disk(target.facts().file.get())),
            target.facts().ratio().map_or_else(|| "?".to_owned(), |ratio| format!("{ratio:.2}")),
            bytes(target.reclaimable()),
            channel.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    let mut text = if best.is_empty() { "Nothing to free.\n".to_owned() } else { lines(&table) };
    if best.len() > ROWS {
        text.push_str(&format!("and {} more; --format json has all\n", best.len() - ROWS));
    }
    text.push_str(&odd(plan, width));
    text
}

/// Copies that are where they should not be, or are not where they should.
fn odd(plan: &Plan, width: u16) -> String {
    let mut table = table(width, &["state", "target"], &[]);
    let mut count = 0;
    for target in plan.snapshot.targets().filter(|target| target.state() != State::Ok) {
        count += 1;
        if count <= ROWS {
            table.add_row([target.state().label().to_owned(), report::title(target)]);
        }
    }
    match count {
        0 => String::new(),
        _ if count > ROWS => format!("\n{}and {} more\n", lines(&table), count - ROWS),
        _ => format!("\n{}", lines(&table)),
    }
}

/// Why one target is or is not a candidate.
pub(super) fn explained(target: &Target) -> String {
    let mut text = format!("{}\n", target.id);
    let mut say = |name: &str, value: String| {
        text.push_str(&format!("  {name:<14}{value}\n"));
    };
    if let Some(name) = &target.name {
        say("shard", name.clone());
    }
    if !target.ddocs.is_empty() {
        say("documents", target.ddocs.join(", "));
    }
    say("state", target.state.to_owned());
    if target.kind != "cleanup" {
        let copies = match target.copies {
            1 => String::new(),
            copies => format!(" in {copies} copies{}", if target.estimated { ", estimated" } else { "" }),
        };
        say("on disk", format!("{}{copies}", bytes(target.file_bytes)));
        let ratio = target.ratio.map_or_else(String::new, |ratio| format!(", file is {ratio:.2} times that"));
        say("active", format!("{}{ratio}", bytes(target.active_bytes)));
        say(
            "after",
            format!(
                "{} predicted, frees {} ({} confidence)",
                bytes(target.predicted_bytes),
                bytes(target.reclaimable_bytes),
                target.confidence
            ),
        );
    }
    say("measured", target.measured_at.clone().unwrap_or_else(|| "never".to_owned()));
    match (&target.channel, &target.refusal) {
        (Some(channel), Some(refusal)) => {
            say("queue", format!("{channel}, priority {}", number(target.priority)));
            say("refused", reason(refusal.reason, refusal.value, refusal.limit));
        }
        (Some(channel), None) => {
            say("queue", format!("{channel}, priority {}: would start now", number(target.priority)));
        }
        (None, Some(refusal)) => say("refused", reason(refusal.reason, refusal.value, refusal.limit)),
        (None, None) => say("queue", "no channel takes it".to_owned()),
    }
    for miss in target.misses.iter().filter(|miss| miss.reason != "not_this_kind") {
        say("", format!("{}: {}", miss.channel, reason(miss.reason, miss.value, miss.limit)));
    }
    text
}

fn reason(reason: &str, value: Option<f64>, limit: Option<f64>) -> String {
    let reason = reason.replace('_', " ");
    match (value, limit) {
        (Some(_), Some(_)) => format!("{reason} ({} against {})", number(value), number(limit)),
        (Some(_), None) => format!("{reason} ({})", number(value)),
        _ => reason,
    }
}

fn number(value: Option<f64>) -> String {
    match value {
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
    let what = if simulated { "a simulated cluster" } else { "a CouchDB cluster" };
    let plural = if nodes == 1 { "" } else { "s" };
    let at: Moment = plan.snapshot.generated_at();
    format!("{what} of {nodes} node{plural}{down}, read at {}\n", at.rfc3339())
}

fn table(width: u16, head: &[&str], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
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
