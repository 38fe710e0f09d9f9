//! Operators' suspensions.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// The scope of a suspension.
///
/// As text, it is the label in JSON, commands and metric labels.
#[derive(
    strum::Display, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum SuspensionScope {
    /// All starts.
    #[strum(to_string = "all")]
    All,
    /// One node, by CouchDB's name.
    #[strum(to_string = "node:{0}")]
    Node(String),
    /// One channel.
    #[strum(to_string = "channel:{0}")]
    Channel(String),
}

impl std::str::FromStr for SuspensionScope {
    type Err = ParseScopeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "all" => Ok(Self::All),
            Some(("node", name)) if !name.is_empty() => Ok(Self::Node(name.to_owned())),
            Some(("channel", name)) if !name.is_empty() => Ok(Self::Channel(name.to_owned())),
            _ => Err(ParseScopeError(text.to_owned())),
        }
    }
}

/// A text that is not a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a scope; write all, node:<name> or channel:<name>")]
pub struct ParseScopeError(String);

/// An order to start nothing until it is lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// When it began.
    pub since: Moment,
    /// Who gave the order, and from which address; unknown in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The operator's reason.
    pub why: Option<String>,
}

impl Suspension {
    /// The suspension after an order at `now`, given the one `before`: its beginning stays, and an
    /// order with a reason also replaces reason and operator.
    pub fn after_order(
        before: Option<&Self>,
        now: Moment,
        by: Option<String>,
        why: Option<String>,
    ) -> Self {
        match before {
            None => Self { since: now, by, why },
            Some(before) if why.is_none() => before.clone(),
            Some(before) => Self { since: before.since, by, why },
        }
    }
}

/// Every active suspension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspensions(pub BTreeMap<SuspensionScope, Suspension>);

impl Suspensions {
    /// The suspension that holds back a channel on a node, the widest scope first.
    pub fn covering(&self, node: &str, channel: &str) -> Option<(&SuspensionScope, &Suspension)> {
        if self.0.is_empty() {
            return None;
        }
        [
            SuspensionScope::All,
            SuspensionScope::Node(node.to_owned()),
            SuspensionScope::Channel(channel.to_owned()),
        ]
        .iter()
        .find_map(|scope| self.0.get_key_value(scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_stored_with_the_operator_who_gave_it() {
        let (then, now) = (Moment::from_unix(5), Moment::from_unix(9));
        let of = |since, by: &str, why: Option<&str>| Suspension {
            since,
            by: Some(by.to_owned()),
            why: why.map(str::to_owned),
        };
        let order = |before: Option<&Suspension>, by: &str, why: Option<&str>| {
            Suspension::after_order(before, now, Some(by.to_owned()), why.map(str::to_owned))
        };
        let first = of(then, "ann", Some("disks"));
        assert_eq!(order(None, "ann", None), of(now, "ann", None));
        assert_eq!(order(Some(&first), "bob", None), first);
        assert_eq!(order(Some(&first), "bob", Some("move")), of(then, "bob", Some("move")));
    }

    #[test]
    fn reads_suspension_stored_by_earlier_version() {
        let kept: Suspension = serde_json::from_str(r#"{"since":7,"why":null}"#).unwrap();
        assert_eq!(kept, Suspension { since: Moment::from_unix(7), by: None, why: None });
    }
}
