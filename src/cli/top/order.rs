//! Orders from the terminal: the confirmation before an order, and the exact request.
//!
//! Pure: only composes the order. The service decides whether it is allowed, and carries it out.

use super::key::Key;
use crate::{
    cli::printable,
    serve::report::{
        Explained, StartLine,
        orders::{CompactOrder, OrderRequest, ResumeOrder, SuspendOrder},
    },
    text::{duration, size},
};
use std::time::Duration;

/// Maximum length of a reason, in characters.
const MAX_WHY: usize = 200;

/// An order with the user's choices.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    Suspend { scopes: Scopes, why: String },
    Resume { scopes: Scopes },
    Compact { target: String, force: bool, weighed: Option<Box<Explained>> },
}

/// The scopes to choose from; the first is everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scopes {
    all: Vec<String>,
    chosen: usize,
}

impl Scopes {
    fn new(more: Vec<String>) -> Self {
        let mut all = vec!["all".to_owned()];
        all.extend(more.into_iter().filter(|scope| scope != "all"));
        Self { all, chosen: 0 }
    }

    fn chosen(&self) -> &str {
        self.all.get(self.chosen).map_or("all", |scope| scope)
    }

    fn choose_next(&mut self) {
        self.chosen = (self.chosen + 1) % self.all.len();
    }
}

impl Order {
    /// Suspends everything, or one of these scopes.
    pub(super) fn suspend(scopes: Vec<String>) -> Self {
        Self::Suspend { scopes: Scopes::new(scopes), why: String::new() }
    }

    /// Resumes everything, or one of these scopes.
    pub(super) fn resume(scopes: Vec<String>) -> Self {
        Self::Resume { scopes: Scopes::new(scopes) }
    }

    /// Compacts a target; `weighed` is what the service knows about it.
    pub(super) fn compact(target: String, weighed: Option<Explained>) -> Self {
        Self::Compact { target, force: false, weighed: weighed.map(Box::new) }
    }

    /// The request to send.
    pub(super) fn request(&self) -> OrderRequest {
        match self {
            Self::Suspend { scopes, why } => {
                let why = Some(why.trim().to_owned()).filter(|why| !why.is_empty());
                OrderRequest::Suspend(SuspendOrder { scope: Some(scopes.chosen().to_owned()), why })
            }
            Self::Resume { scopes } => {
                OrderRequest::Resume(ResumeOrder { scope: Some(scopes.chosen().to_owned()) })
            }
            Self::Compact { target, force, .. } => {
                OrderRequest::Compact(CompactOrder { target: target.clone(), force: *force })
            }
        }
    }

    /// The expected effect, as pairs of a label and a text.
    fn effect(&self) -> Vec<(&'static str, String)> {
        let Self::Compact { weighed: Some(weighed), .. } = self else { return Vec::new() };
        match &weighed.start {
            Some(start) => effect_of_start(start),
            None => effect_of_waiting(weighed),
        }
    }
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), size::format_size_short)
}

fn effect_of_start(start: &StartLine) -> Vec<(&'static str, String)> {
    let takes = start.duration_seconds.and_then(|takes| Duration::try_from_secs_f64(takes).ok());
    vec![
        ("sends", start.request.clone()),
        ("frees", bytes(start.gain_bytes)),
        ("writes", bytes(start.rewrite_bytes)),
        ("needs", format!("{} more at its peak", size::format_size_short(start.peak_bytes))),
        ("takes", takes.map_or_else(|| "unknown".to_owned(), duration::format_rounded)),
    ]
}

/// The expected effect on a target that does not start now.
fn effect_of_waiting(weighed: &Explained) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("frees", bytes(weighed.target.reclaimable_bytes)),
        ("writes", bytes(weighed.target.predicted_bytes)),
    ];
    if let Some(request) = weighed.ordered.as_ref().and_then(|ordered| ordered.request.clone()) {
        lines.insert(0, ("sends", request));
    }
    let no_channel = || "no channel takes it: only by force".to_owned();
    let why = weighed.why.clone().or_else(|| weighed.target.channel.is_none().then(no_channel));
    lines.extend(why.map(|why| ("waits", why)));
    lines
}

/// An order that waits for confirmation.
#[derive(Clone, Debug)]
pub(super) struct Confirmation {
    order: Order,
    /// Why the service would refuse the order, and what to set.
    refused: Option<String>,
    /// Whether the order was sent.
    pub(super) sending: bool,
}

impl Confirmation {
    pub(super) const fn new(order: Order, refused: Option<String>) -> Self {
        Self { order, refused, sending: false }
    }

    pub(super) fn question(&self) -> &'static str {
        self.order.request().name().question().0
    }

    /// The confirmation's text, one entry per paragraph or line.
    pub(super) fn paragraphs(&self) -> Vec<String> {
        let request = self.order.request();
        let mut out = vec![request.does(), String::new()];
        for (name, says) in self.order.effect() {
            out.push(format!("{name:<7} {}", printable(&says)));
        }
        match &self.order {
            Order::Suspend { scopes, why } => {
                out.push(scope_line(scopes));
                out.push(format!("why     {}▏", printable(why)));
            }
            Order::Resume { scopes } => out.push(scope_line(scopes)),
            Order::Compact { force, .. } => {
                let force = if *force { "yes" } else { "no" };
                out.push(format!("force   {force}, Tab changes it: even if no channel takes it, or while it is paused"));
            }
        }
        out.extend([String::new(), printable(&request.http_request()), String::new()]);
        out.push(match (&self.refused, self.sending) {
            (Some(why), _) => format!("Not allowed: {}. Esc goes back.", printable(why)),
            (None, true) => "Sent; waiting for the answer …".to_owned(),
            (None, false) => "Enter sends it. Esc leaves it.".to_owned(),
        });
        out
    }

    /// Applies a key; returns the order once it is confirmed.
    pub(super) fn press(&mut self, key: Key) -> Option<Order> {
        if self.sending {
            return None;
        }
        match (key, &mut self.order) {
            (Key::Enter, order) if self.refused.is_none() => {
                self.sending = true;
                return Some(order.clone());
            }
            (Key::Tab, Order::Suspend { scopes, .. } | Order::Resume { scopes }) => {
                scopes.choose_next();
            }
            (Key::Tab, Order::Compact { force, .. }) => *force = !*force,
            (Key::Char(letter), Order::Suspend { why, .. }) if why.chars().count() < MAX_WHY => {
                why.push(letter);
            }
            (Key::Backspace, Order::Suspend { why, .. }) => {
                why.pop();
            }
            _ => {}
        }
        None
    }
}

fn scope_line(scopes: &Scopes) -> String {
    let chosen = printable(scopes.chosen());
    match scopes.all.as_slice() {
        [_] => format!("scope   {chosen}"),
        all => {
            let others = all.iter().filter(|scope| *scope != scopes.chosen());
            let others: Vec<String> = others.map(|scope| printable(scope)).collect();
            format!("scope   {chosen}; Tab changes it: {}", others.join(", "))
        }
    }
}
