//! The note that a takeover leaves on the node.
//!
//! Owns its section, key and form: `[recliner] smoosh.<channel>.concurrency`, with the value
//! before as JSON.

use super::{KEY, STOPPED, section};
use crate::clock::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The section of a node's configuration that is this program's own.
pub const SECTION: &str = "recliner";

/// What a takeover notes on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// The channel's concurrency before; none where the key was absent.
    pub was: Option<String>,
    /// When it was taken.
    pub at: Moment,
}

impl Mark {
    /// It as the value of a key.
    pub(super) fn text(&self) -> String {
        // Neither a text nor a number can fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The key of a channel's mark.
pub(super) fn key(channel: &str) -> String {
    format!("smoosh.{channel}.{KEY}")
}

/// The marks of a section, by channel. One that cannot be read says no more than that the
/// channel is taken: giving it back then means what the node's files say.
pub(super) fn marks(section: &BTreeMap<String, String>) -> BTreeMap<String, Mark> {
    let channel = |key: &str| {
        let channel = key.strip_prefix("smoosh.")?.strip_suffix(KEY)?.strip_suffix('.')?;
        (!channel.is_empty()).then(|| channel.to_owned())
    };
    let read = |text: &str| serde_json::from_str(text).unwrap_or_default();
    section.iter().filter_map(|(key, text)| Some((channel(key)?, read(text)))).collect()
}

/// The channels that a takeover holds stopped on a node, with the marks of them, by its whole
/// configuration. A mark beside another value is left over: somebody has changed it since.
#[must_use]
pub fn stopped(config: &BTreeMap<String, BTreeMap<String, String>>) -> BTreeMap<String, Mark> {
    let mut marks = config.get(SECTION).map(marks).unwrap_or_default();
    let value = |channel: &str| config.get(&section(channel))?.get(KEY);
    marks.retain(|channel, _| value(channel).is_some_and(|value| value == STOPPED));
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_held_stopped_where_its_mark_and_its_zero_are_both_there() {
        let section = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let mark = Mark { was: Some("2".to_owned()), at: Moment::default() };
        let marked = [key("held"), key("changed"), key("unset")].map(|key| (key, mark.text()));
        let config = BTreeMap::from([
            (SECTION.to_owned(), BTreeMap::from(marked)),
            ("smoosh.held".to_owned(), section(&[("concurrency", "0"), ("capacity", "9")])),
            ("smoosh.changed".to_owned(), section(&[("concurrency", "1")])),
            ("smoosh.theirs".to_owned(), section(&[("concurrency", "0")])),
        ]);
        assert_eq!(stopped(&config), BTreeMap::from([("held".to_owned(), mark)]));
        assert_eq!(stopped(&BTreeMap::new()), BTreeMap::new());
    }

    #[test]
    fn a_mark_reads_as_it_was_written_and_a_garbled_one_still_marks() {
        let mark = |was: Option<&str>| Mark {
            was: was.map(str::to_owned),
            at: Moment::from_unix(1_795_222_434),
        };
        let section = BTreeMap::from([
            (key("ratio_dbs"), mark(Some("2")).text()),
            (key("slack_dbs"), mark(None).text()),
            (key("odd"), "{".to_owned()),
            ("smoosh..concurrency".to_owned(), "{}".to_owned()),
            ("smoosh.concurrency".to_owned(), "{}".to_owned()),
            ("other".to_owned(), "1".to_owned()),
        ]);
        assert_eq!(
            marks(&section),
            BTreeMap::from([
                ("odd".to_owned(), Mark::default()),
                ("ratio_dbs".to_owned(), mark(Some("2"))),
                ("slack_dbs".to_owned(), mark(None)),
            ])
        );
    }
}
