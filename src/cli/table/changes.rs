//! What changed on the disks, as text.

use super::layout::paragraph;
use crate::{
    cli::printable,
    serve::report::{ChangeLine, Changes, VolumeChanges, columns::Table},
    text::{counted, size::signed},
};

/// The number of entries that are printed for a volume.
const PRINTED: usize = 20;

/// The changes: sentences first, then a table for each volume that changed.
pub(in crate::cli) fn changes(answer: &Changes, width: u16) -> String {
    let mut text: String =
        answer.says.iter().map(|says| paragraph(&printable(says), width)).collect();
    for volume in answer.volumes.iter().filter(|volume| !volume.entries.is_empty()) {
        text.push('\n');
        if answer.volumes.len() > 1 {
            text.push_str(&paragraph(&format!("{}:", printable(&volume.name())), width));
        }
        text.push_str(&entries(volume, width));
    }
    text
}

fn entries(volume: &VolumeChanges, width: u16) -> String {
    let shown = volume.entries.get(..PRINTED).unwrap_or(&volume.entries);
    let name = |name: &Option<String>| printable(name.as_deref().unwrap_or_default());
    let database = |it: &ChangeLine| match it.others {
        0 => name(&it.database),
        others => counted(others.into(), "other", "others"),
    };
    let any = |has: fn(&ChangeLine) -> bool| shown.iter().any(has);
    let mut grid = Table::of(shown);
    if any(|it| it.cause.is_some()) {
        grid = grid.text("cause", |it| printable(&it.cause_in_words()));
    }
    if any(|it| it.database.is_some() || it.others > 0) {
        grid = grid.text("database", database);
    }
    if any(|it| it.design.is_some()) {
        grid = grid.text("design document", |it| name(&it.design));
    }
    if volume.nodes.len() > 1 && any(|it| it.node.is_some()) {
        grid = grid.text("node", |it| name(&it.node));
    }
    let mut text = grid.number("bytes", |it| signed(it.bytes)).wrapped(width);
    let rest = volume.entries.get(PRINTED..).unwrap_or_default();
    if !rest.is_empty() {
        let sum = rest.iter().map(|entry| entry.bytes).sum();
        let count = u64::try_from(rest.len()).unwrap_or_default();
        let more = counted(count, "smaller change", "smaller changes");
        text.push_str(&paragraph(&format!("And {more}, together {}.", signed(sum)), width));
    }
    let (before, after) = (signed(volume.before_bytes), signed(volume.after_bytes));
    let total = signed(volume.after_bytes.saturating_sub(volume.before_bytes));
    let says = format!(
        "Before {}, after {}, together {total}.",
        before.trim_start_matches('+'),
        after.trim_start_matches('+')
    );
    text.push_str(&paragraph(&says, width));
    text
}
