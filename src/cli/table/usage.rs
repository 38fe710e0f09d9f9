//! A table of the databases or design documents that use the disks.

use super::layout::{Grid, bytes};
use crate::{
    cli::printable,
    serve::report::{Usage, UsageBytes},
    text::{grouped, size},
};

/// The disk usage as text.
pub(in crate::cli) fn usage(answer: &Usage, width: u16) -> String {
    let by_design = answer.by == "design";
    let name = if by_design { "design document" } else { "database" };
    let mut rows = Grid::new([name, "on disk", "views", "reclaimable", "unknown"], &[1, 2, 3, 4]);
    let mut push = |name: String, sums: &UsageBytes| {
        let unknown = if sums.unmeasured == 0 { String::new() } else { grouped(sums.unmeasured) };
        let bound = size::bound(sums.unmeasured, sums.estimated);
        let of = |sum: u64| format!("{bound}{}", bytes(Some(sum)));
        rows.push([
            printable(&name),
            of(sums.file_bytes),
            of(sums.view_bytes),
            of(sums.reclaimable_bytes),
            unknown,
        ]);
    };
    for line in &answer.largest {
        let name = match (by_design, line.designs.is_empty()) {
            (false, _) => line.db.clone(),
            (true, true) => format!("{} (no design document)", line.db),
            (true, false) => format!("{}/{}", line.db, line.designs.join(" ")),
        };
        push(name, &line.bytes);
    }
    if answer.others > 0 {
        push(format!("{} others", grouped(answer.others)), &answer.other_bytes);
    }
    if rows.is_empty() {
        return "There are no files.\n".to_owned();
    }
    rows.one_line_each(width, |most| most * 2 / 3)
}
