//! Draws the state of the screen.
//!
//! Pure: a function from the state, the theme and the area to cells. External text in rows is
//! already escaped; text drawn directly from answers is escaped here. Nothing is conveyed by colour
//! alone.

mod overview;
mod popup;
mod table;
mod text;

use super::model::{Model, Screen};
use crate::{
    cli::{printable, table::bar},
    text::{counted, duration},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};
use text::{clipped, put};

/// Minimum size of a terminal that shows a list.
const MIN_WIDTH: u16 = 40;
const MIN_HEIGHT: u16 = 10;

/// Maximum number of lines with reasons above the queue.
const REASONS: u16 = 6;

/// Styles for emphasis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    /// Whether colours may be used.
    pub(super) colours: bool,
}

impl Theme {
    fn coloured(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn warn(self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    fn bar(self) -> Style {
        self.coloured(Color::Cyan)
    }

    const fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    const fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    const fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Draws the whole screen.
pub(super) fn render(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        return too_small(model, theme, area, buffer);
    }
    title(model, theme, line(area, 0), buffer);
    tabs(model, theme, line(area, 1), buffer);
    wrong(model, theme, line(area, 2), buffer);
    let body = Rect { y: area.y + 4, height: area.height - 5, ..area };
    match model.screen {
        Screen::Overview => overview::render(model, theme, body, buffer),
        Screen::Jobs => jobs(model, theme, body, buffer),
        Screen::Queue => queue(model, theme, body, buffer),
        Screen::Events => events(model, theme, body, buffer),
    }
    footer(model, theme, line(area, area.height - 1), buffer);
    if let Some(shown) = &model.popup {
        popup::render(model, shown, theme, area, buffer);
    }
}

/// One line of an area.
const fn line(area: Rect, at: u16) -> Rect {
    Rect { x: area.x, y: area.y + at, width: area.width, height: 1 }
}

/// The area without its first `lines` lines.
const fn below(area: Rect, lines: u16) -> Rect {
    let lines = if lines < area.height { lines } else { area.height };
    Rect { y: area.y + lines, height: area.height - lines, ..area }
}

fn too_small(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let (says, style) = worst(model, theme);
    let size = format!("Needs {MIN_WIDTH}x{MIN_HEIGHT}; q quits.");
    for (at, (says, style)) in (0..area.height).zip([(says, style), (size, theme.quiet())]) {
        put(buffer, line(area, at), &says, style);
    }
}

fn title(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let status = &model.answers.status;
    let simulated = if status.simulated { ", a simulated cluster" } else { "" };
    let left = format!(
        "recliner {}, mode {}{simulated}",
        printable(&status.version),
        printable(&status.mode)
    );
    let right = format!("{}  {}", model.service, model.now.rfc3339());
    put(buffer, area, &left, theme.head());
    let used = text::width(&left) + 2;
    let free = area.width.saturating_sub(used);
    let right = if text::width(&right) > free { model.now.rfc3339() } else { right };
    let width = text::width(&right);
    if width <= free {
        put(buffer, Rect { x: area.right() - width, width, ..area }, &right, theme.quiet());
    }
}

fn tabs(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let planned = &model.answers.planned;
    let mut x = area.x;
    for (at, screen) in Screen::ALL.into_iter().enumerate() {
        let count = match screen {
            Screen::Jobs => Some(model.answers.jobs.jobs.len()),
            Screen::Queue => Some(planned.starts.len() + planned.total),
            Screen::Overview | Screen::Events => None,
        };
        let count = count.map_or_else(String::new, |count| format!(" ({count})"));
        let tab = format!(" {} {}{count} ", at + 1, screen.title());
        let style = if screen == model.screen { theme.chosen() } else { Style::new() };
        let width = text::width(&tab).min(area.right().saturating_sub(x));
        put(buffer, Rect { x, width, ..area }, &tab, style);
        x = (x + width + 1).min(area.right());
    }
}

/// The worst current problem, or a line that says there is none.
fn worst(model: &Model, theme: Theme) -> (String, Style) {
    if let Some(outage) = &model.outage {
        let since = duration::format_rounded(outage.since.age(model.now));
        let says = format!("No answer for {since}, asking again: {}", printable(&outage.why));
        return (says, theme.bad());
    }
    let wrong = model.answers.wrong();
    match (wrong.as_slice(), model.answers.status.all_clear()) {
        ([], fine) => (fine.unwrap_or("No problems.").to_owned(), theme.good()),
        ([one], _) => (printable(one), theme.warn()),
        ([first, more @ ..], _) => {
            let more = counted(more.len() as u64, "more: w", "more: w");
            (format!("({more}) {}", printable(first)), theme.warn())
        }
    }
}

fn wrong(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let (says, style) = worst(model, theme);
    put(buffer, area, &clipped(&says, area.width), style);
}

fn jobs(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let empty = "The nodes report no running compaction or index build.";
    table::render(&model.listed(), model.list(), empty, theme, area, buffer);
}

/// Draws the reasons why targets wait, the queue, and a sentence about the selected target.
fn queue(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let groups = model.answers.planned.waiting_groups();
    let shown = REASONS.min(area.height / 4).min(u16::try_from(groups.len()).unwrap_or(REASONS));
    let most = groups.first().map_or(1, |group| group.targets);
    for (at, group) in (0..shown).zip(&groups) {
        let bar = bar(group.targets as f64 / most as f64, 10);
        let (words, meaning) = (group.class.words(), group.class.meaning());
        let says = format!("{words:<10} {:>7} {bar} {meaning}", group.targets);
        put(buffer, line(area, at), &clipped(&says, area.width), theme.quiet());
    }
    let gap = u16::from(shown > 0);
    let rest = below(area, shown + gap);
    let listed = model.listed();
    let says = listed.selected().and_then(|row| row.says.as_deref()).unwrap_or_default();
    let said = text::fold(says, rest.width);
    let height = u16::try_from(said.len().min(3)).unwrap_or(3).min(rest.height / 3);
    let list = Rect { height: rest.height - height, ..rest };
    table::render(&listed, model.list(), "Nothing waits.", theme, list, buffer);
    for (at, says) in (0..height).zip(&said) {
        put(buffer, line(below(rest, list.height), at), says, theme.head());
    }
}

fn events(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let nothing = "The journal has no events.";
    let empty = model.events.problem.as_deref().map_or_else(|| nothing.to_owned(), printable);
    table::render(&model.listed(), model.list(), &empty, theme, area, buffer);
}

fn footer(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    const KEYS: &str =
        "q quit  ? help  / filter  o sort  Enter explain  c compact  S suspend  R resume";
    let filter = printable(&model.list().filter);
    let (says, style) = match (model.typing, filter.is_empty()) {
        (true, _) => (format!("/{filter}▏ Enter keeps the filter, Esc clears it"), theme.head()),
        (false, true) => (KEYS.to_owned(), theme.quiet()),
        (false, false) => {
            let hidden = model.listed().hidden;
            (format!("filter {filter:?} hides {hidden}, Esc clears it  {KEYS}"), theme.quiet())
        }
    };
    put(buffer, area, &clipped(&says, area.width), style);
}

#[cfg(test)]
mod tests;
