//! An operator's suspensions, as JSON and in a sentence.

use crate::{
    model::records::{Suspension, SuspensionScope},
    plan::Plan,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A suspension that is in force. Unknown is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SuspensionLine {
    /// What is suspended: `all`, `node:<name>` or `channel:<name>`.
    pub scope: String,
    /// Since when it is suspended.
    pub since: String,
    /// Who ordered it: a user and an address, an address alone, or `unix socket` and the number of a user of
    /// this machine.
    pub by: Option<String>,
    /// The reason that was given; null if none was.
    pub why: Option<String>,
    /// The suspension as a sentence.
    pub says: String,
}

impl SuspensionLine {
    /// Every suspension in force, widest first.
    pub fn all(plan: &Plan) -> Vec<Self> {
        let in_force = plan.conditions.constraints.suspensions.0.iter();
        in_force.map(|(scope, suspension)| Self::of(scope, suspension)).collect()
    }

    fn of(scope: &SuspensionScope, suspension: &Suspension) -> Self {
        Self {
            scope: scope.to_string(),
            since: suspension.since.rfc3339(),
            by: suspension.by.clone(),
            why: suspension.why.clone(),
            says: says(scope, suspension),
        }
    }
}

/// What is suspended, since when, by whom and why, as part of a sentence.
pub(super) fn says(scope: &SuspensionScope, suspension: &Suspension) -> String {
    let what = match scope {
        SuspensionScope::All => "all starts are suspended".to_owned(),
        SuspensionScope::Node(node) => format!("starts on {node} are suspended"),
        SuspensionScope::Channel(name) => format!("starts of channel {name} are suspended"),
    };
    let since = suspension.since.rfc3339();
    let by = suspension.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
    let why = suspension.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    format!("{what} since {since}{by}{why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wall_clock::Moment;

    #[test]
    fn sentence_names_start_sender_and_reason() {
        let since = Moment::from_unix(1_795_222_440);
        for (scope, by, why, expected) in [
            (
                SuspensionScope::All,
                None,
                None,
                "all starts are suspended since 2026-11-21T00:54:00Z",
            ),
            (
                SuspensionScope::Node("couchdb@a".into()),
                Some("ann from 10.0.0.7"),
                Some("its disk is replaced"),
                "starts on couchdb@a are suspended since 2026-11-21T00:54:00Z by ann from 10.0.0.7: its disk is replaced",
            ),
            (
                SuspensionScope::Channel("big".into()),
                Some("unix socket, uid 0"),
                None,
                "starts of channel big are suspended since 2026-11-21T00:54:00Z by unix socket, uid 0",
            ),
        ] {
            let (by, why) = (by.map(str::to_owned), why.map(str::to_owned));
            assert_eq!(says(&scope, &Suspension { since, by, why }), expected);
        }
    }
}
