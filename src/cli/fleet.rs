//! `recliner fleet`: other recliners, each for its own cluster, asked through a running one or directly.

use super::{CommandError, Exit, args::FleetArgs, print_error, printable, table};
use crate::{config, fleet::ask_once, serve::report::FleetAnswer};
use wall_clock::Clock;

pub(super) async fn run(args: FleetArgs) -> Result<Exit, CommandError> {
    let answer: FleetAnswer = match &args.config_file {
        None => args.service.client()?.get("/api/v1/fleet", &[]).await?,
        Some(name) => {
            let bytes = config::read_file(name, "--config.file").map_err(CommandError::usage)?;
            let file = config::File { name, bytes: &bytes };
            let settings = config::load_fleet(file).map_err(CommandError::usage)?;
            FleetAnswer::of(&ask_once(&settings, Clock::System).await, Clock::System.now())
        }
    };
    args.format.print(&answer, table::fleet)?;
    answer.problems.iter().for_each(|why| print_error(&printable(why)));
    let is_whole =
        answer.problems.is_empty() && answer.members.iter().all(|member| member.version.is_some());
    Ok(if is_whole { Exit::Done } else { Exit::Incomplete })
}
