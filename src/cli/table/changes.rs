//! What changed on the disks, as text.

use super::layout::paragraph;
use crate::{
    cli::printable,
    serve::report::{Changes, VolumeChanges},
    text::size::signed,
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
    let (table, more) = volume.table(PRINTED);
    let mut text = table.wrapped(width);
    if let Some(more) = more {
        text.push_str(&paragraph(&more, width));
    }
    let (before, after) = (signed(volume.before_bytes), signed(volume.after_bytes));
    let total = signed(volume.after_bytes.saturating_sub(volume.before_bytes));
    let says = format!(
        "Before: {}; after: {}; change: {total}.",
        before.trim_start_matches('+'),
        after.trim_start_matches('+')
    );
    text.push_str(&paragraph(&says, width));
    text
}
