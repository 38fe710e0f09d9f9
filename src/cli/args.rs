//! Flags and commands. Doc comments here are the help that people read.

#![expect(clippy::doc_markdown, reason = "they are printed, not rendered")]

mod suggested;

use super::{
    mixin::{LinkBase, Selector},
    service_client::{ServiceArgs, ServiceLogin},
};
use crate::{
    model::records::{ParseScopeError, SuspensionScope},
    serve::http::ProcessInfo,
    text::{
        duration,
        size::{self, ParseSizeError},
    },
};
use clap::{Args as Flags, Parser, Subcommand, ValueEnum, ValueHint};
use std::{net::SocketAddr, path::PathBuf, sync::LazyLock, time::Duration};
use suggested::{DATABASE_SORTS, EVENT_TYPES, LOG_FORMATS, LOG_LEVELS, MODES, RESULTS};

/// The version, with the revision and the date of the source if they are known.
pub(super) fn version() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| {
        let build = ProcessInfo::of_this_build(false);
        let ProcessInfo { version, revision, .. } = build;
        match (build.known_date(), build.is_development()) {
            (_, true) => format!("{version} (development build)"),
            (None, false) => format!("{version} (revision {revision})"),
            (Some(date), false) => format!("{version} (revision {revision}, {date})"),
        }
    });
    &LINE
}

/// Show what waits for compaction in a CouchDB cluster, what it would free, and why.
#[derive(Debug, Parser)]
#[command(name = "recliner", version = version(), max_term_width = 100)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Watch a cluster; serve metrics, an API and a console until stopped.
    ///
    /// SIGTERM and SIGINT stop it. SIGHUP reads the configuration again.
    Serve(ServeArgs),
    /// Explore recliner on a simulated cluster, without a CouchDB.
    ///
    /// It compacts simulated files, so that numbers change, and touches nothing outside the process.
    #[cfg(feature = "simulator")]
    Demo(DemoArgs),
    /// Read a cluster once: what waits, and what compaction would free.
    ///
    /// It prints nodes, queues, the targets with most to reclaim, and files that do not match the
    /// shard map.
    Scan(ScanArgs),
    /// Compact once what is worth compacting; for cron or a single node.
    ///
    /// Without --yes it only prints what it would do, in which order, and what that would free. With --yes it compacts
    /// within the gates and limits of serve, asks CouchDB to delete unused index files, and prints the sizes before and
    /// after. It stores nothing and changes no setting of CouchDB. If it is killed, CouchDB finishes the running
    /// compactions.
    ///
    /// recliner tidy --couchdb.url http://127.0.0.1:5984 --data-dir /opt/couchdb/data --yes --until-free 20GiB
    Tidy(TidyArgs),
    /// Print what each database uses, wastes and gains on disk, and why.
    ///
    /// With a name, it describes that database in sentences.
    Databases(DatabasesArgs),
    /// Print what changed on the disks since yesterday, and why: the causes add up exactly.
    ///
    /// A running recliner keeps hourly records for 14 days and daily ones for 400: documents, waste, indexes, new and
    /// deleted files, what compactions freed, and what no file of CouchDB explains.
    Changes(ChangesArgs),
    /// Print a page about the last seven days, to mail or attach.
    ///
    /// It shows the waste then and now, what filled each volume, what compactions freed and wrote, the databases that
    /// waste most, open and resolved advice, and suspensions. The page is a single file that loads nothing else.
    ///
    /// recliner report --since 7d > report.html
    Report(ReportArgs),
    /// Print the state of several recliners, those that need attention first.
    ///
    /// A running recliner asks those listed in `fleet` in its configuration. With --config.file, this command asks them
    /// itself: once, or with --serve until stopped; the file needs no other section. Nothing is changed.
    Fleet(FleetArgs),
    /// Print what would start now, with the exact requests, and why other targets would not.
    ///
    /// For each start it prints what that would free and write, and how long it would take. In advise mode the request
    /// is a curl command to paste.
    Plan(AnswerArgs),
    /// Explain why a target is or is not a candidate.
    ///
    /// It prints the measurements of a database, view or shard, which channel takes it, why the others do not, what it
    /// has been waiting for and since when, and what would have to change.
    Explain(ExplainArgs),
    /// Watch a running recliner on a terminal.
    ///
    /// It has screens for an overview, running jobs, the queue with reasons, and events. Lists are
    /// sorted with o and filtered with /; Enter explains a target; S, R and c suspend, resume and
    /// compact, after a confirmation that shows the exact request. The key ? shows all keys, q quits.
    /// NO_COLOR switches colours off.
    Top(ReachArgs),
    /// Print what to do about the cluster, the worst first.
    ///
    /// Each recommendation has its numbers, what it would gain and what to type. A running recliner also knows how fast
    /// files grow, how old each recommendation is, and what was muted; a cluster or directory named by flags is read
    /// once, without these.
    Advise(AdviseArgs),
    /// Predict the cost of a design document before it is deployed: time, disk on each node, and whether
    /// it fits.
    ///
    /// It compares the document with the one in the database, and says which views change and whether an index would be
    /// built at all. All numbers are ranges, based on existing indexes and on builds that recliner has seen. Nothing is
    /// changed.
    Preflight(PreflightArgs),
    /// Build the indexes of a planned deployment one by one, before its design documents go live.
    ///
    /// It saves each document as _design/NAME-next, waits until every copy of its index is built, lets a running
    /// recliner in enforce mode compact it, and prints how to save the documents under their own names; with --swap it
    /// saves them itself. Run again, it continues where it stopped.
    DeployIndexes(DeployIndexesArgs),
    /// Print how many deleted documents a database has, who still reads the deletions, and how to remove them.
    ///
    /// It changes nothing.
    Tombstones(TombstonesArgs),
    /// Print the view indexes: their size, the cost of building them, and who reads them.
    ///
    /// A running recliner knows the readers from the access logs listed in reads.logs, here or on sidecars.
    Indexes(IndexesArgs),
    /// Print who reads the indexes, from access logs.
    ///
    /// It reads the logs of CouchDB and HAProxy, and the common, combined and JSON formats of nginx and Traefik, also
    /// compressed; - is standard input. Of each request it keeps only the database, the design document, the view, the
    /// day and a coarse class of clients. Without --log, it asks a running recliner, which follows the logs listed in
    /// its configuration.
    ///
    /// recliner reads --log /var/log/couchdb/couch.log /var/log/nginx/access.log*
    Reads(ReadsArgs),
    /// Print how compactions ended.
    History(HistoryArgs),
    /// Print a running recliner's forecast of the next days under several sets of rules.
    ///
    /// It compares no compaction, CouchDB's smoosh, the rules in force and the proposed ones: wasted bytes,
    /// bytes written, waits, and free space with the date on which a volume is full. Sizes continue to grow
    /// at the observed rate, and the planner itself decides. Nothing is changed.
    ///
    /// With --since it looks back: it compares what recliner would have started in advise mode with what really
    /// happened, and says whether to switch to enforce.
    WhatIf(WhatIfArgs),
    /// Print events from a running recliner's journal.
    ///
    /// Database events are hidden without --all. With --follow it keeps printing new events, even across restarts of
    /// the service.
    Events(EventsArgs),
    /// Let an assistant ask a running recliner, over the Model Context Protocol.
    ///
    /// The assistant starts this command and speaks with it over standard input and output. It can read what the API
    /// shows, and the book, but change nothing.
    ///
    /// claude mcp add recliner -- recliner mcp --recliner.url http://127.0.0.1:10984
    Mcp(McpArgs),
    /// Exit with status 0 if a running recliner responds, otherwise with 1.
    ///
    /// For containers without a shell, and other monitors that can only run a program.
    Health(ServiceArgs),
    /// Print a recliner.yml with the same effect as CouchDB's own compaction settings.
    ///
    /// The configuration goes to standard output, and findings to standard error: channels that hide others or never
    /// match, settings without effect, nodes that differ, defaults that CouchDB's documentation gets wrong. For
    /// channels that a recliner took over, the earlier concurrency is used.
    ///
    /// With --as rent it prints channels by rent instead, with horizons that keep the mean waste that smoosh
    /// leaves. Only a running recliner knows growth, so this asks one, which reads smoosh's settings itself.
    Import(ImportArgs),
    /// Give back the channels of CouchDB's smoosh that a recliner took over and left stopped.
    ///
    /// It reads the notes that the takeover left on each node, so it works from any machine. First stop that recliner
    /// or remove the takeover from its configuration; otherwise it takes over the channels again.
    RestoreSmoosh(SourceArgs),
    /// Print what CouchDB's own files contain, and how CouchDB would use them.
    ///
    /// It reads the files' headers, without a CouchDB. It fails if a file contains nothing
    /// readable.
    Inspect(InspectArgs),
    /// Print what the bytes in CouchDB's own files are, and how small a compaction would make them.
    ///
    /// It reads the trees of each file, without a CouchDB: bodies, conflicts, attachments, tombstones,
    /// and what nothing refers to any more. It fails if a file cannot be read.
    Xray(XrayArgs),
    /// Print every error in a configuration, or the effective configuration.
    ///
    /// Flags are checked too, and the channels of a takeover if CouchDB answers.
    CheckConfig(CheckArgs),
    /// Tell a running recliner to start no compactions until resumed.
    ///
    /// The suspension survives a restart. Running compactions continue: CouchDB offers no way to
    /// stop a running compaction over HTTP. On recliner's own machine, its user and root can do this
    /// even where the admin API is off.
    Suspend(SuspendArgs),
    /// Tell a running recliner to start compactions again.
    ///
    /// Without a scope, every suspension ends; with one, only that one.
    Resume(ResumeArgs),
    /// Compact a database or one target now, within gates and limits.
    ///
    /// For a database this starts a run, whose compactions go before all others. In advise mode, the command only
    /// prints the requests that recliner would send, and fails.
    Compact(CompactArgs),
    /// Show the progress of runs; pause, resume or cancel one.
    Runs(RunsArgs),
    /// Tell a running recliner to take targets out of quarantine.
    ///
    /// Their failures are forgotten.
    Release(ReleaseArgs),
    /// Tell a running recliner to begin a sweep now.
    ///
    /// If a sweep is running, the new one begins when it ends.
    Rescan(OrderArgs),
    /// Tell a running recliner to clear its queues until facts change or the next sweep ends.
    Flush(FlushArgs),
    /// Copy the journal of a running recliner to a file, without stopping it.
    ///
    /// The copy is consistent and is checked before the file gets its name. To restore it, save it as journal.redb in
    /// --storage.path and start recliner.
    Backup(BackupArgs),
    /// Print Prometheus rules, Grafana dashboards or the runbook, for your addresses and labels.
    Mixin(MixinArgs),
    /// Print a script that completes commands and flags in a shell.
    Completions(CompletionArgs),
    /// Print the manual page, or write the pages of all commands.
    Man(ManArgs),
}

impl Command {
    /// Whether the command runs until it is stopped.
    pub(super) const fn serves(&self) -> bool {
        #[cfg(feature = "simulator")]
        if matches!(self, Self::Demo(_)) {
            return true;
        }
        matches!(self, Self::Serve(_) | Self::Fleet(FleetArgs { serve: true, .. }))
    }
}

/// The CouchDB to read, and which parts of it.
#[derive(Clone, Debug, Default, Flags)]
#[command(next_help_heading = "Connection")]
pub(super) struct SourceArgs {
    /// The configuration file, recliner.yml; without it, every setting has its default
    #[arg(long = "config.file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) config_file: Option<PathBuf>,
    /// The URL of a CouchDB node, without user and password, such as http://couch-a:5984; one is enough
    /// to see the cluster; repeat the flag for every node to see each node's smoosh
    #[arg(long = "couchdb.url", value_name = "URL", value_hint = ValueHint::Url)]
    pub(super) urls: Vec<String>,
    /// The CouchDB user to log in as; only a server admin sees everything [or env: COUCHDB_USER]
    #[arg(long = "couchdb.username", value_name = "USER", value_hint = ValueHint::Other)]
    pub(super) username: Option<String>,
    /// A file with the user's password, reread when it changes; COUCHDB_PASSWORD holds the password itself [or env:
    /// COUCHDB_PASSWORD]
    #[arg(long = "couchdb.password-file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) password_file: Option<PathBuf>,
    /// Only the databases on this node, given by CouchDB's name for it, such as couchdb@couch-a;
    /// the same as nodes in the file
    #[arg(long, value_name = "NODE")]
    pub(super) node: Option<String>,
    /// CouchDB's database_dir on the node named by --node, if recliner runs there; its files are read directly; serve,
    /// scan, databases, plan, explain and advise then need no CouchDB
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) data_dir: Option<PathBuf>,
    /// CouchDB's view_index_dir [default: the data directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) view_index_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

impl SourceArgs {
    /// Each flag that was given and names a CouchDB or a login, with its value.
    pub(super) fn for_each_named(&self, add: &mut impl FnMut(&str, &str)) {
        let file = |file: &Option<PathBuf>| file.as_ref().map(|it| it.display().to_string());
        let files = [
            ("--config.file", file(&self.config_file)),
            ("--couchdb.username", self.username.clone()),
            ("--couchdb.password-file", file(&self.password_file)),
        ];
        self.urls.iter().for_each(|url| add("--couchdb.url", url));
        for (name, value) in files {
            value.iter().for_each(|value| add(name, value));
        }
    }
}

/// Logging.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct LogArgs {
    /// The log level, on standard error: error, warn, info, debug or trace; at info and above,
    /// lines repeated within a minute are collapsed into one with a count (repeats) [default: info for
    /// serve, warn for demo, otherwise no log]
    #[arg(
        id = "log_level",
        long = "log.level",
        value_name = "LEVEL",
        value_parser = LOG_LEVELS,
        hide_possible_values = true
    )]
    pub(super) level: Option<String>,
    /// The format of log lines: logfmt or json [default: logfmt]
    #[arg(
        id = "log_format",
        long = "log.format",
        value_name = "FORMAT",
        value_parser = LOG_FORMATS,
        hide_possible_values = true
    )]
    pub(super) format: Option<String>,
}

/// Where a service listens, and for whom.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct ListenArgs {
    /// The address and port to serve on [default: 127.0.0.1:10984]
    #[arg(long = "web.listen-address", value_name = "ADDRESS")]
    pub(super) address: Option<SocketAddr>,
    /// A host name that clients use for this service, besides addresses, localhost and this machine's host
    /// name. Requests with any other name are refused unless they have a user
    #[arg(long = "web.allowed-host", value_name = "NAME")]
    pub(super) allowed_hosts: Vec<String>,
    /// Users, certificates and headers, in the format of Prometheus's exporters; reread when it changes
    #[arg(long = "web.config.file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) web_config: Option<PathBuf>,
}

/// The HTTP server.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct WebArgs {
    #[command(flatten)]
    pub(super) listen: ListenArgs,
    /// Allow POST /-/reload and POST /-/quit; from another machine they need a user of
    /// --web.config.file
    #[arg(long = "web.enable-lifecycle")]
    pub(super) lifecycle: bool,
    /// Allow commands that change something over HTTP, such as POST /api/v1/compact; from another
    /// machine they need a user of --web.config.file
    #[arg(long = "web.enable-admin-api")]
    pub(super) admin: bool,
    /// Let assistants ask over the Model Context Protocol at /mcp; they can read what the API shows, but change nothing
    #[arg(long = "web.enable-mcp")]
    pub(super) mcp: bool,
    /// The Unix socket over which recliner's own user, and root, can suspend, resume and back up
    /// without any other flag; or none [default: admin.sock in --storage.path; none for demo]
    #[arg(long = "web.admin-socket", value_name = "PATH")]
    pub(super) admin_socket: Option<PathBuf>,
}

#[derive(Debug, Flags)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) web: WebArgs,
    /// advise starts nothing, and neither the file nor a reload can override it; enforce starts compactions, within
    /// limits and gates [default: advise]
    #[arg(long, value_name = "MODE", value_parser = MODES, hide_possible_values = true)]
    pub(super) mode: Option<String>,
    /// The directory of the journal; created if its parent exists [default: data/]
    #[arg(long = "storage.path", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) storage: Option<PathBuf>,
}

#[derive(Debug, Flags)]
pub(super) struct CheckArgs {
    /// Print the JSON Schema of recliner.yml (draft 2020-12), for editors, and do nothing else
    #[arg(long, exclusive = true)]
    pub(super) schema: bool,
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) web: WebArgs,
    /// advise or enforce [default: advise]
    #[arg(long, value_name = "MODE", value_parser = MODES, hide_possible_values = true)]
    pub(super) mode: Option<String>,
}

#[cfg(feature = "simulator")]
#[derive(Debug, Flags)]
pub(super) struct DemoArgs {
    #[command(flatten)]
    pub(super) web: WebArgs,
    /// advise starts nothing; enforce starts compactions in the simulation [default: enforce]
    #[arg(long, value_name = "MODE", value_parser = MODES, hide_possible_values = true)]
    pub(super) mode: Option<String>,
    /// Simulate a cluster with faults of every kind, starting now; without it, a plausible cluster with a week of
    /// history
    #[arg(long)]
    pub(super) faults: bool,
    /// Serve the simulated nodes like CouchDB, on 127.0.0.1 from this port upward, to try other commands or curl on
    /// them
    #[arg(
        long = "couchdb.port",
        value_name = "PORT",
        value_parser = clap::value_parser!(u16).range(1..=65_000)
    )]
    pub(super) port: Option<u16>,
    /// The seed of the simulated data
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// The output format.
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
pub(super) struct TidyArgs {
    /// Do it
    #[arg(long)]
    pub(super) yes: bool,
    /// Only print what it would do, like without --yes
    #[arg(long, conflicts_with = "yes")]
    pub(super) dry_run: bool,
    /// Only this database and its indexes; repeat it for more
    #[arg(long = "database", value_name = "NAME")]
    pub(super) databases: Vec<String>,
    /// Stop as soon as this much is free, such as 20GiB; on several volumes, on each of them
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(super) until_free: Option<u64>,
    /// Stop after this time, such as 2h, and leave what still runs to CouchDB
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) max_duration: Option<Duration>,
    /// Assume this much free space on each node where recliner cannot read it
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with_all = ["data_dir", "until_free"])]
    pub(super) assume_free: Option<u64>,
    /// Exit with status 3 if there is nothing to do
    #[arg(long)]
    pub(super) fail_if_idle: bool,
    /// A table for people, or JSON for programs, once at the end
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) source: SourceArgs,
}

#[derive(Debug, Default, Flags)]
pub(super) struct AnswerArgs {
    /// Ask this running recliner instead of reading the cluster; only it remembers growth, failures, suspensions,
    /// waiting times and builds [default, if no CouchDB is named: RECLINER_URL, else http://127.0.0.1:10984]
    #[arg(long = "recliner.url", value_name = "URL", help_heading = "Connection")]
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
pub(super) struct DatabasesArgs {
    /// Only this database; if none has this name, those with this text in their name
    pub(super) name: Option<String>,
    /// The field to sort by: reclaimable_bytes, file_bytes, document_bytes, index_bytes, growth_day_bytes,
    /// growth_week_bytes, last_compaction or db
    #[arg(
        long,
        value_name = "FIELD",
        default_value = "reclaimable_bytes",
        value_parser = DATABASE_SORTS,
        hide_possible_values = true
    )]
    pub(super) sort: String,
    /// The maximum number of databases; at most 10000
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    pub(super) limit: usize,
    #[command(flatten)]
    pub(super) from: AnswerArgs,
}

#[derive(Debug, Flags)]
pub(super) struct ChangesArgs {
    /// Only this volume or node; or this database or DB/_design/NAME, compared with the sum of all others
    pub(super) name: Option<String>,
    /// Since this timestamp (2026-11-21T00:54:00Z), day, age (6h), or yesterday (24h); rounded down to a full hour
    #[arg(long, value_name = "TIME", default_value = "yesterday")]
    pub(super) since: String,
    /// Until this timestamp, day or age, rounded up to a full hour [default: now]
    #[arg(long, value_name = "TIME")]
    pub(super) until: Option<String>,
    /// Sum by cause, database, design or node
    #[arg(long, value_name = "WHAT", value_parser = ["cause", "database", "design", "node"])]
    pub(super) by: Option<String>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
#[command(mut_group("ListenArgs", |flags| flags.requires("serve")))]
pub(super) struct FleetArgs {
    /// A configuration file whose section fleet lists the recliners to ask directly
    #[arg(
        long = "config.file",
        value_name = "FILE",
        conflicts_with = "recliner_url",
        help_heading = "Connection"
    )]
    pub(super) config_file: Option<PathBuf>,
    /// Keep asking the recliners, and serve the fleet page, /api/v1/fleet and metrics until stopped
    #[arg(long, requires = "config_file")]
    pub(super) serve: bool,
    #[command(flatten)]
    pub(super) listen: ListenArgs,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct ReportArgs {
    /// Since this timestamp, 2026-11-21T00:54:00Z, day or age, such as 24h
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub(super) since: String,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// A page, Markdown, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: ReportFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    #[default]
    Html,
    Md,
    Json,
}

#[derive(Debug, Flags)]
pub(super) struct ExplainArgs {
    /// A database, DB/_design/NAME, a shard file's name, or an id as scan --format json prints it
    pub(super) target: String,
    /// Print everything about each target if the name matches several
    #[arg(long)]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) from: AnswerArgs,
}

#[derive(Debug, Flags)]
pub(super) struct AdviseArgs {
    /// Exit with status 3 if there is unmuted advice of this severity or worse
    #[arg(long, value_name = "SEVERITY", value_parser = ["info", "warning", "critical"])]
    pub(super) fail_on: Option<String>,
    /// Print what fills the disks instead: by database, or by design document
    #[arg(long, value_name = "WHAT", value_parser = ["database", "design"], conflicts_with = "fail_on")]
    pub(super) by: Option<String>,
    /// Tell a running recliner to mute advice of this code, or only that about a subject
    #[arg(long, num_args = 1..=2, value_names = ["CODE", "SUBJECT"], conflicts_with_all = ["fail_on", "by"])]
    pub(super) mute: Option<Vec<String>>,
    /// Tell a running recliner to unmute advice of this code, or only that about a subject
    #[arg(long, num_args = 1..=2, value_names = ["CODE", "SUBJECT"], conflicts_with_all = ["fail_on", "by", "mute"])]
    pub(super) unmute: Option<Vec<String>>,
    /// How long to mute it [default: 30d]
    #[arg(long = "for", value_name = "DURATION", requires = "mute")]
    pub(super) mute_for: Option<String>,
    /// Why it is muted, shown with the advice
    #[arg(long, value_name = "TEXT", requires = "mute", value_parser = reason)]
    pub(super) why: Option<String>,
    #[command(flatten)]
    pub(super) from: AnswerArgs,
}

#[derive(Debug, Flags)]
pub(super) struct PreflightArgs {
    /// The database of the design document
    #[arg(required_unless_present = "against")]
    pub(super) db: Option<String>,
    /// The design document as it will be sent to CouchDB; without an _id, it is named after the
    /// file
    #[arg(
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        required_unless_present = "deploy",
        conflicts_with = "deploy"
    )]
    pub(super) file: Option<PathBuf>,
    /// Rehearse a whole deployment: a directory of design documents, as JSON files or as folders with
    /// views/NAME/map.js, or one file with several, in the format of _bulk_docs
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(super) deploy: Option<PathBuf>,
    /// The database to deploy to, instead of the first argument
    #[arg(long, value_name = "DB", requires = "deploy", conflicts_with = "db")]
    pub(super) against: Option<String>,
    /// The maximum number of documents to read and run the map functions on, with --couchdb.url; 0 reads none
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    pub(super) sample: usize,
    /// Stop reading documents once the predicted number of rows has this error, with 95 % probability
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "10%")]
    pub(super) sample_error: f64,
    /// The maximum number of documents to read in a second
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) sample_rate: u32,
    /// Write the deployment with its order and its predicted space to this file, for deploy-indexes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "deploy")]
    pub(super) write_plan: Option<PathBuf>,
    #[command(flatten)]
    pub(super) from: AnswerArgs,
}

#[derive(Debug, Flags)]
pub(super) struct DeployIndexesArgs {
    /// The plan that preflight --deploy --write-plan wrote; progress is stored in FILE.state beside it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) plan: PathBuf,
    /// When all indexes are ready, save the documents under their own names and delete those named -next
    #[arg(long)]
    pub(super) swap: bool,
    /// Restore the earlier documents, and delete those named -next
    #[arg(long, conflicts_with = "swap")]
    pub(super) back_out: bool,
    /// Also build an index that may not fit, or where free space is unknown; never one that cannot fit
    #[arg(long)]
    pub(super) may_not_fit: bool,
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// Text for people, or a line of JSON for each event
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct TombstonesArgs {
    /// The database
    pub(super) db: String,
    /// The maximum number of deleted documents to read for their sizes; with --data-dir, files are read instead
    #[arg(long, value_name = "COUNT", default_value_t = 320)]
    pub(super) sample: usize,
    /// A running recliner that has recorded the ages of deletions, for a CouchDB that keeps no times [or env:
    /// RECLINER_URL]
    #[arg(long = "recliner.url", value_name = "URL", help_heading = "Connection")]
    pub(super) recliner: Option<String>,
    #[command(flatten)]
    pub(super) login: ServiceLogin,
    #[command(flatten)]
    pub(super) source: SourceArgs,
    /// Text for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct IndexesArgs {
    /// Only the indexes of this database
    pub(super) db: Option<String>,
    /// The maximum number of indexes, the largest first
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    pub(super) limit: usize,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct ReadsArgs {
    /// The logs to read, or - for standard input
    #[arg(
        long = "log",
        value_name = "FILE",
        num_args = 1..,
        value_hint = ValueHint::FilePath,
        conflicts_with = "recliner_url"
    )]
    pub(super) logs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct WhatIfArgs {
    /// Propose a predefined list of channels, with all other rules unchanged; smoosh-as-rent proposes channels by rent
    /// that keep the mean waste of smoosh
    #[arg(
        long,
        value_name = "LIST",
        value_parser = ["smoosh", "rent", "smoosh-as-rent"],
        conflicts_with = "config_file"
    )]
    pub(super) channels: Option<String>,
    /// Propose the rules of this recliner.yml
    #[arg(long = "config.file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) config_file: Option<PathBuf>,
    /// The days to look ahead, at most 366
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=366))]
    pub(super) days: u32,
    /// Look back instead: what recliner would have done in advise mode since this timestamp (2026-11-21T00:54:00Z) or
    /// age (7d)
    #[arg(long, value_name = "TIME", conflicts_with_all = ["channels", "config_file", "days"])]
    pub(super) since: Option<String>,
    /// Print instead how accurate the forecasts of each volume's free space were
    #[arg(long, conflicts_with_all = ["channels", "config_file", "days", "since"])]
    pub(super) backtest: bool,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct HistoryArgs {
    /// Only jobs on this target: a database, DB/_design/NAME, a shard file's name, or an id
    pub(super) target: Option<String>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// Only jobs on this node, given by CouchDB's name for it, or _cluster
    #[arg(id = "of_node", long = "node", value_name = "NODE")]
    pub(super) node: Option<String>,
    /// Only jobs with this result: freed, nothing_freed, grew, unmeasured (it succeeded, but its
    /// size before or after is unknown), failed or lost
    #[arg(long, value_name = "RESULT", value_parser = RESULTS, hide_possible_values = true)]
    pub(super) result: Option<String>,
    /// Only jobs that ended since this timestamp (2026-11-21T00:54:00Z) or age (2h, 7d)
    #[arg(long, value_name = "TIME")]
    pub(super) since: Option<String>,
    /// Only jobs that ended before this timestamp or age
    #[arg(long, value_name = "TIME")]
    pub(super) until: Option<String>,
    /// The maximum number of jobs, the newest first; at most 10000
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(super) limit: usize,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct EventsArgs {
    /// Only events of this target: a database, DB/_design/NAME, a shard file's name, or an id
    pub(super) target: Option<String>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// Only events of this type, such as started or quarantined; repeat it for more
    #[arg(
        long = "type",
        value_name = "TYPE",
        value_parser = EVENT_TYPES,
        hide_possible_values = true,
        conflicts_with = "all"
    )]
    pub(super) types: Vec<String>,
    /// Include events of databases: created, updated and deleted
    #[arg(long)]
    pub(super) all: bool,
    /// Only events since this timestamp (2026-11-21T00:54:00Z) or age (2h, 7d), or after the event with this number;
    /// without it, the newest
    #[arg(long, value_name = "TIME")]
    pub(super) since: Option<String>,
    /// The maximum number of events, at most 10000; with --follow, of those printed first
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub(super) limit: usize,
    /// Keep printing new events until ctrl-c; as JSON, one event per line. It waits up to five
    /// minutes for a service that does not answer, and resumes after the last event
    #[arg(long, short)]
    pub(super) follow: bool,
    /// A table for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Daemon {
    Smoosh,
    CompactionDaemon,
}

/// The rule of the channels that an import prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ImportAs {
    /// Compact when waiting costs more than compacting
    Rent,
}

#[derive(Debug, Flags)]
pub(super) struct ImportArgs {
    /// CouchDB 3's smoosh, or CouchDB 2's compaction daemon
    #[arg(value_enum)]
    pub(super) daemon: Daemon,
    /// Print channels that use this rule and waste as much as smoosh does; a running recliner calculates them
    #[arg(long = "as", value_enum, value_name = "RULE")]
    pub(super) rule: Option<ImportAs>,
    /// With --as: the days over which waste is compared, at most 366 [default: 7]
    #[arg(long, requires = "rule", value_parser = clap::value_parser!(u32).range(1..=366))]
    pub(super) days: Option<u32>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// Read this ini file instead of asking CouchDB; repeat it in the order CouchDB reads them
    #[arg(long, value_name = "FILE")]
    pub(super) ini: Vec<PathBuf>,
    /// The CouchDB version of the ini files [default: 3.5.0; for compaction-daemon: 2.3.1]
    #[arg(long = "ini.version", value_name = "VERSION")]
    pub(super) version: Option<String>,
    /// The time zone of the servers' clocks, in which the compaction daemon's windows are given
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(super) zone: String,
    #[command(flatten)]
    pub(super) source: SourceArgs,
}

#[derive(Debug, Flags)]
pub(super) struct InspectArgs {
    /// Files of CouchDB's data directory: .couch, .view, and files that compactions write
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
    /// Text for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct XrayArgs {
    /// Files of CouchDB's data directory, .couch or .view; with --data-dir also names of databases
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
    /// Read only this share of each tree, such as 1%, and print the error of the estimate
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(super) sample: Option<f64>,
    /// Maximum rate of reading, such as 50MiB/s; 0 for no limit
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "50MiB/s")]
    pub(super) max_read: u64,
    /// CouchDB's database_dir, to read all files of a database, with its indexes, and sum them
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) data_dir: Option<PathBuf>,
    /// CouchDB's view_index_dir [default: the data directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "data_dir")]
    pub(super) view_index_dir: Option<PathBuf>,
    /// Tables for people, or one line of JSON per file for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

/// The recliner that receives orders.
#[derive(Debug, Flags)]
pub(super) struct ReachArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    /// The storage path of a recliner on this machine, with its Unix socket [default: data/]
    #[arg(long = "storage.path", value_name = "DIR", conflicts_with = "recliner_url")]
    pub(super) storage: Option<PathBuf>,
    /// The Unix socket of a recliner on this machine, or none to use --recliner.url [default:
    /// admin.sock in --storage.path, if it exists]
    #[arg(
        long = "web.admin-socket",
        value_name = "PATH",
        conflicts_with_all = ["recliner_url", "storage"]
    )]
    pub(super) admin_socket: Option<PathBuf>,
}

/// Flags of all orders.
#[derive(Debug, Flags)]
pub(super) struct OrderArgs {
    #[command(flatten)]
    pub(super) reach: ReachArgs,
    /// Text for people, or JSON for programs
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Debug, Flags)]
pub(super) struct SuspendArgs {
    /// What to suspend: all, node:NAME or channel:NAME
    #[arg(default_value = "all", value_parser = scope)]
    pub(super) scope: String,
    /// The reason, shown with the suspension
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(super) why: Option<String>,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Debug, Flags)]
pub(super) struct ResumeArgs {
    /// What to resume: node:NAME, channel:NAME, or all, which ends every suspension
    #[arg(default_value = "all", value_parser = scope)]
    pub(super) scope: String,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Debug, Flags)]
pub(super) struct CompactArgs {
    /// A database, DB/_design/NAME, a shard file's name, or an id as scan --format json prints it
    #[arg(required_unless_present_any = ["node", "all"])]
    pub(super) target: Option<String>,
    /// Compact everything on this node that is worth compacting, except views
    #[arg(long, value_name = "NODE", conflicts_with_all = ["target", "all", "force"])]
    pub(super) node: Option<String>,
    /// Compact everything that is worth compacting
    #[arg(long, conflicts_with_all = ["target", "force"])]
    pub(super) all: bool,
    /// Start it even if its sizes suit no channel, or while it is paused after failures or a compaction that freed
    /// nothing; limits, gates and the need for free space still apply
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Debug, Flags)]
pub(super) struct RunsArgs {
    /// Pause a run: its targets no longer go first
    #[arg(long, value_name = "RUN", conflicts_with_all = ["resume", "cancel"])]
    pub(super) pause: Option<u64>,
    /// Resume a run
    #[arg(long, value_name = "RUN", conflicts_with = "cancel")]
    pub(super) resume: Option<u64>,
    /// End a run
    #[arg(long, value_name = "RUN")]
    pub(super) cancel: Option<u64>,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Debug, Flags)]
pub(super) struct BackupArgs {
    /// The file to create, or - for standard output
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Replace the file if it exists, once the new copy is complete and checked
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
    /// Release every target in quarantine
    #[arg(long, conflicts_with = "target")]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Debug, Flags)]
pub(super) struct FlushArgs {
    /// Only queues of this node, given by CouchDB's name for it; _cluster has the queues of views and cleanups
    #[arg(long, value_name = "NODE")]
    pub(super) node: Option<String>,
    /// Only queues of this channel
    #[arg(long, value_name = "CHANNEL")]
    pub(super) channel: Option<String>,
    #[command(flatten)]
    pub(super) order: OrderArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MixinPart {
    /// Recording rules and alerts, for Prometheus
    Rules,
    /// Dashboards, for Grafana
    Dashboards,
    /// What each alert means and what to do, in Markdown
    Runbook,
}

impl MixinPart {
    /// The part's name within a sentence.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Dashboards => "dashboards",
            Self::Runbook => "the runbook",
        }
    }
}

/// The program that reads the rules or the dashboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MixinFormat {
    /// A rule file of Prometheus; the default
    Prometheus,
    /// PrometheusRule objects of the Prometheus operator; ConfigMaps with dashboards for Grafana's
    /// sidecar
    #[value(alias = "configmaps")]
    Kubernetes,
}

#[derive(Debug, Flags)]
pub(super) struct MixinArgs {
    /// What to print
    #[arg(value_enum, value_name = "PART")]
    pub(super) part: MixinPart,
    /// Write the files to this directory instead; created if it is missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) out: Option<PathBuf>,
    /// The address of recliner's book, to which alerts and the runbook link
    /// [default: http://127.0.0.1:10984/docs]
    #[arg(long, value_name = "BASE", value_hint = ValueHint::Url)]
    pub(super) runbook_url: Option<LinkBase>,
    /// The address of your Grafana, to which alerts link [default: http://127.0.0.1:3000]
    #[arg(long, value_name = "BASE", value_hint = ValueHint::Url)]
    pub(super) dashboard_url: Option<LinkBase>,
    /// The labels that select recliner's targets in your Prometheus [default: job="recliner" in rules, any job in
    /// dashboards]
    #[arg(long, value_name = "MATCHERS", value_hint = ValueHint::Other)]
    pub(super) selector: Option<Selector>,
    /// Print only these alerts
    #[arg(long, value_enum, value_name = "ALERTS")]
    pub(super) only: Option<AlertSet>,
    /// The program that reads the rules or dashboards
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(super) format: Option<MixinFormat>,
}

#[derive(Debug, Flags)]
pub(super) struct McpArgs {
    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AlertSet {
    /// The ten alerts to begin with
    Essential,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Flags)]
pub(super) struct CompletionArgs {
    /// The shell that reads the script
    #[arg(value_enum)]
    pub(super) shell: Shell,
}

#[derive(Debug, Flags)]
pub(super) struct ManArgs {
    /// Write recliner.1 and a page for each command to this directory; created if it is missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) out: Option<PathBuf>,
}

/// A reason that says something.
fn reason(text: &str) -> Result<String, &'static str> {
    let is_said = text.chars().any(|it| !it.is_whitespace());
    is_said.then(|| text.to_owned()).ok_or("the reason is empty; give one, or omit the flag")
}

/// A size in bytes.
fn size(text: &str) -> Result<u64, ParseSizeError> {
    size::parse(text)
}

/// Bytes per second, such as `50MiB/s`.
fn rate(text: &str) -> Result<u64, ParseSizeError> {
    size::parse(text.trim().trim_end_matches("/s"))
}

/// A share such as `1%`, from 0 to 1.
fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text.trim().trim_end_matches('%').parse::<f64>().ok();
    let share = number.filter(|it| *it > 0.0 && *it <= 100.0).map(|percent| percent / 100.0);
    share.ok_or("it is not a percentage above 0% and at most 100%, such as 1%")
}

/// A duration that is not zero.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = duration::parse(text).filter(|span| !span.is_zero());
    parsed.ok_or_else(|| "it is not a duration such as 30m or 2h".to_owned())
}

/// A scope, checked before anything is sent.
fn scope(text: &str) -> Result<String, ParseScopeError> {
    text.parse::<SuspensionScope>().map(|scope| scope.to_string())
}
