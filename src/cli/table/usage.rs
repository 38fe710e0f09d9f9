//! A table of the databases or design documents that use the disks.

use super::layout::bytes;
use crate::{
    cli::printable,
    serve::report::{Usage, UsageBytes, UsageLine, columns::Table},
    text::{grouped, size},
};

pub(in crate::cli) fn usage(answer: &Usage, width: u16) -> String {
    let by_design = answer.by == "design";
    let name = |line: &UsageLine| match (by_design, line.designs.is_empty()) {
        (false, _) => line.db.clone(),
        (true, true) => format!("{} (no design document)", line.db),
        (true, false) => format!("{}/{}", line.db, line.designs.join(" ")),
    };
    let mut rows: Vec<(String, &UsageBytes)> =
        answer.largest.iter().map(|line| (name(line), &line.bytes)).collect();
    if answer.others > 0 {
        rows.push((format!("{} others", grouped(answer.others)), &answer.other_bytes));
    }
    if rows.is_empty() {
        return "There are no files.\n".to_owned();
    }
    let sum = |it: &UsageBytes, sum| {
        format!("{}{}", size::bound(it.unmeasured, it.estimated), bytes(Some(sum)))
    };
    let unknown = |it: &UsageBytes| Some(it.unmeasured).filter(|count| *count > 0).map(grouped);
    Table::of(&rows)
        .text(if by_design { "design document" } else { "database" }, |it| printable(&it.0))
        .number("on disk", |(_, it)| sum(it, it.file_bytes))
        .number("views", |(_, it)| sum(it, it.view_bytes))
        .number("reclaimable", |(_, it)| sum(it, it.reclaimable_bytes))
        .number("unknown", |(_, it)| unknown(it).unwrap_or_default())
        .one_line_each(width)
}
