//! `recliner explain`: why a target is or is not a candidate.

use super::{
    CommandError, Exit,
    args::{ExplainArgs, SourceArgs},
    next_step::{AFTER_EXPLAIN, AFTER_EXPLAIN_OF_SERVICE, print_next_step},
    service_client::ServiceClient,
    table,
};
use crate::serve::report::{self, Explained, Explanations, WholeViews};
use serde::Serialize;

#[derive(Serialize)]
struct ExplainAnswer {
    targets: Vec<Explained>,
    /// The name of the cluster's only node, if it has only one.
    #[serde(skip)]
    only_node: Option<String>,
    #[serde(skip)]
    unanswered: Vec<String>,
}

pub(super) async fn run(args: ExplainArgs) -> Result<Exit, CommandError> {
    let (target, format) = (&*args.target, args.from.format);
    let ask = async |client: &ServiceClient| {
        let query = [("target", target), ("limit", "10000")];
        let explanations: Explanations = client.get("/api/v1/explain", &query).await?;
        let Explanations { targets, only_node, unanswered, .. } = explanations;
        Ok(ExplainAnswer { targets, only_node, unanswered })
    };
    let answered = args.from.answer(ask, async |source| read_cluster(source, target).await).await?;
    let table = |answer: &ExplainAnswer, width| {
        let only_node = answer.only_node.as_deref();
        table::explained(target, &answer.targets, only_node, args.all, width)
            + &table::unanswered(&answer.unanswered, width)
    };
    let exit = answered.print(format, table, "waiting times are unknown")?;
    let next = answered.recliner.map_or(AFTER_EXPLAIN, |_| AFTER_EXPLAIN_OF_SERVICE);
    print_next_step(format, next);
    Ok(exit)
}

/// Reads the cluster; also returns whether part of it could not be read.
async fn read_cluster(
    source: &SourceArgs,
    target: &str,
) -> Result<(ExplainAnswer, Exit), CommandError> {
    let reading = source.read().await?;
    let plan = &reading.plan;
    let found = report::find(plan, target).all();
    if found.is_empty() {
        return Err(CommandError::failed(report::no_match(plan, target)));
    }
    let views = WholeViews::of(plan, &found);
    let found = found.into_iter().filter_map(|ix| plan.snapshot.target(ix));
    let targets = found.map(|target| Explained::of(plan, target, &views)).collect();
    let only_node = plan.snapshot.only_node().map(|node| node.name.to_string());
    let unanswered = report::unanswered_nodes(plan);
    Ok((ExplainAnswer { targets, only_node, unanswered }, reading.exit()))
}
