//! Log lines about changes of smoosh's state: one per cause, with its nodes and channels.

use super::{NodeState, Takeovers};
use std::collections::{BTreeMap, BTreeSet};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A node could not be read or changed.
    Problem { node: String, problem: String },
    /// The same change of these channels on these nodes.
    Channels { of: About, nodes: String, channels: String },
}

/// A change of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Stopped,
    Stranded,
    Contested,
}

/// Compares this pass with the previous one.
pub(super) fn news(before: &Takeovers, now: &Takeovers) -> Vec<Line> {
    let mut lines = Vec::new();
    for (node, state) in &now.nodes {
        let last = before.nodes.get(node);
        if let Some(problem) = &state.problem
            && last.and_then(|last| last.problem.as_ref()) != Some(problem)
        {
            lines.push(Line::Problem { node: node.clone(), problem: problem.clone() });
        }
    }
    type Channels = fn(&NodeState) -> &BTreeSet<String>;
    let of: [(About, Channels); 3] = [
        (About::Stopped, |state| &state.taken),
        (About::Stranded, |state| &state.stranded),
        (About::Contested, |state| &state.contested),
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
        lines.extend(alike.into_iter().map(|(channels, nodes)| Line::Channels {
            of,
            nodes: nodes.join(" "),
            channels: channels.join(" "),
        }));
    }
    lines
}

impl Line {
    /// Writes the line to the log.
    pub(super) fn write(&self) {
        match self {
            Self::Problem { node, problem } => {
                tracing::warn!(node, problem, "smoosh's settings could not be read or changed");
            }
            Self::Channels { of: About::Stopped, nodes, channels } => {
                tracing::info!(
                    nodes,
                    channels,
                    "smoosh channels stopped: recliner compacts in their place"
                );
            }
            Self::Channels { of: About::Stranded, nodes, channels } => tracing::warn!(
                nodes,
                channels,
                "smoosh channels are stopped by a takeover that this process does not maintain: if no other recliner does, run `recliner restore-smoosh` to restore them"
            ),
            Self::Channels { of: About::Contested, nodes, channels } => tracing::warn!(
                nodes,
                channels,
                "both smoosh and recliner start compactions in these channels: list them under smoosh.takeover with smoosh.mode takeover, or set their mode to advise"
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

    fn takeovers(nodes: &[(&str, NodeState)]) -> Takeovers {
        Takeovers {
            nodes: nodes.iter().map(|(node, it)| ((*node).to_owned(), it.clone())).collect(),
        }
    }

    fn channels(of: About, nodes: &str, channels: &str) -> Line {
        Line::Channels { of, nodes: nodes.to_owned(), channels: channels.to_owned() }
    }

    #[test]
    fn one_cause_is_one_line_with_its_nodes_and_channels_and_is_logged_once() {
        let stranded = |names: &[&str]| NodeState { stranded: set(names), ..NodeState::default() };
        let seven = ["a", "b", "c", "d", "e", "f", "g"];
        let three = ["n1", "n2", "n3"].map(|node| (node, stranded(&seven)));
        let now = takeovers(&three);
        let line = channels(About::Stranded, "n1 n2 n3", "a b c d e f g");
        assert_eq!(news(&Takeovers::default(), &now), [line]);
        assert_eq!(news(&now, &now), []);
        // A different set is another line, and only new channels are logged.
        let later = takeovers(&[
            ("n1", stranded(&["a", "x"])),
            ("n2", stranded(&["x"])),
            ("n3", stranded(&["x", "y"])),
        ]);
        let lines =
            [channels(About::Stranded, "n1 n2", "x"), channels(About::Stranded, "n3", "x y")];
        assert_eq!(news(&now, &later), lines);
    }

    #[test]
    fn stopped_contested_and_failing_have_separate_lines() {
        let state = NodeState {
            taken: set(&["a"]),
            contested: set(&["b"]),
            problem: Some("no answer".to_owned()),
            ..NodeState::default()
        };
        let now = takeovers(&[("n", state)]);
        assert_eq!(
            news(&Takeovers::default(), &now),
            [
                Line::Problem { node: "n".to_owned(), problem: "no answer".to_owned() },
                channels(About::Stopped, "n", "a"),
                channels(About::Contested, "n", "b"),
            ]
        );
        assert_eq!(news(&now, &now), []);
    }
}
