//! `follow`: how changes of databases are followed.

use crate::{
    config::{
        form::{Form, keys, section},
        values::{boolean, duration},
    },
    model::settings::work::Follow,
};
use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);

pub(super) fn form() -> Form<Follow> {
    let keys = keys!(Follow {
        "follow.enabled" => enabled, Live, boolean(),
            "Follow CouchDB's feeds of what happens to databases.";
        "follow.max_event_delay" => max_event_delay, Live, duration(MILLISECOND),
            "The longest that an event waits for others before shards are read for it.";
        "follow.max_write_delay" => max_write_delay, Live, duration(MILLISECOND),
            "The longest that an event waits for others before it is written to the journal.";
        "follow.update_db" => update_db, Live, boolean(),
            "Write an event to the journal when documents of a database change.";
        "follow.reread_after" => reread_after, Live, duration(Duration::ZERO),
            "The shortest pause between two readings of one shard; longer for what keeps changing.";
    });
    section(keys, |_, _| {})
}
