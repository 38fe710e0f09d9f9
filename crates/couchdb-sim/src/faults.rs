//! One handle to everything that can go wrong in a cluster, so that a test sets it in one place.
//!
//! Owns nothing: planned faults are those of `fault`, and the state of nodes (down, maintenance, full
//! disk) is the world's.

use super::{cluster::Cluster, fault::Fault};
use std::time::Duration;

impl Cluster {
    /// The handle to inject faults.
    pub fn faults(&self) -> Faults {
        Faults { cluster: self.clone() }
    }
}

/// Injects faults into a [`Cluster`].
#[derive(Clone, Debug)]
pub struct Faults {
    cluster: Cluster,
}

impl Faults {
    /// Adds a fault; earlier faults take precedence.
    pub fn plan(&self, fault: Fault) {
        self.cluster.locked(|inner| inner.planned.faults.push((fault, 0)));
    }

    /// Removes every planned fault. The state of nodes is unchanged.
    pub fn clear(&self) {
        self.cluster.locked(|inner| inner.planned.faults.clear());
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

    /// Makes one copy of a shard lack this many documents that the other copies have.
    pub fn lose_documents(&self, node: &str, file: &str, docs: u64) {
        self.cluster.world(|world| world.lose_documents(node, file, docs));
    }

    /// Changes a user's password, as an operator who rotates it.
    pub fn password(&self, user: &str, password: &str) {
        self.cluster.locked(|inner| inner.access.change_password(user, password));
    }
}
