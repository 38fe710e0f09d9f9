//! `recliner serve`: watches a cluster until stopped.

use super::{
    CommandError, Exit,
    args::{ServeArgs, WebArgs},
    next_step::print_where_it_serves,
    read_once,
};
use crate::{
    config::{Finding, Flags},
    plan::disk::SystemMeter,
    serve::http::ProcessInfo,
    service::{HostAccess, ReloadFn, Service, ServiceEnd, StartError},
    sources::couchdb::{SetupError, USER_AGENT},
    store::journal,
};
use couchdb_client::Transport;
use std::{path::PathBuf, sync::Arc};
use wall_clock::Clock;

impl WebArgs {
    /// Sets these flags in `flags`.
    pub(super) fn apply_to(&self, flags: Flags) -> Flags {
        Flags {
            web_listen_address: self.listen.address.map(|address| address.to_string()),
            web_enable_lifecycle: self.lifecycle,
            web_enable_admin_api: self.admin,
            web_enable_mcp: self.mcp,
            web_allowed_hosts: self.listen.allowed_hosts.clone(),
            web_admin_socket: self.admin_socket.clone(),
            web_config_file: self.listen.web_config.clone(),
            ..flags
        }
    }
}

pub(super) async fn run(args: ServeArgs) -> Result<Exit, CommandError> {
    let flags = Flags {
        mode: args.mode.clone(),
        storage_path: args.storage.clone(),
        ..args.web.apply_to(args.source.flags())
    };
    let file = args.source.config_file;
    let loaded = read_once::load(&flags, file.as_deref())?;
    read_once::start_log(&loaded.settings)?;
    log_findings(&loaded.findings);
    let settings = loaded.settings;
    let transport = Transport::http(&settings.couchdb, USER_AGENT)
        .map_err(|why| CommandError::usage(SetupError(why)))?;
    let place = journal::DirectoryStorage::new(&settings.storage_path);
    let meter = SystemMeter::new().map_err(|why| {
        CommandError::failed(format!("cannot set up the client for Prometheus: {why}"))
    })?;
    let about = ProcessInfo::of_this_build(false);
    let machine = HostAccess { meter: Arc::new(meter), directories: None };
    let service = Service::start(settings, transport, about, Clock::System, place, machine)
        .await
        .map_err(start_error)?;
    print_where_it_serves(&own_url(&service));
    let (tls, users) = (service.web().is_encrypted(), service.web().has_users());
    tracing::info!(address = %service.address(), tls, users, "serving");
    exit_result(service.run(reloader(flags, file)).await)
}

/// The URL at which the service answers.
pub(super) fn own_url(service: &Service) -> String {
    let scheme = if service.web().is_encrypted() { "https" } else { "http" };
    format!("{scheme}://{}", service.address())
}

/// Returns a function that reads the same file with the same flags again.
fn reloader(flags: Flags, file: Option<PathBuf>) -> ReloadFn {
    Box::new(move || {
        let loaded = read_once::load(&flags, file.as_deref()).map_err(|failure| failure.why)?;
        log_findings(&loaded.findings);
        Ok(loaded)
    })
}

fn log_findings(findings: &[Finding]) {
    for finding in findings {
        tracing::warn!("{finding}");
    }
}

/// Converts a start error: an unusable flag is bad usage.
pub(super) fn start_error(why: StartError) -> CommandError {
    match why {
        StartError::Web(_) => CommandError::usage(why),
        StartError::Listen { .. }
        | StartError::Journal(_)
        | StartError::Socket(_)
        | StartError::Signals(_)
        | StartError::Connect(_)
        | StartError::Metrics(_) => CommandError::failed(why),
    }
}

/// Converts the end of the service into the exit of the process.
pub(super) fn exit_result(how: ServiceEnd) -> Result<Exit, CommandError> {
    match how {
        ServiceEnd::Stopped => Ok(Exit::Done),
        ServiceEnd::TaskEnded(task) => Err(CommandError::failed(format!(
            "the {task} ended unexpectedly; the log lines above say why"
        ))),
    }
}
