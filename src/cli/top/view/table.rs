//! Draws a list: a header, the rows around the selected one, and the number of rows left out.

use super::{
    Theme, below, line,
    text::{clipped, put, width},
};
use crate::cli::{
    table::elided,
    top::list::{Column, ListState, Listed},
};
use ratatui::{buffer::Buffer, layout::Rect, style::Style};

/// Spaces between two columns.
const GAP: u16 = 2;

/// Minimum widths of the first column and of the others when columns are cut.
const MIN_FIRST: u16 = 16;
const MIN_OTHER: u16 = 8;

/// Draws a list, or the text `empty` if it has no rows.
pub(super) fn render(
    listed: &Listed,
    state: &ListState,
    empty: &str,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    if listed.rows.is_empty() {
        let says = match listed.hidden {
            0 => empty.to_owned(),
            hidden => format!("The filter hides all {hidden}."),
        };
        return put(buffer, area, &clipped(&says, area.width), theme.quiet());
    }
    let shown = shown_columns(listed, area.width);
    let widths = widths(listed, &shown, area.width);
    let heads = shown.iter().map(|(at, column)| head(state, *at, column));
    cells(buffer, line(area, 0), &shown, &widths, heads, theme.head());
    let body = below(area, 1);
    let tail = u16::from(listed.more > 0 && body.height > 1);
    let room = usize::from(body.height - tail);
    let first = first_row(listed.rows.len(), listed.at, room);
    for (at, row) in (0_u16..).zip(listed.rows.iter().skip(first).take(room)) {
        let is_chosen = first + usize::from(at) == listed.at;
        let style = if is_chosen { theme.chosen() } else { Style::new() };
        let texts = shown.iter().map(|(at, _)| row.cells.get(*at));
        let texts = texts.map(|cell| cell.map_or_else(String::new, |cell| cell.text.clone()));
        cells(buffer, line(body, at), &shown, &widths, texts, style);
    }
    if tail > 0 {
        let says = format!("and {} more waiting, less urgent", listed.more);
        put(buffer, line(body, body.height - 1), &says, theme.quiet());
    }
}

/// The first visible row, chosen so that the selected one is near the middle.
fn first_row(rows: usize, at: usize, room: usize) -> usize {
    at.saturating_sub(room / 2).min(rows.saturating_sub(room))
}

/// The columns to show at this width, with their indexes.
fn shown_columns(listed: &Listed, width: u16) -> Vec<(usize, &Column)> {
    listed.columns.iter().enumerate().filter(|(_, column)| column.from <= width).collect()
}

/// A column's title, with an arrow if rows are sorted by it.
fn head(state: &ListState, at: usize, column: &Column) -> String {
    let mark = match state.sort {
        Some((by, false)) if by == at => "▼",
        Some((by, true)) if by == at => "▲",
        _ => "",
    };
    column.title.to_uppercase() + mark
}

/// The width of each column: that of its longest cell; if the sum is too large, the widest columns
/// shrink.
fn widths(listed: &Listed, shown: &[(usize, &Column)], most: u16) -> Vec<u16> {
    let natural = |(at, column): &(usize, &Column)| {
        let cells = listed.rows.iter().filter_map(|row| row.cells.get(*at));
        // One more column for the arrow of the sort order.
        cells.map(|cell| width(&cell.text)).max().unwrap_or(0).max(width(column.title) + 1)
    };
    let mut widths: Vec<u16> = shown.iter().map(natural).collect();
    let gaps = GAP * u16::try_from(widths.len().saturating_sub(1)).unwrap_or(0);
    let all = |widths: &[u16]| widths.iter().fold(gaps, |sum, width| sum.saturating_add(*width));
    while all(&widths) > most {
        let can_shrink = |(at, width): &(usize, &mut u16)| {
            **width > if *at == 0 { MIN_FIRST } else { MIN_OTHER }
        };
        let widest = widths.iter_mut().enumerate().filter(can_shrink);
        let Some((_, widest)) = widest.max_by_key(|(_, width)| **width) else { break };
        *widest -= 1;
    }
    widths
}

/// Draws the cells of one row.
fn cells(
    buffer: &mut Buffer,
    area: Rect,
    shown: &[(usize, &Column)],
    widths: &[u16],
    texts: impl Iterator<Item = String>,
    style: Style,
) {
    buffer.set_style(area, style);
    let mut x = area.x;
    for ((text, wide), (_, column)) in texts.zip(widths).zip(shown) {
        let room = (*wide).min(area.right().saturating_sub(x));
        let text = fitted(&text, room);
        let pad = if column.number { room.saturating_sub(width(&text)) } else { 0 };
        let cell = Rect { x: x + pad, width: room - pad, ..area };
        put(buffer, cell, &text, style);
        x = x.saturating_add(*wide + GAP).min(area.right());
    }
}

/// A cell's text, cut in the middle, because both ends of a name distinguish it.
fn fitted(text: &str, room: u16) -> String {
    let most = usize::from(room);
    match width(text) <= room || room < 3 {
        true => clipped(text, room),
        false => clipped(&elided(text, most, most * 2 / 3), room),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_row_is_visible() {
        for rows in 0..40 {
            for at in 0..rows {
                for room in 1..20 {
                    let first = first_row(rows, at, room);
                    assert!((first..first + room).contains(&at), "{rows} {at} {room}");
                    assert!(first == 0 || first + room <= rows, "no empty lines at the end");
                }
            }
        }
    }
}
