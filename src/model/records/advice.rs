//! What is remembered of advice.

use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// A piece of advice, or all advice of one code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AdviceKey {
    /// The rule's code.
    pub code: String,
    /// What it is about; none for everything of this code.
    pub subject: Option<String>,
}

impl AdviceKey {
    /// One piece.
    #[must_use]
    pub fn of(code: &str, subject: String) -> Self {
        Self { code: code.to_owned(), subject: Some(subject) }
    }

    /// Everything of one code.
    #[must_use]
    pub fn of_code(code: &str) -> Self {
        Self { code: code.to_owned(), subject: None }
    }
}

/// What is remembered of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdviceRecord {
    /// When it was first given; none for what is only muted.
    pub first_seen: Option<Moment>,
    /// When it was no longer given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<Moment>,
    /// The operator's order not to count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mute: Option<Mute>,
}

/// An order not to count advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mute {
    /// When it was given.
    pub since: Moment,
    /// When it ends.
    pub until: Moment,
    /// Who gave it, and from which address.
    pub by: Option<String>,
    /// The operator's reason.
    pub why: Option<String>,
}
