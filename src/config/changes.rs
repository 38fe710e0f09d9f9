//! What a reload changes, and when each change takes effect.
//!
//! Compares two configurations in their written form. Each key declares when a changed value takes
//! effect.

use super::sections::{FLAGS, FileSettings, document};
use crate::{config_format::Change, model::settings::Settings};

/// The differences between two settings, in the file's order.
pub fn changes(old: &Settings, new: &Settings) -> Vec<Change> {
    let in_file = document().changes(&FileSettings::of(old), &FileSettings::of(new));
    let by_flag = FLAGS
        .iter()
        .filter(|flag| (flag.write)(old) != (flag.write)(new))
        .map(|flag| Change { key: flag.flag, when: flag.when });
    in_file.into_iter().chain(by_flag).collect()
}
