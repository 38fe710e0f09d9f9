//! How the feeds stand, in JSON.

use crate::feeds::changes::Status;
use serde_json::{Value, json};
use wall_clock::Moment;

/// What the listener says of itself; no feed where none are to be followed.
pub(super) fn shown(status: &Status) -> Value {
    let moment = |moment: Option<Moment>| moment.map(Moment::rfc3339);
    let feeds = status.feeds.iter().map(|(name, feed)| {
        json!({
            "feed": name,
            "connected": feed.connected,
            "absent": feed.absent,
            "followed_since": moment(feed.followed_since),
            "seq": feed.seq,
            "node": feed.node,
            "rewinds": feed.rewinds,
            "failures": feed.failures,
            "problem": feed.problem,
        })
    });
    json!({
        "followed_since": moment(status.followed_since),
        "last_event": moment(status.last_event),
        "pending_events": status.pending,
        "list": feeds.collect::<Vec<_>>(),
    })
}
