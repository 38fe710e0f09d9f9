//! Layout of tables and lines: as wide as the terminal, with breaks only between words.

use super::super::printable;
use crate::{
    model::rounding::to_bytes,
    serve::report::{
        self,
        columns::{Cell, Kind, Part, Room, Table, Title, Value},
        short_node,
    },
    table::PartialSum,
    text::{duration, size},
};
use comfy_table::{
    CellAlignment, ColumnConstraint::LowerBoundary, ContentArrangement, Width, presets,
};
use couchdb_names::Range;
use std::time::Duration;

/// Spaces between two columns.
const GAP: usize = 2;

/// Width of a progress bar, in characters.
const BAR: usize = 10;

/// The minimum width to which the first column is cut.
const NARROWEST: usize = 12;

/// The terminal width from which optional columns are shown.
pub(in crate::cli) const WIDE: u16 = 100;

/// The width to use: that of the terminal, within limits, or 80 if it is unknown.
pub(in crate::cli) fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| width.0);
    columns.or_else(terminal).unwrap_or(80).clamp(60, 240)
}

impl<T: Copy> Table<T> {
    /// The columns for which a terminal of this width has room.
    pub(super) fn into_grid(self, width: u16) -> Grid {
        let room = |(title, _): &(Title, Kind)| width >= WIDE || title.room != Room::Wide;
        let shown: Vec<usize> =
            (0..self.columns.len()).filter(|at| self.columns.get(*at).is_some_and(room)).collect();
        let columns = || shown.iter().filter_map(|at| self.columns.get(*at));
        let numbers = columns().enumerate().filter(|(_, (_, kind))| *kind == Kind::Number);
        let row = |row: &Vec<Cell>| shown.iter().filter_map(|at| row.get(*at)).map(cell).collect();
        Grid {
            head: columns().map(|(title, _)| title.text.to_owned()).collect(),
            numbers: numbers.map(|(at, _)| at).collect(),
            least: vec![0; shown.len()],
            rows: self.rows.iter().map(row).collect(),
        }
    }

    /// Renders the table; cells with several words may take several lines.
    pub(super) fn wrapped(self, width: u16) -> String {
        self.into_grid(width).wrapped(width)
    }

    /// Renders the table with its first column cut in the middle, so that each row fits on one line.
    pub(super) fn one_line_each(self, width: u16) -> String {
        self.into_grid(width).one_line_each(width, |most| most * 2 / 3)
    }
}

/// A cell as text.
pub(in crate::cli) fn cell(cell: &Cell) -> String {
    let part = |part: &Part| match &part.value {
        Value::Name(text) | Value::Rules(text, _) | Value::Words(text) => printable(text),
        Value::Node(node) => printable(short_node(node)),
        Value::Bytes(size) => bytes(Some(*size)),
        Value::Time(at) => minute(&printable(at)),
        Value::Seconds(span) => seconds(*span),
        Value::Share(done) => {
            format!("{} {:>3.0}%", bar(*done, BAR), (done * 100.0).clamp(0.0, 100.0))
        }
        Value::Unknown => "?".to_owned(),
        Value::Why(why) => format!(": {}", printable(why)),
        Value::Details(..) | Value::Below(_) => String::new(),
    };
    cell.0.iter().map(part).collect()
}

/// A share from 0 to 1 as a bar of this width.
pub(in crate::cli) fn bar(share: f64, width: usize) -> String {
    let full = filled(share, width);
    "█".repeat(full) + &"░".repeat(width - full)
}

/// How much of a bar of this width a share fills.
pub(in crate::cli) fn filled(share: f64, width: usize) -> usize {
    (0..width).take_while(|at| (*at as f64 + 0.5) / width as f64 <= share).count()
}

/// A time of the API to the minute, without its year, in UTC.
fn minute(at: &str) -> String {
    at.get(5..16).map_or_else(|| at.to_owned(), |minute| minute.replace('T', " "))
}

pub(in crate::cli) fn seconds(seconds: f64) -> String {
    let span = Duration::try_from_secs_f64(seconds.max(0.0));
    span.map_or_else(|_| "?".to_owned(), duration::format_rounded)
}

/// A table under construction.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    head: Vec<String>,
    /// Indexes of the columns with numbers, which are aligned to the right.
    numbers: Vec<usize>,
    /// The minimum width of each column.
    least: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub(super) fn new<const N: usize>(head: [&str; N], numbers: &[usize]) -> Self {
        let head = head.map(str::to_owned).into();
        Self { head, numbers: numbers.into(), least: vec![0; N], rows: Vec::new() }
    }

    /// Sets minimum column widths, for rows that are added later.
    pub(super) fn with_room<const N: usize>(mut self, least: [usize; N]) -> Self {
        self.least = least.into();
        self
    }

    pub(super) fn push<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.into());
    }

    /// Exchanges rows and columns; all columns but the first get numbers.
    pub(super) fn transposed(&self) -> Self {
        let rows = || std::iter::once(&self.head).chain(&self.rows);
        let column = |at: usize| rows().filter_map(|row| row.get(at).cloned()).collect();
        let mut columns = (0..self.head.len()).map(column);
        let head: Vec<String> = columns.next().unwrap_or_default();
        let (numbers, least) = ((1..head.len()).collect(), vec![0; head.len()]);
        Self { numbers, least, rows: columns.collect(), head }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table. Cells with several words may take several lines, cells with numbers do
    /// not. If the longest words do not fit, those of the widest column are cut; if that is not
    /// enough, the table exceeds the width.
    pub(super) fn wrapped(mut self, width: u16) -> String {
        let (least, all) = loop {
            let least: Vec<usize> = (0..self.head.len()).map(|at| self.least_of(at)).collect();
            let all: usize = least.iter().map(|least| least + GAP).sum();
            let texts = least.iter().enumerate().filter(|(at, _)| !self.numbers.contains(at));
            let widest = texts.max_by_key(|(_, least)| **least);
            let Some((at, most)) = widest.filter(|_| all > usize::from(width)) else {
                break (least, all);
            };
            let most = most.saturating_sub(all - usize::from(width)).max(NARROWEST);
            if !self.cut_words(at, most) {
                break (least, all);
            }
        };
        // The layout algorithm would give a column with a long word only the width of that word.
        let (least, all) = match self.fits(width) {
            true => {
                let widest = least.iter().enumerate();
                let widest: Vec<usize> =
                    widest.map(|(at, least)| self.widest(at).max(*least)).collect();
                let all = widest.iter().map(|widest| widest + GAP).sum();
                (widest, all)
            }
            false => (least, all),
        };
        let width = width.max(u16::try_from(all).unwrap_or(u16::MAX));
        let mut table = self.table(width);
        for (column, least) in table.column_iter_mut().zip(least) {
            let least = u16::try_from(least + GAP).unwrap_or(width);
            column.set_constraint(LowerBoundary(Width::Fixed(least)));
        }
        lines(&table)
    }

    /// The width below which a word or a number in this column would be broken.
    fn least_of(&self, at: usize) -> usize {
        let is_number = self.numbers.contains(&at);
        let head = self.head.get(at).map_or(0, |head| longest_word(head));
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let cell =
            cells.map(|cell| if is_number { letters(cell) } else { longest_word(cell) }).max();
        let room = self.least.get(at).copied().unwrap_or_default();
        head.max(cell.unwrap_or_default()).max(room)
    }

    /// Cuts the words of a column to this width; returns whether it cut any.
    fn cut_words(&mut self, at: usize, most: usize) -> bool {
        let mut cut = false;
        for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
            if cell.split(' ').any(|word| letters(word) > most) {
                let words = cell.split(' ').map(|word| elided(word, most, most * 2 / 3));
                *cell = words.collect::<Vec<_>>().join(" ");
                cut = true;
            }
        }
        cut
    }

    /// Renders the table with its first column cut so that no row needs two lines, if that is
    /// enough. `first` returns how many leading characters of a cut cell remain.
    pub(super) fn one_line_each(mut self, width: u16, first: impl Fn(usize) -> usize) -> String {
        let others: usize = (1..self.head.len()).map(|at| self.widest(at) + GAP).sum();
        let most = usize::from(width).saturating_sub(others + GAP).max(NARROWEST);
        self.cut_first(most, first(most));
        self.wrapped(width)
    }

    /// Whether no cell needs a second line.
    pub(super) fn fits(&self, width: u16) -> bool {
        let all: usize = (0..self.head.len()).map(|at| self.widest(at) + GAP).sum();
        all <= usize::from(width) + GAP
    }

    fn widest(&self, at: usize) -> usize {
        let cells = self.rows.iter().chain([&self.head]).filter_map(|row| row.get(at));
        cells.map(|cell| letters(cell)).max().unwrap_or_default()
    }

    fn cut_first(&mut self, most: usize, first: usize) {
        for row in &mut self.rows {
            if let Some(cell) = row.first_mut() {
                *cell = elided(cell, most, first);
            }
        }
    }

    fn table(&self, width: u16) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width)
            .set_header(self.head.iter().map(|head| head.to_uppercase()));
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if self.numbers.contains(&at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.add_rows(&self.rows);
        table
    }
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

fn longest_word(text: &str) -> usize {
    text.split(' ').map(letters).max().unwrap_or_default()
}

fn lines(table: &comfy_table::Table) -> String {
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Lines with a name and a text; further lines are aligned below the text.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    text: String,
    indent: usize,
    width: usize,
}

impl Lines {
    /// Names take up to `indent` columns, including two leading spaces.
    pub(super) const fn new(text: String, indent: usize, width: u16) -> Self {
        Self { text, indent, width: width as usize }
    }

    pub(super) fn add(&mut self, name: &str, value: &str) {
        let head = format!("  {name:<0$}", self.indent - 2);
        wrap(&mut self.text, &head, value, self.width);
    }

    /// Adds a value in one line, for text that people copy.
    pub(super) fn add_unwrapped(&mut self, name: &str, value: &str) {
        self.text.push_str(&format!("  {name:<0$}{value}\n", self.indent - 2));
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Wraps a text to this width.
pub(in crate::cli) fn paragraph(text: &str, width: u16) -> String {
    let mut out = String::new();
    wrap(&mut out, "", text, width.into());
    out
}

/// Appends a text after `head`, broken between words; further lines are aligned with its first
/// word.
pub(super) fn wrap(out: &mut String, head: &str, text: &str, width: usize) {
    let indent = letters(head);
    let mut line = head.to_owned();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && letters(&line) + 1 + letters(word) > width {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Shortens a name to forty characters, keeping both ends, which distinguish it best.
pub(super) fn shortened(name: &str) -> String {
    elided(name, 40, 26)
}

/// Shortens a text to this length, keeping its first `head` characters and its end.
pub(in crate::cli) fn elided(text: &str, most: usize, head: usize) -> String {
    let count = letters(text);
    if count <= most {
        return text.to_owned();
    }
    let end = most.saturating_sub(head + 1);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(count - end)).collect()
}

pub(super) fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "?".to_owned(), |bytes| size::format_size(bytes).to_string())
}

pub(super) fn sum(sum: Option<f64>) -> String {
    bytes(sum.map(to_bytes))
}

/// A sum with a sign if it is an estimate or a bound.
pub(super) fn partial(sum: PartialSum) -> String {
    let bound = size::bound(sum.unknown_count(), sum.estimated_count());
    format!("{}{}", sum.get().map_or("", |_| bound), self::sum(sum.get()))
}

pub(in crate::cli) fn place(node: &str, only_node: Option<&str>) -> String {
    printable(short_node(report::place(node, only_node)))
}

/// Two digits of each end of a range, enough to distinguish the shards of one database up to q=256.
pub(in crate::cli) fn short_range(range: &str) -> String {
    range.parse::<Range>().map_or_else(|_| printable(range), Range::short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(text: &str) -> usize {
        text.lines().map(letters).max().unwrap_or_default()
    }

    #[test]
    fn table_cells_contain_no_escape_characters() {
        let text = "a\u{1b}[2Jb";
        for value in [
            Value::Name(text.into()),
            Value::Node(text.into()),
            Value::Words(text.into()),
            Value::Rules(text.into(), text.into()),
            Value::Time(text.into()),
            Value::Why(text.into()),
        ] {
            let shown = cell(&value.clone().into());
            assert!(!shown.contains('\u{1b}'), "{value:?}: {shown:?}");
        }
    }

    #[test]
    fn breaks_lines_only_between_words() {
        let mut grid = Grid::new(["state", "target", "why"], &[]);
        let shard = "shards/00000000-ffffffff/campaign-2018.1521590400";
        grid.push(["orphan".into(), format!("{shard} on couchdb@sim-3.local"), "a b c d".into()]);
        grid.push(["ok".into(), "x".into(), "starts on a node are spread out".into()]);
        for width in [60, 80, 100, 160] {
            let text = grid.clone().wrapped(width);
            // A word that does not fit in any column is cut, but not broken.
            let shard = if width < 80 { "cam…18.1521590400" } else { shard };
            for word in [shard, "couchdb@sim-3.local", "spread"] {
                assert!(text.contains(word), "{width}:\n{text}");
            }
            assert!(longest(&text) <= width.into(), "{width}:\n{text}");
        }
        let text = "a sentence of some words that goes on and on behind its name";
        let mut lines = Lines::new(String::new(), 12, 40);
        lines.add("decision", text);
        lines.add_unwrapped("request", &"x".repeat(90));
        let text = lines.into_text();
        assert!(text.lines().next().is_some_and(|line| line.starts_with("  decision  a sent")));
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("            ")));
        assert!(text.lines().all(|line| letters(line) <= 40 || line.ends_with(&"x".repeat(90))));
    }

    #[test]
    fn rows_that_fit_take_one_line_each() {
        let mut grid = Grid::new(["target", "ended", "took", "after", "result"], &[2, 3]);
        for target in ["carts 80-ff on sim-3.local", "catalog/_design/search"] {
            let others =
                ["11-26 22:57", "1m 23s", "402.2 MiB", "freed 290.7 MiB"].map(String::from);
            let [ended, took, after, result] = others;
            grid.push([target.into(), ended, took, after, result]);
        }
        let text = grid.wrapped(80);
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn first_column_is_shortened_to_fit() {
        let mut grid = Grid::new(["database", "on disk"], &[1]);
        grid.push(["n".repeat(200), "1.0 TiB".into()]);
        let text = grid.one_line_each(60, |most| most * 2 / 3);
        assert_eq!((text.lines().count(), longest(&text) <= 60), (2, true), "{text}");
        assert!(text.contains('…'));
    }
}
