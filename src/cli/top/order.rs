//! Orders from the terminal: the confirmation before an order, and the exact request.
//!
//! Pure: only composes the order. The service decides whether it is allowed, and carries it out.

use super::key::Key;
use crate::{
    cli::{printable, table::cell},
    serve::report::{
        Explained, StartLine,
        columns::Cell,
        orders::{CompactOrder, OrderRequest, ResumeOrder, SuspendOrder},
    },
};

/// Maximum length of a reason, in characters.
const MAX_WHY: usize = 200;

/// An order with the user's choices.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    request: OrderRequest,
    /// The scopes to choose from, first everything; empty for a compaction.
    scopes: Vec<String>,
    /// What the service knows about the target of a compaction.
    weighed: Option<Box<Explained>>,
}

const ALL: &str = "all";

impl Order {
    /// Suspends everything, or one of these scopes.
    pub(super) fn suspend(scopes: Vec<String>) -> Self {
        let (scope, why) = (Some(ALL.to_owned()), Some(String::new()));
        Self::with_scopes(OrderRequest::Suspend(SuspendOrder { scope, why }), scopes)
    }

    /// Resumes everything, or one of these scopes.
    pub(super) fn resume(scopes: Vec<String>) -> Self {
        let scope = Some(ALL.to_owned());
        Self::with_scopes(OrderRequest::Resume(ResumeOrder { scope }), scopes)
    }

    fn with_scopes(request: OrderRequest, more: Vec<String>) -> Self {
        let more = more.into_iter().filter(|scope| scope != ALL);
        let scopes = std::iter::once(ALL.to_owned()).chain(more).collect();
        Self { request, scopes, weighed: None }
    }

    /// Compacts a target; `weighed` is what the service knows about it.
    pub(super) fn compact(target: String, weighed: Option<Explained>) -> Self {
        let request = OrderRequest::Compact(CompactOrder { target, force: false });
        Self { request, scopes: Vec::new(), weighed: weighed.map(Box::new) }
    }

    /// The request to send.
    pub(super) fn request(&self) -> OrderRequest {
        let mut request = self.request.clone();
        if let OrderRequest::Suspend(SuspendOrder { why, .. }) = &mut request {
            *why = why.take().map(|why| why.trim().to_owned()).filter(|why| !why.is_empty());
        }
        request
    }

    /// The expected effect, as pairs of a label and a text.
    fn effect(&self) -> Vec<(&'static str, String)> {
        let Some(weighed) = &self.weighed else { return Vec::new() };
        match &weighed.start {
            Some(start) => effect_of_start(start),
            None => effect_of_waiting(weighed),
        }
    }
}

fn effect_of_start(start: &StartLine) -> Vec<(&'static str, String)> {
    let effect = start.effect().map(|(title, effect)| (title, cell(&effect)));
    [("sends", start.request.clone())].into_iter().chain(effect).collect()
}

/// The expected effect on a target that does not start now.
fn effect_of_waiting(weighed: &Explained) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("frees", cell(&Cell::bytes(weighed.target.reclaimable_bytes))),
        ("writes", cell(&Cell::bytes(weighed.target.predicted_bytes))),
    ];
    if let Some(request) = weighed.ordered.as_ref().and_then(|ordered| ordered.request.clone()) {
        lines.insert(0, ("sends", request));
    }
    let no_channel = || "no channel takes it; needs force".to_owned();
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
        if let OrderRequest::Suspend(SuspendOrder { scope, .. })
        | OrderRequest::Resume(ResumeOrder { scope }) = &self.order.request
        {
            out.push(scope_line(scope.as_deref().unwrap_or(ALL), &self.order.scopes));
        }
        if let OrderRequest::Suspend(SuspendOrder { why, .. }) = &self.order.request {
            out.push(format!("why     {}▏", printable(why.as_deref().unwrap_or_default())));
        }
        if let OrderRequest::Compact(CompactOrder { force, .. }) = self.order.request {
            let force = if force { "yes" } else { "no" };
            out.push(format!(
                "force   {force} (Tab changes it): start it even if no channel takes it, or while it is paused"
            ));
        }
        out.extend([String::new(), printable(&request.http_request()), String::new()]);
        out.push(match (&self.refused, self.sending) {
            (Some(why), _) => format!("Not allowed: {}. Esc goes back.", printable(why)),
            (None, true) => "Sent; waiting for the answer …".to_owned(),
            (None, false) => "Enter sends it. Esc cancels.".to_owned(),
        });
        out
    }

    /// Applies a key; returns the order once it is confirmed.
    pub(super) fn press(&mut self, key: Key) -> Option<Order> {
        if self.sending {
            return None;
        }
        let Order { request, scopes, .. } = &mut self.order;
        match (key, request) {
            (Key::Enter, _) if self.refused.is_none() => {
                self.sending = true;
                return Some(self.order.clone());
            }
            (
                Key::Tab,
                OrderRequest::Suspend(SuspendOrder { scope, .. })
                | OrderRequest::Resume(ResumeOrder { scope }),
            ) => {
                let at = scopes.iter().position(|it| Some(it) == scope.as_ref()).unwrap_or(0);
                *scope = scopes.get((at + 1) % scopes.len()).cloned();
            }
            (Key::Tab, OrderRequest::Compact(CompactOrder { force, .. })) => *force = !*force,
            (Key::Char(letter), OrderRequest::Suspend(SuspendOrder { why: Some(why), .. }))
                if why.chars().count() < MAX_WHY =>
            {
                why.push(letter);
            }
            (Key::Backspace, OrderRequest::Suspend(SuspendOrder { why: Some(why), .. })) => {
                why.pop();
            }
            _ => {}
        }
        None
    }
}

fn scope_line(chosen: &str, all: &[String]) -> String {
    let others = all.iter().filter(|scope| *scope != chosen);
    let others: Vec<String> = others.map(|scope| printable(scope)).collect();
    let chosen = printable(chosen);
    match others.is_empty() {
        true => format!("scope   {chosen}"),
        false => format!("scope   {chosen}; Tab changes it: {}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixture, *};

    #[test]
    fn effect_says_why_its_numbers_differ_from_those_of_the_target() {
        let start = fixture::start();
        let shown = |start: &StartLine| {
            let effect = effect_of_start(start);
            let of = |title| effect.iter().find(|(it, _)| *it == title).unwrap().1.clone();
            [of("frees"), of("writes")]
        };
        assert_eq!(shown(&start), ["15.0 GiB", "5.0 GiB"]);
        let little = StartLine { caught_up_bytes: 1 << 10, ..start.clone() };
        assert_eq!(shown(&little), ["15.0 GiB", "5.0 GiB"], "nobody sees a difference");
        let grows = StartLine { caught_up_bytes: 1 << 30, ..start.clone() };
        assert_eq!(
            shown(&grows),
            [
                "15.0 GiB: 16.0 GiB reclaimable, less 1.0 GiB of waste written while it runs",
                "5.0 GiB, with that waste"
            ]
        );
        let place = format!(" in the copy on {}", start.node);
        let one_copy = StartLine { copies: 3, ..start };
        assert_eq!(shown(&one_copy), ["15.0 GiB", "5.0 GiB"].map(|it| it.to_owned() + &place));
    }
}
