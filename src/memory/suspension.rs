//! What an operator suspended.

use crate::clock::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a suspension covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Everything.
    All,
    /// One node, by CouchDB's name.
    Node(String),
    /// One channel.
    Channel(String),
}

impl std::fmt::Display for Scope {
    /// The word in JSON, commands and metric labels: `all`, `node:<name>`, `channel:<name>`.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => out.write_str("all"),
            Self::Node(name) => write!(out, "node:{name}"),
            Self::Channel(name) => write!(out, "channel:{name}"),
        }
    }
}

impl std::str::FromStr for Scope {
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

/// A text that names no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no scope: write all, node:<name> or channel:<name>")]
pub struct ParseScopeError(String);

/// An order to start nothing, until it is taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// Since when.
    pub since: Moment,
    /// What the operator gave as the reason.
    pub why: Option<String>,
}

/// Every suspension in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspensions(pub BTreeMap<Scope, Suspension>);

impl Suspensions {
    /// The one that holds back a channel on a node, the widest first.
    #[must_use]
    pub fn of(&self, node: &str, channel: &str) -> Option<(&Scope, &Suspension)> {
        if self.0.is_empty() {
            return None;
        }
        [Scope::All, Scope::Node(node.to_owned()), Scope::Channel(channel.to_owned())]
            .iter()
            .find_map(|scope| self.0.get_key_value(scope))
    }
}
