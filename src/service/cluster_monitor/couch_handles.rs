//! The tasks' interfaces to CouchDB, and their replacement with another client.

use super::build_source;
use crate::{
    act::{enforcer::CompactionApi, takeover, warmer},
    feeds::feed_client,
    model::settings::Settings,
    plan::pressure,
    sources::inventory::{Directories, PeersSource, Source},
};
use couchdb_client::Client;
use std::sync::Arc;
use tokio::sync::watch as latest;
use wall_clock::Clock;

/// Interfaces to CouchDB for all tasks, backed by one client. A new client replaces all of them.
#[derive(Debug)]
pub(super) struct CouchHandles {
    pub(super) client: latest::Sender<Client>,
    pub(super) source: latest::Sender<Arc<dyn Source>>,
    pub(super) probe: latest::Sender<Arc<dyn pressure::Probe>>,
    pub(super) compaction_api: latest::Sender<Arc<dyn CompactionApi>>,
    pub(super) feeds: latest::Sender<Arc<dyn feed_client::ChangeFeeds>>,
    pub(super) config_api: latest::Sender<Arc<dyn takeover::ConfigApi>>,
    pub(super) index_build_api: latest::Sender<Arc<dyn warmer::IndexBuildApi>>,
    /// Directories that are read whichever client is used.
    directories: Option<Arc<dyn Directories>>,
}

impl CouchHandles {
    pub(super) fn new(
        current: latest::Sender<Client>,
        settings: &Settings,
        clock: Clock,
        peers: Option<PeersSource>,
        directories: Option<Arc<dyn Directories>>,
    ) -> Self {
        let client = current.borrow().clone();
        Self {
            source: latest::channel(build_source(
                &client,
                settings,
                clock,
                elsewhere(peers, directories.clone()),
            ))
            .0,
            probe: latest::channel(Arc::new(client.clone()) as Arc<dyn pressure::Probe>).0,
            compaction_api: latest::channel(Arc::new(client.clone()) as Arc<dyn CompactionApi>).0,
            feeds: latest::channel(Arc::new(client.clone()) as Arc<dyn feed_client::ChangeFeeds>).0,
            config_api: latest::channel(Arc::new(client.clone()) as Arc<dyn takeover::ConfigApi>).0,
            index_build_api: latest::channel(
                Arc::new(client.clone()) as Arc<dyn warmer::IndexBuildApi>
            )
            .0,
            client: current,
            directories,
        }
    }

    pub(super) fn replace(
        &self,
        client: &Client,
        settings: &Settings,
        clock: Clock,
        peers: Option<PeersSource>,
    ) {
        let elsewhere = elsewhere(peers, self.directories.clone());
        self.client.send_replace(client.clone());
        self.source.send_replace(build_source(client, settings, clock, elsewhere));
        self.probe.send_replace(Arc::new(client.clone()));
        self.compaction_api.send_replace(Arc::new(client.clone()));
        self.config_api.send_replace(Arc::new(client.clone()));
        self.index_build_api.send_replace(Arc::new(client.clone()));
    }
}

/// The directories of other nodes: those that sidecars read, and others.
fn elsewhere(
    peers: Option<PeersSource>,
    directories: Option<Arc<dyn Directories>>,
) -> Vec<Arc<dyn Directories>> {
    let peers = peers.map(|peers| Arc::new(peers) as Arc<dyn Directories>);
    peers.into_iter().chain(directories).collect()
}
