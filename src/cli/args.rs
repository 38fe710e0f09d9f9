//! Flags and commands. Doc comments here are the help that people read.

#![expect(clippy::doc_markdown, reason = "they are printed, not rendered")]

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
    /// Watch a cluster and serve metrics, JSON and a page.
    Serve(ServeArgs),
    /// Serve a simulated cluster, to look around without a CouchDB.
    Demo(DemoArgs),
    /// Read the cluster once and print what waits and what would be freed.
    Scan(ScanArgs),
    /// Say why a target is or is not a candidate.
    Explain(ExplainArgs),
    /// Write the recliner.yml that equals the settings CouchDB's own daemon has.
    Import(ImportArgs),
    /// Read the configuration and say everything that is wrong with it.
    CheckConfig(SourceArgs),
}

/// How CouchDB is reached and what is asked of it.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct SourceArgs {
    /// Configuration file; without one everything has its default
    #[arg(long = "config.file", value_name = "FILE")]
    pub(super) config_file: Option<PathBuf>,
    /// A way into the cluster, such as http://couch-a:5984; repeat it for each node
    #[arg(long = "couchdb.url", value_name = "URL")]
    pub(super) urls: Vec<String>,
    /// The user that asks; a server admin sees everything
    #[arg(long = "couchdb.username", value_name = "USER", env = "COUCHDB_USER")]
    pub(super) username: Option<String>,
    /// The file with its password, read again when it changes [or env: COUCHDB_PASSWORD]
    #[arg(long = "couchdb.password-file", value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
    /// Serve only this node's targets
    #[arg(long = "node", value_name = "NODE")]
    pub(super) node: Option<String>,
    /// CouchDB's database_dir, on the node itself
    #[arg(long = "data-dir", value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// CouchDB's view_index_dir, on the node itself
    #[arg(long = "view-index-dir", value_name = "DIR")]
    pub(super) view_index_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// What is logged.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct LogArgs {
    /// error, warn, info, debug or trace
    #[arg(id = "log_level", long = "log.level", value_name = "LEVEL")]
    pub(super) level: Option<String>,
    /// logfmt or json
    #[arg(id = "log_format", long = "log.format", value_name = "FORMAT")]
    pub(super) format: Option<String>,
}

/// What is served, and how.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct WebArgs {
    /// Where to listen [default: 127.0.0.1:10984]
    #[arg(long = "web.listen-address", value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// Let POST /-/reload and /-/quit through
    #[arg(long = "web.enable-lifecycle")]
    pub(super) lifecycle: bool,
    /// Users and certificates; refused by this version, which has neither
    #[arg(long = "web.config.file", value_name = "FILE", hide = true)]
    pub(super) web_config: Option<PathBuf>,
}

#[derive(Debug, Flags)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) web: WebArgs,
    /// advise says what it would do; a ceiling that no file lifts
    #[arg(long = "mode", value_name = "MODE")]
    pub(super) mode: Option<String>,
    /// Where state is kept [default: data/]
    #[arg(long = "storage.path", value_name = "DIR")]
    pub(super) storage: Option<PathBuf>,
}

#[derive(Debug, Flags)]
pub(super) struct DemoArgs {
    #[command(flatten)]
    pub(super) web: WebArgs,
    /// advise says what it would do
    #[arg(long = "mode", value_name = "MODE")]
    pub(super) mode: Option<String>,
    /// Let the simulated CouchDB nodes answer on loopback too, from this port upward
    #[arg(long = "couchdb.port", value_name = "PORT")]
    pub(super) port: Option<u16>,
    /// Another seed makes another cluster
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// In what form an answer is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

#[derive(Debug, Flags)]
pub(super) struct ScanArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// In what form
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
    /// As fast as CouchDB answers, without the pace for shards not read before
    #[arg(long)]
    pub(super) no_pace: bool,
}

#[derive(Debug, Flags)]
pub(super) struct ExplainArgs {
    /// An id, a shard file's name, a database, or DB/_design/x
    pub(super) target: String,
    /// Ask this running recliner, which remembers, instead of reading the cluster anew
    #[arg(long = "recliner.url", value_name = "URL")]
    pub(super) recliner: Option<String>,
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// In what form
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

/// Whose settings are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Daemon {
    /// CouchDB 3's smoosh.
    Smoosh,
    /// CouchDB 2's compaction daemon.
    CompactionDaemon,
}

#[derive(Debug, Flags)]
pub(super) struct ImportArgs {
    /// Whose settings
    #[arg(value_enum)]
    pub(super) daemon: Daemon,
    /// Read these ini files, in CouchDB's order, instead of asking CouchDB
    #[arg(long = "ini", value_name = "FILE")]
    pub(super) ini: Vec<PathBuf>,
    /// The CouchDB version the ini files are for [default: 3.5.0, or 2.3.1 for the old daemon]
    #[arg(long = "ini.version", value_name = "VERSION")]
    pub(super) version: Option<String>,
    /// The time zone the compaction daemon's windows are in
    #[arg(long = "zone", value_name = "ZONE", default_value = "UTC")]
    pub(super) zone: String,
    #[command(flatten)]
    pub(super) source: SourceArgs,
}
