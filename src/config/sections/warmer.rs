//! `warmer`: how stale view indexes are built.

use crate::{
    config::{
        form::{Form, Key, keys, list, section},
        values::{SECOND, boolean, count, duration, integer, patterns, text},
    },
    model::settings::work::Warmer,
};
use std::time::Duration;

pub(super) fn form() -> Form<Warmer> {
    let mut keys = keys!(Warmer {
        "warmer.enabled" => enabled, Live, boolean(),
            "Build indexes that lag, where the mode is enforce.";
        "warmer.batch_channels" => batch_channels, Live, integer(0..=10_000),
            "Indexers on a node up to which a build of any size starts.";
        "warmer.incremental_channels" => incremental_channels, Live, integer(0..=10_000),
            "Additional indexers on a node, for small builds.";
        "warmer.max_incremental_updates" => max_incremental_updates, Live, count(),
            "A build with fewer updates per shard than this is small.";
        "warmer.batch_size" => batch_size, Live, count(),
            "Updates since the last build that are worth another before the delay is over.";
        "warmer.delay" => delay, Live, duration(Duration::ZERO),
            "Pause from the end of one build of an index to the next; the first rest after a failure.";
        "warmer.prune_interval" => prune_interval, Live, duration(SECOND),
            "How long a build that ended is remembered.";
        "warmer.grace" => grace, Live, duration(Duration::ZERO),
            "How long an index may lag before recliner builds it; CouchDB's ken or a reader may do so first.";
        "warmer.ignore" => ignore, Live, patterns(),
            "Databases whose indexes are not built.";
        "warmer.languages" => languages, Live, list(text()),
            "Languages of design documents; documents in others are not read.";
    });
    let limit = ("warmer.limit", "A setting of CouchDB's ken, accepted and without effect.");
    keys.push(Key::without_effect(limit, count()));
    section(keys, |_, _| {})
}
