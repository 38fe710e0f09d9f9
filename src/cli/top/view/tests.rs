use super::{
    super::{
        fixture::{self, explained, id},
        key::Key,
        model::Update,
    },
    *,
};
use crate::{
    advice::AdviceView, cli::table::sums::plan, serve::report::Space, text::size::format_size_short,
};
use insta::assert_snapshot;
use ratatui::{Terminal, backend::TestBackend};

const PLAIN: Theme = Theme { colours: false };
const COLOURED: Theme = Theme { colours: true };

/// Draws the model on a terminal of this size.
fn drawn(model: &Model, width: u16, height: u16, theme: Theme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test terminal");
    let draw = |frame: &mut ratatui::Frame<'_>| {
        render(model, theme, frame.area(), frame.buffer_mut());
    };
    terminal.draw(draw).expect("drawing succeeds");
    terminal.backend().buffer().clone()
}

/// The text of the screen, line by line.
fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let lines = buffer.content.chunks(width).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn shown(model: &Model, width: u16, height: u16) -> String {
    text_of(&drawn(model, width, height, PLAIN))
}

fn after(mode: &str, keys: &[Key]) -> Model {
    let mut model = fixture::model(mode);
    for key in keys {
        model.press(*key);
    }
    model
}

#[test]
fn draws_each_screen_on_a_small_terminal() {
    for (name, key) in [("overview", '1'), ("jobs", '2'), ("queue", '3'), ("events", '4')] {
        assert_snapshot!(format!("{name}_80"), shown(&after("enforce", &[Key::Char(key)]), 80, 24));
    }
}

#[test]
fn draws_each_screen_on_a_large_terminal() {
    for (name, key) in [("overview", '1'), ("jobs", '2'), ("queue", '3'), ("events", '4')] {
        assert_snapshot!(
            format!("{name}_160"),
            shown(&after("advise", &[Key::Char(key)]), 160, 50)
        );
    }
}

#[test]
fn overview_shows_the_sums_of_the_api() {
    let space = Space::of(&plan(), &AdviceView::default());
    let mut model = fixture::model("advise");
    model.answers.space = space.clone();
    let text = shown(&model, 160, 50);
    let [on_disk, reclaimable] =
        [space.file_bytes, space.reclaimable_bytes].map(|bytes| format_size_short(bytes.unwrap()));
    for says in [
        format!("{on_disk} on disk in all copies, "),
        format!("{reclaimable} reclaimable by compaction"),
        format!("{} targets, {} waiting", space.targets, space.waiting),
    ] {
        assert!(text.contains(&says), "{says}: {text}");
    }
}

#[test]
fn tiny_terminal_shows_problem_and_how_to_quit() {
    assert_snapshot!("tiny", shown(&after("enforce", &[]), 30, 5));
}

#[test]
fn draws_confirmation_of_orders() {
    assert_snapshot!(
        "suspend_80",
        shown(&after("enforce", &[Key::Char('3'), Key::Char('S')]), 80, 24)
    );
    let mut model = after("enforce", &[Key::Char('3'), Key::Char('c')]);
    let asked = id("couchdb@node-1.example", "sessions");
    model.apply(Update::Weighed { asked, found: Ok(vec![explained()]) });
    assert_snapshot!("compact_80", shown(&model, 80, 24));
}

#[test]
fn draws_explanation_and_help() {
    let mut model = after("enforce", &[Key::Char('3'), Key::Enter]);
    let asked = id("couchdb@node-1.example", "sessions");
    model.apply(Update::Explained { asked, found: Ok(vec![explained()]) });
    assert_snapshot!("explained_80", shown(&model, 80, 24));
    assert_snapshot!("help_80", shown(&after("enforce", &[Key::Char('?')]), 80, 24));
}

#[test]
fn unanswered_request_adds_a_line_above_the_last_state() {
    let mut model = after("enforce", &[]);
    model.apply(Update::Silent("http://127.0.0.1:10984 gives no answer".to_owned()));
    model.now = model.now.plus(std::time::Duration::from_secs(12));
    let text = shown(&model, 80, 24);
    let line = text.lines().nth(2).expect("the screen has a third line");
    assert_eq!(line, "No answer for 12s, asking again: http://127.0.0.1:10984 gives no answer");
    assert!(text.contains("ratio_dbs"), "{text}");
}

#[test]
fn draws_at_any_size_without_panic() {
    for screen in ['1', '2', '3', '4'] {
        for popup in ['j', '?', 'w', 'S', 'R'] {
            let model = after("enforce", &[Key::Char(screen), Key::Char(popup)]);
            for (width, height) in
                [(1, 1), (3, 2), (39, 9), (40, 10), (41, 11), (60, 12), (300, 4), (5, 90)]
            {
                let buffer = drawn(&model, width, height, COLOURED);
                assert_eq!((buffer.area.width, buffer.area.height), (width, height));
            }
        }
    }
}

#[test]
fn plain_theme_has_no_colours_and_names_are_escaped() {
    for screen in ['1', '2', '3', '4'] {
        let model = after("enforce", &[Key::Char(screen)]);
        let has_colour =
            |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset);
        assert!(!has_colour(&drawn(&model, 120, 40, PLAIN)), "{screen}");
        assert!(has_colour(&drawn(&model, 120, 40, COLOURED)), "{screen}");
        let text = shown(&model, 160, 40);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
    let text = shown(&after("enforce", &[Key::Char('3')]), 160, 40);
    assert!(text.contains("evil\\u{1b}[2J\\u{202e}name"), "{text}");
}
