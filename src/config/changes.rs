//! What a reload changes, and from when.
//!
//! Two configurations are compared as they would be written. Each key says of itself from
//! when a changed value is in force.

use super::sections::{FLAGS, FileSettings, document};
use crate::model::settings::Settings;

/// From when a changed key is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum When {
    /// At once.
    Live,
    /// When the next sweep begins.
    NextSweep,
    /// After a restart; until then the old value stays in force.
    Restart,
}

impl When {
    /// The moment in words, as the JSON Schema says it.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Live => "at once",
            Self::NextSweep => "next sweep",
            Self::Restart => "restart",
        }
    }
}

/// A key whose value differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// The key, as in the file, or the flag.
    pub key: &'static str,
    /// From when the new value is in force.
    pub when: When,
}

/// What differs between two settings, in the file's order.
#[must_use]
pub fn changes(old: &Settings, new: &Settings) -> Vec<Change> {
    let in_file = document().changes(&FileSettings::of(old), &FileSettings::of(new));
    let by_flag = FLAGS
        .iter()
        .filter(|flag| (flag.write)(old) != (flag.write)(new))
        .map(|flag| Change { key: flag.flag, when: flag.when });
    in_file.into_iter().chain(by_flag).collect()
}
