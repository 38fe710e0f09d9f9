//! Requests that read, one method per route.

use super::{Client, ServerChoice};
use crate::{
    Error, ErrorKind, Route, ShardRead,
    paging::{Page, PageLimits, Paging, size_of_text},
    wire,
};
use couchdb_names::{NameList, ShardName, check_db_name_length};
use futures::future::join_all;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Design documents per page; halved if a page is too large.
const DESIGN_PAGE: usize = 200;

/// The limits for all pages of the shard map together: four times the largest cluster that this client
/// was measured with, which takes a gibibyte.
const MAP_LIMITS: PageLimits = PageLimits { rows: 2_000_000, weight: 1 << 30 };

/// The limits of all pages of database names.
const NAME_LIMITS: PageLimits = PageLimits { rows: 2_000_000, weight: 256 << 20 };

/// The limits of all pages of one database's design documents.
const DESIGN_LIMITS: PageLimits = PageLimits { rows: 100_000, weight: 128 << 20 };

/// The most tasks of a node. Each is an Erlang process with open files; a node has 262,144
/// processes for everything, and a server usually allows 65,536 open files.
const MAX_TASKS: usize = 20_000;

/// What the caller knows about CouchDB's file cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// The file was not read lately, so CouchDB may have to open it: the read is paced.
    Cold,
    /// CouchDB has the file open: the read is not paced.
    Warm,
}

/// One page of the shard map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapPage {
    /// The databases' documents, sorted by name.
    pub docs: Vec<wire::DbsDoc>,
    /// The position of the next page; `None` at the end.
    pub next: Option<Paging>,
}

/// Checks that databases can have these names.
pub(super) fn check_db_names(
    mut names: impl Iterator<Item = impl AsRef<str>>,
) -> Result<(), String> {
    names.try_for_each(|name| check_db_name_length(name.as_ref())).map_err(|why| why.to_string())
}

/// Checks that an answer is about this database and holds facts.
fn about(name: &str, info: &wire::ShardInfo) -> Result<(), String> {
    match &info.db_name {
        Some(other) if other != name => Err(format!("it describes {other:?} instead")),
        _ if !info.has_data() => Err("it has neither sizes nor a sequence".to_owned()),
        _ => Ok(()),
    }
}

/// What holds design documents.
#[derive(Clone, Copy)]
enum DesignHolder<'a> {
    Database { db: &'a str },
    Shard { node: &'a str, shard: &'a str },
}

impl<'a> DesignHolder<'a> {
    /// The request for up to `limit` documents from the id `from` on.
    const fn route(self, from: Option<&'a str>, limit: usize) -> Route<'a> {
        match self {
            Self::Database { db } => Route::DesignDocs { db, from, limit },
            Self::Shard { node, shard } => {
                Route::ShardDocuments { node, shard, read: ShardRead::Designs { from, limit } }
            }
        }
    }
}

impl Client {
    /// Waits for `node`'s pace before a read of a file that it may have to open.
    async fn pace(&self, route: Route<'_>, node: &str, cache: Cache) -> Result<(), Error> {
        if cache == Cache::Cold {
            // Fails before the wait if no request can carry the name.
            route.path()?;
            self.shared.directory.node(node).wait_for_pace().await;
        }
        Ok(())
    }

    /// The user that the login belongs to: `/_session`.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn session(&self) -> Result<wire::Session, Error> {
        self.get(Route::Session).await
    }

    /// Connected and expected nodes, as one live server sees them.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn membership(&self) -> Result<wire::Membership, Error> {
        let names = |members: &wire::Membership| {
            let named = members.all_nodes.is_some() || members.cluster_nodes.is_some();
            if named { Ok(()) } else { Err("it lists no nodes".to_owned()) }
        };
        let members = self.get_checked(Route::Membership, names).await;
        self.explained(members).await
    }

    /// The result of a first request; an error says if no supported CouchDB answers there.
    async fn explained<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        let error = match read {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        Err(match error.strange_at().map(|at| self.shared.directory.server(at)) {
            Some(server) => self.shared.sender.explain_error(&server, error).await,
            None => error,
        })
    }

    /// Version and vendor of whichever server answers, which anyone may read.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn welcome(&self) -> Result<wire::Welcome, Error> {
        self.get(Route::Welcome).await
    }

    /// Version and vendor of `node`.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn node_welcome(&self, node: &str) -> Result<wire::Welcome, Error> {
        let welcome = self.get(Route::NodeWelcome { node }).await;
        self.explained(welcome).await
    }

    /// Whether `node` is in maintenance, asked at its own address.
    ///
    /// # Errors
    /// As [`Error`] says; [`ErrorKind::NoOwnAddress`] where the address is not known.
    pub async fn up(&self, node: &str) -> Result<wire::Up, Error> {
        self.up_timed(node).await.map(|(up, _)| up)
    }

    /// Like [`Self::up`], with how long `node` took to answer.
    ///
    /// # Errors
    /// As for [`Self::up`].
    pub async fn up_timed(&self, node: &str) -> Result<(wire::Up, Duration), Error> {
        let has_status = |up: &wire::Up| match up.status {
            Some(_) => Ok(()),
            None => Err("it has no status".to_owned()),
        };
        self.get_from(Route::Up, ServerChoice::Own(node), has_status).await
    }

    /// Every database file on `node`'s disk, in or out of the shard map.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn node_files(&self, node: &str) -> Result<NameList, Error> {
        let check = |files: &NameList| {
            check_db_names(files.iter().map(|file| ShardName::split(file).map_or(file, |it| it.db)))
        };
        self.get_checked(Route::NodeFiles { node }, check).await
    }

    /// One page of the shard map of `node`, or of any server: up to `limit` databases, after the page
    /// that returned `from`.
    ///
    /// # Errors
    /// As [`Error`] says; [`ErrorKind::Malformed`] also where the pages are out of order or do not end.
    pub async fn shard_map_page(
        &self,
        node: Option<&str>,
        from: Option<&Paging>,
        limit: usize,
    ) -> Result<MapPage, Error> {
        // One more than needed, because the first may be `after` itself. Skipping one by number
        // would lose a database if `after` has just been deleted.
        let requested = limit.saturating_add(1);
        let after = from.and_then(|from| from.after.as_deref());
        let route = Route::ShardMap { node, from: after, limit: requested };
        let (page, next) = self
            .page(route, from, MAP_LIMITS, |page: &wire::MapRows| {
                check_db_names(page.rows.iter().filter_map(|row| row.id.as_deref()))?;
                let weight =
                    |row: &wire::MapRow| row.doc.as_ref().map_or(0, wire::DbsDoc::estimated_memory);
                Ok(Page {
                    keys: page.rows.iter().filter_map(|row| row.id.as_deref()).collect(),
                    full: page.rows.len() >= requested,
                    weight: page.rows.iter().map(weight).sum(),
                    total: page.total_rows,
                })
            })
            .await?;
        let docs = page.rows.into_iter().filter(|row| row.id.as_deref() != after);
        Ok(MapPage { docs: docs.filter_map(|row| row.doc).collect(), next })
    }

    /// One page of a list that continues after `from`, and the position of the next page.
    async fn page<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        from: Option<&Paging>,
        limits: PageLimits,
        describe: impl Fn(&T) -> Result<Page<'_>, String>,
    ) -> Result<(T, Option<Paging>), Error> {
        let next = |page: &T| Paging::after_page(from, &describe(page)?, limits);
        let page: T = self.get_checked(route, |page| next(page).map(drop)).await?;
        let next = next(&page).unwrap_or_default();
        Ok((page, next))
    }

    /// One database's document in the shard map of `node`, or of any server; `None` if the map has
    /// none.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn shard_map_entry(
        &self,
        node: Option<&str>,
        db: &str,
    ) -> Result<Option<wire::DbsDoc>, Error> {
        let route = Route::ShardMap { node, from: Some(db), limit: 1 };
        let page: wire::MapRows = self.get(route).await?;
        let row = page.rows.into_iter().next().filter(|row| row.id.as_deref() == Some(db));
        Ok(row.and_then(|row| row.doc))
    }

    /// One shard copy's facts, or those of a node-local database such as `_dbs`.
    ///
    /// Reads of a [`Cache::Cold`] file are paced, because the server has to open it.
    ///
    /// # Errors
    /// As [`Error`] says; [`ErrorKind::Malformed`] also where the answer is about another
    /// database or tells nothing.
    pub async fn shard_info(
        &self,
        node: &str,
        shard: &str,
        cache: Cache,
    ) -> Result<wire::ShardInfo, Error> {
        let route = Route::Shard { node, shard };
        self.pace(route, node, cache).await?;
        self.get_checked(route, |info| about(shard, info)).await
    }

    /// The view index of one shard copy; [`ErrorKind::NotFound`] on every range but the one
    /// that holds the design document. `cache` as for [`Self::shard_info`].
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn shard_view_info(
        &self,
        node: &str,
        shard: &str,
        ddoc: &str,
        cache: Cache,
    ) -> Result<wire::ViewInfo, Error> {
        let route = Route::ShardViewInfo { node, shard, ddoc };
        self.pace(route, node, cache).await?;
        self.get(route).await
    }

    /// Names of clustered databases, in order: up to `limit`, after the page that returned `from`;
    /// and the position of the next page.
    ///
    /// # Errors
    /// As for [`Self::shard_map_page`].
    pub async fn all_dbs_page(
        &self,
        from: Option<&Paging>,
        limit: usize,
    ) -> Result<(Vec<String>, Option<Paging>), Error> {
        // One more than needed, as for the shard map.
        let requested = limit.saturating_add(1);
        let after = from.and_then(|from| from.after.as_deref());
        let route = Route::AllDbs { from: after, limit: requested };
        let (page, next) = self
            .page(route, from, NAME_LIMITS, |names: &NameList| {
                check_db_names(names.iter())?;
                let weight = names.iter().map(size_of_text).sum();
                let full = names.len() >= requested;
                Ok(Page { keys: names.iter().collect(), full, weight, total: None })
            })
            .await?;
        let names = page.iter().filter(|name| Some(*name) != after).map(ToOwned::to_owned);
        Ok((names.collect(), next))
    }

    /// The ranges of a database and the nodes that hold them, which every member may read.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn db_shards(&self, db: &str) -> Result<wire::DbShards, Error> {
        self.get(Route::DbShards { db }).await
    }

    /// The clustered database: sums over one copy of each range.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn database(&self, db: &str) -> Result<wire::ShardInfo, Error> {
        self.get_checked(Route::Database { db }, |info| about(db, info)).await
    }

    /// Every design document of a database, without their code.
    ///
    /// CouchDB opens every copy of every range for it. `cold` names the nodes that may have to open
    /// a file, once for each copy; such reads are paced.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn design_docs(
        &self,
        db: &str,
        cold: impl IntoIterator<Item = &str>,
    ) -> Result<Vec<wire::DesignDoc>, Error> {
        let nodes: Vec<_> = cold.into_iter().map(|node| self.shared.directory.node(node)).collect();
        join_all(nodes.iter().map(|node| node.wait_for_pace())).await;
        self.all_design_docs(DesignHolder::Database { db }).await
    }

    /// The design documents that one shard copy holds, without their code. CouchDB opens this copy alone. `cache`
    /// as for [`Self::shard_info`].
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn shard_design_docs(
        &self,
        node: &str,
        shard: &str,
        cache: Cache,
    ) -> Result<Vec<wire::DesignDoc>, Error> {
        let holder = DesignHolder::Shard { node, shard };
        self.pace(holder.route(None, 0), node, cache).await?;
        self.all_design_docs(holder).await
    }

    /// The number of design documents that one shard copy holds; `None` if the answer has none.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn shard_design_count(&self, node: &str, shard: &str) -> Result<Option<u64>, Error> {
        let page: wire::DesignRows =
            self.get(DesignHolder::Shard { node, shard }.route(None, 0)).await?;
        Ok(page.total_rows)
    }

    /// Every design document of `holder`, page by page.
    async fn all_design_docs(
        &self,
        holder: DesignHolder<'_>,
    ) -> Result<Vec<wire::DesignDoc>, Error> {
        let mut docs = Vec::new();
        let mut from: Option<Paging> = None;
        let mut limit = DESIGN_PAGE;
        loop {
            let requested = limit.saturating_add(1);
            let after = from.as_ref().and_then(|from| from.after.as_deref());
            let route = holder.route(after, requested);
            let page = self.page(route, from.as_ref(), DESIGN_LIMITS, |page: &wire::DesignRows| {
                Ok(Page {
                    keys: page.rows.iter().filter_map(|row| row.id.as_deref()).collect(),
                    full: page.rows.len() >= requested,
                    weight: page.rows.iter().map(wire::DesignRow::estimated_memory).sum(),
                    total: page.total_rows,
                })
            });
            let (page, next) = match page.await {
                Ok(page) => page,
                Err(error) if error.kind() == ErrorKind::TooLarge && limit > 1 => {
                    limit /= 2;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let fresh =
                page.rows.iter().filter(|row| row.id.is_none() || row.id.as_deref() != after);
            docs.extend(fresh.filter_map(wire::DesignRow::doc));
            match next {
                Some(next) => from = Some(next),
                None => return Ok(docs),
            }
        }
    }

    /// One design document, without its code; `None` if the database has none with this id.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn design_doc(&self, db: &str, id: &str) -> Result<Option<wire::DesignDoc>, Error> {
        let route = Route::DesignDocs { db, from: Some(id), limit: 1 };
        let page: wire::DesignRows = self.get(route).await?;
        let row = page.rows.into_iter().next().filter(|row| row.id.as_deref() == Some(id));
        Ok(row.and_then(|row| row.doc()))
    }

    /// A view index over the cluster: sums over one copy of each range. It makes CouchDB
    /// create an index that was never built, so ask sparingly.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn view_info(&self, db: &str, ddoc: &str) -> Result<wire::ViewInfo, Error> {
        self.get(Route::ViewInfo { db, ddoc }).await
    }

    /// Whether a node that did not answer answers again. Its own address, if known, is asked even
    /// while requests to it are held back.
    pub async fn answers_again(&self, node: &str) -> bool {
        let own = self.shared.directory.known(node).and_then(|node| node.own.load_full());
        if let Some(own) = own.filter(|own| own.breaker.is_tripped())
            && !self.shared.sender.answers_again(&own).await
        {
            return false;
        }
        self.node_welcome(node).await.is_ok()
    }

    /// The built-in compaction of `node`, asked at its own address; `None` where CouchDB
    /// is older than 3.4, which has no such route.
    ///
    /// # Errors
    /// As [`Error`] says; [`ErrorKind::NoOwnAddress`] where the address is not known.
    pub async fn smoosh_status(&self, node: &str) -> Result<Option<wire::SmooshStatus>, Error> {
        match self.get_own(Route::SmooshStatus, node).await {
            Ok(status) => Ok(Some(status)),
            // Before 3.4 CouchDB takes `_smoosh` for a database's name and refuses it.
            Err(Error::NotFound { .. } | Error::Status { status: 400, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One section of `node`'s configuration; empty where there is none.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn config_section(
        &self,
        node: &str,
        section: &str,
    ) -> Result<wire::ConfigSection, Error> {
        self.config_section_timed(node, section).await.map(|(section, _)| section)
    }

    /// Like [`Self::config_section`], with how long the answer took.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn config_section_timed(
        &self,
        node: &str,
        section: &str,
    ) -> Result<(wire::ConfigSection, Duration), Error> {
        let route = Route::Config { node, section: Some(section) };
        self.get_from(route, ServerChoice::of(&route), |_| Ok(())).await
    }

    /// `node`'s whole configuration.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn config(&self, node: &str) -> Result<wire::Config, Error> {
        self.get(Route::Config { node, section: None }).await
    }

    /// The tasks that run on `node`.
    ///
    /// # Errors
    /// As [`Error`] says; [`ErrorKind::Malformed`] also where there are more than a node can run, so
    /// that its tasks are unknown.
    pub async fn active_tasks(&self, node: &str) -> Result<Vec<wire::ActiveTask>, Error> {
        let check = |tasks: &wire::List<wire::ActiveTask>| match tasks.0.len() {
            ..=MAX_TASKS => Ok(()),
            count => Err(format!("it has {count} tasks, but a node can run at most {MAX_TASKS}")),
        };
        let tasks = self.get_checked(Route::ActiveTasks { node }, check).await?;
        Ok(tasks.0)
    }

    /// Erlang's numbers of `node`.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn system(&self, node: &str) -> Result<wire::System, Error> {
        self.get(Route::System { node }).await
    }

    /// How often `node` flushed a file to disk since it started; `None` if it does not say.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn flush_count(&self, node: &str) -> Result<Option<u64>, Error> {
        let counter: wire::Counter = self.get(Route::FlushCount { node }).await?;
        Ok(counter.value)
    }

    /// The shard splits of the whole cluster.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn reshard_jobs(&self) -> Result<Vec<wire::ReshardJob>, Error> {
        let all: wire::ReshardJobs = self.get(Route::ReshardJobs).await?;
        Ok(all.jobs)
    }
}
