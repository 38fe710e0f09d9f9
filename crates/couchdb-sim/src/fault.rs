//! Faults to inject between a client and the simulated nodes.
//!
//! Owns the list of planned faults; [`Faults`](crate::Faults) is the handle to it.
//! Deterministic: a fault is selected by route and count, never by chance.

use std::{collections::BTreeMap, time::Duration};

/// The effect of a fault on a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The response is delayed by this duration.
    Delay(Duration),
    /// There is never a response; the connection stays open.
    Hang,
    /// Status 200 and JSON content type, but the body is not JSON.
    Malformed,
    /// The full length is announced, half of the body is sent, and the connection breaks.
    HalfBody,
    /// A redirect to this location.
    Redirect(String),
    /// This status with CouchDB's error format.
    Status(u16),
    /// The connection breaks before the first byte of the body.
    Drop,
    /// A feed responds as if requested from its beginning.
    FromStart,
    /// Only the head is sent; the connection stays open.
    Silent,
    /// The body ends after this many bytes, possibly within a line.
    Cut(usize),
    /// The connection breaks after this many bytes of the body, possibly within a line.
    Break(usize),
    /// Nothing is sent after this many bytes of the body; the connection stays open.
    Stall(usize),
    /// A space is sent at this interval instead of the body, and never a line.
    Trickle(Duration),
    /// Each chunk of the body is sent this many times in a row.
    Repeat(usize),
    /// These bytes are inserted after this many bytes of the body.
    Insert(usize, Vec<u8>),
    /// The body is compressed with gzip, and the header declares it.
    Packed,
    /// An endless body of JSON whitespace after the first byte of the response.
    Endless,
}

/// One planned fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The affected node, at its own address or through another node; `None`: every node.
    pub node: Option<String>,
    /// A part of the percent-encoded path; empty: any path.
    pub path: String,
    /// The affected method; `None`: any.
    pub method: Option<http::Method>,
    /// What happens to the affected requests.
    pub effect: Effect,
    /// The number of matching requests before the first affected one.
    pub after: u64,
    /// The number of affected requests; `None`: all following ones.
    pub times: Option<u64>,
}

impl Fault {
    /// A fault that affects every request to every node.
    pub const fn everywhere(effect: Effect) -> Self {
        Self { node: None, path: String::new(), method: None, effect, after: 0, times: None }
    }

    /// A fault that affects every request to one node.
    pub fn on(node: &str, effect: Effect) -> Self {
        Self { node: Some(node.to_owned()), ..Self::everywhere(effect) }
    }

    /// The same fault, only for paths that contain `path`.
    #[must_use]
    pub fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// The same fault, only for this many requests.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times: Some(times), ..self }
    }
}

/// The planned faults, each with its number of matched requests.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub(super) faults: Vec<(Fault, u64)>,
    /// Nodes whose process is stopped, and when the other nodes consider each as down.
    pub(super) frozen: BTreeMap<String, Duration>,
}

impl Planned {
    /// Whether a node's process is stopped.
    pub(super) fn is_frozen(&self, node: &str) -> bool {
        self.frozen.contains_key(node)
    }

    /// Whether a stopped node is not yet considered as down.
    pub(super) fn any_awaited(&self, now: Duration) -> bool {
        self.frozen.values().any(|given_up| now < *given_up)
    }

    /// Whether a node is stopped and the other nodes still wait for it.
    pub(super) fn is_awaited(&self, node: &str, now: Duration) -> bool {
        self.frozen.get(node).is_some_and(|given_up| now < *given_up)
    }

    /// Whether the other nodes consider a stopped node as down.
    pub(super) fn is_given_up(&self, node: &str, now: Duration) -> bool {
        self.frozen.get(node).is_some_and(|given_up| now >= *given_up)
    }

    /// The effect on this request: that of the first fault that matches it.
    pub(super) fn effect_on(
        &mut self,
        entry: &str,
        target: Option<&str>,
        method: &http::Method,
        path: &str,
    ) -> Option<Effect> {
        for (fault, seen) in &mut self.faults {
            let node =
                fault.node.as_deref().is_none_or(|node| node == entry || Some(node) == target);
            let method = fault.method.as_ref().is_none_or(|wanted| wanted == method);
            if !(node && method && path.contains(&fault.path)) {
                continue;
            }
            let at = *seen;
            *seen = seen.saturating_add(1);
            let end = fault.times.map_or(u64::MAX, |times| fault.after.saturating_add(times));
            if at >= fault.after && at < end {
                return Some(fault.effect.clone());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_affects_only_matching_requests_up_to_its_count() {
        let mut planned = Planned::default();
        let fault = Fault { after: 1, ..Fault::on("b", Effect::Hang).at("/_up").times(1) };
        planned.faults.push((fault, 0));
        let get = http::Method::GET;
        let mut effect_on = |entry, target, path| planned.effect_on(entry, target, &get, path);
        assert_eq!(effect_on("a", None, "/_up"), None, "another node");
        assert_eq!(effect_on("b", None, "/"), None, "another path");
        assert_eq!(effect_on("b", None, "/_up"), None, "one passes");
        assert_eq!(effect_on("a", Some("b"), "/_up"), Some(Effect::Hang), "through another node");
        assert_eq!(effect_on("b", None, "/_up"), None, "only once");
    }
}
