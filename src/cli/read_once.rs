//! Reads a cluster once, for commands that print a result and exit.

use super::{
    CommandError, Exit,
    args::{AnswerArgs, SourceArgs},
    print_error, printable,
    service_client::ServiceClient,
};
use crate::{
    config::{self, Flags, Loaded},
    datadir, log,
    model::settings::Settings,
    plan::{
        Plan,
        disk::{DiskSettings, SpaceMeter, SystemMeter},
    },
    scan::{Progress, ScanStatus},
    serve::report,
    service::{ClusterMonitor, Dependencies, TaskSet, owner_problem},
    sources::{
        couchdb::{NO_USER, SetupError, USER_AGENT},
        node_settings::NodeSettings,
    },
    table::{Node, NodeIx},
};
use couchdb_client::{Client, ErrorKind, Transport};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{collections::BTreeSet, io::IsTerminal, path::Path, sync::Arc, time::Duration};
use tokio::{sync::watch as latest, task::JoinSet};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

pub(super) struct ClusterReading {
    pub(super) plan: Arc<Plan>,
    pub(super) status: Arc<ScanStatus>,
    /// Settings of the nodes, if requested.
    pub(super) node_settings: Arc<NodeSettings>,
}

impl ClusterReading {
    /// How a command ends after this reading: incomplete if part of the cluster could not be read.
    pub(super) fn exit(&self) -> Exit {
        if self.status.errors.is_empty() { Exit::Done } else { Exit::Incomplete }
    }
}

impl AnswerArgs {
    /// The recliner to ask: the one at the given URL; without it, the named cluster itself (`None`); if
    /// nothing is named, the recliner of the environment or at the default address.
    ///
    /// # Errors
    ///
    /// If the address, the login or a TLS file cannot be used.
    pub(super) fn recliner(&self) -> Result<Option<ServiceClient>, CommandError> {
        match &self.recliner {
            Some(url) => self.login.client(url).map(Some),
            None if self.source.names_a_cluster() => Ok(None),
            None => Ok(Some(self.login.default_client()?.into_fallback())),
        }
    }
}

impl SourceArgs {
    /// Whether the flags name a cluster or a directory to read.
    pub(super) fn names_a_cluster(&self) -> bool {
        self.names_couchdb() || self.data_dir.is_some() || self.view_index_dir.is_some()
    }

    /// Whether the flags name a CouchDB, directly or through a configuration file.
    pub(super) const fn names_couchdb(&self) -> bool {
        !self.urls.is_empty() || self.config_file.is_some()
    }

    /// The settings; also starts the log if a level is given: such commands print their own errors.
    pub(super) fn load(&self) -> Result<Settings, CommandError> {
        let settings = load(&self.flags(), self.config_file.as_deref())?.settings;
        if self.log.level.is_some() {
            start_log(&settings)?;
        }
        Ok(settings)
    }

    /// Reads the cluster once, and prints what could not be read.
    pub(super) async fn read(&self) -> Result<ClusterReading, CommandError> {
        let reading = read_cluster(&self.load()?, false).await?;
        print_read_errors(&reading.status);
        Ok(reading)
    }

    /// The flags in the form that the configuration takes.
    pub(super) fn flags(&self) -> Flags {
        let env = |name| std::env::var(name).ok();
        Flags {
            couchdb_urls: self.urls.clone(),
            couchdb_username: self.username.clone(),
            couchdb_password_file: self.password_file.clone(),
            env_user: env("COUCHDB_USER"),
            env_password: env("COUCHDB_PASSWORD").map(Into::into),
            data_dir: self.data_dir.clone(),
            view_index_dir: self.view_index_dir.clone(),
            nodes: self.node.iter().cloned().collect(),
            log_level: self.log.level.clone(),
            log_format: self.log.format.clone(),
            ..Flags::default()
        }
    }
}

pub(super) fn load(flags: &Flags, file: Option<&Path>) -> Result<Loaded, CommandError> {
    let bytes = file
        .map(|file| config::read_file(file, "--config.file"))
        .transpose()
        .map_err(CommandError::usage)?;
    let file = file.zip(bytes.as_deref()).map(|(name, bytes)| config::File { name, bytes });
    config::load(flags, file).map_err(CommandError::usage)
}

/// Starts logging according to the settings.
pub(super) fn start_log(settings: &Settings) -> Result<(), CommandError> {
    log::init(settings.log.level, settings.log.format).map_err(CommandError::failed)
}

/// A client without scanner and planner, for commands that send few requests.
pub(super) struct Connected {
    pub(super) settings: Settings,
    pub(super) client: Client,
    /// Ends with this value.
    _task: JoinSet<()>,
}

/// Sets up a client without sending a request.
pub(super) fn connect(source: &SourceArgs) -> Result<Connected, CommandError> {
    connect_with(source.load()?)
}

/// Like [`connect`], but with given settings.
pub(super) fn connect_with(settings: Settings) -> Result<Connected, CommandError> {
    let couchdb = settings.couchdb.clone();
    let built = Client::builder(couchdb).user_agent(USER_AGENT).build();
    let (client, task) = built.map_err(|why| CommandError::usage(SetupError(why)))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(task.run(CancellationToken::new()));
    Ok(Connected { settings, client, _task: tasks })
}

/// Reads the cluster once, and each node's settings if wanted. All tasks that this needs end with it.
pub(super) async fn read_cluster(
    settings: &Settings,
    and_node_settings: bool,
) -> Result<ClusterReading, CommandError> {
    read_all(settings, and_node_settings, None).await
}

/// Like [`read_cluster`] without the nodes' settings, but with the free space of the configured volumes.
pub(super) async fn read_with_free_space(
    settings: &Settings,
) -> Result<ClusterReading, CommandError> {
    let disks = DiskSettings::of(settings, datadir::directory_owner);
    let has_volumes = !disks.volumes.is_empty() || disks.local.is_some();
    let meter = has_volumes.then(SystemMeter::new).transpose().map_err(CommandError::failed)?;
    read_all(settings, false, meter).await
}

async fn read_all(
    settings: &Settings,
    and_node_settings: bool,
    meter: Option<SystemMeter>,
) -> Result<ClusterReading, CommandError> {
    let transport = Transport::http(&settings.couchdb, USER_AGENT)
        .map_err(|why| CommandError::usage(SetupError(why)))?;
    let registry = prometheus::Registry::new();
    let (mut tasks, stop) = (TaskSet::new(), CancellationToken::new());
    let clock = Clock::System;
    let is_measured = meter.is_some();
    let meter = meter.map(|meter| Arc::new(meter) as Arc<dyn SpaceMeter>);
    let around = |_| Dependencies { meter, ..Dependencies::none() };
    let mut watch =
        ClusterMonitor::start(settings, transport, clock, &registry, &mut tasks, &stop, around)
            .map_err(CommandError::usage)?;
    let bar = progress_bar();
    // No task of this command changes settings, so they are read only once.
    let nothing_writes = latest::channel(()).1;
    let node_settings =
        and_node_settings.then(|| watch.start_node_settings(nothing_writes, &mut tasks));
    let seen = await_first_sweep(&mut watch, &bar).await;
    bar.finish_and_clear();
    let mut seen = seen?;
    if is_measured {
        seen.plan = await_free_space(&mut watch, seen.plan).await;
    }
    if let Some(node_settings) = node_settings {
        seen.node_settings = await_node_settings(node_settings, &seen.plan).await;
    }
    // If CouchDB is read too, its answers show which node owns the files.
    if let Some(problem) = owner_problem(settings).filter(|_| settings.couchdb.urls.is_empty()) {
        print_error(&problem);
    }
    Ok(seen)
}

/// Waits until every volume was measured or could not be, and prints why; returns the plan with their space.
async fn await_free_space(watch: &mut ClusterMonitor, seen: Arc<Plan>) -> Arc<Plan> {
    let is_measured = |plan: &Arc<Plan>| plan.conditions.disks.are_measured();
    let measured =
        tokio::time::timeout(FREE_SPACE_TIMEOUT, watch.planner.plan.wait_for(is_measured));
    let plan = match measured.await {
        Ok(Ok(plan)) => Arc::clone(&plan),
        Ok(Err(_)) | Err(_) => seen,
    };
    let plan = without_foreign_space(watch, plan).await;
    for volume in &plan.conditions.disks.volumes {
        if let Some(why) = &volume.problem {
            let says = format!("the free space of {} is not known: {why}", volume.title());
            print_error(&printable(&says));
        }
    }
    plan
}

/// The plan once the free space of directories that are another node's is forgotten.
async fn without_foreign_space(watch: &mut ClusterMonitor, plan: Arc<Plan>) -> Arc<Plan> {
    let is_forgotten = |plan: &Arc<Plan>| {
        let mut foreign =
            plan.snapshot.nodes().iter().filter(|node| node.foreign_directory.is_some());
        foreign.all(|node| {
            plan.conditions.disks.of_node(&node.name).all(|volume| volume.space.is_none())
        })
    };
    if is_forgotten(&plan) {
        return plan;
    }
    // A volume in headroom.volumes counts for such a node, so its space stays.
    let forgotten = watch.planner.plan.wait_for(is_forgotten);
    let _stays = tokio::time::timeout(FORGET_TIMEOUT, forgotten).await.is_err();
    Arc::clone(&watch.planner.plan.borrow())
}

/// Time in which the space of a foreign directory is forgotten.
const FORGET_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for all volumes together; each query has its own.
const FREE_SPACE_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until every reachable node's settings were read or failed; each request has its own time
/// limit.
async fn await_node_settings(
    mut settings: latest::Receiver<Arc<NodeSettings>>,
    plan: &Plan,
) -> Arc<NodeSettings> {
    let nodes = plan.snapshot.reachable_nodes();
    let is_read = |settings: &Arc<NodeSettings>| {
        let has_answer =
            |node| settings.nodes.contains_key(node) || settings.problems.contains_key(node);
        nodes.iter().all(has_answer)
    };
    // On timeout, the settings read so far are better than none.
    let waiting = settings.wait_for(is_read);
    let _in_time = tokio::time::timeout(NODE_SETTINGS_TIMEOUT, waiting).await.is_ok();
    Arc::clone(&settings.borrow())
}

/// Time limit for all nodes' settings together.
const NODE_SETTINGS_TIMEOUT: Duration = Duration::from_secs(40);

/// Waits for the end of the first sweep and the plan that follows from it.
pub(super) async fn await_first_sweep(
    watch: &mut ClusterMonitor,
    bar: &ProgressBar,
) -> Result<ClusterReading, CommandError> {
    let status = loop {
        let status = Arc::clone(&watch.scanner.status.borrow_and_update());
        if status.sweeps > 0 {
            break status;
        }
        update_progress(bar, status.progress);
        tokio::select! {
            changed = watch.scanner.status.changed() => if changed.is_err() {
                return Err(CommandError::failed("the scanner ended"));
            },
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.map_err(CommandError::failed)?;
                return Err(CommandError::failed("interrupted"));
            }
        }
    };
    let polled = await_running_jobs(watch).await;
    let version = watch.scanner.snapshots.borrow().version();
    let knows_jobs = |plan: &Plan| {
        let known = &plan.conditions.jobs.polled_nodes;
        polled.iter().all(|node| known.iter().any(|(at, _)| at == node))
    };
    let planned =
        watch.planner.plan.wait_for(|plan| plan.snapshot.version() >= version && knows_jobs(plan));
    let planned = planned.await;
    let plan = match planned {
        Ok(plan) => Arc::clone(&plan),
        Err(_) => return Err(CommandError::failed("the planner ended")),
    };
    if let Some(problem) = &status.problem {
        return Err(CommandError::failed(problem));
    }
    Ok(ClusterReading { plan, status, node_settings: Arc::default() })
}

/// Waits for the first poll of running jobs whose targets are known, so that nothing that is being compacted
/// counts as startable; returns the nodes that answered it.
async fn await_running_jobs(watch: &mut ClusterMonitor) -> Vec<NodeIx> {
    let is_up = |node: &Arc<Node>| node.is_member && node.answers();
    if !watch.scanner.snapshots.borrow().nodes().iter().any(is_up) {
        return Vec::new();
    }
    let polled = watch.scanner.running.wait_for(|running| running.poll_count >= POLLS);
    // If the scanner ends, the plan shows it.
    let Ok(running) = polled.await else { return Vec::new() };
    let answered = running.nodes.iter().filter(|(_, polled)| polled.tasks.is_some());
    answered.map(|(node, _)| *node).collect()
}

/// The first poll runs before any node is known, the second one after the first listing.
const POLLS: u64 = 2;

pub(super) fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn update_progress(bar: &ProgressBar, progress: Option<Progress>) {
    let template = match progress.and_then(|progress| progress.total) {
        Some(total) => {
            bar.set_length(total as u64);
            "reading {wide_bar} {pos}/{len} {eta}"
        }
        None => "{spinner} connecting to the cluster",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_position(progress.map_or(0, |progress| progress.done as u64));
}

/// Prints on standard error what an operator could fix on nodes.
pub(super) fn print_node_findings(plan: &Plan) {
    for line in report::nodes(plan) {
        for finding in &line.findings {
            print_error(&printable(&format!("{}: {finding}", line.node)));
        }
    }
}

/// Prints on standard error what could not be read.
pub(super) fn print_read_errors(status: &ScanStatus) {
    status.missing_rights.iter().for_each(|right| print_error(&printable(right)));
    if let Some(unread) = &status.unread_shards {
        return print_error(&printable(unread));
    }
    status.absent_shards.iter().for_each(|absent| print_error(&printable(absent)));
    failed_reads(status).iter().for_each(|line| print_error(line));
}

/// Read failures, one per node; a single sentence if they are the same everywhere.
fn failed_reads(status: &ScanStatus) -> Vec<String> {
    // Other errors follow from the missing credentials and need no lines of their own.
    let no_user = status.missing_rights.contains(NO_USER);
    let is_told = |reason: &str| no_user && reason == ErrorKind::Forbidden.label();
    let failed: Vec<_> = status.errors.iter().filter(|((_, reason), _)| !is_told(reason)).collect();
    let last = status.last_error.as_ref().filter(|last| **last != NO_USER).map(|it| printable(it));
    let reasons: BTreeSet<&str> = failed.iter().map(|((_, reason), _)| *reason).collect();
    if let (Some(last), 1, 2..) = (&last, reasons.len(), failed.len()) {
        let reads: u64 = failed.iter().map(|(_, count)| **count).sum();
        return vec![format!("{reads} reads failed the same way: {last}")];
    }
    let line = |((node, reason), count): &(&(Arc<str>, &str), &u64)| {
        format!("{}: {count} could not be read ({})", printable(node), reason.replace('_', " "))
    };
    let last = last.map(|last| format!("the last error: {last}"));
    failed.iter().map(line).chain(last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn asks_the_default_recliner_if_no_source_is_named() {
        let _again = rustls::crypto::ring::default_provider().install_default();
        let whom = |source: SourceArgs, url: Option<&str>| {
            let recliner = url.map(ToOwned::to_owned);
            let args = AnswerArgs { recliner, source, ..AnswerArgs::default() };
            let client = args.recliner().unwrap();
            client.map_or_else(|| "cluster".to_owned(), |client| client.base().to_string())
        };
        let nothing = SourceArgs::default;
        let path = || Some("x".into());
        let default = "http://127.0.0.1:10984";
        assert_eq!(whom(nothing(), None), default);
        assert_eq!(whom(SourceArgs { node: Some("n@a".into()), ..nothing() }, None), default);
        for source in [
            SourceArgs { urls: vec!["http://a:5984".into()], ..nothing() },
            SourceArgs { config_file: path(), ..nothing() },
            SourceArgs { data_dir: path(), ..nothing() },
            SourceArgs { view_index_dir: path(), ..nothing() },
        ] {
            assert_eq!(whom(source.clone(), None), "cluster");
            assert_eq!(whom(source, Some("http://b:1")), "http://b:1");
        }
    }

    #[test]
    fn identical_failures_become_one_sentence() {
        let status = |reasons: [&'static str; 2]| ScanStatus {
            errors: [(("a".into(), reasons[0]), 3), (("b".into(), reasons[1]), 1)].into(),
            last_error: Some("GET /_node/b: HTTP 403".to_owned()),
            ..ScanStatus::default()
        };
        assert_eq!(
            failed_reads(&status(["proxy", "proxy"])),
            ["4 reads failed the same way: GET /_node/b: HTTP 403"]
        );
        assert_eq!(
            failed_reads(&status(["proxy", "too_slow"])),
            [
                "a: 3 could not be read (proxy)",
                "b: 1 could not be read (too slow)",
                "the last error: GET /_node/b: HTTP 403"
            ]
        );
    }
}
