//! Databases: as a table, or one of them in sentences.

use super::layout::{Grid, bytes, paragraph};
use crate::{
    cli::printable,
    plan::RefusalReason,
    serve::report::{DatabaseLine, Databases},
    text::{counted, size},
};

/// The databases as text; one that was named in sentences.
pub(in crate::cli) fn databases(found: &Databases, name: Option<&str>, width: u16) -> String {
    match &*found.databases {
        [] => "There are no databases.\n".to_owned(),
        [line] if name == Some(&*line.db) => paragraphs(line, width),
        lines => {
            let mut text = table(lines, width);
            let more = found.total.saturating_sub(lines.len());
            if more > 0 {
                let more = counted(more as u64, "more database", "more databases");
                text.push_str(&format!("and {more}; --limit prints more\n"));
            }
            text
        }
    }
}

fn table(lines: &[DatabaseLine], width: u16) -> String {
    let last = |line: &DatabaseLine| {
        line.last_compaction.as_deref().map_or_else(|| "?".to_owned(), printable)
    };
    Grid::of(width, lines)
        .text("database", |it| printable(&it.db))
        .number("on disk", |it| bounded(it, it.file_bytes))
        .wide_number("documents", |it| bounded(it, it.document_bytes))
        .wide_number("indexes", |it| bounded(it, it.index_bytes))
        .number("reclaimable", |it| bounded(it, it.reclaimable_bytes))
        .number("grows a day", |it| bytes(it.growth_day_bytes))
        .wide_number("in 7 days", |it| bytes(it.growth_week_bytes))
        .wide_text("last compaction", last)
        .text("why it stays", why)
        .one_line_each()
}

fn why(line: &DatabaseLine) -> String {
    match (&line.reason, &line.not_taken) {
        (Some(reason), _) => printable(&RefusalReason::words_of(reason)),
        (None, Some(word)) => printable(word),
        (None, None) => String::new(),
    }
}

/// A sum, marked where it is a lower bound or an estimate.
fn bounded(line: &DatabaseLine, sum: u64) -> String {
    format!("{}{}", size::bound(line.unmeasured, line.estimated), bytes(Some(sum)))
}

/// One database in sentences.
fn paragraphs(line: &DatabaseLine, width: u16) -> String {
    let db = printable(&line.db);
    let growth = line.growth_week_bytes.map(|week| {
        format!("It grows by {} in seven days if nothing is compacted.", bytes(Some(week)))
    });
    let growth =
        growth.unwrap_or_else(|| "How much it grows in a week is not known yet.".to_owned());
    let last = match &line.last_compaction {
        Some(at) => format!("Its last compaction ended at {}.", printable(at)),
        None => "No compaction of it is in the journal.".to_owned(),
    };
    let why = line.why.as_deref().map(|why| format!("Why most of it stays: {}.", printable(why)));
    let more = format!("More: recliner explain {db}");
    let [says, parts] = [line.says(), line.parts_say()].map(|text| printable(&text));
    let deletions = line.deletions.as_ref().map(|it| printable(&it.says));
    let times = Some(format!("{growth} {last}"));
    let says = [Some(says), Some(parts), times, deletions, why, Some(more)];
    says.into_iter().flatten().map(|text| paragraph(&text, width)).collect()
}
