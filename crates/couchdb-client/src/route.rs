//! Every URL that the client can send, built from typed parts.
//!
//! POST starts compactions, index builds and sessions; PUT and DELETE change a node's
//! configuration or a design document; everything else is GET.
//!
//! A name reaches the server as one percent-encoded segment, or it is refused here: a URL library
//! resolves `.` and `..`, even percent-encoded, to another path.

mod path;

use bytes::Bytes;
use couchdb_names::Engine;
use http::{HeaderName, HeaderValue, Method, header::ACCEPT};
pub use path::Unaddressable;

use path::Path;
use strum::{IntoStaticStr, VariantNames};

/// One request to CouchDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Route<'a> {
    /// `/`: version, uuid and vendor of the server that answers.
    Welcome,
    /// `/_node/{node}`: version, uuid and vendor of any node.
    NodeWelcome {
        /// The node.
        node: &'a str,
    },
    /// `/_up`: whether the server is in maintenance.
    Up,
    /// `/_session`: name and roles of the login.
    Session,
    /// `POST /_session`: begins a session.
    Login,
    /// `/_node/{node}/_session`: name and roles of the login on the node behind the entry.
    NodeSession {
        /// The node.
        node: &'a str,
    },
    /// `/_membership`: connected and expected nodes.
    Membership,
    /// `/_node/_local`: the name of the server that answers.
    LocalName {
        /// As `/_node%2F_local`. Works only behind a proxy that decodes the slash: CouchDB itself
        /// takes it for the name of a database.
        encoded: bool,
    },
    /// `/_node/{node}/_all_dbs`: every database file on that node's disk.
    NodeFiles {
        /// The node.
        node: &'a str,
    },
    /// `/_node/{node}/_dbs/_all_docs`: one page of the shard map.
    ShardMap {
        /// The node whose map is read; `None` for the server that is asked.
        node: Option<&'a str>,
        /// The first key, inclusive.
        from: Option<&'a str>,
        /// The number of rows.
        limit: usize,
    },
    /// `/_node/{node}/{shard}`: one shard copy's facts.
    Shard {
        /// The node.
        node: &'a str,
        /// The shard file's name, or that of a node-local database.
        shard: &'a str,
    },
    /// `/_node/{node}/{shard}/_design/{name}/_info`: one copy's view index; exists only
    /// on the range that holds the design document.
    ShardViewInfo {
        /// The node.
        node: &'a str,
        /// The shard file's name.
        shard: &'a str,
        /// The design document's id, with `_design/`.
        ddoc: &'a str,
    },
    /// `/_all_dbs`: one page of the clustered databases' names.
    AllDbs {
        /// The first name, inclusive.
        from: Option<&'a str>,
        /// The number of names.
        limit: usize,
    },
    /// `/{db}/_shards`: the ranges of a database and the nodes that hold them.
    DbShards {
        /// The database.
        db: &'a str,
    },
    /// `/{db}`: the clustered database; one copy of each range, summed.
    Database {
        /// The database.
        db: &'a str,
    },
    /// `/{db}/_design_docs`: one page of design documents.
    DesignDocs {
        /// The database.
        db: &'a str,
        /// The first id, inclusive.
        from: Option<&'a str>,
        /// The number of rows.
        limit: usize,
    },
    /// `/{db}/_design/{name}/_info`: a view index over the cluster; one copy of each
    /// range, summed.
    ViewInfo {
        /// The database.
        db: &'a str,
        /// The design document's id, with `_design/`.
        ddoc: &'a str,
    },
    /// `/_node/_local/_smoosh/status`: the built-in compaction of the server that is
    /// asked. CouchDB ignores a node's name here (`chttpd_node:handle_node_req/1`).
    SmooshStatus,
    /// `/_node/{node}/_config` or `/_node/{node}/_config/{section}`.
    Config {
        /// The node.
        node: &'a str,
        /// The section, such as `smoosh.ratio_dbs`; `None` for all sections.
        section: Option<&'a str>,
    },
    /// `/_node/{node}/_active_tasks`: running tasks of one node.
    ActiveTasks {
        /// The node.
        node: &'a str,
    },
    /// `/_node/{node}/_system`: statistics of the Erlang VM.
    System {
        /// The node.
        node: &'a str,
    },
    /// `/_node/{node}/_stats/fsync/count`: how often the node flushed a file to disk since it started.
    FlushCount {
        /// The node.
        node: &'a str,
    },
    /// `/_reshard/jobs`: shards being split.
    ReshardJobs,
    /// Documents of one shard copy, below `/_node/{node}/{shard}`.
    ShardDocuments {
        /// The node.
        node: &'a str,
        /// The shard file's name.
        shard: &'a str,
        /// Which documents.
        read: ShardRead<'a>,
    },
    /// `/_scheduler/docs` or `/_scheduler/jobs`: replications.
    Replications {
        /// Whether those that a document describes; otherwise those that run or wait.
        of_documents: bool,
        /// The number of rows.
        limit: usize,
    },
    /// `/{db}/_changes`: the first change after a sequence, and how many follow.
    ChangesLeft {
        /// The database.
        db: &'a str,
        /// The sequence.
        since: &'a str,
    },
    /// `/{db}/_local/{id}`: a document that is not replicated.
    LocalDoc {
        /// The database.
        db: &'a str,
        /// Its id, without `_local/`.
        id: &'a str,
    },
    /// `/{db}/_purged_infos_limit`: how many entries about purges a compaction keeps at least.
    PurgesLimit {
        /// The database.
        db: &'a str,
    },
    /// `/{db}/_time_seq`: how many changes came when; newer than CouchDB 3.5.
    TimeSeq {
        /// The database.
        db: &'a str,
    },
    /// `/{db}/_auto_purge`: the settings by which CouchDB purges deleted documents; newer than
    /// CouchDB 3.5.
    AutoPurge {
        /// The database.
        db: &'a str,
    },
    /// `/_db_updates`: database events, as a feed or only the current sequence.
    DbUpdates(DbUpdates<'a>),
    /// `/_node/{node}/_dbs/_changes`: databases whose map entry changed, or only the current
    /// sequence of the node's map.
    MapChanges {
        /// The node.
        node: &'a str,
        /// What to wait for; `None` for `since=now`.
        poll: Option<MapPoll>,
    },
    /// POST `/_node/{node}/{shard}/_compact`: compacts one shard copy.
    NodeCompact {
        /// The node.
        node: &'a str,
        /// The shard file's name, or that of a node-local database.
        shard: &'a str,
    },
    /// POST `/_node/{node}/{shard}/_compact/{name}`: compacts one copy of a view index;
    /// answered only on the range that holds the design document.
    NodeCompactView {
        /// The node.
        node: &'a str,
        /// The shard file's name.
        shard: &'a str,
        /// The design document's id, with `_design/`.
        ddoc: &'a str,
    },
    /// POST `/{db}/_compact/{name}`: compacts every copy of a view index on every node at
    /// once.
    CompactView {
        /// The database.
        db: &'a str,
        /// The design document's id, with `_design/`.
        ddoc: &'a str,
    },
    /// POST `/{db}/_view_cleanup`: deletes stale index files on every node.
    ViewCleanup {
        /// The database.
        db: &'a str,
    },
    /// `/{db}/_design/{name}/_view/{view}?limit=0&update=lazy`: builds every copy of a view
    /// index that is behind, and does not wait for it.
    BuildView {
        /// The database.
        db: &'a str,
        /// The design document's id, with `_design/`.
        ddoc: &'a str,
        /// One of its views: all of them share the index.
        view: &'a str,
    },
    /// `/{db}/_design/{name}/_nouveau_info/{index}` or `…/_search_info/{index}`: a search index
    /// over the cluster; one copy of each range, summed. A clouseau index that was never built is
    /// created, empty.
    SearchInfo {
        /// The engine that builds it.
        engine: Engine,
        /// The database.
        db: &'a str,
        /// The design document's id, with `_design/`.
        ddoc: &'a str,
        /// The index's name in the design document.
        index: &'a str,
    },
    /// `/{db}/_design/{name}/_nouveau/{index}?q=*:*&limit=1` or `…/_search/…`: a query. Every copy
    /// that it reaches is built, and it waits for the first copy of each range. Neither engine has
    /// a query that builds without waiting.
    BuildSearch {
        /// The engine that builds it.
        engine: Engine,
        /// The database.
        db: &'a str,
        /// The design document's id, with `_design/`.
        ddoc: &'a str,
        /// The index's name in the design document.
        index: &'a str,
    },
    /// PUT `/_node/{node}/_config/{section}/{key}`: sets a value until the node restarts.
    SetConfig {
        /// The node.
        node: &'a str,
        /// The section.
        section: &'a str,
        /// The key.
        key: &'a str,
        /// The value.
        value: &'a str,
    },
    /// DELETE `/_node/{node}/_config/{section}/{key}`: resets a value to the one in the node's
    /// files, which may be absent.
    ResetConfig {
        /// The node.
        node: &'a str,
        /// The section.
        section: &'a str,
        /// The key.
        key: &'a str,
    },
    /// PUT `/{db}/_design/{name}`: saves a design document.
    PutDesign {
        /// The database.
        db: &'a str,
        /// The design document's id, with `_design/`.
        ddoc: &'a str,
        /// The document as JSON, with the `_rev` that it replaces.
        body: &'a str,
    },
    /// DELETE `/{db}/_design/{name}?rev={rev}`: deletes this revision of a design document.
    DeleteDesign {
        /// The database.
        db: &'a str,
        /// The design document's id, with `_design/`.
        ddoc: &'a str,
        /// The revision.
        rev: &'a str,
    },
}

/// Documents of one shard copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardRead<'a> {
    /// `_changes`: ids and leaf revisions of changed documents.
    Changes {
        /// The shard's own sequence after which the changes begin.
        since: u64,
        /// The number of rows.
        limit: usize,
    },
    /// `_changes` with the winning revision of each document.
    Docs {
        /// The shard's own sequence after which the changes begin.
        since: u64,
        /// The number of rows.
        limit: usize,
    },
    /// `_local_docs`: one page of documents that are not replicated, such as checkpoints.
    Local {
        /// The first id, inclusive.
        from: Option<&'a str>,
        /// The number of rows.
        limit: usize,
    },
    /// `_design_docs`: one page of the design documents that this range holds.
    Designs {
        /// The first id, inclusive.
        from: Option<&'a str>,
        /// The number of rows.
        limit: usize,
    },
    /// One document: every leaf revision with its body and its ancestors.
    Leaves {
        /// Its id, not that of a design document.
        id: &'a str,
    },
}

/// What to read of the database events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DbUpdates<'a> {
    /// `since=now`: no events, only the current sequence.
    Now,
    /// `feed=continuous`: line by line, without an end.
    Feed {
        /// The sequence after which the feed begins.
        since: &'a str,
        /// The longest silence, in milliseconds; then an empty line comes.
        heartbeat: u64,
    },
}

/// A long poll. The continuous feed is never used here: the node's answer is forwarded only when it
/// ends, and its handler runs forever after the client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPoll {
    /// The node's own sequence after which it begins.
    pub since: u64,
    /// Maximum number of rows in the answer.
    pub limit: usize,
    /// How long to wait for the first row, in milliseconds.
    pub timeout: u64,
}

impl<'a> Route<'a> {
    /// Every metric label.
    pub const LABELS: &'static [&'static str] = Self::VARIANTS;

    /// The metric label, one of [`Self::LABELS`].
    pub fn label(&self) -> &'static str {
        self.into()
    }

    /// The HTTP method.
    pub const fn method(&self) -> Method {
        if matches!(self, Self::SetConfig { .. } | Self::PutDesign { .. }) {
            Method::PUT
        } else if matches!(self, Self::ResetConfig { .. } | Self::DeleteDesign { .. }) {
            Method::DELETE
        } else if self.starts_work() || matches!(self, Self::Login) {
            Method::POST
        } else {
            Method::GET
        }
    }

    /// The JSON value to set, or the document to save.
    pub(super) fn value(&self) -> Option<Bytes> {
        if let Self::PutDesign { body, .. } = self {
            return Some(Bytes::copy_from_slice(body.as_bytes()));
        }
        let Self::SetConfig { value, .. } = self else { return None };
        Some(serde_json::Value::from(*value).to_string().into())
    }

    /// The additional header. For a value, CouchDB also writes it to its files unless this header
    /// prevents that; it ignores a query parameter of the same name. For a document, CouchDB answers with
    /// several revisions as MIME parts to every client that accepts them.
    pub(super) const fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        if let Self::ShardDocuments { read: ShardRead::Leaves { .. }, .. } = self {
            return Some((ACCEPT, HeaderValue::from_static("application/json")));
        }
        if !matches!(self, Self::SetConfig { .. } | Self::ResetConfig { .. }) {
            return None;
        }
        let name = HeaderName::from_static("x-couch-persist");
        Some((name, HeaderValue::from_static("false")))
    }

    /// Whether it starts a compaction or a cleanup.
    pub const fn starts_work(&self) -> bool {
        matches!(
            self,
            Self::NodeCompact { .. }
                | Self::NodeCompactView { .. }
                | Self::CompactView { .. }
                | Self::ViewCleanup { .. }
        )
    }

    /// The node of the request; `None` for requests that any server answers for the cluster or about
    /// itself.
    pub const fn node(&self) -> Option<&'a str> {
        let (Self::NodeWelcome { node }
        | Self::NodeSession { node }
        | Self::NodeFiles { node }
        | Self::ShardMap { node: Some(node), .. }
        | Self::Shard { node, .. }
        | Self::ShardViewInfo { node, .. }
        | Self::Config { node, .. }
        | Self::ActiveTasks { node }
        | Self::System { node }
        | Self::FlushCount { node }
        | Self::MapChanges { node, .. }
        | Self::ShardDocuments { node, .. }
        | Self::NodeCompact { node, .. }
        | Self::NodeCompactView { node, .. }
        | Self::SetConfig { node, .. }
        | Self::ResetConfig { node, .. }) = *self
        else {
            return None;
        };
        Some(node)
    }

    /// The largest body to accept, in bytes, after decompression.
    pub const fn body_limit(&self) -> usize {
        #[expect(clippy::wildcard_enum_match_arm, reason = "most bodies are small")]
        let mebibytes = match self {
            // A million shards with names of 70 bytes are 75 MB.
            Self::NodeFiles { .. } => 128,
            // A page of documents; a design document may contain megabytes of code.
            Self::ShardMap { .. }
            | Self::DesignDocs { .. }
            | Self::ReshardJobs
            | Self::ShardDocuments { .. } => 64,
            // Tasks of a few hundred bytes, as many as a node can run.
            Self::ActiveTasks { .. } | Self::Replications { .. } => 16,
            Self::Config { .. } | Self::AllDbs { .. } | Self::DbShards { .. } => 8,
            // Rows of a few hundred bytes, as many as requested.
            Self::MapChanges { .. } => 4,
            Self::System { .. } | Self::SmooshStatus | Self::Membership => 4,
            // For a feed, which has no end, the limit of an error's body.
            _ => 1,
        };
        mebibytes << 20
    }

    /// Whether each server answers this without the other nodes, whatever their state: information
    /// about itself, and the shard map and membership, of which each node has its own copy.
    pub const fn is_answered_alone(&self) -> bool {
        matches!(
            self,
            Self::Welcome
                | Self::Session
                | Self::Membership
                | Self::ShardMap { .. }
                | Self::AllDbs { .. }
                | Self::DbShards { .. }
        )
    }

    /// Whether it reads a page of design documents, which may be larger than the limit of a body.
    pub(super) const fn is_of_designs(&self) -> bool {
        matches!(
            self,
            Self::DesignDocs { .. } | Self::ShardDocuments { read: ShardRead::Designs { .. }, .. }
        )
    }

    /// Whether it concerns only the server that answers, so that an error means that no request can succeed
    /// there. Tasks and statistics are not included: one of them may fail by itself.
    pub(super) const fn is_about_server(&self) -> bool {
        matches!(
            self,
            Self::Welcome
                | Self::NodeWelcome { .. }
                | Self::Up
                | Self::Session
                | Self::NodeSession { .. }
                | Self::Login
                | Self::Membership
                | Self::LocalName { .. }
                | Self::AllDbs { .. }
        )
    }

    /// Path and query as they are sent, below an address's prefix.
    ///
    /// # Errors
    /// When a name cannot be carried; nothing is sent then.
    pub fn path(&self) -> Result<String, Unaddressable> {
        let fixed = |text: &'static str| Ok(Path::of(text));
        let path = match *self {
            Self::Welcome => fixed("/"),
            Self::NodeWelcome { node } => Path::node(node),
            Self::Up => fixed("/_up"),
            Self::Session | Self::Login => fixed("/_session"),
            Self::NodeSession { node } => Ok(Path::node(node)?.fixed("/_session")),
            Self::Membership => fixed("/_membership"),
            Self::LocalName { encoded: false } => fixed("/_node/_local"),
            Self::LocalName { encoded: true } => fixed("/_node%2F_local"),
            Self::NodeFiles { node } => Ok(Path::node(node)?.fixed("/_all_dbs")),
            Self::ShardMap { node, from, limit } => {
                Ok(Path::node(node.unwrap_or("_local"))?.fixed("/_dbs/_all_docs").page(from, limit))
            }
            Self::Shard { node, shard } => Path::node(node)?.and(shard),
            Self::ShardViewInfo { node, shard, ddoc } => {
                Ok(Path::node(node)?.and(shard)?.design(ddoc)?.fixed("/_info"))
            }
            Self::AllDbs { from, limit } => Ok(Path::of("/_all_dbs?").rows(from, limit)),
            Self::DbShards { db } => Ok(Path::db(db)?.fixed("/_shards")),
            Self::Database { db } => Path::db(db),
            Self::DesignDocs { db, from, limit } => {
                Ok(Path::db(db)?.fixed("/_design_docs").page(from, limit))
            }
            Self::ViewInfo { db, ddoc } => Ok(Path::db(db)?.design(ddoc)?.fixed("/_info")),
            Self::SmooshStatus => fixed("/_node/_local/_smoosh/status"),
            Self::Config { node, section } => {
                let path = Path::node(node)?.fixed("/_config");
                if let Some(section) = section { path.and(section) } else { Ok(path) }
            }
            Self::ActiveTasks { node } => Ok(Path::node(node)?.fixed("/_active_tasks")),
            Self::System { node } => Ok(Path::node(node)?.fixed("/_system")),
            Self::FlushCount { node } => Ok(Path::node(node)?.fixed("/_stats/fsync/count")),
            Self::ReshardJobs => fixed("/_reshard/jobs"),
            Self::ShardDocuments { node, shard, read } => read.path(Path::node(node)?.and(shard)?),
            Self::Replications { of_documents, limit } => {
                let list = if of_documents { "/_scheduler/docs?" } else { "/_scheduler/jobs?" };
                Ok(Path::of(list).rows(None, limit))
            }
            Self::ChangesLeft { db, since } => {
                Ok(Path::db(db)?.fixed("/_changes?limit=1").value("since", since))
            }
            Self::LocalDoc { db, id } => Path::db(db)?.fixed("/_local").and(id),
            Self::TimeSeq { db } => Ok(Path::db(db)?.fixed("/_time_seq")),
            Self::PurgesLimit { db } => Ok(Path::db(db)?.fixed("/_purged_infos_limit")),
            Self::AutoPurge { db } => Ok(Path::db(db)?.fixed("/_auto_purge")),
            Self::DbUpdates(DbUpdates::Now) => fixed("/_db_updates?since=now"),
            Self::DbUpdates(DbUpdates::Feed { since, heartbeat }) => {
                Ok(Path::of("/_db_updates?feed=continuous")
                    .number("heartbeat", heartbeat)
                    .value("since", since))
            }
            Self::MapChanges { node, poll: None } => {
                Ok(Path::node(node)?.fixed("/_dbs/_changes?since=now"))
            }
            Self::MapChanges { node, poll: Some(MapPoll { since, limit, timeout }) } => {
                Ok(Path::node(node)?
                    .fixed("/_dbs/_changes?feed=longpoll")
                    .number("since", since)
                    .number("limit", limit as u64)
                    .number("timeout", timeout))
            }
            Self::NodeCompact { node, shard } => {
                Ok(Path::node(node)?.and(shard)?.fixed("/_compact"))
            }
            Self::NodeCompactView { node, shard, ddoc } => {
                Path::node(node)?.and(shard)?.fixed("/_compact").design_name(ddoc)
            }
            Self::CompactView { db, ddoc } => Path::db(db)?.fixed("/_compact").design_name(ddoc),
            Self::ViewCleanup { db } => Ok(Path::db(db)?.fixed("/_view_cleanup")),
            Self::BuildView { db, ddoc, view } => {
                let path = Path::db(db)?.design(ddoc)?.fixed("/_view").and(view)?;
                Ok(path.fixed("?limit=0&update=lazy"))
            }
            Self::SearchInfo { engine, db, ddoc, index } => {
                let kind = match engine {
                    Engine::Nouveau => "/_nouveau_info",
                    Engine::Clouseau => "/_search_info",
                };
                Path::db(db)?.design(ddoc)?.fixed(kind).and(index)
            }
            Self::BuildSearch { engine, db, ddoc, index } => {
                let kind = match engine {
                    Engine::Nouveau => "/_nouveau",
                    Engine::Clouseau => "/_search",
                };
                Ok(Path::db(db)?.design(ddoc)?.fixed(kind).and(index)?.fixed("?q=*:*&limit=1"))
            }
            Self::SetConfig { node, section, key, .. }
            | Self::ResetConfig { node, section, key } => {
                Path::node(node)?.fixed("/_config").and(section)?.and(key)
            }
            Self::PutDesign { db, ddoc, .. } => Path::db(db)?.design(ddoc),
            Self::DeleteDesign { db, ddoc, rev } => {
                Ok(Path::db(db)?.design(ddoc)?.fixed("?rev=").encoded(rev))
            }
        };
        path.map(Path::into_text)
    }
}

impl ShardRead<'_> {
    fn path(self, shard: Path) -> Result<Path, Unaddressable> {
        match self {
            Self::Changes { since, limit } => Ok(shard
                .fixed("/_changes?style=all_docs")
                .number("since", since)
                .number("limit", limit as u64)),
            Self::Docs { since, limit } => Ok(shard
                .fixed("/_changes?include_docs=true")
                .number("since", since)
                .number("limit", limit as u64)),
            Self::Local { from, limit } => Ok(shard.fixed("/_local_docs").page(from, limit)),
            Self::Designs { from, limit } => Ok(shard.fixed("/_design_docs").page(from, limit)),
            Self::Leaves { id } => Ok(shard.and(id)?.fixed("?open_revs=all&revs=true")),
        }
    }
}

#[cfg(test)]
mod tests;
