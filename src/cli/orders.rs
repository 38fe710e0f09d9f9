//! Commands that send an order to a running recliner.
//!
//! Owns how long an order is retried; the service owns the rules.

use super::{
    CommandError, Exit,
    args::{
        CompactArgs, FlushArgs, Format, OrderArgs, ReleaseArgs, ResumeArgs, RunsArgs, SuspendArgs,
    },
    print_note, printable,
    service_client::ServiceClient,
    table,
};
use crate::{
    model::target::TargetId,
    serve::report::{
        Conflict, RunList,
        orders::{
            ChangeRunOrder, CompactOrder, FlushOrder, OrderAnswer, OrderRequest, ReleaseOrder,
            RescanOrder, ResumeOrder, RunChange, RunOrder, SuspendOrder,
        },
    },
    text::{Label as _, duration},
};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{self, Instant};

pub(super) async fn suspend(args: SuspendArgs) -> Result<Exit, CommandError> {
    let order = SuspendOrder { scope: Some(args.scope), why: args.why };
    give(&args.order, OrderRequest::Suspend(order)).await
}

pub(super) async fn resume(args: ResumeArgs) -> Result<Exit, CommandError> {
    give(&args.order, OrderRequest::Resume(ResumeOrder { scope: Some(args.scope) })).await
}

/// `recliner compact`. In advise mode, prints the requests that would be sent.
pub(super) async fn compact(args: CompactArgs) -> Result<Exit, CommandError> {
    let CompactArgs { target, node, all, force, order } = args;
    let request = match target {
        Some(target) if is_single(&target) => OrderRequest::Compact(CompactOrder { target, force }),
        db => OrderRequest::Run(RunOrder { db, node, all, force }),
    };
    let ordered = give(&order, request).await;
    if let Err(CommandError { conflict: Some(conflict), .. }) = &ordered
        && !Conflict::requests(conflict).is_empty()
    {
        let lines = conflict.requests().iter().map(|request| printable(request) + "\n");
        order.format.print(conflict, |_, _| lines.collect())?;
    }
    ordered
}

/// Whether a text names one target: an id, a shard file or a design document, and not a database.
fn is_single(text: &str) -> bool {
    text.parse::<TargetId>().is_ok() || text.starts_with("shards/") || text.contains("/_design/")
}

/// `recliner runs`.
pub(super) async fn runs(args: RunsArgs) -> Result<Exit, CommandError> {
    let RunsArgs { pause, resume, cancel, order } = args;
    let changes =
        [(pause, RunChange::Paused), (resume, RunChange::Running), (cancel, RunChange::Cancelled)];
    if let Some((run, to)) = changes.into_iter().find_map(|(run, to)| Some((run?, to))) {
        return give(&order, OrderRequest::ChangeRun(ChangeRunOrder { run, to })).await;
    }
    let answer: RunList = order.reach.client().await?.get("/api/v1/runs", &[]).await?;
    order.format.print(&answer, |answer, width| table::runs(&answer.runs, width))?;
    Ok(Exit::Done)
}

pub(super) async fn release(args: ReleaseArgs) -> Result<Exit, CommandError> {
    let order = ReleaseOrder { target: args.target, all: args.all };
    give(&args.order, OrderRequest::Release(order)).await
}

pub(super) async fn rescan(args: OrderArgs) -> Result<Exit, CommandError> {
    give(&args, OrderRequest::Rescan(RescanOrder {})).await
}

pub(super) async fn flush(args: FlushArgs) -> Result<Exit, CommandError> {
    let order = FlushOrder { node: args.node, channel: args.channel };
    give(&args.order, OrderRequest::Flush(order)).await
}

/// How long to retry an order that the service cannot carry out yet.
const MAX_WAIT: Duration = Duration::from_secs(90);

/// The shortest and the longest pause before a retry.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(10);

async fn give(args: &OrderArgs, order: OrderRequest) -> Result<Exit, CommandError> {
    give_to(&args.reach.client().await?, args.format, &order).await
}

/// Retries an order until it is carried out, and prints the answer.
pub(super) async fn give_to(
    client: &ServiceClient,
    format: Format,
    order: &OrderRequest,
) -> Result<Exit, CommandError> {
    let answer = until_carried_out(async || send(client, order).await).await?;
    format.print(&answer, |answer, _| what_it_did(order, answer) + "\n")?;
    Ok(Exit::Done)
}

/// Sends an order once.
pub(super) async fn send(
    client: &ServiceClient,
    order: &OrderRequest,
) -> Result<OrderAnswer, CommandError> {
    let name = order.name();
    let path = ["/api/v1/", name.label()].concat();
    let answer: Value = client.post(&path, order).await?;
    name.read_answer(answer).map_err(|_| {
        CommandError::failed(format!(
            "the answer of {} to {path} is not a recliner's, or not this version's; check the address and the version",
            client.name()
        ))
    })
}

/// The effect of an order, as text for a terminal.
pub(super) fn what_it_did(order: &OrderRequest, answer: &OrderAnswer) -> String {
    let lines = order.says(answer);
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}

/// Repeats an order as long as the service reports that it has not done anything yet and when to
/// try again. Prints the reason on standard error, because this can take a while.
async fn until_carried_out<A>(
    send: impl AsyncFn() -> Result<A, CommandError>,
) -> Result<A, CommandError> {
    let began = Instant::now();
    let mut noted = None;
    loop {
        let failure = match send().await {
            Err(failure) if failure.retry_after.is_some() => failure,
            done => return done,
        };
        if began.elapsed() >= MAX_WAIT {
            let (waited, why) = (duration::format_rounded(MAX_WAIT), &failure.why);
            let why = format!("gave up after {waited}: {why}");
            return Err(CommandError { why, ..failure });
        }
        if noted.as_ref() != Some(&failure.why) {
            let remaining = duration::format_rounded(MAX_WAIT.saturating_sub(began.elapsed()));
            print_note(&format!(
                "Waiting for up to {remaining} (Ctrl-C gives up without ordering anything): {}",
                failure.why
            ));
            noted = Some(failure.why);
        }
        time::sleep(failure.retry_after.unwrap_or_default().clamp(MIN_PAUSE, MAX_PAUSE)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn not_yet(seconds: u64) -> CommandError {
        let retry_after = Some(Duration::from_secs(seconds));
        CommandError { retry_after, ..CommandError::failed("not ordered: CouchDB is silent") }
    }

    #[tokio::test(start_paused = true)]
    async fn order_is_repeated_until_carried_out() {
        let (began, sent) = (Instant::now(), Cell::new(0));
        let done = until_carried_out(async || {
            sent.set(sent.get() + 1);
            if sent.get() < 4 { Err(not_yet(2)) } else { Ok("done") }
        });
        assert_eq!(done.await.unwrap(), "done");
        assert_eq!(began.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn order_fails_with_reason_after_max_wait() {
        for (seconds, pause) in [(0, MIN_PAUSE), (2, Duration::from_secs(2)), (600, MAX_PAUSE)] {
            let (began, sent) = (Instant::now(), Cell::new(0));
            let failed = until_carried_out::<()>(async || {
                sent.set(sent.get() + 1);
                Err(not_yet(seconds))
            });
            let failed = failed.await.unwrap_err();
            assert_eq!(failed.why, "gave up after 1m 30s: not ordered: CouchDB is silent");
            assert_eq!(failed.exit, Exit::Failed);
            assert!(began.elapsed() < MAX_WAIT + pause, "{seconds}");
            assert_eq!(sent.get(), MAX_WAIT.as_secs().div_ceil(pause.as_secs()) + 1, "{seconds}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_failures_are_not_retried() {
        let began = Instant::now();
        let failed = until_carried_out::<()>(async || Err(CommandError::failed("stopping")));
        assert_eq!(failed.await.unwrap_err().why, "stopping");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
