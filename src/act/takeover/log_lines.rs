//! Log lines about changes of smoosh's state: one per cause, with its nodes and channels.

use super::{NodeTakeover, Takeovers};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogLine {
    /// A node could not be read or changed.
    Problem { node: String, problem: String },
    /// The same change of these channels on these nodes.
    Channels { of: ChannelChange, nodes: String, channels: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelChange {
    Stopped,
    Stranded,
    Contested,
}

/// Compares this pass with the previous one.
pub(super) fn changed_lines(before: &Takeovers, now: &Takeovers) -> Vec<LogLine> {
    let mut lines = Vec::new();
    for (node, state) in &now.nodes {
        let last = before.nodes.get(node);
        if let Some(problem) = &state.problem
            && last.and_then(|last| last.problem.as_ref()) != Some(problem)
        {
            lines.push(LogLine::Problem { node: node.clone(), problem: problem.clone() });
        }
    }
    type Channels = fn(&NodeTakeover) -> &BTreeSet<String>;
    let of: [(ChannelChange, Channels); 3] = [
        (ChannelChange::Stopped, |state| &state.taken_over),
        (ChannelChange::Stranded, |state| &state.stranded),
        (ChannelChange::Contested, |state| &state.contested),
    ];
    for (of, channels) in of {
        // Nodes with the same changes share a line.
        let mut alike: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
        for (node, state) in &now.nodes {
            let last = before.nodes.get(node).map(channels);
            let fresh =
                channels(state).iter().filter(|it| last.is_none_or(|last| !last.contains(*it)));
            let fresh: Vec<&str> = fresh.map(String::as_str).collect();
            if !fresh.is_empty() {
                alike.entry(fresh).or_default().push(node);
            }
        }
        lines.extend(alike.into_iter().map(|(channels, nodes)| LogLine::Channels {
            of,
            nodes: nodes.join(" "),
            channels: channels.join(" "),
        }));
    }
    lines
}

impl LogLine {
    /// Writes the line to the log.
    pub(super) fn log(&self) {
        match self {
            Self::Problem { node, problem } => {
                tracing::warn!(node, problem, "smoosh's settings could not be read or changed");
            }
            Self::Channels { of: ChannelChange::Stopped, nodes, channels } => {
                tracing::info!(
                    nodes,
                    channels,
                    "smoosh channels stopped: recliner compacts in their place"
                );
            }
            Self::Channels { of: ChannelChange::Stranded, nodes, channels } => tracing::warn!(
                nodes,
                channels,
                "smoosh channels are stopped by a takeover that this process does not maintain: if no other recliner does, run `recliner restore-smoosh` to restore them"
            ),
            Self::Channels { of: ChannelChange::Contested, nodes, channels } => tracing::warn!(
                nodes,
                channels,
                "smoosh and recliner may both start compactions in these channels: list them under smoosh.takeover with smoosh.mode takeover, or set their mode to advise"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(channels: &[&str]) -> BTreeSet<String> {
        channels.iter().map(|it| (*it).to_owned()).collect()
    }

    fn takeovers(nodes: &[(&str, NodeTakeover)]) -> Takeovers {
        Takeovers {
            nodes: nodes.iter().map(|(node, it)| ((*node).to_owned(), it.clone())).collect(),
        }
    }

    fn channels(of: ChannelChange, nodes: &str, channels: &str) -> LogLine {
        LogLine::Channels { of, nodes: nodes.to_owned(), channels: channels.to_owned() }
    }

    #[test]
    fn nodes_and_channels_with_one_cause_share_one_log_line() {
        let stranded =
            |names: &[&str]| NodeTakeover { stranded: set(names), ..NodeTakeover::default() };
        let seven = ["a", "b", "c", "d", "e", "f", "g"];
        let three = ["n1", "n2", "n3"].map(|node| (node, stranded(&seven)));
        let now = takeovers(&three);
        let line = channels(ChannelChange::Stranded, "n1 n2 n3", "a b c d e f g");
        assert_eq!(changed_lines(&Takeovers::default(), &now), [line]);
        assert_eq!(changed_lines(&now, &now), []);
        // A different set is another line, and only new channels are logged.
        let later = takeovers(&[
            ("n1", stranded(&["a", "x"])),
            ("n2", stranded(&["x"])),
            ("n3", stranded(&["x", "y"])),
        ]);
        let lines = [
            channels(ChannelChange::Stranded, "n1 n2", "x"),
            channels(ChannelChange::Stranded, "n3", "x y"),
        ];
        assert_eq!(changed_lines(&now, &later), lines);
    }

    #[test]
    fn stopped_and_contested_channels_and_failures_are_logged_apart() {
        let state = NodeTakeover {
            taken_over: set(&["a"]),
            contested: set(&["b"]),
            problem: Some("no answer".to_owned()),
            ..NodeTakeover::default()
        };
        let now = takeovers(&[("n", state)]);
        assert_eq!(
            changed_lines(&Takeovers::default(), &now),
            [
                LogLine::Problem { node: "n".to_owned(), problem: "no answer".to_owned() },
                channels(ChannelChange::Stopped, "n", "a"),
                channels(ChannelChange::Contested, "n", "b"),
            ]
        );
        assert_eq!(changed_lines(&now, &now), []);
    }
}
