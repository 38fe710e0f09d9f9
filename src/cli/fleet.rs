//! `recliner fleet`: other recliners, each for its own cluster, asked through a running one or directly.

use super::{
    CommandError, Exit,
    args::FleetArgs,
    output::print_problems,
    print_note,
    serve::{exit_result, start_error},
    table,
};
use crate::{
    config,
    fleet::ask_once,
    log,
    model::settings::{Settings, fleet::FleetSettings},
    serve::report::FleetAnswer,
    service::{FleetServer, serve_fleet},
};
use couchdb_client::ClientSettings;
use std::path::Path;
use wall_clock::Clock;

pub(super) async fn run(args: FleetArgs) -> Result<Exit, CommandError> {
    let answer: FleetAnswer = match args.config_file.clone() {
        None => args.service.client()?.get("/api/v1/fleet", &[]).await?,
        Some(file) if args.serve => return serve(args, &file).await,
        Some(file) => {
            let settings = load(&file).map_err(CommandError::usage)?;
            FleetAnswer::of(&ask_once(&settings, Clock::System).await, Clock::System.now())
        }
    };
    args.format.print(&answer, table::fleet)?;
    let exit = print_problems(&answer.problems);
    let is_whole = answer.members.iter().all(|member| member.version.is_some());
    Ok(if is_whole { exit } else { Exit::Incomplete })
}

/// Serves a fleet without watching a cluster.
async fn serve(args: FleetArgs, file: &Path) -> Result<Exit, CommandError> {
    let fleet = load(file).map_err(CommandError::usage)?;
    let defaults = Settings::new(ClientSettings::new(Vec::new()));
    log::init(defaults.log.level, defaults.log.format).map_err(CommandError::failed)?;
    let server = FleetServer {
        listen: args.listen.address.unwrap_or(defaults.web.listen_address),
        web_config: args.listen.web_config,
        allowed_hosts: args.listen.allowed_hosts,
    };
    let serving =
        |url: &str| print_note(&format!("Open {url}/ in a browser. Ctrl-c stops recliner."));
    exit_result(serve_fleet(server, &fleet, || load(file), serving).await.map_err(start_error)?)
}

fn load(name: &Path) -> Result<FleetSettings, String> {
    let bytes = config::read_file(name, "--config.file").map_err(|why| why.to_string())?;
    let fleet = config::load_fleet(config::File { name, bytes: &bytes });
    let fleet = fleet.map_err(|why| why.to_string())?;
    match fleet.is_configured() {
        true => Ok(fleet),
        false => Err(format!(
            "{} names no recliner: give fleet.urls, fleet.file_sd or fleet.http_sd",
            name.display()
        )),
    }
}
