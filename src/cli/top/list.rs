//! A list on a screen: which rows it shows, in which order, and which one is selected.
//!
//! Pure, and the same for every screen. Rows come from [`rows`](super::rows).

use crate::{
    cli::table,
    serve::report::columns::{self, Value},
};
use std::cmp::Ordering;

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Whether cells are aligned to the right.
    pub(super) number: bool,
    /// The minimum width of the terminal for this column.
    pub(super) from: u16,
}

/// A value by which rows are sorted; unknown values come last in both directions.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rank {
    Number(f64),
    Text(String),
    Unknown,
}

#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// The text as shown: escaped, in one line.
    pub(super) text: String,
    pub(super) rank: Rank,
}

impl Cell {
    /// A text, sorted alphabetically without regard to case.
    pub(super) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { rank: Rank::Text(text.to_lowercase()), text }
    }

    /// A cell of an answer, sorted by its first value.
    pub(super) fn of(cell: &columns::Cell) -> Self {
        let text = table::cell(cell);
        let rank = match cell.0.first().map(|part| &part.value) {
            Some(Value::Bytes(bytes)) => Rank::Number(*bytes as f64),
            Some(Value::Seconds(number) | Value::Share(number)) => Rank::Number(*number),
            Some(Value::Unknown) => Rank::Unknown,
            Some(_) | None => Rank::Text(text.to_lowercase()),
        };
        Self { text, rank }
    }

    /// A number, shown as `?` if it is unknown.
    pub(super) fn number(number: Option<f64>, text: impl FnOnce(f64) -> String) -> Self {
        match number {
            Some(number) => Self { text: text(number), rank: Rank::Number(number) },
            None => Self { text: "?".to_owned(), rank: Rank::Unknown },
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// Identifies the row, so that the selection stays on it.
    pub(super) key: String,
    /// The id of the target that the row is about.
    pub(super) id: Option<String>,
    pub(super) cells: Vec<Cell>,
    /// The scopes that can be suspended from this row, in addition to everything.
    pub(super) scopes: Vec<String>,
    /// A sentence about the row, shown while it is selected.
    pub(super) says: Option<String>,
}

impl Row {
    /// The text of the first cell.
    pub(super) fn title(&self) -> String {
        self.cells.first().map_or_else(String::new, |cell| cell.text.clone())
    }

    fn has(&self, lower: &str) -> bool {
        let says = self.says.as_deref().unwrap_or_default();
        let mut texts = self.cells.iter().map(|cell| &*cell.text).chain([says]);
        lower.is_empty() || texts.any(|text| text.to_lowercase().contains(lower))
    }
}

/// The columns and rows of a list, unfiltered.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// Number of further rows that the service has.
    pub(super) more: usize,
}

/// The user's view of a list: filter, order and selection.
#[derive(Clone, Debug, Default)]
pub(super) struct ListState {
    pub(super) filter: String,
    /// The column to sort by and whether the order is reversed; `None` keeps the service's order.
    pub(super) sort: Option<(usize, bool)>,
    /// The key of the selected row, and its position in case the row disappears.
    selected: Option<(String, usize)>,
}

/// A list after filtering and sorting.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// The position of the selected row.
    pub(super) at: usize,
    /// Number of rows that the filter hides.
    pub(super) hidden: usize,
    pub(super) more: usize,
}

impl Listed {
    pub(super) fn selected(&self) -> Option<&Row> {
        self.rows.get(self.at)
    }
}

impl ListState {
    /// An unsorted list with this filter.
    pub(super) fn filtered(filter: String) -> Self {
        Self { filter, ..Self::default() }
    }

    /// The rows that pass the filter, sorted.
    pub(super) fn applied_to(&self, table: Table) -> Listed {
        let Table { columns, mut rows, more } = table;
        let all = rows.len();
        let lower = self.filter.to_lowercase();
        rows.retain(|row| row.has(&lower));
        if let Some((by, reversed)) = self.sort {
            let rank =
                |row: &Row| row.cells.get(by).map_or(Rank::Unknown, |cell| cell.rank.clone());
            rows.sort_by(|a, b| compare(&rank(a), &rank(b), reversed));
        }
        let at = match &self.selected {
            None => 0,
            Some((key, place)) => rows
                .iter()
                .position(|row| row.key == *key)
                .unwrap_or_else(|| (*place).min(rows.len().saturating_sub(1))),
        };
        Listed { columns, hidden: all - rows.len(), rows, at, more }
    }

    /// Moves the selection by this many rows, but not beyond the list.
    pub(super) fn select(&mut self, listed: &Listed, by: isize) {
        let last = listed.rows.len().saturating_sub(1);
        let place = listed.at.saturating_add_signed(by).min(last);
        self.selected = listed.rows.get(place).map(|row| (row.key.clone(), place));
    }

    /// Sorts by the next column; after the last, restores the service's order.
    pub(super) fn sort_by_next(&mut self, columns: usize) {
        let next = self.sort.map_or(0, |(by, _)| by + 1);
        self.sort = (next < columns).then_some((next, false));
    }

    /// Reverses the sort order.
    pub(super) fn reverse(&mut self) {
        self.sort = Some(self.sort.map_or((0, true), |(by, reversed)| (by, !reversed)));
    }
}

/// Compares two ranks: the greatest number and the first name come first, unless reversed.
fn compare(a: &Rank, b: &Rank, reversed: bool) -> Ordering {
    let ordering = match (a, b) {
        (Rank::Unknown, Rank::Unknown) => return Ordering::Equal,
        (Rank::Unknown, _) => return Ordering::Greater,
        (_, Rank::Unknown) => return Ordering::Less,
        (Rank::Number(a), Rank::Number(b)) => b.total_cmp(a),
        (Rank::Text(a), Rank::Text(b)) => a.cmp(b),
        (Rank::Number(_), Rank::Text(_)) => Ordering::Less,
        (Rank::Text(_), Rank::Number(_)) => Ordering::Greater,
    };
    if reversed { ordering.reverse() } else { ordering }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(values: &[(&str, Option<f64>)]) -> Table {
        let row = |(name, number): &(&str, Option<f64>)| Row {
            key: (*name).to_owned(),
            cells: vec![Cell::text(*name), Cell::number(*number, |it| it.to_string())],
            ..Row::default()
        };
        let column = |title, number| Column { title, number, from: 0 };
        let columns = vec![column("name", false), column("size", true)];
        Table { columns, rows: values.iter().map(row).collect(), more: 0 }
    }

    fn names(listed: &Listed) -> String {
        listed.rows.iter().map(|row| &*row.key).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn filters_and_sorts_rows_with_unknown_last() {
        let all = table(&[("b", Some(1.0)), ("a", None), ("Ab", Some(3.0)), ("c", Some(2.0))]);
        for (filter, sort, expected) in [
            ("", None, "b a Ab c"),
            ("", Some((0, false)), "a Ab b c"),
            ("", Some((0, true)), "c b Ab a"),
            ("", Some((1, false)), "Ab c b a"),
            ("", Some((1, true)), "b c Ab a"),
            ("B", None, "b Ab"),
            ("3", Some((1, false)), "Ab"),
            ("no such", None, ""),
        ] {
            let list = ListState { filter: filter.to_owned(), sort, selected: None };
            let listed = list.applied_to(all.clone());
            assert_eq!(names(&listed), expected, "{filter:?} {sort:?}");
            assert_eq!(listed.hidden, 4 - listed.rows.len());
        }
    }

    #[test]
    fn selection_follows_its_row_or_keeps_its_position() {
        let mut list = ListState::default();
        let before = list.applied_to(table(&[("a", None), ("b", None), ("c", None)]));
        assert_eq!(before.at, 0);
        list.select(&before, 1);
        for (values, expected) in
            [(&["x", "a", "b", "c"][..], "b"), (&["a", "c", "d"], "c"), (&["a"], "a")]
        {
            let values: Vec<_> = values.iter().map(|name| (*name, None)).collect();
            let after = list.applied_to(table(&values));
            assert_eq!(after.selected().map(|row| &*row.key), Some(expected), "{values:?}");
        }
        assert!(list.applied_to(table(&[])).selected().is_none());
    }

    #[test]
    fn selection_stays_within_the_list() {
        let mut list = ListState::default();
        for (by, expected) in [(1, 1), (isize::MAX, 2), (-1, 1), (isize::MIN, 0), (-5, 0)] {
            let listed = list.applied_to(table(&[("a", None), ("b", None), ("c", None)]));
            list.select(&listed, by);
            let listed = list.applied_to(table(&[("a", None), ("b", None), ("c", None)]));
            assert_eq!(listed.at, expected, "{by}");
        }
        let empty = list.applied_to(table(&[]));
        list.select(&empty, 3);
        assert_eq!(list.applied_to(table(&[("a", None)])).at, 0);
    }

    #[test]
    fn sort_key_cycles_through_columns_and_service_order() {
        let mut list = ListState::default();
        let mut sorts = Vec::new();
        for _ in 0..3 {
            list.sort_by_next(2);
            sorts.push(list.sort);
        }
        assert_eq!(sorts, [Some((0, false)), Some((1, false)), None]);
        list.reverse();
        assert_eq!(list.sort, Some((0, true)));
    }
}
