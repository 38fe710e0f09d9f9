//! `recliner plan`: what would start now, and why the rest does not.

use super::{
    Exit, Failure,
    args::{Format, PlanArgs},
    once::{self, Whom},
    print, print_json,
    service_client::ServiceClient,
    table,
};
use crate::serve::report::{Planned, Wanted};
use serde::Serialize;

/// What is planned, as JSON.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    plan: &'a Planned,
    /// Whether a running recliner answered, which remembers.
    memory: bool,
}

/// Maximum number of refused targets in the JSON, as in a service's answer.
const LIMIT: usize = 10_000;

pub(super) async fn run(args: PlanArgs) -> Result<Exit, Failure> {
    let (plan, unseen) = match args.source.whom(args.recliner.as_deref(), &args.login)? {
        Whom::Service(client) => (asked(&client, args.format).await?, None),
        Whom::Default(client) => (asked(&client, args.format).await.map_err(once::unnamed)?, None),
        Whom::Cluster => read(&args).await.map(|(plan, unseen)| (plan, Some(unseen)))?,
    };
    let memory = unseen.is_none();
    match args.format {
        Format::Json => {
            print_json(&Answer { plan: &plan, memory })?;
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
    Ok(unseen.unwrap_or(Exit::Done))
}

/// Asks a running recliner.
async fn asked(client: &ServiceClient, format: Format) -> Result<Planned, Failure> {
    let limit = if format == Format::Json { "10000" } else { "0" };
    client.get("/api/v1/plan", &[("limit", limit)]).await
}

/// Reads the cluster; also returns whether part of it could not be read.
async fn read(args: &PlanArgs) -> Result<(Planned, Exit), Failure> {
    let loaded = once::load(&args.source.flags(), args.source.config_file.as_deref())?;
    once::start_log_if_asked(&args.source.log, &loaded.settings)?;
    let look = once::look(&loaded.settings).await?;
    let wanted = Wanted { limit: LIMIT, ..Wanted::default() };
    let plan = Planned::of(&look.plan, wanted);
    once::warn_of(&look.status);
    let unseen = !look.status.errors.is_empty();
    Ok((plan, if unseen { Exit::Unseen } else { Exit::Done }))
}
