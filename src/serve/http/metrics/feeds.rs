//! What is heard of databases.

use crate::{
    feeds::{changes::Status, feed::Feed},
    serve::http::families as f,
};
use metrics_text::Writer;

/// Writes how CouchDB's feeds stand, nothing where none are to be followed, and how many read
/// the one that is told here, where one is.
pub(super) fn write(writer: &mut Writer, status: &Status, own: Option<&Feed>) {
    let mut samples = writer.family(&f::FEED_CONNECTED);
    for (name, feed) in &status.feeds {
        samples.sample(&[name], u64::from(feed.connected));
    }
    let mut samples = writer.family(&f::FEED_EVENTS);
    for (change, count) in &status.events {
        samples.sample(&[change.label()], *count);
    }
    let mut samples = writer.family(&f::FEED_PENDING_EVENTS);
    if !status.feeds.is_empty() {
        samples.sample(&[], status.pending as u64);
    }
    let mut samples = writer.family(&f::FEED_SUBSCRIBERS);
    if let Some(feed) = own {
        samples.sample(&[], feed.subscribers() as u64);
    }
}
