//! Restores channels from any machine, for the command `restore-smoosh`.
//!
//! Relies only on the marks on the nodes, whichever process left them.

use super::{Hands, KEY, STOPPED, mark, mark::SECTION, node::give_back, section};

/// Result for one channel on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The node.
    pub node: String,
    /// The channel.
    pub channel: String,
    /// Its concurrency from now on; `None` if the key is absent.
    pub value: Option<String>,
    /// Whether it was stopped; if not, somebody had changed it, and it is left alone.
    pub was_stopped: bool,
}

/// Restores every channel that has a mark on `node`.
///
/// # Errors
/// Why the node could not be read or changed. Channels restored before the error stay restored.
pub async fn restore(hands: &dyn Hands, node: &str) -> Result<Vec<Restored>, String> {
    let marks = mark::marks(&hands.section(node, SECTION).await?);
    let mut restored = Vec::with_capacity(marks.len());
    for (channel, mark) in marks {
        let section = section(&channel);
        let value = hands.section(node, &section).await?.remove(KEY);
        let was_stopped = value.as_deref() == Some(STOPPED);
        if was_stopped {
            give_back(node, &channel, mark.was.as_deref(), hands).await?;
        }
        hands.reset(node, SECTION, &mark::key(&channel)).await?;
        let value = hands.section(node, &section).await?.remove(KEY);
        restored.push(Restored { node: node.to_owned(), channel, value, was_stopped });
    }
    Ok(restored)
}
