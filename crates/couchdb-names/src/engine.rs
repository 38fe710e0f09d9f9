//! The engines of search indexes.

use serde::{Deserialize, Serialize};

/// What builds and answers search indexes beside CouchDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Of design documents' `nouveau`, since 3.4.
    Nouveau,
    /// Of design documents' `indexes`; CouchDB's side of it is called dreyfus.
    Clouseau,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 2] = [Self::Nouveau, Self::Clouseau];

    /// The word in ids and JSON.
    #[must_use]
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
