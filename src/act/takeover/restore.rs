//! Giving back from any machine: what `restore-smoosh` does.
//!
//! Goes by the marks on the nodes alone, whoever left them.

use super::{Hands, KEY, STOPPED, mark, mark::SECTION, node::give_back, section};

/// What came of one channel on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The node.
    pub node: String,
    /// The channel.
    pub channel: String,
    /// Its concurrency from now on; none where the key is absent.
    pub value: Option<String>,
    /// Whether it was stopped; else somebody had changed it before, and it stays as it is.
    pub was_stopped: bool,
}

/// Gives back every channel that carries a mark on `node`.
///
/// # Errors
/// Why the node could not be read or changed; what was given back before stays so.
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
