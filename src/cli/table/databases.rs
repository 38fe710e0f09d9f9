//! Databases: as a table, or one of them in sentences.

use super::layout::{bytes, paragraph};
use crate::{
    cli::printable,
    serve::report::{DatabaseLine, Databases},
    text::counted,
};

/// The databases as text; one that was named in sentences.
pub(in crate::cli) fn databases(found: &Databases, name: Option<&str>, width: u16) -> String {
    match &*found.databases {
        [] => "There are no databases.\n".to_owned(),
        [line] if name == Some(&*line.db) => paragraphs(line, width),
        lines => {
            let mut text = found.table().one_line_each(width);
            let more = found.total.saturating_sub(lines.len());
            if more > 0 {
                let more = counted(more as u64, "more database", "more databases");
                text.push_str(&format!("and {more}; --limit prints more\n"));
            }
            text
        }
    }
}

fn paragraphs(line: &DatabaseLine, width: u16) -> String {
    let db = printable(&line.db);
    let growth = line.growth_week_bytes.map(|week| {
        format!("It grows by {} in seven days if nothing is compacted.", bytes(Some(week)))
    });
    let growth = growth.unwrap_or_else(|| "Its weekly growth is not known yet.".to_owned());
    let last = match &line.last_compaction {
        Some(at) => format!("Its last compaction ended at {}.", printable(at)),
        None => "The journal has no compaction of it.".to_owned(),
    };
    let why =
        line.why.as_deref().map(|why| format!("Most of it stays because: {}.", printable(why)));
    let more = format!("More: recliner explain {db}");
    let [says, parts] = [line.says(), line.parts_say()].map(|text| printable(&text));
    let deletions = line.deletions.as_ref().map(|it| printable(&it.says));
    let times = Some(format!("{growth} {last}"));
    let says = [Some(says), Some(parts), times, deletions, why, Some(more)];
    says.into_iter().flatten().map(|text| paragraph(&text, width)).collect()
}
