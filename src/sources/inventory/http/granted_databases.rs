//! The databases that a login without admin rights may read, each requested by itself.
//!
//! Replaces the shard map if that is forbidden: names from `/_all_dbs` or from the settings, nodes from
//! `/{db}/_shards`, the instance from `/{db}`.

use super::HttpSource;
use crate::sources::inventory::{MapEntry, MapRead, Observation, ReadError};
use couchdb_client::ErrorKind as Failed;
use futures::{
    FutureExt as _, StreamExt as _,
    stream::{self, BoxStream},
};
use std::{collections::BTreeMap, future::ready};

/// The number of names in a page.
const NAMES_PER_PAGE: usize = 1_000;

/// The number of databases requested concurrently: each costs a request to every range.
const CONCURRENT_DATABASES: usize = 4;

impl HttpSource {
    /// Reads the entries of the readable databases. The stream also contains read errors, and ends
    /// with a `MapEnd`.
    pub(super) fn readable(self) -> BoxStream<'static, Observation> {
        let all = async move {
            let (names, unlisted) = match self.names().await {
                Ok(names) => (names, None),
                Err(unread) if is_forbidden(&unread) => (self.settings.named.clone(), Some(unread)),
                Err(unread) => {
                    return stream::once(ready(Observation::MapEnd(Err(unread)))).boxed();
                }
            };
            let entries = stream::iter(names)
                .map(move |db| {
                    let this = self.clone();
                    async move { this.entry(&db).await }
                })
                .buffer_unordered(CONCURRENT_DATABASES);
            // A database whose request failed for other reasons than rights may still exist.
            let observations = entries.map(Some).chain(stream::once(ready(None))).scan(
                None,
                |broken: &mut Option<ReadError>, entry| {
                    ready(Some(match (entry, broken.as_ref()) {
                        (Some(Ok(entry)), _) => Observation::MapPage(entry.into_iter().collect()),
                        (Some(Err(unread)), None) if !is_forbidden(&unread) => {
                            *broken = Some(unread);
                            Observation::MapPage(Vec::new())
                        }
                        (Some(Err(unread)), _) => Observation::Unread(unread),
                        (None, Some(unread)) => Observation::MapEnd(Err(unread.clone())),
                        (None, None) => Observation::MapEnd(Ok(MapRead::Readable)),
                    }))
                },
            );
            stream::iter(unlisted.map(Observation::Unread)).chain(observations).boxed()
        };
        all.flatten_stream().boxed()
    }

    async fn names(&self) -> Result<Vec<String>, ReadError> {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = self.client.all_dbs_page(after.as_ref(), NAMES_PER_PAGE).await?;
            names.extend(page);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(names),
            }
        }
    }

    /// Substitutes for the map entry of one database; `None` if the database does not exist.
    async fn entry(&self, db: &str) -> Result<Option<MapEntry>, ReadError> {
        let request = async {
            let shards = self.client.db_shards(db).await?.shards;
            let started = self.client.database(db).await?.instance_start_time;
            Ok(started.map(|started| {
                let suffix = format!(".{started}");
                MapEntry::new(db, &suffix, &shards, &BTreeMap::new(), &[])
            }))
        };
        match request.await {
            Ok(entry) => Ok(entry),
            Err(error) if couchdb_client::Error::kind(&error) == Failed::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_forbidden(unread: &ReadError) -> bool {
    unread.reason == Failed::Forbidden.label()
}
