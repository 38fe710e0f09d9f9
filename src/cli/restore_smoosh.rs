//! `recliner restore-smoosh`: restores the smoosh channels that a takeover stopped.

use super::{CommandError, Exit, args::SourceArgs, print, print_error, printable, read_once};
use crate::act::takeover::{self, RestoredChannel};
use futures::future::join_all;

pub(super) async fn run(args: &SourceArgs) -> Result<Exit, CommandError> {
    let read_once::Connected { settings, client, .. } = &read_once::connect(args)?;
    let members = client.membership().await.map_err(CommandError::failed)?.cluster_nodes;
    let members = members.unwrap_or_default();
    let nodes: Vec<&String> = members.iter().filter(|node| settings.nodes.has(node)).collect();
    if nodes.is_empty() {
        return Err(CommandError::failed("none of the selected nodes belongs to the cluster"));
    }
    let restored =
        join_all(nodes.iter().map(async |node| takeover::restore_node(client, node).await)).await;
    let (mut lines, mut failed) = (Vec::new(), 0);
    for (node, restored) in nodes.iter().zip(restored) {
        match restored {
            Ok(restored) => lines.extend(restored.iter().map(result_line)),
            Err(why) => {
                print_error(&format!("{node}: {why}"));
                failed += 1;
            }
        }
    }
    if lines.is_empty() && failed == 0 {
        lines.push("No smoosh channel is taken over.\n".to_owned());
    }
    print(&lines.concat())?;
    Ok(match failed {
        0 => Exit::Done,
        failed if failed == nodes.len() => Exit::Failed,
        _ => Exit::Incomplete,
    })
}

fn result_line(restored: &RestoredChannel) -> String {
    let RestoredChannel { node, channel, value, was_stopped } = restored;
    let is = value.as_ref().map_or_else(|| "unset".to_owned(), |value| format!("{value:?}"));
    let result = if *was_stopped {
        "was restored: its concurrency is"
    } else {
        "was restored before: its concurrency is"
    };
    format!("{}: smoosh.{} {result} {is}\n", printable(node), printable(channel))
}
