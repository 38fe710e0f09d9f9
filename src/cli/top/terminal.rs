//! Takes over the terminal, draws on it, and restores it, however the program ends.
//!
//! Owns raw mode, the alternate screen and the cursor. Does not know what is drawn.

use super::key::Key;
use crossterm::{
    cursor::Show,
    event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Terminal, backend::CrosstermBackend, buffer::Buffer, layout::Rect};
use std::{
    io::{self, Stdout},
    panic,
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether the terminal must be restored.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// The terminal while the program draws on it. Dropping it restores the terminal.
#[derive(Debug)]
pub(super) struct Canvas(Terminal<CrosstermBackend<Stdout>>);

impl Canvas {
    /// Enters the alternate screen. A panic restores the terminal before its message is printed.
    ///
    /// # Errors
    /// If the terminal cannot be set up.
    pub(super) fn open() -> io::Result<Self> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            hook(info);
        }));
        take().map(Self).inspect_err(|_| give_back())
    }

    /// Returns the terminal to the shell until the process is continued, and then draws everything
    /// again.
    ///
    /// # Errors
    /// If the terminal no longer exists by then.
    pub(super) fn pause(&mut self) -> io::Result<()> {
        give_back();
        // STOP instead of TSTP, because the program catches TSTP and would only receive it again.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        // The new terminal object knows nothing about the screen, so it draws everything.
        self.0 = take()?;
        Ok(())
    }

    /// Draws a frame; sends only the cells that changed.
    ///
    /// # Errors
    /// If the terminal no longer exists.
    pub(super) fn draw(&mut self, render: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        self.0.draw(|frame| render(frame.area(), frame.buffer_mut())).map(drop)
    }
}

impl Drop for Canvas {
    fn drop(&mut self) {
        give_back();
    }
}

/// Sets up the terminal, which must be restored later.
fn take() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    IS_ENTERED.store(true, Ordering::SeqCst);
    enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen))
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())))
}

/// Restores the terminal once. Ignores errors, because the terminal may no longer exist.
fn give_back() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        let _gone = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _gone = disable_raw_mode();
    }
}

/// The key of an event; `None` if the event is irrelevant here.
pub(super) fn key_of(event: &Event) -> Option<Key> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    if modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        let with_control =
            |letter| *code == KeyCode::Char(letter) && modifiers.contains(KeyModifiers::CONTROL);
        let interrupts = with_control('c').then_some(Key::Interrupt);
        return interrupts.or_else(|| with_control('z').then_some(Key::Pause));
    }
    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys mean nothing here")]
    Some(match code {
        KeyCode::Char(letter) => Key::Char(*letter),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Tab => Key::Tab,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_keys_and_ignores_other_events() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        for (event, expected) in [
            (key(KeyCode::Char('q'), none), Some(Key::Char('q'))),
            (key(KeyCode::Char('S'), KeyModifiers::SHIFT), Some(Key::Char('S'))),
            (key(KeyCode::Char('c'), control), Some(Key::Interrupt)),
            (key(KeyCode::Char('z'), control), Some(Key::Pause)),
            (key(KeyCode::Char('q'), control), None),
            (key(KeyCode::Char('c'), KeyModifiers::ALT), None),
            (key(KeyCode::Enter, none), Some(Key::Enter)),
            (key(KeyCode::F(1), none), None),
            (Event::Resize(80, 24), None),
            (
                Event::Key(KeyEvent::new_with_kind(KeyCode::Enter, none, KeyEventKind::Release)),
                None,
            ),
        ] {
            assert_eq!(key_of(&event), expected, "{event:?}");
        }
    }
}
