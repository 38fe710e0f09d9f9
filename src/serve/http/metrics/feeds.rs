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
        "Number of readers that wait for events of recliner's own feed; absent if the feed is off.";
}

/// Writes nothing about CouchDB's feeds if they are not followed, nor about recliner's own feed if
/// it is off.
pub(super) fn write(writer: &mut Writer, status: &FeedClientStatus, own: Option<&FeedHandle>) {
    let connected = status.feeds.iter().map(|(name, feed)| ([*name], feed.connected));
    writer.write(&FEED_CONNECTED, connected);
    let events = status.events.iter().map(|(change, count)| ([change.label()], *count));
    writer.write(&FEED_EVENTS, events);
    let pending = (!status.feeds.is_empty()).then_some(([], status.pending_events));
    writer.write(&FEED_PENDING_EVENTS, pending);
    writer.write(&FEED_SUBSCRIBERS, own.map(|feed| ([], feed.subscribers())));
}
