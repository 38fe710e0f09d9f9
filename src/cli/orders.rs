//! Commands that send an order to a running recliner.
//!
//! Owns the request of each order and the text of its answer; the rules are the service's.

use super::{
    Exit, Failure,
    args::{CompactArgs, FlushArgs, Format, OrderArgs, ReleaseArgs, ResumeArgs, SuspendArgs},
    print, print_json, printable,
};
use serde_json::{Value, json};

/// `recliner suspend`.
pub(super) async fn suspend(args: SuspendArgs) -> Result<Exit, Failure> {
    let body = json!({ "scope": args.scope, "why": args.why });
    let scope = covered(&args.scope);
    order(&args.order, "suspend", &body, |done| {
        let said = |name: &str| done[name].as_str().map(printable);
        let since = said("since").unwrap_or_else(|| "?".to_owned());
        let text = match done["already"].as_bool() {
            Some(true) => {
                let by = said("by").map_or_else(String::new, |by| format!(" by {by}"));
                let why = said("why").map_or_else(String::new, |why| format!(" ({why})"));
                format!("{scope} was already suspended, since {since}{by}{why}.")
            }
            _ => format!("{scope} is suspended since {since}: recliner starts nothing new."),
        };
        let running = match done["running"].as_u64() {
            Some(0) => String::new(),
            Some(1) => {
                "\nOne compaction is still running: CouchDB offers no way to stop a running compaction.".into()
            }
            Some(many) => {
                format!(
                    "\n{many} compactions are still running: CouchDB offers no way to stop a running compaction."
                )
            }
            None => "\nRunning jobs continue: CouchDB offers no way to stop a running compaction.".into(),
        };
        text + &running
    })
    .await
}

/// `recliner resume`.
pub(super) async fn resume(args: ResumeArgs) -> Result<Exit, Failure> {
    let body = json!({ "scope": args.scope });
    order(&args.order, "resume", &body, |done| {
        let lifted = words(&done["lifted"]);
        let mut text = match lifted.is_empty() {
            true if args.scope == "all" => "Nothing is suspended.".to_owned(),
            true => format!("{} is not suspended.", covered(&args.scope)),
            false => format!("Resumed: {}.", lifted.join(", ")),
        };
        let remaining = words(&done["remaining"]);
        if !remaining.is_empty() {
            text.push_str(&format!("\nStill suspended: {}.", remaining.join(", ")));
        }
        text
    })
    .await
}

/// `recliner compact`. In advise mode, prints the request that would be sent.
pub(super) async fn compact(args: CompactArgs) -> Result<Exit, Failure> {
    let body = json!({ "target": args.target, "force": args.force });
    let ordered = order(&args.order, "compact", &body, |done| {
        let target = printable(&args.target);
        let mut text = match done["waits"]["why"].as_str() {
            None => format!("Ordered: {target} starts now."),
            Some(why) => {
                let until = printable(done["until"].as_str().unwrap_or("?"));
                let why = printable(why);
                format!(
                    "Ordered: {target} waits ahead of all others, until {until} at most: {why}."
                )
            }
        };
        for request in words(&done["requests"]) {
            text.push_str(&format!("\n  {request}"));
        }
        text
    })
    .await;
    if let Err(refused) = &ordered
        && let Some(request) = refused.data["request"].as_str()
    {
        match args.order.format {
            Format::Json => print_json(&refused.data)?,
            Format::Table => print(&(printable(request) + "\n"))?,
        }
    }
    ordered
}

/// `recliner release`.
pub(super) async fn release(args: ReleaseArgs) -> Result<Exit, Failure> {
    let body = json!({ "target": args.target, "all": args.all });
    order(&args.order, "release", &body, |done| {
        let released = words(&done["targets"]);
        match released.is_empty() {
            true => "Nothing was quarantined.".to_owned(),
            false => format!("Released:\n  {}", released.join("\n  ")),
        }
    })
    .await
}

/// `recliner rescan`.
pub(super) async fn rescan(args: OrderArgs) -> Result<Exit, Failure> {
    order(&args, "rescan", &json!({}), |done| {
        let says = match done["begins"].as_bool() {
            Some(true) => "A sweep starts now.",
            _ => "A sweep is running; another one follows.",
        };
        says.to_owned()
    })
    .await
}

/// `recliner flush`.
pub(super) async fn flush(args: FlushArgs) -> Result<Exit, Failure> {
    let body = json!({ "node": args.node, "channel": args.channel });
    order(&args.order, "flush", &body, |done| match done["targets"].as_u64() {
        Some(1) => "Removed 1 target from its queue.".to_owned(),
        Some(many) => format!("Removed {many} targets from their queues."),
        None => "The queues were emptied.".to_owned(),
    })
    .await
}

/// Sends an order and prints its answer, as text from `tell`.
async fn order(
    args: &OrderArgs,
    name: &str,
    body: &Value,
    tell: impl FnOnce(&Value) -> String,
) -> Result<Exit, Failure> {
    let done = args.client().await?.post(&format!("/api/v1/{name}"), body).await?;
    match args.format {
        Format::Json => print_json(&done)?,
        Format::Table => print(&(tell(&done) + "\n"))?,
    }
    Ok(Exit::Done)
}

/// A scope as the start of a sentence.
fn covered(scope: &str) -> String {
    match scope.split_once(':') {
        Some((kind, name)) => {
            format!("{} {}", if kind == "node" { "Node" } else { "Channel" }, printable(name))
        }
        None => "Everything".to_owned(),
    }
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(printable).collect()
}
