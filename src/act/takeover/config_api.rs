//! Access to the configuration of nodes.

use crate::sources::couchdb::describe;
use couchdb_client::Client;
use futures::{FutureExt as _, future::BoxFuture};
use std::collections::BTreeMap;

/// Reads and changes the configuration of nodes. Errors are readable sentences.
pub trait ConfigApi: Send + Sync + std::fmt::Debug {
    /// Reads one section; empty if it does not exist.
    fn section<'a>(
        &'a self,
        node: &'a str,
        section: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, String>, String>>;

    /// Sets a value until the node restarts.
    fn set<'a>(
        &'a self,
        node: &'a str,
        section: &'a str,
        key: &'a str,
        value: &'a str,
    ) -> BoxFuture<'a, Result<(), String>>;

    /// Resets a value to the one in the node's files.
    fn reset<'a>(
        &'a self,
        node: &'a str,
        section: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<(), String>>;
}

impl ConfigApi for Client {
    fn section<'a>(
        &'a self,
        node: &'a str,
        section: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, String>, String>> {
        self.config_section(node, section).map(|read| read.map_err(|why| describe(&why))).boxed()
    }

    fn set<'a>(
        &'a self,
        node: &'a str,
        section: &'a str,
        key: &'a str,
        value: &'a str,
    ) -> BoxFuture<'a, Result<(), String>> {
        let set = self.set_config(node, section, key, value);
        set.map(|done| done.map_err(|why| describe(&why))).boxed()
    }

    fn reset<'a>(
        &'a self,
        node: &'a str,
        section: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<(), String>> {
        let reset = self.reset_config(node, section, key);
        reset.map(|done| done.map_err(|why| describe(&why))).boxed()
    }
}
