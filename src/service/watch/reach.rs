//! The tasks' interfaces to CouchDB, and their replacement with another client.

use super::source_of;
use crate::{
    act::{enforcer::Hands, takeover, warmer},
    feeds::changes,
    model::settings::Settings,
    plan::pressure,
    sources::inventory::{Directories, Source},
};
use couchdb_client::Client;
use std::sync::Arc;
use tokio::sync::watch as latest;
use wall_clock::Clock;

/// Interfaces to CouchDB for all tasks, backed by one client. A new client replaces all of them.
#[derive(Debug)]
pub(super) struct Reach {
    pub(super) client: latest::Sender<Client>,
    pub(super) source: latest::Sender<Arc<dyn Source>>,
    pub(super) probe: latest::Sender<Arc<dyn pressure::Probe>>,
    pub(super) hands: latest::Sender<Arc<dyn Hands>>,
    pub(super) feeds: latest::Sender<Arc<dyn changes::Feeds>>,
    pub(super) smoosh: latest::Sender<Arc<dyn takeover::Hands>>,
    pub(super) builds: latest::Sender<Arc<dyn warmer::Hands>>,
    /// Directories that are read whichever client is used.
    directories: Option<Arc<dyn Directories>>,
}

impl Reach {
    pub(super) fn new(
        client: &Client,
        settings: &Settings,
        clock: Clock,
        directories: Option<Arc<dyn Directories>>,
    ) -> Self {
        Self {
            client: latest::channel(client.clone()).0,
            source: latest::channel(source_of(client, settings, clock, directories.clone())).0,
            probe: latest::channel(Arc::new(client.clone()) as Arc<dyn pressure::Probe>).0,
            hands: latest::channel(Arc::new(client.clone()) as Arc<dyn Hands>).0,
            feeds: latest::channel(Arc::new(client.clone()) as Arc<dyn changes::Feeds>).0,
            smoosh: latest::channel(Arc::new(client.clone()) as Arc<dyn takeover::Hands>).0,
            builds: latest::channel(Arc::new(client.clone()) as Arc<dyn warmer::Hands>).0,
            directories,
        }
    }

    pub(super) fn replace(&self, client: &Client, settings: &Settings, clock: Clock) {
        let directories = self.directories.clone();
        self.client.send_replace(client.clone());
        self.source.send_replace(source_of(client, settings, clock, directories));
        self.probe.send_replace(Arc::new(client.clone()));
        self.hands.send_replace(Arc::new(client.clone()));
        self.smoosh.send_replace(Arc::new(client.clone()));
        self.builds.send_replace(Arc::new(client.clone()));
    }
}
