//! The state of the screen, and the effect of each key.
//!
//! Pure: no terminal, no request, no clock. A key changes the state and may return a request, which
//! the task that owns the state carries out; the results are applied here too.

use super::{
    answers::{Answers, RecentEvents},
    key::Key,
    list::{ListState, Listed},
    order::{Confirmation, Order},
    rows,
};
use crate::{serve::report::Explained, text::Label as _};
use wall_clock::Moment;

/// Maximum length of a filter, in characters.
const MAX_FILTER: usize = 80;

/// Number of lines that a page key scrolls.
const PAGE: isize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Screen {
    Overview,
    Jobs,
    Queue,
    Events,
}

impl Screen {
    /// All screens, in the order of their numbers.
    pub(super) const ALL: [Self; 4] = [Self::Overview, Self::Jobs, Self::Queue, Self::Events];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Jobs => "Jobs",
            Self::Queue => "Queue",
            Self::Events => "Events",
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    fn next(self, by: usize) -> Self {
        let at = (self.index() + by) % Self::ALL.len();
        Self::ALL.get(at).copied().unwrap_or(self)
    }
}

/// A window in front of the screen.
#[derive(Clone, Debug)]
pub(super) enum Popup {
    Help,
    /// All current problems.
    Wrong,
    /// Waits for an answer.
    Waiting(String),
    Explained {
        asked: String,
        targets: Vec<Explained>,
    },
    Confirm(Box<Confirmation>),
    /// The result of an order, or a message.
    Said {
        title: String,
        text: String,
    },
}

/// A request to the task that owns the state.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    Quit,
    /// Return the terminal to the shell until the program is continued.
    Pause,
    /// Ask why this target does not start.
    Explain(String),
    /// Ask about this target before the compaction is confirmed.
    Weigh(String),
    Send(Order),
}

/// An update from the service.
#[derive(Debug)]
pub(super) enum Update {
    Answers(Box<Answers>),
    /// The service does not answer, for this reason.
    Silent(String),
    Events(Vec<crate::serve::report::EventLine>),
    /// Earlier events belong to a journal that no longer exists.
    EventsRestart,
    NoEvents(String),
    Explained {
        asked: String,
        found: Result<Vec<Explained>, String>,
    },
    Weighed {
        asked: String,
        found: Result<Vec<Explained>, String>,
    },
    Ordered {
        order: Order,
        answer: Result<String, String>,
    },
}

/// When the service stopped answering, and why.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    pub(super) since: Moment,
    pub(super) why: String,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Name of the service.
    pub(super) service: String,
    pub(super) answers: Answers,
    pub(super) events: RecentEvents,
    pub(super) outage: Option<Outage>,
    pub(super) screen: Screen,
    lists: [ListState; 4],
    /// Whether keys edit the filter.
    pub(super) typing: bool,
    pub(super) popup: Option<Popup>,
    /// Number of lines by which the popup is scrolled.
    pub(super) scroll: usize,
    pub(super) now: Moment,
}

impl Model {
    pub(super) fn new(service: String, answers: Answers, now: Moment) -> Self {
        Self {
            service,
            answers,
            events: RecentEvents::default(),
            outage: None,
            screen: Screen::Overview,
            lists: std::array::from_fn(|_| ListState::default()),
            typing: false,
            popup: None,
            scroll: 0,
            now,
        }
    }

    /// The list of the current screen.
    pub(super) fn list(&self) -> &ListState {
        &self.lists[self.screen.index()]
    }

    fn list_mut(&mut self) -> &mut ListState {
        &mut self.lists[self.screen.index()]
    }

    /// The rows of the current screen, filtered and sorted.
    pub(super) fn listed(&self) -> Listed {
        let table = match self.screen {
            Screen::Overview => rows::channels(&self.answers, self.now),
            Screen::Jobs => rows::jobs(&self.answers, self.now),
            Screen::Queue => rows::queue(&self.answers, self.now),
            Screen::Events => rows::events(&self.events),
        };
        self.list().applied_to(table)
    }

    pub(super) fn apply(&mut self, update: Update) {
        match update {
            Update::Answers(answers) => {
                self.answers = *answers;
                self.outage = None;
            }
            Update::Silent(why) => {
                let since = self.outage.as_ref().map_or(self.now, |outage| outage.since);
                self.outage = Some(Outage { since, why });
            }
            Update::Events(lines) => self.events.add(lines),
            Update::EventsRestart => self.events = RecentEvents::default(),
            Update::NoEvents(why) => self.events.problem = Some(why),
            Update::Explained { asked, found } => self.show_found(match found {
                Ok(targets) => Popup::Explained { asked, targets },
                Err(why) => said("Not explained", why),
            }),
            Update::Weighed { asked, found } => self.show_found(match found {
                Ok(found) => self.confirm(Order::compact(asked, found.into_iter().next())),
                Err(why) => said("Not done", why),
            }),
            Update::Ordered { order, answer } => {
                let (title, text) = match answer {
                    Ok(text) => ("Done", text),
                    Err(why) => ("Not done", why),
                };
                let title = format!("{title}: {}", order.request().name().label());
                self.show(said(title, text));
            }
        }
    }

    fn show(&mut self, popup: Popup) {
        (self.popup, self.scroll) = (Some(popup), 0);
    }

    /// Shows the answer to a question, unless the user left it.
    fn show_found(&mut self, popup: Popup) {
        if matches!(self.popup, Some(Popup::Waiting(_))) {
            self.show(popup);
        }
    }

    fn confirm(&self, order: Order) -> Popup {
        let permissions = self.answers.slow.permissions.as_ref();
        let refused =
            permissions.and_then(|permissions| permissions.refused(order.request().name().label()));
        Popup::Confirm(Box::new(Confirmation::new(order, refused.map(ToOwned::to_owned))))
    }

    /// Applies a key; returns the request that it makes, if any.
    pub(super) fn press(&mut self, key: Key) -> Option<Request> {
        if key == Key::Interrupt {
            return Some(Request::Quit);
        }
        if key == Key::Pause {
            return Some(Request::Pause);
        }
        match self.popup.take() {
            Some(popup) => self.press_in_popup(popup, key),
            None if self.typing => {
                self.type_filter(key);
                None
            }
            None => self.press_on_screen(key),
        }
    }

    fn type_filter(&mut self, key: Key) {
        let list = self.list_mut();
        #[expect(clippy::wildcard_enum_match_arm, reason = "most keys mean nothing here")]
        match key {
            Key::Char(letter) if list.filter.chars().count() < MAX_FILTER => {
                list.filter.push(letter)
            }
            Key::Backspace => {
                list.filter.pop();
            }
            Key::Escape => {
                list.filter.clear();
                self.typing = false;
            }
            Key::Enter | Key::Tab | Key::Up | Key::Down => self.typing = false,
            _ => {}
        }
    }

    fn press_on_screen(&mut self, key: Key) -> Option<Request> {
        let listed = self.listed();
        if let Some(by) = steps(key) {
            self.list_mut().select(&listed, by);
            return None;
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "most keys mean nothing here")]
        match key {
            Key::Char('q') => return Some(Request::Quit),
            Key::Char('?' | 'h') => self.show(Popup::Help),
            Key::Char('w') => self.show(Popup::Wrong),
            Key::Char('1') => self.screen = Screen::Overview,
            Key::Char('2') => self.screen = Screen::Jobs,
            Key::Char('3') => self.screen = Screen::Queue,
            Key::Char('4') => self.screen = Screen::Events,
            Key::Tab | Key::Right => self.screen = self.screen.next(1),
            Key::Left => self.screen = self.screen.next(Screen::ALL.len() - 1),
            Key::Char('/') => self.typing = true,
            Key::Escape => self.list_mut().filter.clear(),
            Key::Char('o') => self.list_mut().sort_by_next(listed.columns.len()),
            Key::Char('O') => self.list_mut().reverse(),
            Key::Enter => return self.ask_about(&listed, Request::Explain),
            Key::Char('c') => return self.ask_about(&listed, Request::Weigh),
            Key::Char('S') => {
                let scopes = listed.selected().map(|row| row.scopes.clone()).unwrap_or_default();
                self.show(self.confirm(Order::suspend(scopes)));
            }
            Key::Char('R') => self.resume(),
            _ => {}
        }
        None
    }

    /// Makes a request about the target of the selected row. A channel on the overview opens its
    /// queue instead.
    fn ask_about(&mut self, listed: &Listed, request: fn(String) -> Request) -> Option<Request> {
        let row = listed.selected()?;
        if let Some(id) = row.id.clone() {
            self.show(Popup::Waiting(row.title()));
            return Some(request(id));
        }
        if self.screen == Screen::Overview {
            self.screen = Screen::Queue;
            *self.list_mut() = ListState::filtered(row.title());
        }
        None
    }

    fn resume(&mut self) {
        let scopes = self.answers.status.suspensions.iter().map(|line| line.scope.clone());
        let scopes: Vec<String> = scopes.collect();
        self.show(match scopes.is_empty() {
            true => said("Resume starts", "Nothing is suspended.".to_owned()),
            false => self.confirm(Order::resume(scopes)),
        });
    }

    /// Applies a key to a popup, which stays or goes; returns a request, if any.
    fn press_in_popup(&mut self, mut popup: Popup, key: Key) -> Option<Request> {
        let (stays, request) = match &mut popup {
            Popup::Confirm(confirmation) => {
                let request = confirmation.press(key).map(Request::Send);
                (confirmation.sending || key != Key::Escape, request)
            }
            Popup::Wrong | Popup::Explained { .. } | Popup::Said { .. } => {
                let steps = if key == Key::Char(' ') { Some(PAGE) } else { steps(key) };
                self.scroll = self.scroll.saturating_add_signed(steps.unwrap_or(0));
                (steps.is_some(), None)
            }
            Popup::Help => (false, None),
            Popup::Waiting(_) => (!matches!(key, Key::Escape | Key::Char('q')), None),
        };
        self.popup = stays.then_some(popup);
        request
    }
}

/// By how many rows or lines a key moves the selection or the text, if at all.
fn steps(key: Key) -> Option<isize> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys move nothing")]
    Some(match key {
        Key::Up | Key::Char('k') => -1,
        Key::Down | Key::Char('j') => 1,
        Key::PageUp => -PAGE,
        Key::PageDown => PAGE,
        Key::Home | Key::Char('g') => isize::MIN,
        Key::End | Key::Char('G') => isize::MAX,
        _ => return None,
    })
}

fn said(title: impl Into<String>, text: String) -> Popup {
    Popup::Said { title: title.into(), text }
}

#[cfg(test)]
mod tests;
