//! What the bytes of files are, as a table.

use super::columns::{Cell, Table, rest};
use crate::sources::xray::{PartLine, XrayAnswer};
use std::cmp::Reverse;

impl XrayAnswer {
    /// Its parts, the largest first.
    pub(crate) fn table(&self) -> Table<&PartLine> {
        let mut parts: Vec<&PartLine> = self.parts.iter().collect();
        parts.sort_by_key(|part| Reverse(part.bytes));
        let share = |part: &PartLine| part.bytes as f64 * 100.0 / self.file_bytes.max(1) as f64;
        Table::of(parts)
            .text("part", |it| Cell::words(it.part.replace('_', " ")))
            .number("size", |it| Cell::bytes(it.bytes).within(it.error_bytes))
            .number("share", |it| Cell::words(format!("{:.1}%", share(it))))
            .number(rest("count"), |it| Cell::count(it.count))
    }

    /// The size that a compaction leaves.
    pub(crate) fn left(&self) -> Cell {
        Cell::bytes(self.after_compaction_bytes).within(self.error_bytes)
    }
}
