//! Records about advice.

use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// A piece of advice, or all advice of one code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AdviceKey {
    /// The rule's code.
    pub code: String,
    /// The subject of the advice; `None` for all advice of this code.
    pub subject: Option<String>,
}

impl AdviceKey {
    /// The key of one piece of advice.
    pub fn of(code: &str, subject: String) -> Self {
        Self { code: code.to_owned(), subject: Some(subject) }
    }

    /// The key of all advice of one code.
    pub fn of_code(code: &str) -> Self {
        Self { code: code.to_owned(), subject: None }
    }
}

/// What is recorded about one [`AdviceKey`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdviceRecord {
    /// When it was first given; `None` if it is only muted.
    pub first_seen: Option<Moment>,
    /// When it stopped being given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<Moment>,
    /// The operator's order to mute it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mute: Option<Mute>,
}

/// An order to leave advice out of the counts.
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
