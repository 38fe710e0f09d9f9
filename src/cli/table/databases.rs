//! Databases: as a table, or one of them in sentences.

use super::layout::{Grid, WIDE, bytes, paragraph};
use crate::{
    cli::printable,
    plan::RefusalReason,
    serve::report::{DatabaseLine, Databases},
    text::{counted, grouped, size},
};

/// The databases as text; the only one in sentences if it was named.
pub(in crate::cli) fn databases(found: &Databases, is_named: bool, width: u16) -> String {
    match &*found.databases {
        [] => "There are no databases.\n".to_owned(),
        [line] if is_named => paragraphs(line, width),
        lines => {
            let mut text = if width < WIDE { narrow(lines, width) } else { wide(lines, width) };
            let more = found.total.saturating_sub(lines.len());
            if more > 0 {
                let more = counted(more as u64, "more database", "more databases");
                text.push_str(&format!("and {more}; --limit prints more\n"));
            }
            text
        }
    }
}

/// Columns of every table.
struct Row {
    db: String,
    file: String,
    reclaimable: String,
    growth: String,
    why: String,
}

fn row(line: &DatabaseLine) -> Row {
    let why = match (&line.reason, &line.why) {
        (Some(reason), _) => RefusalReason::words_of(reason),
        (None, Some(_)) => "no channel".to_owned(),
        (None, None) => String::new(),
    };
    Row {
        db: printable(&line.db),
        file: bounded(line, line.file_bytes),
        reclaimable: bounded(line, line.reclaimable_bytes),
        growth: bytes(line.growth_day_bytes),
        why: printable(&why),
    }
}

/// A sum, marked where it is a lower bound or an estimate.
fn bounded(line: &DatabaseLine, sum: u64) -> String {
    format!("{}{}", size::bound(line.unmeasured, line.estimated), bytes(Some(sum)))
}

fn narrow(lines: &[DatabaseLine], width: u16) -> String {
    let head = ["database", "on disk", "reclaimable", "grows a day", "why it stays"];
    let mut table = Grid::new(head, &[1, 2, 3]);
    for Row { db, file, reclaimable, growth, why } in lines.iter().map(row) {
        table.push([db, file, reclaimable, growth, why]);
    }
    table.one_line_each(width, |most| most * 2 / 3)
}

fn wide(lines: &[DatabaseLine], width: u16) -> String {
    let head = [
        "database",
        "on disk",
        "documents",
        "indexes",
        "reclaimable",
        "grows a day",
        "in 7 days",
        "last compaction",
        "why it stays",
    ];
    let mut table = Grid::new(head, &[1, 2, 3, 4, 5, 6]);
    for line in lines {
        let Row { db, file, reclaimable, growth, why } = row(line);
        let (documents, indexes) =
            (bounded(line, line.document_bytes), bounded(line, line.index_bytes));
        let last = line.last_compaction.as_deref().map_or_else(|| "?".to_owned(), printable);
        let week = bytes(line.growth_week_bytes);
        table.push([db, file, documents, indexes, reclaimable, growth, week, last, why]);
    }
    table.one_line_each(width, |most| most * 2 / 3)
}

/// One database in sentences.
fn paragraphs(line: &DatabaseLine, width: u16) -> String {
    let db = printable(&line.db);
    let targets = counted(line.targets, "shard file or view", "shard files and views");
    let unmeasured = match line.unmeasured {
        0 => String::new(),
        some => format!(" The sizes of {} are unknown.", grouped(some)),
    };
    let sums = format!(
        "{db}: {} on disk in {targets}: {} of documents, {} of indexes, {} reclaimable.{unmeasured}",
        bounded(line, line.file_bytes),
        bounded(line, line.document_bytes),
        bounded(line, line.index_bytes),
        bounded(line, line.reclaimable_bytes),
    );
    let growth = match (line.growth_day_bytes, line.growth_week_bytes) {
        (Some(day), Some(week)) => format!(
            "It grows by {} a day and {} in seven days if nothing is compacted.",
            bytes(Some(day)),
            bytes(Some(week))
        ),
        _ => "How fast it grows is not known yet.".to_owned(),
    };
    let last = match &line.last_compaction {
        Some(at) => format!("Its last compaction ended at {}.", printable(at)),
        None => "No compaction of it is in the journal.".to_owned(),
    };
    let why = line.why.as_deref().map(|why| format!("Why most of it stays: {}.", printable(why)));
    let more = format!("More: recliner explain {db}");
    let says = [Some(sums), Some(format!("{growth} {last}")), why, Some(more)];
    says.into_iter().flatten().map(|text| paragraph(&text, width)).collect()
}
