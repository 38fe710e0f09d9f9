//! What is done to a node's configuration.

use crate::sources::couchdb::describe;
use couchdb_client::Client;
use futures::{FutureExt as _, future::BoxFuture};
use std::collections::BTreeMap;

/// Reads and changes nodes' configurations. Errors are sentences.
pub trait Hands: Send + Sync + std::fmt::Debug {
    /// One section; empty where there is none.
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

    /// Puts a value back to what the node's files say.
    fn reset<'a>(
        &'a self,
        node: &'a str,
        section: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<(), String>>;
}

impl Hands for Client {
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
