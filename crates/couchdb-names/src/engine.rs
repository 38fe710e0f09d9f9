//! The engines of search indexes.

use serde::{Deserialize, Serialize};

/// A program beside CouchDB that builds and queries search indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Indexes under `nouveau` in design documents, since CouchDB 3.4.
    Nouveau,
    /// Indexes under `indexes` in design documents; CouchDB's part of it is called dreyfus.
    Clouseau,
}

impl Engine {
    /// Every search engine.
    pub const ALL: [Self; 2] = [Self::Nouveau, Self::Clouseau];

    /// The word in ids and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Nouveau => "nouveau",
            Self::Clouseau => "clouseau",
        }
    }

    /// The engine with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.label() == label)
    }
}
