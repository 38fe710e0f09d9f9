//! `recliner explain`: why a target is or is not a candidate.

use super::{
    CommandError, Exit,
    args::{ExplainArgs, Format},
    next_step::{AFTER_EXPLAIN, AFTER_EXPLAIN_OF_SERVICE, print_next_step},
    print, print_json,
    service_client::ServiceClient,
    table,
};
use crate::serve::report::{self, Explained, Explanations, WholeViews};
use serde::Serialize;

#[derive(Serialize)]
struct ExplainAnswer<'a> {
    targets: &'a [Explained],
    /// Whether a running recliner answered, which also knows the past.
    memory: bool,
}

pub(super) async fn run(args: ExplainArgs) -> Result<Exit, CommandError> {
    let format = args.from.format;
    let (found, unseen) = match args.from.recliner()? {
        Some(client) => (ask_service(&client, &args.target).await?, None),
        None => read_cluster(&args).await.map(|(found, unseen)| (found, Some(unseen)))?,
    };
    let Found { targets, only_node } = found;
    let memory = unseen.is_none();
    match format {
        Format::Json => {
            print_json(&ExplainAnswer { targets: &targets, memory })?;
        }
        Format::Table => {
            let mut text = table::explained(
                &args.target,
                &targets,
                only_node.as_deref(),
                args.all,
                table::width(),
            );
            if !memory {
                text.push_str(
                    "\nRead directly, without a running recliner: waiting times are unknown.\n",
                );
            }
            print(&text)?;
        }
    }
    print_next_step(format, if memory { AFTER_EXPLAIN_OF_SERVICE } else { AFTER_EXPLAIN });
    Ok(unseen.unwrap_or(Exit::Done))
}

/// The targets, and the cluster's only node if it is one.
struct Found {
    targets: Vec<Explained>,
    only_node: Option<String>,
}

/// Reads the cluster; also returns whether part of it could not be read.
async fn read_cluster(args: &ExplainArgs) -> Result<(Found, Exit), CommandError> {
    let (reading, exit) = args.from.source.read().await?;
    let plan = &reading.plan;
    let found = report::find(plan, &args.target).all();
    if found.is_empty() {
        return Err(CommandError::failed(report::no_match(plan, &args.target)));
    }
    let views = WholeViews::of(plan, &found);
    let explained = |target| Explained::of(plan, target, &views);
    let targets =
        found.into_iter().filter_map(|ix| plan.snapshot.target(ix)).map(explained).collect();
    let only_node = plan.snapshot.only_node().map(|node| node.name.to_string());
    Ok((Found { targets, only_node }, exit))
}

async fn ask_service(client: &ServiceClient, target: &str) -> Result<Found, CommandError> {
    let query = [("target", target), ("limit", "10000")];
    let explanations: Explanations = client.get("/api/v1/explain", &query).await?;
    let Explanations { targets, only_node, .. } = explanations;
    Ok(Found { targets, only_node })
}
