//! One probe of a node.
//!
//! Owns the requests and their timeouts. The task probes every node separately.

use couchdb_client::{Client, Error, ErrorKind};
use futures::{FutureExt as _, future::BoxFuture};
use std::time::Duration;
use tokio::time;

/// Maximum wait for an answer; a slower answer counts as this long.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of one probe; absent where a value could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeReading {
    /// Duration of a small request.
    pub latency: Option<Duration>,
    /// Erlang's run queue.
    pub run_queue: Option<u64>,
    /// Changes that internal replication still has to send.
    pub replication_backlog: Option<u64>,
    /// Whether the node is in maintenance.
    pub maintenance: Option<bool>,
    /// Whether an operator marks it as being upgraded.
    pub upgrade: Option<bool>,
}

impl NodeReading {
    /// Whether the probe timed out. Refused connections and missing rights do not count: they
    /// leave every value unknown, including the latency.
    pub(super) fn is_unanswered(&self) -> bool {
        let Self { latency, run_queue, replication_backlog: backlog, .. } = *self;
        latency.is_some_and(|latency| latency >= PROBE_TIMEOUT)
            && (run_queue, backlog) == (None, None)
            && (self.maintenance, self.upgrade) == (None, None)
    }
}

pub(crate) trait Probe: Send + Sync + std::fmt::Debug {
    /// Probes one node. The future ends within seconds.
    fn probe(&self, node: &str) -> BoxFuture<'static, NodeReading>;
}

impl Probe for Client {
    fn probe(&self, node: &str) -> BoxFuture<'static, NodeReading> {
        let (client, node) = (self.clone(), node.to_owned());
        async move {
            let (up, system, upgrade) = tokio::join!(
                time::timeout(PROBE_TIMEOUT, maintenance_state(&client, &node)),
                time::timeout(PROBE_TIMEOUT, client.system(&node)),
                time::timeout(PROBE_TIMEOUT, is_upgraded(&client, &node)),
            );
            let (maintenance, latency) = match up {
                Ok(Ok((maintenance, latency))) => (Some(maintenance), Some(latency)),
                Ok(Err(error)) if error.kind() == ErrorKind::Timeout => (None, Some(PROBE_TIMEOUT)),
                Ok(Err(_)) => (None, None),
                Err(_) => (None, Some(PROBE_TIMEOUT)),
            };
            let system = system.ok().and_then(Result::ok).unwrap_or_default();
            NodeReading {
                latency,
                run_queue: system.run_queue,
                replication_backlog: system.internal_replication_jobs,
                maintenance,
                upgrade: upgrade.ok().and_then(Result::ok),
            }
        }
        .boxed()
    }
}

/// Whether an operator marks a node as being upgraded: CouchDB after 3.5.2 then holds back its own background
/// work (`couch_scanner_server:upgrade_in_progress/0`).
async fn is_upgraded(client: &Client, node: &str) -> Result<bool, Error> {
    let section = client.config_section(node, "couchdb").await?;
    Ok(section.get("upgrade_in_progress").is_some_and(|value| value == "true"))
}

/// Whether a node is in maintenance, and the duration of that request.
///
/// `/_up` describes the server that answers. If a node's own address is unknown, its configuration
/// is read through another node (`chttpd_misc:handle_up_req/1` reads the same key).
async fn maintenance_state(client: &Client, node: &str) -> Result<(bool, Duration), Error> {
    let is_any = |word: Option<&str>, of: &[&str]| word.is_some_and(|word| of.contains(&word));
    match client.up_timed(node).await {
        Ok((up, took)) => Ok((is_any(up.status.as_deref(), &["maintenance_mode", "nolb"]), took)),
        Err(Error::NoOwnAddress { .. }) => {
            let (section, took) = client.config_section_timed(node, "couchdb").await?;
            let mode = section.get("maintenance_mode").map(String::as_str);
            Ok((is_any(mode, &["true", "nolb"]), took))
        }
        Err(error) => Err(error),
    }
}
