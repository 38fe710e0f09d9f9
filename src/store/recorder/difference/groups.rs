//! What is new of many targets, as few entries: those of one queue to which the same happened
//! at once are one.

use super::{About, Repeated, Waiting};
use crate::table::NodeIx;
use std::collections::BTreeMap;

/// Up to so many have an entry each.
const ALONE: usize = 3;

/// So many are named by the entry of more.
pub(super) const NAMED: usize = 50;

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it says.
    pub about: About,
    /// The targets that it names, the best of the queue first; never empty.
    pub named: Vec<Waiting>,
    /// Of how many it says so.
    pub targets: u64,
    /// How often it came again; none where it is new.
    pub repeated: Option<Repeated>,
}

/// What is new, as far as it is to be written, and of how many targets more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What is written.
    pub entries: Vec<Entry>,
    /// How many more targets entered a queue.
    pub more_queued: u64,
    /// How many more targets are refused for another reason.
    pub more_refused: u64,
}

/// What makes one group: what is said, whether it came again, and of which queue and reason.
type Key = (About, bool, NodeIx, usize, usize);

#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<Key, Group>);

#[derive(Debug, Default)]
struct Group {
    named: Vec<(Waiting, Option<Repeated>)>,
    targets: u64,
    repeated: Option<Repeated>,
}

impl Groups {
    pub(super) fn add(&mut self, about: About, it: Waiting, repeated: Option<Repeated>) {
        let reason = match about {
            About::Queued => 0,
            About::Refused => it.refused.map_or(0, |reason| reason as usize + 1),
        };
        let key = (about, repeated.is_some(), it.node, it.channel, reason);
        let group = self.0.entry(key).or_default();
        group.targets += 1;
        group.repeated = match (group.repeated, repeated) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        };
        if group.named.len() < NAMED {
            group.named.push((it, repeated));
        }
    }

    /// The entries, those of targets that entered a queue first.
    pub(super) fn into_difference(self, limit: usize) -> Difference {
        let mut found = Difference::default();
        let entries =
            self.0.into_iter().flat_map(|((about, ..), Group { named, targets, repeated })| {
                if named.len() <= ALONE {
                    let alone =
                        |(it, repeated)| Entry { about, named: vec![it], targets: 1, repeated };
                    return named.into_iter().map(alone).collect::<Vec<_>>();
                }
                let named = named.into_iter().map(|(it, _)| it).collect();
                vec![Entry { about, named, targets, repeated }]
            });
        for entry in entries {
            if found.entries.len() < limit {
                found.entries.push(entry);
            } else {
                match entry.about {
                    About::Queued => found.more_queued += entry.targets,
                    About::Refused => found.more_refused += entry.targets,
                }
            }
        }
        found
    }
}
