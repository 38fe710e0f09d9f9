//! `recliner changes`: what changed on the disks, by cause. A running recliner records them.

use super::{CommandError, Exit, args::ChangesArgs, table};
use crate::serve::report::Changes;

pub(super) async fn run(args: ChangesArgs) -> Result<Exit, CommandError> {
    let ChangesArgs { name, since, until, by, service, format } = args;
    let mut query = vec![("since", &*since)];
    let optional = [("until", &until), ("by", &by), ("name", &name)];
    query.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))));
    let answer: Changes = service.client()?.get("/api/v1/changes", &query).await?;
    format.print(&answer, table::changes)?;
    Ok(Exit::Done)
}
