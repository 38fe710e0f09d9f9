//! What a reload changes, and from when.
//!
//! Two configurations are compared as they would be written. Each key says of itself from
//! when a changed value is in force.

use super::sections::{FLAGS, FileSettings, document};
use crate::{config_format::Change, model::settings::Settings};

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
