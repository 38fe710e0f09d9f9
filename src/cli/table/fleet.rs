//! Other recliners: one row each, those that need a person first.

use super::layout::paragraph;
use crate::{cli::printable, serve::report::FleetAnswer};

pub(in crate::cli) fn fleet(fleet: &FleetAnswer, width: u16) -> String {
    let mut text = paragraph(&printable(&fleet.says), width);
    if fleet.members.is_empty() {
        return text;
    }
    text.push_str(&format!("\n{}", fleet.table().wrapped(width)));
    for (at, says) in fleet.reasons().enumerate() {
        if at == 0 {
            text.push('\n');
        }
        text.push_str(&paragraph(&printable(&says), width));
    }
    text
}
