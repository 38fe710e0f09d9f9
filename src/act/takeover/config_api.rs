//! Access to the configuration of nodes.

use crate::sources::couchdb::describe;
use compaction_settings::NodeConfig;
use couchdb_client::{Client, Error};
use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use std::collections::{BTreeMap, BTreeSet};

/// One value in the configuration of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigKey<'a> {
    /// The node's name in CouchDB.
    pub node: &'a str,
    /// The section.
    pub section: &'a str,
    /// The key in the section.
    pub key: &'a str,
}

/// Result of a request. Errors are readable sentences.
pub type ConfigResult<'a, T> = BoxFuture<'a, Result<T, String>>;

/// The values of a section, by key.
pub(super) type Section = BTreeMap<String, String>;

/// Reads and changes the configuration of nodes.
pub trait ConfigApi: Send + Sync + std::fmt::Debug {
    /// Reads the node's version, if it reports one.
    fn version<'a>(&'a self, node: &'a str) -> ConfigResult<'a, Option<String>>;

    /// Reads one section; empty if it does not exist.
    fn section<'a>(&'a self, node: &'a str, section: &'a str) -> ConfigResult<'a, Section>;

    /// Sets a value until the node restarts.
    fn set<'a>(&'a self, key: ConfigKey<'a>, value: &'a str) -> ConfigResult<'a, ()>;

    /// Resets a value to the one in the node's files.
    fn reset<'a>(&'a self, key: ConfigKey<'a>) -> ConfigResult<'a, ()>;
}

/// The channels of a node's smoosh; none if its version is unknown.
///
/// # Errors
/// Why the node could not be read.
pub async fn smoosh_channels(
    api: &dyn ConfigApi,
    node: &str,
) -> Result<Option<BTreeSet<String>>, String> {
    let version = api.version(node).await?.unwrap_or_default();
    let sections = [("smoosh".to_owned(), api.section(node, "smoosh").await?)].into();
    let config = NodeConfig { node: node.to_owned(), version, sections, problems: Vec::new() };
    Ok(compaction_settings::smoosh_channels(&config))
}

impl ConfigApi for Client {
    fn version<'a>(&'a self, node: &'a str) -> ConfigResult<'a, Option<String>> {
        described(self.node_welcome(node).map_ok(|welcome| welcome.version))
    }

    fn section<'a>(&'a self, node: &'a str, section: &'a str) -> ConfigResult<'a, Section> {
        described(self.config_section(node, section))
    }

    fn set<'a>(&'a self, at: ConfigKey<'a>, value: &'a str) -> ConfigResult<'a, ()> {
        described(self.set_config(at.node, at.section, at.key, value))
    }

    fn reset<'a>(&'a self, at: ConfigKey<'a>) -> ConfigResult<'a, ()> {
        described(self.reset_config(at.node, at.section, at.key))
    }
}

fn described<'a, T>(
    request: impl Future<Output = Result<T, Error>> + Send + 'a,
) -> ConfigResult<'a, T> {
    request.map(|result| result.map_err(|why| describe(&why))).boxed()
}
