//! `recliner plan`: what would start now, and why the rest does not.

use super::{
    CommandError, Exit,
    args::{AnswerArgs, Format, SourceArgs},
    next_step::{AFTER_PLAN, print_next_step},
    service_client::ServiceClient,
    table,
};
use crate::serve::report::{Planned, Wanted};

/// Maximum number of refused targets in the JSON; a table shows none of them.
const MAX_REFUSED_TARGETS: usize = 10_000;

/// What a direct read does not show.
const UNKNOWN: &str = "earlier failures, suspensions and waiting times are unknown";

pub(super) async fn run(args: AnswerArgs) -> Result<Exit, CommandError> {
    let limit = if args.format == Format::Json { MAX_REFUSED_TARGETS } else { 0 };
    let ask = async |client: &ServiceClient| {
        client.get::<Planned>("/api/v1/plan", &[("limit", &limit.to_string())]).await
    };
    let read = async |source: &SourceArgs| {
        let reading = source.read().await?;
        let wanted = Wanted { limit, ..Wanted::default() };
        Ok((Planned::of(&reading.plan, wanted), reading.exit()))
    };
    let table = |plan: &Planned, width| {
        table::planned(plan, width) + &table::unanswered(&plan.unanswered, width)
    };
    let exit = args.answer(ask, read).await?.print(args.format, table, UNKNOWN)?;
    print_next_step(args.format, AFTER_PLAN);
    Ok(exit)
}
