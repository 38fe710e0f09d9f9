//! Tables for people, as wide as the terminal.

mod advice;
mod changes;
mod databases;
mod explained;
mod fleet;
mod forecasts;
mod inspected;
mod journal;
mod layout;
mod outlook;
mod planned;
mod preflight;
mod reads;
mod runs;
mod scanned;
mod scorecard;
#[cfg(test)]
#[path = "table/tests/sums.rs"]
pub(super) mod sums;
pub(super) mod tidy;
mod tombstones;
mod usage;
mod xrayed;

pub(super) use advice::advice;
pub(super) use changes::changes;
pub(super) use databases::databases;
pub(super) use explained::explained;
pub(super) use fleet::fleet;
pub(super) use forecasts::forecasts;
pub(super) use inspected::inspected;
pub(super) use journal::{Events, event_cells, outcomes};
pub(super) use layout::{WIDE, bar, cell, elided, filled, paragraph, place, width};
pub(super) use outlook::what_if;
pub(super) use planned::planned;
pub(super) use preflight::{preflight, rehearsal};
pub(super) use reads::{indexes, reads};
pub(super) use runs::runs;
pub(super) use scanned::{disks, headline, nodes, queues, targets};
pub(super) use scorecard::scorecard;
pub(super) use tombstones::tombstones;
pub(super) use usage::usage;
pub(super) use xrayed::xrayed;

/// A paragraph about the nodes that do not answer; empty if all do.
pub(super) fn unanswered(nodes: &[String], width: u16) -> String {
    let says = crate::serve::report::unanswered_in_words(nodes);
    says.map_or_else(String::new, |says| {
        format!("\n{}", paragraph(&super::printable(&says), width))
    })
}
