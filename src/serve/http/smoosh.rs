//! How smoosh stands, in JSON: what is taken over, and what an operator should know.

use crate::act::takeover::Takeovers;
use serde_json::{Value, json};

/// One object a node that was looked at.
pub(super) fn shown(takeovers: &Takeovers) -> Vec<Value> {
    let nodes = takeovers.nodes.iter();
    let shown = nodes.map(|(node, state)| {
        json!({
            "node": node,
            "taken_over": state.taken,
            "not_taken_over": state.not_taken.keys().collect::<Vec<_>>(),
            "findings": state.findings,
            "problem": state.problem,
        })
    });
    shown.collect()
}
