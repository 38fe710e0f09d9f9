//! Restores channels from any machine, for the command `restore-smoosh`.
//!
//! Relies only on the marks on the nodes, whichever process left them.

use super::{
    CONCURRENCY_KEY, ConfigApi, ConfigKey, MARK_SECTION, STOPPED_CONCURRENCY, channel_section,
    mark, node::restore_channel,
};

/// Result for one channel on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredChannel {
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
pub async fn restore_node(api: &dyn ConfigApi, node: &str) -> Result<Vec<RestoredChannel>, String> {
    let marks = mark::parse_marks(&api.section(node, MARK_SECTION).await?);
    let mut restored = Vec::with_capacity(marks.len());
    for (channel, mark) in marks {
        let section = channel_section(&channel);
        let value = api.section(node, &section).await?.remove(CONCURRENCY_KEY);
        let was_stopped = value.as_deref() == Some(STOPPED_CONCURRENCY);
        if was_stopped {
            restore_channel(node, &channel, mark.was.as_deref(), api).await?;
        }
        let key = &mark::mark_key(&channel);
        api.reset(ConfigKey { node, section: MARK_SECTION, key }).await?;
        let value = api.section(node, &section).await?.remove(CONCURRENCY_KEY);
        restored.push(RestoredChannel { node: node.to_owned(), channel, value, was_stopped });
    }
    Ok(restored)
}
