//! The mark that a takeover leaves in the node's configuration.
//!
//! Owns its section, key and format: `[recliner] smoosh.<channel>.concurrency`, with the value
//! before as JSON.

use super::{CONCURRENCY_KEY, STOPPED_CONCURRENCY, channel_section as section_of};
use crate::model::settings::work::MARK_SECTION;
pub(super) use crate::model::settings::work::mark_key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// The record of a takeover in the node's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TakeoverMark {
    /// The channel's concurrency before; `None` if the key was absent.
    pub was: Option<String>,
    /// Time of the takeover.
    pub at: Moment,
}

impl TakeoverMark {
    /// The mark as a configuration value.
    pub(super) fn to_json(&self) -> String {
        // Serialising strings and numbers cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The marks in a section, by channel. An unreadable mark still shows that the channel is taken
/// over; restoring the channel then uses the value in the node's files.
pub(super) fn parse_marks(section: &BTreeMap<String, String>) -> BTreeMap<String, TakeoverMark> {
    let channel = |key: &str| {
        let channel =
            key.strip_prefix("smoosh.")?.strip_suffix(CONCURRENCY_KEY)?.strip_suffix('.')?;
        (!channel.is_empty()).then(|| channel.to_owned())
    };
    let read = |text: &str| serde_json::from_str(text).unwrap_or_default();
    section.iter().filter_map(|(key, text)| Some((channel(key)?, read(text)))).collect()
}

/// A channel that a complete copy of the settings shows as stopped by a takeover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedChannel {
    /// The channel.
    pub channel: String,
    /// Its concurrency before the takeover; `None` if the key was absent.
    pub previous: Option<String>,
}

/// Restores, in a copy of a node's settings and by the marks in it, the values from before
/// takeovers, as restoring on the node would. A channel whose value was changed since is left
/// alone. Returns the channels whose value was restored.
pub fn undo_takeovers(
    sections: &mut BTreeMap<String, BTreeMap<String, String>>,
) -> Vec<StoppedChannel> {
    let marks = sections.get(MARK_SECTION).map(parse_marks).unwrap_or_default();
    let mut undone = Vec::new();
    for (channel, TakeoverMark { was, .. }) in marks {
        let Some(keys) = sections.get_mut(&section_of(&channel)) else { continue };
        if keys.get(CONCURRENCY_KEY).map(String::as_str) != Some(STOPPED_CONCURRENCY) {
            continue;
        }
        match &was {
            Some(value) => keys.insert(CONCURRENCY_KEY.to_owned(), value.clone()),
            None => keys.remove(CONCURRENCY_KEY),
        };
        undone.push(StoppedChannel { channel, previous: was });
    }
    undone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_round_trip_and_unreadable_marks_still_count() {
        let mark = |was: Option<&str>| TakeoverMark {
            was: was.map(str::to_owned),
            at: Moment::from_unix(1_795_222_434),
        };
        let section = BTreeMap::from([
            (mark_key("ratio_dbs"), mark(Some("2")).to_json()),
            (mark_key("slack_dbs"), mark(None).to_json()),
            (mark_key("odd"), "{".to_owned()),
            ("smoosh..concurrency".to_owned(), "{}".to_owned()),
            ("smoosh.concurrency".to_owned(), "{}".to_owned()),
            ("other".to_owned(), "1".to_owned()),
        ]);
        assert_eq!(
            parse_marks(&section),
            BTreeMap::from([
                ("odd".to_owned(), TakeoverMark::default()),
                ("ratio_dbs".to_owned(), mark(Some("2"))),
                ("slack_dbs".to_owned(), mark(None)),
            ])
        );
    }

    #[test]
    fn undoing_restores_recorded_values_and_keeps_changed_ones() {
        let stopped =
            || BTreeMap::from([(CONCURRENCY_KEY.to_owned(), STOPPED_CONCURRENCY.to_owned())]);
        let changed = BTreeMap::from([(CONCURRENCY_KEY.to_owned(), "3".to_owned())]);
        let note = |was: Option<&str>| {
            TakeoverMark { was: was.map(str::to_owned), at: Moment::from_unix(1_795_222_434) }
                .to_json()
        };
        let mut sections = BTreeMap::from([
            (
                MARK_SECTION.to_owned(),
                BTreeMap::from([
                    (mark_key("ratio_dbs"), note(Some("2"))),
                    (mark_key("slack_dbs"), note(None)),
                    (mark_key("changed"), note(Some("2"))),
                    (mark_key("gone"), note(Some("2"))),
                ]),
            ),
            ("smoosh.ratio_dbs".to_owned(), stopped()),
            ("smoosh.slack_dbs".to_owned(), stopped()),
            ("smoosh.changed".to_owned(), changed.clone()),
            ("smoosh.stopped_by_hand".to_owned(), stopped()),
        ]);
        assert_eq!(
            undo_takeovers(&mut sections),
            [
                StoppedChannel { channel: "ratio_dbs".to_owned(), previous: Some("2".to_owned()) },
                StoppedChannel { channel: "slack_dbs".to_owned(), previous: None },
            ]
        );
        assert_eq!(sections["smoosh.ratio_dbs"][CONCURRENCY_KEY], "2");
        assert_eq!(sections["smoosh.slack_dbs"], BTreeMap::new());
        assert_eq!(sections["smoosh.changed"], changed);
        assert_eq!(sections["smoosh.stopped_by_hand"], stopped());
    }
}
