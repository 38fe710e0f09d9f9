//! Reads a cluster once, for commands that print and end.

use super::{
    Failure,
    args::{LogArgs, SourceArgs},
    complain, printable,
    service_client::{ServiceClient, ServiceLogin},
};
use crate::{
    config::{self, Flags, Loaded},
    log,
    model::settings::Settings,
    plan::Plan,
    scan::{Progress, Status},
    serve::report,
    service::{Surroundings, Tasks, Watch},
    sources::couchdb::{NO_USER, SetupError, USER_AGENT},
};
use couchdb_client::{Client, Kind, Transport};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{io::IsTerminal, path::Path, sync::Arc, time::Duration};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// The result of reading once.
pub(super) struct Look {
    pub(super) plan: Arc<Plan>,
    pub(super) status: Arc<Status>,
}

/// The peer of a command that can work without a running recliner.
pub(super) enum Whom {
    /// A running recliner.
    Service(ServiceClient),
    /// No recliner was named: whatever listens at the default address.
    Default(ServiceClient),
    /// CouchDB, or its files.
    Cluster,
}

/// Explains why there is no answer if neither a CouchDB nor a recliner was named.
pub(super) fn unnamed(failure: Failure) -> Failure {
    if !failure.passes {
        return failure;
    }
    Failure::usage(format!("no CouchDB is named (--couchdb.url), and {}", failure.why))
}

impl SourceArgs {
    /// The peer to ask: the recliner at `url`, otherwise the named cluster, otherwise the recliner
    /// at the default address.
    ///
    /// # Errors
    ///
    /// If the address, the login or a TLS file cannot be used.
    pub(super) fn whom(&self, url: Option<&str>, login: &ServiceLogin) -> Result<Whom, Failure> {
        let names_a_cluster = !self.urls.is_empty()
            || self.config_file.is_some()
            || self.data_dir.is_some()
            || self.view_index_dir.is_some();
        match url {
            Some(url) => login.client(url).map(Whom::Service),
            None if names_a_cluster => Ok(Whom::Cluster),
            None => login.default_client().map(Whom::Default),
        }
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

/// Reads the configuration, from a file if one is named.
pub(super) fn load(flags: &Flags, file: Option<&Path>) -> Result<Loaded, Failure> {
    let bytes = file
        .map(|file| config::read_file(file, "--config.file"))
        .transpose()
        .map_err(Failure::usage)?;
    let file = file.zip(bytes.as_deref()).map(|(name, bytes)| config::File { name, bytes });
    config::load(flags, file).map_err(Failure::usage)
}

/// Starts logging according to the settings.
pub(super) fn start_log(settings: &Settings) -> Result<(), Failure> {
    log::init(settings.log.level, settings.log.format).map_err(Failure::failed)
}

/// The same for a command that ends by itself and prints its own errors: it logs only if a level
/// was given.
pub(super) fn start_log_if_asked(args: &LogArgs, settings: &Settings) -> Result<(), Failure> {
    if args.level.is_some() { start_log(settings) } else { Ok(()) }
}

/// A client without scanner and planner, for commands that send few requests.
pub(super) struct Connected {
    pub(super) settings: Settings,
    pub(super) client: Client,
    /// Ends with this.
    _task: JoinSet<()>,
}

/// Sets up a client without sending a request.
pub(super) fn connect(source: &SourceArgs) -> Result<Connected, Failure> {
    let settings = load(&source.flags(), source.config_file.as_deref())?.settings;
    start_log_if_asked(&source.log, &settings)?;
    let couchdb = settings.couchdb.clone();
    let built = Client::builder(couchdb).user_agent(USER_AGENT).build();
    let (client, task) = built.map_err(|why| Failure::usage(SetupError(why)))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(task.run(CancellationToken::new()));
    Ok(Connected { settings, client, _task: tasks })
}

/// Reads the cluster once. All tasks for that end with it.
pub(super) async fn look(settings: &Settings) -> Result<Look, Failure> {
    let transport = Transport::http(&settings.couchdb, USER_AGENT)
        .map_err(|why| Failure::usage(SetupError(why)))?;
    let registry = prometheus::Registry::new();
    let (mut tasks, stop) = (Tasks::new(), CancellationToken::new());
    let clock = Clock::System;
    let around = |_: &_| Surroundings::none();
    let mut watch = Watch::start(settings, transport, clock, &registry, &mut tasks, &stop, around)
        .map_err(Failure::usage)?;
    let bar = progress_bar();
    let seen = one_sweep(&mut watch, &bar).await;
    bar.finish_and_clear();
    seen
}

/// Waits for the end of the first sweep and the plan that follows from it.
async fn one_sweep(watch: &mut Watch, bar: &ProgressBar) -> Result<Look, Failure> {
    let status = loop {
        let status = Arc::clone(&watch.scanner.status.borrow_and_update());
        if status.sweeps > 0 {
            break status;
        }
        show(bar, status.progress);
        tokio::select! {
            changed = watch.scanner.status.changed() => if changed.is_err() {
                return Err(Failure::failed("the scanner ended"));
            },
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.map_err(Failure::failed)?;
                return Err(Failure::failed("interrupted"));
            }
        }
    };
    let version = watch.scanner.snapshots.borrow().version();
    let planned = watch.planner.plan.wait_for(|plan| plan.snapshot.version() >= version).await;
    let plan = match planned {
        Ok(plan) => Arc::clone(&plan),
        Err(_) => return Err(Failure::failed("the planner ended")),
    };
    if let Some(problem) = &status.problem {
        return Err(Failure::failed(problem));
    }
    Ok(Look { plan, status })
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn show(bar: &ProgressBar, progress: Option<Progress>) {
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

/// Prints on standard error what an operator could do about nodes.
pub(super) fn warn_of_nodes(plan: &Plan) {
    for line in report::nodes(plan) {
        for finding in &line.findings {
            complain(&printable(&format!("{}: {finding}", line.node)));
        }
    }
}

/// Prints on standard error what could not be read.
pub(super) fn warn_of(status: &Status) {
    status.missing_rights.iter().for_each(|right| complain(&printable(right)));
    // Errors that follow from missing credentials need no further lines.
    let no_user = status.missing_rights.contains(NO_USER);
    for ((node, reason), count) in &status.errors {
        if no_user && *reason == Kind::Forbidden.label() {
            continue;
        }
        let (node, reason) = (printable(node), reason.replace('_', " "));
        complain(&format!("{node}: {count} could not be read ({reason})"));
    }
    if let Some(last) = status.last_error.as_ref().filter(|last| **last != NO_USER) {
        complain(&format!("the last error: {}", printable(last)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;

    #[tokio::test]
    async fn the_default_recliner_is_asked_if_nothing_else_is_named() {
        let _again = rustls::crypto::ring::default_provider().install_default();
        let whom = |source: SourceArgs, url: Option<&str>| match source
            .whom(url, &ServiceLogin::default())
            .unwrap()
        {
            Whom::Service(client) => format!("service {}", client.base()),
            Whom::Default(client) => format!("default {}", client.base()),
            Whom::Cluster => "cluster".to_owned(),
        };
        let nothing = SourceArgs::default;
        let path = || Some("x".into());
        let default = "default http://127.0.0.1:10984";
        assert_eq!(whom(nothing(), None), default);
        assert_eq!(whom(SourceArgs { node: Some("n@a".into()), ..nothing() }, None), default);
        for source in [
            SourceArgs { urls: vec!["http://a:5984".into()], ..nothing() },
            SourceArgs { config_file: path(), ..nothing() },
            SourceArgs { data_dir: path(), ..nothing() },
            SourceArgs { view_index_dir: path(), ..nothing() },
        ] {
            assert_eq!(whom(source.clone(), None), "cluster");
            assert_eq!(whom(source, Some("http://b:1")), "service http://b:1");
        }
    }

    #[test]
    fn a_missing_default_recliner_is_reported_as_a_missing_couchdb_url() {
        let gone = Failure { passes: true, ..Failure::failed("cannot ask: refused") };
        let said = unnamed(gone);
        assert_eq!(said.exit, Exit::Usage);
        for part in ["no CouchDB is named", "--couchdb.url", "refused"] {
            assert!(said.why.contains(part), "{}", said.why);
        }
        let refused = unnamed(Failure::failed("it wants a user"));
        assert_eq!((refused.exit, refused.why.as_str()), (Exit::Failed, "it wants a user"));
    }
}
