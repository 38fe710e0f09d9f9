//! `recliner serve`: watches a cluster until stopped.

use super::{
    Exit, Failure,
    args::{ServeArgs, WebArgs},
    once,
};
use crate::{
    config::{Finding, Flags},
    plan::disk::Instruments,
    serve::http::About,
    service::{Ended, Machine, Reload, Service, StartError},
    sources::couchdb::{SetupError, USER_AGENT},
    store::journal,
};
use couchdb_client::Transport;
use std::{path::PathBuf, sync::Arc};
use wall_clock::Clock;

/// The identity of this build.
pub(super) fn about(simulated: bool) -> About {
    About {
        version: env!("CARGO_PKG_VERSION"),
        revision: option_env!("RECLINER_REVISION").unwrap_or("unknown"),
        simulated,
    }
}

impl WebArgs {
    /// Applies these flags over others.
    pub(super) fn over(&self, flags: Flags) -> Flags {
        Flags {
            web_listen_address: self.listen.map(|address| address.to_string()),
            web_enable_lifecycle: self.lifecycle,
            web_enable_admin_api: self.admin,
            web_admin_socket: self.admin_socket.clone(),
            web_config_file: self.web_config.clone(),
            ..flags
        }
    }
}

pub(super) async fn run(args: ServeArgs) -> Result<Exit, Failure> {
    let flags = Flags {
        mode: args.mode.clone(),
        storage_path: args.storage.clone(),
        ..args.web.over(args.source.flags())
    };
    let file = args.source.config_file;
    let loaded = once::load(&flags, file.as_deref())?;
    once::start_log(&loaded.settings)?;
    tell(&loaded.findings);
    let settings = loaded.settings;
    let transport = Transport::http(&settings.couchdb, USER_AGENT)
        .map_err(|why| Failure::usage(SetupError(why)))?;
    let place = journal::Directory::new(&settings.storage_path);
    let meter = Instruments::new().map_err(|why| {
        Failure::failed(format!("cannot set up the client for Prometheus: {why}"))
    })?;
    let about = about(false);
    let machine = Machine { meter: Arc::new(meter), directories: None };
    let service = Service::start(settings, transport, about, Clock::System, place, machine)
        .await
        .map_err(unstarted)?;
    let (tls, users) = (service.web().is_encrypted(), service.web().has_users());
    tracing::info!(address = %service.address(), tls, users, "serving");
    ended(service.run(again(flags, file)).await)
}

/// Reads the same file with the same flags again.
fn again(flags: Flags, file: Option<PathBuf>) -> Reload {
    Box::new(move || {
        let loaded = once::load(&flags, file.as_deref()).map_err(|failure| failure.why)?;
        tell(&loaded.findings);
        Ok(loaded)
    })
}

fn tell(findings: &[Finding]) {
    for finding in findings {
        tracing::warn!("{finding}");
    }
}

/// Converts a start error: an unusable flag is bad usage.
pub(super) fn unstarted(why: StartError) -> Failure {
    match why {
        StartError::Web(_) => Failure::usage(why),
        StartError::Listen { .. }
        | StartError::Journal(_)
        | StartError::Socket(_)
        | StartError::Signals(_)
        | StartError::Connect(_)
        | StartError::Metrics(_) => Failure::failed(why),
    }
}

/// The exit of the process after the service has ended.
pub(super) fn ended(how: Ended) -> Result<Exit, Failure> {
    match how {
        Ended::Told => Ok(Exit::Done),
        Ended::Died(task) => Err(Failure::failed(format!("the {task} ended unexpectedly"))),
    }
}
