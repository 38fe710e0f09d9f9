//! Keys, independent of any terminal protocol.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Tab,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Left,
    Right,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Pause,
}
