//! Draws popups: help, explanations, confirmations, and results of orders.

use super::{
    Theme,
    text::{fold, put, width},
};
use crate::cli::{
    printable, table as printed,
    top::model::{Model, Popup},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    widgets::{Block, Clear, Widget as _},
};

/// Maximum width of a popup.
const MAX_WIDTH: u16 = 110;

/// The help text about keys.
const HELP: &str = "\
1 2 3 4, Tab   the screens
↑ ↓ PgUp PgDn  select; also k, j, Home and End
Enter          explain the selected target, or show a channel's queue
/              show only rows with a text; Esc clears it
o, O           sort by the next column; reverse the order
w              everything that is wrong
c              compact the selected target
S, R           suspend and resume starts
q, Ctrl-C      quit; Ctrl-Z returns to the shell until fg

Orders are sent only after a question that shows the exact request.
Bars of volumes: █ live  ▒ reclaimable or unused  ▓ everything else  ░ free";

/// Draws a popup in the middle of an area.
pub(super) fn render(model: &Model, popup: &Popup, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let room = area.width.min(MAX_WIDTH).saturating_sub(4);
    let (title, lines) = content(model, popup, room);
    let widest = lines.iter().map(|line| width(line)).max().unwrap_or(0).max(width(&title) + 2);
    let most = area.height.saturating_sub(2);
    let height = u16::try_from(lines.len()).unwrap_or(most).saturating_add(2).min(most);
    let wide = (widest + 4).min(area.width);
    let frame = Rect {
        x: area.x + (area.width - wide) / 2,
        y: area.y + (area.height - height) / 2,
        width: wide,
        height,
    };
    Clear.render(frame, buffer);
    let shown = usize::from(height.saturating_sub(2));
    let first = model.scroll.min(lines.len().saturating_sub(shown));
    let mut block = Block::bordered().title(format!(" {title} ")).title_style(theme.head());
    if lines.len() > shown {
        let last = (first + shown).min(lines.len());
        block =
            block.title_bottom(format!(" {}-{last} of {}, ↑ ↓ scroll ", first + 1, lines.len()));
    }
    block.render(frame, buffer);
    for (at, text) in (1..).zip(lines.iter().skip(first).take(shown)) {
        let inner = Rect { x: frame.x + 2, y: frame.y + at, width: room.min(wide - 4), height: 1 };
        put(buffer, inner, text, ratatui::style::Style::new());
    }
}

/// The title, and the lines at this width.
fn content(model: &Model, popup: &Popup, room: u16) -> (String, Vec<String>) {
    match popup {
        Popup::Help => ("Keys".to_owned(), fold(HELP, room)),
        Popup::Wrong => {
            let wrong = model.answers.wrong();
            let fine = model.answers.status.all_clear().unwrap_or("No problems.");
            let text = match wrong.is_empty() {
                true => fine.to_owned(),
                false => wrong.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n\n"),
            };
            ("What is wrong".to_owned(), fold(&text, room))
        }
        Popup::Waiting(what) => (what.clone(), vec!["Asking recliner …".to_owned()]),
        Popup::Explained { asked, targets } => {
            let only_node = model.answers.planned.only_node.as_deref();
            let text = printed::explained(asked, targets, only_node, false, room);
            ("Explained".to_owned(), fold(&text, room))
        }
        Popup::Confirm(confirmation) => {
            let text = confirmation.paragraphs().join("\n");
            (confirmation.question().to_owned(), fold(&text, room))
        }
        Popup::Said { title, text } => (title.clone(), fold(text, room)),
    }
}
