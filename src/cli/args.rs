//! Flags and commands. Doc comments here are the help that people read.

#![expect(clippy::doc_markdown, reason = "they are printed, not rendered")]

use super::service_client::{ServiceArgs, ServiceLogin};
use crate::model::records::{ParseScopeError, SuspensionScope};
use clap::{Args as Flags, Parser, Subcommand, ValueEnum};
use std::{net::SocketAddr, path::PathBuf};

/// See what waits for compaction in a CouchDB cluster, what it would free, and why.
#[derive(Debug, Parser)]
#[command(name = "recliner", version, max_term_width = 100)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Watch a cluster and serve metrics, JSON and a page until stopped.
    Serve(ServeArgs),
    /// Serve a simulated cluster, to look around without a CouchDB.
    ///
    /// It enforces: it starts compactions of simulated files, so that numbers move. Nothing outside
    /// the process is touched.
    #[cfg(feature = "simulator")]
    Demo(DemoArgs),
    /// Read the cluster once and print what waits and what would be freed.
    Scan(ScanArgs),
    /// Say what would start now, with the exact requests, and why the rest does not.
    Plan(PlanArgs),
    /// Say why a target is or is not a candidate.
    Explain(ExplainArgs),
    /// Print how jobs ended, from a running recliner's journal.
    History(HistoryArgs),
    /// Print what happened, from a running recliner's journal.
    Events(EventsArgs),
    /// Print CouchDB's own compaction settings as a recliner.yml of the same effect.
    Import(ImportArgs),
    /// Give channels of CouchDB's smoosh back that a recliner took over and left stopped.
    ///
    /// It reads the notes that the takeover left on each node, so it works from any machine. First stop
    /// the recliner or take takeover out of its configuration, or it takes the channels over again.
    RestoreSmoosh(SourceArgs),
    /// Say what CouchDB's own files contain, and how CouchDB would use them.
    Inspect(InspectArgs),
    /// Say everything that is wrong with a configuration, or print the effective one.
    CheckConfig(CheckArgs),
    /// Tell a running recliner to start nothing, until resume.
    ///
    /// It stays suspended over a restart. What runs goes on to its end: CouchDB offers no
    /// way to stop a running compaction over HTTP.
    Suspend(SuspendArgs),
    /// Tell a running recliner to start compactions again.
    Resume(ResumeArgs),
    /// Tell a running recliner to compact one target now, if its gates and limits let it.
    Compact(CompactArgs),
    /// Tell a running recliner to take targets out of quarantine.
    Release(ReleaseArgs),
    /// Tell a running recliner to look at everything again now.
    Rescan(OrderArgs),
    /// Tell a running recliner to empty queues, until targets change or the next sweep.
    Flush(FlushArgs),
}

impl Command {
    /// Whether it serves until it is stopped.
    pub(super) const fn serves(&self) -> bool {
        #[cfg(feature = "simulator")]
        if matches!(self, Self::Demo(_)) {
            return true;
        }
        matches!(self, Self::Serve(_))
    }
}

/// How CouchDB is reached and which parts are read.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct SourceArgs {
    /// The configuration, recliner.yml; without it every setting has its default
    #[arg(long = "config.file", value_name = "FILE")]
    pub(super) config_file: Option<PathBuf>,
    /// A CouchDB node, such as http://couch-a:5984; one is enough to see the cluster, repeat it
    /// for every node to see each node's smoosh
    #[arg(long = "couchdb.url", value_name = "URL")]
    pub(super) urls: Vec<String>,
    /// The CouchDB user to ask as; a server admin sees everything [or env: COUCHDB_USER]
    #[arg(long = "couchdb.username", value_name = "USER")]
    pub(super) username: Option<String>,
    /// A file that holds the user's password, read again when it changes [or env:
    /// COUCHDB_PASSWORD]
    #[arg(long = "couchdb.password-file", value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
    /// Only the databases on this node, by CouchDB's name for it, such as couchdb@couch-a
    #[arg(long = "node", value_name = "NODE")]
    pub(super) node: Option<String>,
    /// CouchDB's database_dir, where recliner runs on the node that --node names: its files are
    /// read, beside CouchDB or alone
    #[arg(long = "data-dir", value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// CouchDB's view_index_dir [default: the data directory]
    #[arg(long = "view-index-dir", value_name = "DIR")]
    pub(super) view_index_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// What is logged.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct LogArgs {
    /// How much is logged, on standard error: error, warn, info, debug or trace [default: info
    /// for serve, warn for demo, else nothing]
    #[arg(id = "log_level", long = "log.level", value_name = "LEVEL")]
    pub(super) level: Option<String>,
    /// The form of a log line: logfmt or json [default: logfmt]
    #[arg(id = "log_format", long = "log.format", value_name = "FORMAT")]
    pub(super) format: Option<String>,
}

/// What is served, and how.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct WebArgs {
    /// The address and port to serve on [default: 127.0.0.1:10984]
    #[arg(long = "web.listen-address", value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// Allow POST /-/reload and POST /-/quit; from another machine they need a user of
    /// --web.config.file
    #[arg(long = "web.enable-lifecycle")]
    pub(super) lifecycle: bool,
    /// Allow orders over HTTP, such as POST /api/v1/compact; from another machine they need a user
    /// of --web.config.file
    #[arg(long = "web.enable-admin-api")]
    pub(super) admin: bool,
    /// The Unix socket over which the user that runs this, and root, suspend and resume without any
    /// other flag; none for none [default: admin.sock in --storage.path; none for demo]
    #[arg(long = "web.admin-socket", value_name = "PATH")]
    pub(super) admin_socket: Option<PathBuf>,
    /// Users, certificates and headers, in the format that Prometheus's exporters share; read
    /// again when it changes
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub(super) web_config: Option<PathBuf>,
}

#[derive(Debug, Flags)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) web: WebArgs,
    /// advise starts nothing; enforce starts compactions, within limits and gates [default: advise]
    #[arg(long = "mode", value_name = "MODE")]
    pub(super) mode: Option<String>,
    /// The directory of the journal; created if its parent exists [default: data/]
    #[arg(long = "storage.path", value_name = "DIR")]
    pub(super) storage: Option<PathBuf>,
}

#[derive(Debug, Flags)]
pub(super) struct CheckArgs {
    /// Print the JSON Schema of recliner.yml, for editors, and do nothing else
    #[arg(long, exclusive = true)]
    pub(super) schema: bool,
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) web: WebArgs,
    /// advise or enforce [default: advise]
    #[arg(long = "mode", value_name = "MODE")]
    pub(super) mode: Option<String>,
}

#[cfg(feature = "simulator")]
#[derive(Debug, Flags)]
pub(super) struct DemoArgs {
    #[command(flatten)]
    pub(super) web: WebArgs,
    /// advise starts nothing; enforce starts compactions in the simulation [default: enforce]
    #[arg(long = "mode", value_name = "MODE")]
    pub(super) mode: Option<String>,
    /// Let the simulated nodes answer as CouchDB does, on 127.0.0.1 from this port upward, to try
    /// other commands or curl on them
    #[arg(
        long = "couchdb.port",
        value_name = "PORT",
        value_parser = clap::value_parser!(u16).range(1..=65_000)
    )]
    pub(super) port: Option<u16>,
    /// A different number makes different data
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// In what form an answer is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    #[default]
    Table,
    Json,
}

#[derive(Debug, Flags)]
pub(super) struct ScanArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
    /// Read as fast as CouchDB answers, not at couchdb.cold_reads_per_second
    #[arg(long)]
    pub(super) no_pace: bool,
}

#[derive(Debug, Flags)]
pub(super) struct PlanArgs {
    /// Ask this running recliner instead of reading the cluster; only it knows what failed, what
    /// was suspended and since when a target waits [default, where no CouchDB is named:
    /// http://127.0.0.1:10984]
    #[arg(long = "recliner.url", value_name = "URL")]
    pub(super) recliner: Option<String>,
    #[command(flatten)]
    pub(super) login: ServiceLogin,
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct ExplainArgs {
    /// A database, DB/_design/NAME, a shard file's name, or an id as scan --format json prints it
    pub(super) target: String,
    /// Everything about each target, where the name means several
    #[arg(long)]
    pub(super) all: bool,
    /// Ask this running recliner instead of reading the cluster; only it knows since when a target
    /// waits [default, where no CouchDB is named: http://127.0.0.1:10984]
    #[arg(long = "recliner.url", value_name = "URL")]
    pub(super) recliner: Option<String>,
    #[command(flatten)]
    pub(super) login: ServiceLogin,
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct HistoryArgs {
    /// Only jobs on this: a database, DB/_design/NAME, a shard file's name, or an id
    pub(super) target: Option<String>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// Only jobs on this node, by CouchDB's name for it, or _cluster
    #[arg(id = "of_node", long = "node", value_name = "NODE")]
    pub(super) node: Option<String>,
    /// Only jobs that ended like this: freed, nothing_freed, grew, unmeasured, failed or lost
    #[arg(long = "result", value_name = "RESULT")]
    pub(super) result: Option<String>,
    /// Only jobs that ended since then: 2026-11-21T00:54:00Z, or how long ago, such as 2h or 7d
    #[arg(long = "since", value_name = "TIME")]
    pub(super) since: Option<String>,
    /// The maximum number of jobs, the newest first
    #[arg(long = "limit", value_name = "COUNT", default_value_t = 100)]
    pub(super) limit: usize,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct EventsArgs {
    /// Only events of this: a database, DB/_design/NAME, a shard file's name, or an id
    pub(super) target: Option<String>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// Only events of this type, such as started or quarantined; repeat it for more
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "all")]
    pub(super) types: Vec<String>,
    /// Include events of databases: created, updated and deleted
    #[arg(long)]
    pub(super) all: bool,
    /// Only events since then: 2026-11-21T00:54:00Z, how long ago, such as 2h or 7d, or after the
    /// event with this number; without it, the newest
    #[arg(long = "since", value_name = "TIME")]
    pub(super) since: Option<String>,
    /// The maximum number of events; with --follow, of those printed first
    #[arg(long = "limit", value_name = "COUNT", default_value_t = 100)]
    pub(super) limit: usize,
    /// Keep printing new events until ctrl-c; as JSON, one event a line
    #[arg(long, short)]
    pub(super) follow: bool,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

/// Whose settings are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Daemon {
    Smoosh,
    CompactionDaemon,
}

#[derive(Debug, Flags)]
pub(super) struct ImportArgs {
    /// CouchDB 3's smoosh, or CouchDB 2's compaction daemon
    #[arg(value_enum)]
    pub(super) daemon: Daemon,
    /// Read this ini file instead of asking CouchDB; repeat it in the order CouchDB reads them
    #[arg(long = "ini", value_name = "FILE")]
    pub(super) ini: Vec<PathBuf>,
    /// The CouchDB version the ini files are for [default: 3.5.0; of compaction-daemon: 2.3.1]
    #[arg(long = "ini.version", value_name = "VERSION")]
    pub(super) version: Option<String>,
    /// The time zone the servers' clocks are set to, in which the compaction daemon reads its
    /// windows
    #[arg(long = "zone", value_name = "ZONE", default_value = "UTC")]
    pub(super) zone: String,
    #[command(flatten)]
    pub(super) source: SourceArgs,
}

#[derive(Debug, Flags)]
pub(super) struct InspectArgs {
    /// Files of CouchDB's data directory: .couch, .view, and what compactions write
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
    /// Lines for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

/// What all orders have in common.
#[derive(Debug, Flags)]
pub(super) struct OrderArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// The storage path of a recliner on this machine, to order it over the Unix socket there
    /// [default: data/]
    #[arg(long = "storage.path", value_name = "DIR", conflicts_with = "recliner_url")]
    pub(super) storage: Option<PathBuf>,
    /// The Unix socket of a recliner on this machine; none to go to --recliner.url [default:
    /// admin.sock in --storage.path, where that is]
    #[arg(
        long = "web.admin-socket",
        value_name = "PATH",
        conflicts_with_all = ["recliner_url", "storage"]
    )]
    pub(super) admin_socket: Option<PathBuf>,
    /// The answer in words, or in JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct SuspendArgs {
    /// What to suspend: all, node:NAME or channel:NAME
    #[arg(default_value = "all", value_parser = scope)]
    pub(super) scope: String,
    /// The reason, shown to anyone who finds it suspended
    #[arg(long, value_name = "TEXT")]
    pub(super) why: Option<String>,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Debug, Flags)]
pub(super) struct ResumeArgs {
    /// What to resume: node:NAME, channel:NAME, or all, which is all that is suspended
    #[arg(default_value = "all", value_parser = scope)]
    pub(super) scope: String,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Debug, Flags)]
pub(super) struct CompactArgs {
    /// A database of one file, DB/_design/NAME, a shard file's name, or an id as scan --format json
    /// prints it
    pub(super) target: String,
    /// Start it even if no channel takes a target of its size, or while it rests after failures or
    /// a compaction that freed nothing; limits, gates and the need for free space still apply
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Debug, Flags)]
pub(super) struct ReleaseArgs {
    /// A database, DB/_design/NAME, a shard file's name, or an id as scan --format json prints it
    #[arg(required_unless_present = "all")]
    pub(super) target: Option<String>,
    /// Every target in quarantine
    #[arg(long, conflicts_with = "target")]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Debug, Flags)]
pub(super) struct FlushArgs {
    /// Only queues of this node, by CouchDB's name for it, or _cluster
    #[arg(long = "node", value_name = "NODE")]
    pub(super) node: Option<String>,
    /// Only queues of this channel
    #[arg(long = "channel", value_name = "CHANNEL")]
    pub(super) channel: Option<String>,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

/// A scope, checked before anything is sent.
fn scope(text: &str) -> Result<String, ParseScopeError> {
    text.parse::<SuspensionScope>().map(|scope| scope.to_string())
}
