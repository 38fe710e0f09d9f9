//! The console: web pages for people, rendered on the server.
//!
//! Owns the presentation: words, tables, charts, one style sheet and one script. Pure: a page is a function of the
//! API's answers ([`report`](super::report)) and of the time, so it shows nothing that a program could not request. It
//! makes no decisions, sends nothing to CouchDB and changes nothing; a form sends an order to the API. The HTTP server
//! gathers the answers, serves the pages, and renders open pages again when something changes.

mod advice;
mod cells;
mod changes;
mod chart;
mod configuration;
mod confirm;
mod database;
mod databases;
mod events;
mod fleet;
mod frame;
mod indexes;
mod inside;
mod jobs;
mod nodes;
mod overview;
mod paging;
mod preflight;
mod queue;
mod runs;
mod status;
mod summary;
mod table;
mod target;
mod targets;
mod what_if;

pub(super) use advice::advice;
pub(super) use cells::link;
pub(super) use changes::changes;
pub(super) use configuration::configuration;
pub(super) use confirm::{AskedCompaction, Confirmation, confirmation, done};
pub(super) use database::{DatabaseAnswers, SHOWN as SHOWN_OF_ONE, database};
pub(super) use databases::databases;
pub(super) use events::events;
pub(super) use fleet::fleet;
pub(super) use frame::{Around, asset, assets_version, book_document, document, failed};
pub(super) use indexes::indexes;
pub(super) use jobs::{JobAnswers, jobs};
pub(super) use nodes::nodes;
pub(super) use overview::{OverviewAnswers, SHOWN as SHOWN_WAITING, overview};
pub(super) use preflight::{Predicted, preflight};
pub(super) use queue::{QueueAnswers, SHOWN as SHOWN_IN_QUEUE, queue, suspended};
pub(super) use status::status;
pub(crate) use summary::report_document;
pub(super) use target::{TargetAnswers, target};
pub(super) use targets::{TargetFilter, targets};
pub(super) use what_if::what_if;

use maud::Markup;

/// The parameters of a page's address, in order. Forms send all of their fields; empty ones are
/// omitted.
#[derive(Clone, Debug)]
pub(super) struct Given(Vec<(String, String)>);

impl Given {
    pub(super) fn new(mut pairs: Vec<(String, String)>) -> Self {
        pairs.retain(|(_, value)| !value.is_empty());
        Self(pairs)
    }

    /// A parameter's value; empty if the parameter is absent.
    pub(super) fn get(&self, key: &str) -> &str {
        let given = self.0.iter().find(|(given, _)| given == key);
        given.map_or("", |(_, value)| value)
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Sets a parameter that has no value.
    pub(super) fn set_default(&mut self, key: &str, value: &str) {
        if self.get(key).is_empty() {
            self.0.push((key.to_owned(), value.to_owned()));
        }
    }

    /// A link to `page` with the same parameters, except for `changes`; an empty value removes a
    /// parameter.
    pub(super) fn link(&self, page: &str, changes: &[(&str, &str)]) -> String {
        let kept =
            self.fields().filter(|(key, _)| changes.iter().all(|(changed, _)| changed != key));
        let changed = changes.iter().copied().filter(|(_, value)| !value.is_empty());
        link(page, &kept.chain(changed).collect::<Vec<_>>())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A page of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Screen {
    Overview,
    Fleet,
    Databases,
    Targets,
    Indexes,
    Queue,
    Jobs,
    Events,
    Changes,
    Nodes,
    Advice,
    WhatIf,
    Preflight,
    Configuration,
    Status,
}

/// Which pages a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Those of one cluster.
    Cluster,
    /// Those of one cluster and of other recliners.
    ClusterAndFleet,
    /// Only those of other recliners.
    Fleet,
}

/// The top-level entries of the navigation, each with its screens.
const PLACES: [(&str, &[Screen]); 5] = [
    ("Overview", &[Screen::Overview, Screen::Fleet]),
    ("Databases", &[Screen::Databases, Screen::Indexes, Screen::Targets]),
    ("Activity", &[Screen::Jobs, Screen::Queue, Screen::Events, Screen::Changes]),
    ("Advice", &[Screen::Advice]),
    (
        "Settings",
        &[Screen::Nodes, Screen::Configuration, Screen::WhatIf, Screen::Preflight, Screen::Status],
    ),
];

impl Screen {
    /// All offered screens, in navigation order.
    fn all(shown: Shown) -> impl Iterator<Item = Self> {
        let all = PLACES.iter().flat_map(|(_, screens)| screens.iter().copied());
        all.filter(move |screen| match shown {
            Shown::Cluster => *screen != Self::Fleet,
            Shown::ClusterAndFleet => true,
            Shown::Fleet => *screen == Self::Fleet,
        })
    }

    /// All screens under the same navigation entry.
    fn beside(self) -> &'static [Self] {
        let own = PLACES.iter().find(|(_, screens)| screens.contains(&self));
        own.map_or(&[], |(_, screens)| screens)
    }

    const fn link(self) -> &'static str {
        self.entry().1
    }

    /// The name in the navigation, the relative link, and the letter to press after `g`.
    const fn entry(self) -> (&'static str, &'static str, char) {
        match self {
            Self::Overview => ("Overview", "./", 'o'),
            Self::Fleet => ("Fleet", "fleet", 'f'),
            Self::Databases => ("Databases", "databases", 'd'),
            Self::Targets => ("Targets", "targets", 't'),
            Self::Queue => ("Queue", "queue", 'q'),
            Self::Jobs => ("Jobs", "jobs", 'j'),
            Self::Events => ("Events", "events", 'e'),
            Self::Indexes => ("Indexes", "indexes", 'i'),
            Self::Changes => ("What changed", "changes", 'h'),
            Self::Nodes => ("Nodes", "nodes", 'n'),
            Self::Advice => ("Advice", "advice", 'a'),
            Self::WhatIf => ("What if", "what-if", 'w'),
            Self::Preflight => ("New index", "preflight", 'p'),
            Self::Configuration => ("Configuration", "configuration", 'c'),
            Self::Status => ("Status", "status", 's'),
        }
    }
}

/// A page without its frame.
#[derive(Debug)]
pub(super) struct Page {
    /// The heading, also shown in the window's title.
    pub title: String,
    /// The screen that the navigation marks as current.
    screen: Option<Screen>,
    /// The sections of the page, in order.
    pub parts: Vec<Part>,
    /// Whether it changes while it is open.
    pub is_live: bool,
}

/// The id of the part with critical problems.
const CRITICAL: &str = "critical";

/// A part of a page, sent again when it changes.
#[derive(Debug)]
pub(super) struct Part {
    /// The HTML id of the section.
    pub id: &'static str,
    pub html: Markup,
}

impl Page {
    /// A page that changes while it is open.
    fn live(screen: Screen, title: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { title: title.into(), screen: Some(screen), parts, is_live: true }
    }

    /// Adds what is suspended above everything but critical problems.
    pub(super) fn insert_suspended(&mut self, suspended: Part) {
        let critical = self.parts.iter().position(|part| part.id == CRITICAL);
        self.parts.insert(critical.map_or(0, |at| at + 1), suspended);
    }

    /// A page that does not change while it is open.
    fn still(screen: Option<Screen>, title: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { title: title.into(), screen, parts, is_live: false }
    }
}

impl Part {
    const fn new(id: &'static str, html: Markup) -> Self {
        Self { id, html }
    }
}

#[cfg(test)]
mod tests;
