//! Faults to inject between a client and the simulated nodes.
//!
//! Owns the list of planned faults. The state of nodes (down, maintenance, full disk) belongs to the
//! world; [`Faults`] is the one handle to both, so that a test sets everything in one place.
//! Deterministic: a fault is selected by route and count, never by chance.

use super::cluster::Cluster;
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
    /// Each chunk of the body is sent this many times.
    Repeat(usize),
    /// After this many bytes of the body, these bytes are inserted.
    Insert(usize, Vec<u8>),
    /// The body is compressed with gzip, as the head says.
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
    /// The effect.
    pub effect: Effect,
    /// The number of matching requests before the first affected one.
    pub after: u64,
    /// The number of affected requests; `None`: all following ones.
    pub times: Option<u64>,
}

impl Fault {
    /// A fault of every request to every node.
    #[must_use]
    pub const fn everywhere(effect: Effect) -> Self {
        Self { node: None, path: String::new(), method: None, effect, after: 0, times: None }
    }

    /// A fault of every request to one node.
    #[must_use]
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
    faults: Vec<(Fault, u64)>,
    /// Nodes whose process is stopped, and when the other nodes consider each as down.
    frozen: BTreeMap<String, Duration>,
}

impl Planned {
    pub(super) fn plan(&mut self, fault: Fault) {
        self.faults.push((fault, 0));
    }

    pub(super) fn clear(&mut self) {
        self.faults.clear();
    }

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

/// Injects faults into a [`Cluster`].
#[derive(Clone, Debug)]
pub struct Faults {
    cluster: Cluster,
}

impl Faults {
    pub(super) const fn of(cluster: Cluster) -> Self {
        Self { cluster }
    }

    /// Adds a fault; earlier ones are tried first.
    pub fn plan(&self, fault: Fault) {
        self.cluster.locked(|inner| inner.planned.plan(fault));
    }

    /// Removes every planned fault. The state of nodes is unchanged.
    pub fn clear(&self) {
        self.cluster.locked(|inner| inner.planned.clear());
    }

    /// Stops a node's process with its sockets open (`SIGSTOP`): its own address accepts connections
    /// and answers nothing. Other nodes wait for it, and so does every request that needs it, until
    /// Erlang considers it as down after this time (`net_ticktime`, a minute by default).
    pub fn freeze(&self, node: &str, given_up_after: Duration) {
        self.cluster.locked(|inner| {
            let given_up = inner.world.now().saturating_add(given_up_after);
            inner.planned.frozen.insert(node.to_owned(), given_up);
        });
    }

    /// Lets a node's process continue (`SIGCONT`): waiting requests are answered.
    pub fn thaw(&self, node: &str) {
        self.cluster.locked(|inner| inner.planned.frozen.remove(node));
    }

    /// Stops a node: its own address refuses connections, other nodes respond with 412 for it. Its
    /// compactions end without a result.
    pub fn down(&self, node: &str) {
        self.cluster.world(|world| world.stop_node(node));
    }

    /// Starts a node again.
    pub fn up(&self, node: &str) {
        self.cluster.world(|world| world.start_node(node));
    }

    /// Restarts a node without delay: its compactions and builds are lost, their temporary files remain.
    pub fn restart(&self, node: &str) {
        self.down(node);
        self.up(node);
    }

    /// Turns a node's maintenance mode on or off; `/_up` responds with 404.
    pub fn maintenance(&self, node: &str, on: bool) {
        self.cluster.world(|world| world.set_maintenance(node, on));
    }

    /// Fills a node's disk completely, or frees that space: compactions fail where they have to write.
    pub fn full_disk(&self, node: &str, on: bool) {
        self.cluster.world(|world| world.set_disk_full(node, on));
    }

    /// Changes a user's password, as an operator who rotates it.
    pub fn password(&self, user: &str, password: &str) {
        self.cluster.locked(|inner| inner.access.change_password(user, password));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_the_requests_it_counts_and_no_others() {
        let mut planned = Planned::default();
        planned.plan(Fault { after: 1, ..Fault::on("b", Effect::Hang).at("/_up").times(1) });
        let get = http::Method::GET;
        let mut effect_on = |entry, target, path| planned.effect_on(entry, target, &get, path);
        assert_eq!(effect_on("a", None, "/_up"), None, "another node");
        assert_eq!(effect_on("b", None, "/"), None, "another path");
        assert_eq!(effect_on("b", None, "/_up"), None, "one passes");
        assert_eq!(effect_on("a", Some("b"), "/_up"), Some(Effect::Hang), "through another node");
        assert_eq!(effect_on("b", None, "/_up"), None, "only once");
    }
}
