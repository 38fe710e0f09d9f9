//! The service of the fleet alone, without a cluster: its task, its web server, reloads.

use super::{ServiceEnd, StartError, TaskSet, descriptors, listen, signals, start_fleet};
use crate::{
    model::settings::fleet::FleetSettings,
    serve::http::{self, Allow, FleetState},
};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// How the fleet is served.
#[derive(Clone, Debug)]
pub struct FleetServer {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Users and certificates.
    pub web_config: Option<PathBuf>,
    /// Other host names of this machine.
    pub allowed_hosts: Vec<String>,
}

/// Serves the fleet until a signal; SIGHUP reads its settings again.
///
/// # Errors
/// If the address or the web configuration cannot be used.
pub async fn serve_fleet(
    server: FleetServer,
    settings: &FleetSettings,
    mut reload: impl FnMut() -> Result<FleetSettings, String>,
    serving: impl FnOnce(&str),
) -> Result<ServiceEnd, StartError> {
    let web = http::WebAccess::open(server.web_config.as_deref().map(Path::new))?;
    let (listener, address) = listen(server.listen)?;
    let mut signals = signals::ProcessSignals::new().map_err(StartError::Signals)?;
    let limits = http::ConnectionLimits::for_descriptors(descriptors::raise_file_limit());
    let (mut tasks, stop) = (TaskSet::new(), CancellationToken::new());
    let (sender, fleet) = start_fleet(settings, Clock::System, &stop, &mut tasks);
    let names = [signals::host_names(), server.allowed_hosts].concat().into();
    let allow = Allow { names, ..Allow::default() };
    let (tls, users) = (web.is_encrypted(), web.has_users());
    let router = http::fleet_router(FleetState { fleet, clock: Clock::System }, allow, web.clone());
    tasks.spawn("web server", http::serve(listener, router, web, limits, stop.clone()));
    let scheme = if tls { "https" } else { "http" };
    serving(&format!("{scheme}://{address}"));
    tracing::info!(%address, tls, users, "serving the fleet");
    let end = loop {
        tokio::select! {
            signal = signals.next() => match signal {
                signals::ProcessSignal::Stop => break ServiceEnd::Stopped,
                signals::ProcessSignal::Reload => match reload() {
                    Ok(settings) => {
                        sender.send_replace(settings);
                        tracing::info!("configuration reloaded");
                    }
                    Err(why) => {
                        tracing::error!(why, "configuration not reloaded: the old one stays in force");
                    }
                },
            },
            Some(name) = tasks.next_ended() => break ServiceEnd::TaskEnded(name),
        }
    };
    stop.cancel();
    while tasks.next_ended().await.is_some() {}
    Ok(end)
}
