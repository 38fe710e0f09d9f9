//! CouchDB's feeds, and the readers of recliner's own feed.

use crate::feeds::{feed_client::FeedClientStatus, feed_server::FeedHandle};
use metrics_text::{Writer, families};

families! {
    FEED_CONNECTED: Gauge None "recliner_feed_connected" ["feed"]
        "1 while the CouchDB feed is followed without a gap, else 0; absent where feeds are not followed.";
    FEED_EVENTS: Counter None "recliner_feed_events_total" ["type"]
        "Database events received from CouchDB's feed, by type.";
    FEED_PENDING_EVENTS: Gauge None "recliner_feed_pending_events" []
        "Number of database events that wait to be written to the journal.";
    FEED_SUBSCRIBERS: Gauge None "recliner_feed_subscribers" []
        "Number of readers that wait for events of recliner's own feed; absent where it is off.";
}

/// Writes nothing about CouchDB's feeds if they are not followed, nor about recliner's own feed if
/// it is off.
pub(super) fn write(writer: &mut Writer, status: &FeedClientStatus, own: Option<&FeedHandle>) {
    let mut samples = writer.family(&FEED_CONNECTED);
    for (name, feed) in &status.feeds {
        samples.sample(&[name], u64::from(feed.connected));
    }
    let mut samples = writer.family(&FEED_EVENTS);
    for (change, count) in &status.events {
        samples.sample(&[change.label()], *count);
    }
    let mut samples = writer.family(&FEED_PENDING_EVENTS);
    if !status.feeds.is_empty() {
        samples.sample(&[], status.pending_events as u64);
    }
    let mut samples = writer.family(&FEED_SUBSCRIBERS);
    if let Some(feed) = own {
        samples.sample(&[], feed.subscribers() as u64);
    }
}
