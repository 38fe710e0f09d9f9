//! Observations over HTTP: CouchDB's node interface.

mod convert;
mod granted_databases;
mod searches;
mod views;

use super::{
    ActiveTask, MapRead, Members, NodeAnswer, NodeReads, Observation, ReadError, Reshard, Source,
    Stage, rights,
};
use crate::{
    sources::couchdb::{NO_USER, describe},
    table::{IndexSet, NodeSmoosh, Snapshot, TargetIx, TargetRef},
};
use couchdb_client::{Cache, Client, Error, ErrorKind as Failed, Paging};
use couchdb_names::{Build, ShardName, Version};
use futures::{
    FutureExt as _, StreamExt as _,
    future::join_all,
    stream::{self, BoxStream},
};
use std::sync::Arc;
use wall_clock::Clock;

/// The number of databases in a page of the shard map: the server buffers the whole response of a node
/// route, two kilobytes or more per database.
const MAP_PAGE: usize = 500;

/// The number of nodes whose files are listed at a time.
const CONCURRENT_LISTS: usize = 3;

/// CouchDB's `[couchdb] max_dbs_open`: a node with more shards opens each one again in every sweep, so
/// all of its reads are cold.
const MAX_OPEN_SHARDS: usize = 500;

/// The end of a sentence about a proxy that denies access to the nodes' own interface.
const UNTIL_ALLOWED: &str = "; until then, recliner sees only databases and sums of their views, not the sizes of shards and files";

/// The settings of the HTTP source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// Requests in flight per node.
    pub requests_in_flight: usize,
    /// Languages of views for which the cluster has a query server.
    pub languages: Vec<String>,
    /// Databases that the settings name exactly, for logins that may not list databases.
    pub named: Vec<String>,
}

/// Reads a cluster through CouchDB's node interface.
#[derive(Clone, Debug)]
pub struct HttpSource {
    client: Client,
    clock: Clock,
    settings: Arc<HttpSettings>,
}

impl HttpSource {
    /// A source over this client.
    pub fn new(client: Client, clock: Clock, settings: HttpSettings) -> Self {
        Self { client, clock, settings: Arc::new(settings) }
    }

    /// The cluster's members, and the state of each.
    fn nodes(self) -> BoxStream<'static, Observation> {
        let members = async move {
            let members =
                self.client.membership().await.map(Members::from).map_err(ReadError::from);
            let names = match &members {
                Ok(members) => members.expected.clone(),
                // Even without a response to this, the known nodes may answer.
                Err(unread) if unread.was_asked() => self.client.known_nodes(),
                Err(_) => Vec::new(),
            };
            let first = stream::once(std::future::ready(Observation::Members(members)));
            let nodes =
                stream::iter(names).map(move |node| self.clone().node(node)).buffer_unordered(32);
            first.chain(nodes)
        };
        stream::once(members).flatten().boxed()
    }

    /// Checks which of these nodes answer again.
    fn away(self, nodes: Vec<String>) -> BoxStream<'static, Observation> {
        stream::iter(nodes)
            .map(move |node| {
                let client = self.client.clone();
                async move { client.answers_again(&node).await.then_some(Observation::Back { node }) }
            })
            .buffer_unordered(32)
            .filter_map(std::future::ready)
            .boxed()
    }

    async fn node(self, node: String) -> Observation {
        // `_local`'s list of files would also prove that the node answers, but is as large as the node;
        // `/_node/{n}` is answered by the node itself and is small.
        let welcome = self.client.node_welcome(&node).await;
        let build: Option<Build> =
            welcome.as_ref().ok().and_then(|welcome| welcome.version.as_deref()?.parse().ok());
        let up = match welcome {
            Ok(_) => Ok(()),
            Err(error) => Err(ReadError::from(error)),
        };
        let smoosh = if up.is_ok() {
            self.smoosh(&node, build.as_ref().map(Build::version)).await
        } else {
            NodeSmoosh::NotRead
        };
        let own_address = self.client.access(&node).own;
        // The address may be proved right after the request for smoosh was held back for lack of it.
        let is_late = smoosh == NodeSmoosh::NoDirectAddress && own_address.found().is_some();
        let smoosh = if is_late { NodeSmoosh::NotRead } else { smoosh };
        Observation::Node(NodeAnswer { node, up, build, own_address, smoosh })
    }

    async fn smoosh(&self, node: &str, version: Option<Version>) -> NodeSmoosh {
        match self.client.smoosh_status(node).await {
            Ok(Some(status)) => NodeSmoosh::from(status),
            Ok(None) => NodeSmoosh::Unsupported,
            Err(error) if error.kind() == Failed::NoOwnAddress => NodeSmoosh::NoDirectAddress,
            // An old server does not have this route, whatever it responds.
            Err(_) if version.is_some_and(|version| version < Version::new(3, 4, 0)) => {
                NodeSmoosh::Unsupported
            }
            Err(_) => NodeSmoosh::Failed,
        }
    }

    async fn reshard(self) -> Result<Reshard, ReadError> {
        let jobs = self.client.reshard_jobs().await.map_err(ReadError::from)?;
        let mut reshard = Reshard::default();
        for job in jobs.iter().filter(|job| !convert::is_split_over(job)) {
            let Some(source) = job.source.as_deref().and_then(ShardName::split) else {
                return Err(ReadError {
                    reason: "malformed",
                    message: "a job in /_reshard/jobs does not name a shard as its source"
                        .to_owned(),
                    right: None,
                });
            };
            let is_halted = matches!(job.job_state.as_deref(), Some("failed" | "stopped"));
            reshard.add(source.db, source.range, !is_halted);
        }
        Ok(reshard)
    }

    fn map(self, map_node: Option<String>) -> BoxStream<'static, Observation> {
        enum At {
            Page(Option<Paging>),
            End,
            Readable(BoxStream<'static, Observation>),
            Over,
        }
        stream::unfold(At::Page(None), move |at| {
            let (this, map_node) = (self.clone(), map_node.clone());
            async move {
                let client = &this.client;
                match at {
                    At::Page(after) => {
                        let node = map_node.as_deref();
                        match client.shard_map_page(node, after.as_ref(), MAP_PAGE).await {
                            Ok(page) => {
                                let entries =
                                    page.docs.iter().filter_map(convert::map_entry).collect();
                                let next = page.next.map_or(At::End, |next| At::Page(Some(next)));
                                Some((Observation::MapPage(entries), next))
                            }
                            Err(error)
                                if matches!(error.kind(), Failed::Forbidden | Failed::Proxy) =>
                            {
                                let forbidden = Observation::Unread(error.into());
                                Some((forbidden, At::Readable(this.readable())))
                            }
                            Err(error) => Some((Observation::MapEnd(Err(error.into())), At::Over)),
                        }
                    }
                    At::End => Some((Observation::MapEnd(Ok(MapRead::Whole)), At::Over)),
                    At::Readable(mut rest) => {
                        rest.next().await.map(|seen| (seen, At::Readable(rest)))
                    }
                    At::Over => None,
                }
            }
        })
        .boxed()
    }

    /// Lists the files of a few nodes at a time: of few, because each list takes memory; of several, so that a
    /// node that hangs does not delay the others.
    fn files(self, nodes: Vec<String>) -> BoxStream<'static, Observation> {
        stream::iter(nodes)
            .map(move |node| {
                let client = self.client.clone();
                async move {
                    let names = client.node_files(&node).await.map_err(ReadError::from);
                    Observation::Files { names, node }
                }
            })
            .buffer_unordered(CONCURRENT_LISTS)
            .boxed()
    }

    fn strays(
        self,
        dbs: Vec<String>,
        map_node: Option<String>,
        nodes: Vec<String>,
    ) -> BoxStream<'static, Observation> {
        stream::iter(dbs)
            .then(move |db| {
                let (client, nodes) = (self.client.clone(), nodes.clone());
                let map_node = map_node.clone();
                async move {
                    let mut entry = client.shard_map_entry(map_node.as_deref(), &db).await;
                    let mut is_agreed = true;
                    // An entry that only another node has may be new, not yet here; or it was deleted
                    // here and not yet there.
                    if matches!(entry, Ok(None)) {
                        let asked =
                            nodes.iter().map(|node| client.shard_map_entry(Some(node), &db));
                        for other in join_all(asked).await {
                            match other {
                                Ok(found) => is_agreed &= found.is_none(),
                                Err(error) => entry = Err(error),
                            }
                        }
                    }
                    let entry = entry.map(|doc| doc.as_ref().and_then(convert::map_entry));
                    Observation::Stray { entry: entry.map_err(ReadError::from), is_agreed, db }
                }
            })
            .boxed()
    }

    /// Reads all nodes concurrently, each with its own requests in flight, so that a slow node
    /// delays only itself.
    fn shards(
        self,
        snapshot: Arc<Snapshot>,
        node_reads: Vec<NodeReads>,
        count_designs: Arc<IndexSet>,
    ) -> BoxStream<'static, Observation> {
        let node_reads = node_reads.into_iter().map(|reads| {
            let (this, snapshot) = (self.clone(), Arc::clone(&snapshot));
            let closes = reads.targets.len() > MAX_OPEN_SHARDS;
            let cold = if closes { usize::MAX } else { reads.unread };
            let count_designs = Some(Arc::clone(&count_designs)).filter(|_| closes);
            let node: Arc<str> = reads.node.into();
            stream::iter(reads.targets.into_iter().enumerate())
                .map(move |(at, ix)| {
                    let (this, snapshot, node) =
                        (this.clone(), Arc::clone(&snapshot), Arc::clone(&node));
                    let cache = if at < cold { Cache::Cold } else { Cache::Warm };
                    let counts =
                        count_designs.as_ref().is_some_and(|it| it.contains(ix.as_usize()));
                    async move {
                        let facts = this.shard(&snapshot, &node, ix, cache).await;
                        if counts {
                            this.count_designs(&snapshot, &node, facts).await
                        } else {
                            facts
                        }
                    }
                })
                .buffer_unordered(self.settings.requests_in_flight.max(1))
                .boxed()
        });
        stream::select_all(node_reads).boxed()
    }

    async fn shard(
        &self,
        snapshot: &Snapshot,
        node: &str,
        ix: TargetIx,
        cache: Cache,
    ) -> Observation {
        let target = snapshot.target(ix);
        let Some(shard) = target.and_then(TargetRef::shard_name) else {
            return Observation::Shard { ix, facts: Ok(None), designs: None };
        };
        let version = target.and_then(|target| snapshot.node(target.node_ix())?.version());
        let facts = match self.client.shard_info(node, &shard, cache).await {
            Ok(info) => Ok(Some(convert::db_facts(&info, version, self.clock.now()))),
            Err(error) if error.kind() == Failed::NotFound => {
                if self.is_mapped(&shard).await {
                    return Observation::Absent { ix };
                }
                Ok(None)
            }
            Err(error) if error.is_of_split() => return Observation::Splitting { ix },
            Err(error) => Err(ReadError::from(error)),
        };
        Observation::Shard { ix, facts, designs: None }
    }

    /// The same observation of a shard, which is open now, with the number of its design documents.
    async fn count_designs(
        &self,
        snapshot: &Snapshot,
        node: &str,
        seen: Observation,
    ) -> Observation {
        let Observation::Shard { ix, facts: Ok(Some(facts)), .. } = seen else { return seen };
        let Some(shard) = snapshot.target(ix).and_then(TargetRef::shard_name) else { return seen };
        let designs = self.client.shard_design_count(node, &shard).await.ok().flatten();
        Observation::Shard { ix, facts: Ok(Some(facts)), designs }
    }

    /// The UUID that a node reports for one of its files; `None` if it has no such file or none was read.
    pub(super) async fn file_uuid(&self, node: &str, db: &str) -> Option<String> {
        self.client.shard_info(node, db, Cache::Cold).await.ok()?.uuid
    }

    /// Whether the shard map still lists the database of a shard whose file does not exist. CouchDB deletes the
    /// entry before the files. If the map cannot be asked, the database counts as listed, because it was when
    /// the files were listed.
    async fn is_mapped(&self, shard: &str) -> bool {
        let Some(shard) = ShardName::split(shard) else { return false };
        match self.client.shard_map_entry(None, shard.db).await {
            Ok(entry) => entry
                .and_then(|doc| convert::map_entry(&doc))
                .is_some_and(|entry| entry.suffix == shard.suffix),
            Err(_) => true,
        }
    }

    fn poll(self, nodes: Vec<String>) -> BoxStream<'static, Observation> {
        stream::iter(nodes)
            .map(move |node| {
                let client = self.client.clone();
                async move {
                    let tasks = client.active_tasks(&node).await.map_err(ReadError::from);
                    let tasks: Result<Vec<ActiveTask>, ReadError> =
                        tasks.map(|tasks| tasks.iter().filter_map(ActiveTask::of).collect());
                    // Read after the tasks, so that a compaction that ends in between changes the count.
                    let flushes = match tasks {
                        Ok(_) => client.flush_count(&node).await.ok().flatten(),
                        Err(_) => None,
                    };
                    // Only the list of tasks may hang.
                    let is_silent = match &tasks {
                        Err(unread) if unread.is_silence() => !client.answers_again(&node).await,
                        Ok(_) | Err(_) => false,
                    };
                    Observation::Tasks { node, tasks, flushes, is_silent }
                }
            })
            .buffer_unordered(32)
            .boxed()
    }
}

impl Source for HttpSource {
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation> {
        let this = self.clone();
        let observations = match stage {
            Stage::Nodes => this.nodes(),
            Stage::Map { map_node } => this.map(map_node),
            Stage::Files { nodes } => this.files(nodes),
            Stage::Strays { dbs, map_node, nodes } => this.strays(dbs, map_node, nodes),
            Stage::Shards { snapshot, node_reads, count_designs } => {
                this.shards(snapshot, node_reads, count_designs)
            }
            Stage::Views { snapshot, dbs, without_designs } => {
                this.views(snapshot, dbs, without_designs)
            }
            Stage::Splits => stream::once(this.reshard().map(Observation::Reshard)).boxed(),
            Stage::Poll { nodes } => this.poll(nodes),
            Stage::Away { nodes } => this.away(nodes),
            Stage::Disk => stream::empty().boxed(),
        };
        observations.chain(stream::once(std::future::ready(Observation::StageEnded))).boxed()
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        let right = if let Error::Forbidden { asked, .. } = &error {
            Some(rights::missing(asked.route))
        } else {
            // Without a user, one sentence covers everything that cannot be read.
            matches!(error, Error::NoUser { .. }).then_some(NO_USER)
        };
        let mut message = describe(&error);
        if let Error::Proxy { asked, status: 401 | 403 } = &error
            && asked.path.starts_with("/_node/")
        {
            message.push_str(UNTIL_ALLOWED);
        }
        Self { reason: error.kind().label(), message, right }
    }
}

impl ReadError {
    /// The error of an index before any request was sent for it.
    const fn nothing_to_ask() -> Self {
        Self { reason: "unaddressable", message: String::new(), right: None }
    }
}
