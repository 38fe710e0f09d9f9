//! Commands that send an order to a running recliner.
//!
//! Owns the request of each order and the text of its answer; the rules are the service's.

use super::{
    CommandError, Exit,
    args::{CompactArgs, FlushArgs, Format, OrderArgs, ReleaseArgs, ResumeArgs, SuspendArgs},
    print, print_json, print_note, printable,
};
use crate::{
    serve::report::{
        Conflict,
        orders::{
            CompactOrder, Compacting, FlushOrder, Flushed, ReleaseOrder, Released, RescanOrder,
            Rescanning, ResumeOrder, Resumed, SuspendOrder, Suspended,
        },
    },
    text::duration,
};
use serde::{Serialize, de::DeserializeOwned};
use std::time::Duration;
use tokio::time::{self, Instant};

/// `recliner suspend`.
pub(super) async fn suspend(args: SuspendArgs) -> Result<Exit, CommandError> {
    let scope = args.scope.clone();
    let body = SuspendOrder { scope: Some(args.scope), why: args.why };
    send_order(&args.order, "suspend", &body, |done| suspended_says(&scope, done)).await
}

/// What the answer to a suspension says.
pub(super) fn suspended_says(scope: &str, done: &Suspended) -> String {
    let scope = scope_subject(scope);
    let since = printable(&done.since);
    let text = if done.already {
        let by = done.by.as_deref().map(|by| format!(" by {}", printable(by)));
        let why = done.why.as_deref().map(|why| format!(" ({})", printable(why)));
        let (by, why) = (by.unwrap_or_default(), why.unwrap_or_default());
        format!("{scope} was already suspended, since {since}{by}{why}.")
    } else {
        format!("{scope} is suspended since {since}: recliner starts nothing new.")
    };
    let running = match done.running {
        Some(0) => String::new(),
        Some(1) => {
            "\nOne compaction is still running: CouchDB offers no way to stop a running compaction."
                .into()
        }
        Some(many) => {
            format!(
                "\n{many} compactions are still running: CouchDB offers no way to stop a running compaction."
            )
        }
        None => {
            "\nRunning jobs continue: CouchDB offers no way to stop a running compaction.".into()
        }
    };
    text + &running
}

/// `recliner resume`.
pub(super) async fn resume(args: ResumeArgs) -> Result<Exit, CommandError> {
    let body = ResumeOrder { scope: Some(args.scope.clone()) };
    send_order(&args.order, "resume", &body, |done| resumed_says(&args.scope, done)).await
}

/// What the answer to a resumption says.
pub(super) fn resumed_says(scope: &str, done: &Resumed) -> String {
    let lifted = string_items(&done.lifted);
    let mut text = match lifted.is_empty() {
        true if scope == "all" => "Nothing is suspended.".to_owned(),
        true => format!("{} is not suspended.", scope_subject(scope)),
        false => format!("Resumed: {}.", lifted.join(", ")),
    };
    let remaining = string_items(&done.remaining);
    if !remaining.is_empty() {
        text.push_str(&format!("\nStill suspended: {}.", remaining.join(", ")));
    }
    text
}

/// `recliner compact`. In advise mode, prints the request that would be sent.
pub(super) async fn compact(args: CompactArgs) -> Result<Exit, CommandError> {
    let body = CompactOrder { target: args.target.clone(), force: args.force };
    let says = |done: &Compacting| compacting_says(&args.target, done);
    let ordered = send_order(&args.order, "compact", &body, says).await;
    if let Err(CommandError { conflict: Some(conflict), .. }) = &ordered
        && let Some(request) = Conflict::request(conflict)
    {
        match args.order.format {
            Format::Json => print_json(conflict)?,
            Format::Table => print(&(printable(request) + "\n"))?,
        }
    }
    ordered
}

/// What the answer to a compaction says.
pub(super) fn compacting_says(target: &str, done: &Compacting) -> String {
    let target = printable(target);
    let mut text = match &done.waits {
        None => format!("Ordered: {target} starts now."),
        Some(waits) => {
            let (until, why) = (printable(&done.until), printable(&waits.why));
            format!("Ordered: {target} waits ahead of all others, until {until} at most: {why}.")
        }
    };
    for request in string_items(&done.requests) {
        text.push_str(&format!("\n  {request}"));
    }
    text
}

/// `recliner release`.
pub(super) async fn release(args: ReleaseArgs) -> Result<Exit, CommandError> {
    let body = ReleaseOrder { target: args.target, all: args.all };
    send_order(&args.order, "release", &body, |done: &Released| {
        let released = string_items(&done.targets);
        match released.is_empty() {
            true => "Nothing was quarantined.".to_owned(),
            false => format!("Released:\n  {}", released.join("\n  ")),
        }
    })
    .await
}

/// `recliner rescan`.
pub(super) async fn rescan(args: OrderArgs) -> Result<Exit, CommandError> {
    send_order(&args, "rescan", &RescanOrder {}, |done: &Rescanning| {
        let text = match done.begins {
            true => "A sweep starts now.",
            false => "A sweep is running; another one follows.",
        };
        text.to_owned()
    })
    .await
}

/// `recliner flush`.
pub(super) async fn flush(args: FlushArgs) -> Result<Exit, CommandError> {
    let body = FlushOrder { node: args.node, channel: args.channel };
    send_order(&args.order, "flush", &body, |done: &Flushed| match done.targets {
        1 => "Removed 1 target from its queue.".to_owned(),
        many => format!("Removed {many} targets from their queues."),
    })
    .await
}

/// How long an order is repeated that the service cannot carry out yet.
const MAX_WAIT: Duration = Duration::from_secs(90);

/// The shortest and longest pause before an order is repeated.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Sends an order and prints its answer, as text from `tell`.
async fn send_order<A: DeserializeOwned + Serialize>(
    args: &OrderArgs,
    name: &str,
    body: &(impl Serialize + Sync),
    tell: impl FnOnce(&A) -> String,
) -> Result<Exit, CommandError> {
    let client = args.reach.client().await?;
    let path = format!("/api/v1/{name}");
    let done: A = until_carried_out(async || client.post(&path, body).await).await?;
    match args.format {
        Format::Json => print_json(&done)?,
        Format::Table => print(&(tell(&done) + "\n"))?,
    }
    Ok(Exit::Done)
}

/// Repeats an order as long as the service says that nothing of it has happened yet and when to try
/// again. Says so on standard error, because that can take a while.
pub(super) async fn until_carried_out<A>(
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
            let left = duration::format_rounded(MAX_WAIT.saturating_sub(began.elapsed()));
            print_note(&format!(
                "Waiting for {left} at most (Ctrl-C gives up, and then nothing is ordered): {}",
                failure.why
            ));
            noted = Some(failure.why);
        }
        time::sleep(failure.retry_after.unwrap_or_default().clamp(MIN_PAUSE, MAX_PAUSE)).await;
    }
}

/// A scope as the start of a sentence.
fn scope_subject(scope: &str) -> String {
    match scope.split_once(':') {
        Some((kind, name)) => {
            format!("{} {}", if kind == "node" { "Node" } else { "Channel" }, printable(name))
        }
        None => "Everything".to_owned(),
    }
}

fn string_items(list: &[String]) -> Vec<String> {
    list.iter().map(|word| printable(word)).collect()
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
    async fn an_order_is_repeated_until_it_is_carried_out() {
        let (began, sent) = (Instant::now(), Cell::new(0));
        let done = until_carried_out(async || {
            sent.set(sent.get() + 1);
            if sent.get() < 4 { Err(not_yet(2)) } else { Ok("done") }
        });
        assert_eq!(done.await.unwrap(), "done");
        assert_eq!(began.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_that_is_never_carried_out_ends_with_the_reason() {
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
    async fn any_other_failure_ends_an_order_at_once() {
        let began = Instant::now();
        let failed = until_carried_out::<()>(async || Err(CommandError::failed("stopping")));
        assert_eq!(failed.await.unwrap_err().why, "stopping");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
