//! `recliner plan`: what would start now, and why the rest does not.

use super::{
    CommandError, Exit,
    args::{Format, PlanArgs},
    next_step::{AFTER_PLAN, print_next_step},
    output::WithMemory,
    print, print_json,
    service_client::ServiceClient,
    table,
};
use crate::serve::report::{Planned, Wanted};

/// Maximum number of refused targets in the JSON, as in a service's answer.
const MAX_REFUSED_TARGETS: usize = 10_000;

pub(super) async fn run(args: PlanArgs) -> Result<Exit, CommandError> {
    let format = args.from.format;
    let (plan, unseen) = match args.from.recliner()? {
        Some(client) => (ask_service(&client, format).await?, None),
        None => read_cluster(&args).await.map(|(plan, unseen)| (plan, Some(unseen)))?,
    };
    let memory = unseen.is_none();
    match format {
        Format::Json => {
            print_json(&WithMemory { answer: &plan, memory })?;
        }
        Format::Table => {
            let mut text = table::planned(&plan, table::width());
            if !memory {
                text.push_str(
                    "\nRead directly, without a running recliner: earlier failures, suspensions and\nwaiting times are unknown.\n",
                );
            }
            print(&text)?;
        }
    }
    print_next_step(format, AFTER_PLAN);
    Ok(unseen.unwrap_or(Exit::Done))
}

async fn ask_service(client: &ServiceClient, format: Format) -> Result<Planned, CommandError> {
    let limit = if format == Format::Json { "10000" } else { "0" };
    client.get("/api/v1/plan", &[("limit", limit)]).await
}

/// Reads the cluster; also returns whether part of it could not be read.
async fn read_cluster(args: &PlanArgs) -> Result<(Planned, Exit), CommandError> {
    let (reading, exit) = args.from.source.read().await?;
    let wanted = Wanted { limit: MAX_REFUSED_TARGETS, ..Wanted::default() };
    Ok((Planned::of(&reading.plan, wanted), exit))
}
