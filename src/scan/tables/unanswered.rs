//! Nodes in a sweep in which nobody said which nodes there are.

use super::Tables;
use crate::table::NodeIx;

impl Tables {
    /// Where nobody answered who belongs to the cluster, the nodes that were known before and
    /// did not answer for themselves are down, whatever the last sweep found.
    pub(super) fn note_unanswered(&mut self) {
        if !self.rounds.unanswered {
            return;
        }
        let nodes = self.draft.now().nodes().iter().enumerate().skip(1);
        let silent: Vec<NodeIx> = nodes
            .filter(|(_, node)| node.member)
            .filter_map(|(at, _)| NodeIx::from_usize(at))
            .filter(|at| !self.rounds.answered.contains(at))
            .collect();
        for at in silent {
            self.heard_of(at, false);
            self.draft.change_node(at, |node| node.up = Some(false));
        }
    }
}
