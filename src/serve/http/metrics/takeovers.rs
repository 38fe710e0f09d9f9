//! On which nodes smoosh's channels are taken over, or stopped for a recliner that is gone.

use crate::{act::takeover::Takeovers, serve::http::families as f};
use metrics_text::Writer;

/// Writes one sample for each node that could be looked at.
pub(super) fn write(writer: &mut Writer, takeovers: &Takeovers) {
    let mut samples = writer.family(&f::SMOOSH_TAKEN_OVER);
    for (node, state) in &takeovers.nodes {
        // A node that does not answer is not known to have given anything back.
        if state.stopped().is_some() || !state.not_taken.is_empty() {
            samples.sample(&[node], state.is_taken_over());
        }
    }
    let mut samples = writer.family(&f::SMOOSH_CHANNELS_STOPPED);
    for (node, state) in &takeovers.nodes {
        if let Some(stopped) = state.stopped() {
            samples.sample(&[node], stopped as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::takeover::NodeState;
    use metrics_text::{Coding, Format};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn what_another_recliner_stopped_counts_and_what_is_not_seen_has_no_sample() {
        let channels = |names: &[&str]| -> BTreeSet<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let down = Some("couchdb@b is down".to_owned());
        let not_taken = BTreeMap::from([("slack_dbs".to_owned(), "set to 3".to_owned())]);
        let nodes = [
            (
                "a",
                NodeState { taken: channels(&["ratio_dbs", "slack_dbs"]), ..NodeState::default() },
            ),
            ("b", NodeState { problem: down.clone(), ..NodeState::default() }),
            ("c", NodeState { stranded: channels(&["ratio_dbs"]), ..NodeState::default() }),
            ("d", NodeState::default()),
            ("e", NodeState { not_taken, problem: down, ..NodeState::default() }),
        ];
        let nodes = nodes.map(|(node, state)| (format!("couchdb@{node}"), state)).into();
        let mut writer = Writer::new(Format::Text, Coding::Identity);
        write(&mut writer, &Takeovers { nodes });
        let text = String::from_utf8(writer.finish()).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "recliner_smoosh_taken_over{node=\"couchdb@a\"} 1",
                "recliner_smoosh_taken_over{node=\"couchdb@c\"} 0",
                "recliner_smoosh_taken_over{node=\"couchdb@d\"} 0",
                "recliner_smoosh_taken_over{node=\"couchdb@e\"} 0",
                "recliner_smoosh_channels_stopped{node=\"couchdb@a\"} 2",
                "recliner_smoosh_channels_stopped{node=\"couchdb@c\"} 1",
                "recliner_smoosh_channels_stopped{node=\"couchdb@d\"} 0",
            ]
        );
    }
}
