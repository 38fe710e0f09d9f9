//! Groups the changes of many targets into few entries: targets of one queue with the same change
//! at the same time form one entry.

use super::{About, Recurrence, Waiting};
use crate::table::NodeIx;
use std::collections::BTreeMap;

/// Groups up to this size get one entry per target.
const MAX_SEPARATE_ENTRIES: usize = 3;

/// Maximum number of targets listed in the entry of a larger group.
pub(super) const MAX_LISTED_TARGETS: usize = 50;

/// One entry for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeEntry {
    /// The change.
    pub change: About,
    /// The listed targets, best of the queue first; never empty.
    pub listed: Vec<Waiting>,
    /// Number of affected targets.
    pub targets: u64,
    /// Recurrences; `None` if the change is new.
    pub recurrence: Option<Recurrence>,
}

/// The changes to record, and the number of changes beyond the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChanges {
    /// Entries to record.
    pub entries: Vec<ChangeEntry>,
    /// Further targets that entered a queue.
    pub more_queued: u64,
    /// Further targets that are refused for a new reason.
    pub more_refused: u64,
}

/// Key of a group: change, whether it recurred, queue (node and channel) and reason.
type GroupKey = (About, bool, NodeIx, usize, usize);

#[derive(Debug, Default)]
pub(super) struct ChangeGroups(BTreeMap<GroupKey, ChangeGroup>);

#[derive(Debug, Default)]
struct ChangeGroup {
    named: Vec<(Waiting, Option<Recurrence>)>,
    targets: u64,
    repeated: Option<Recurrence>,
}

impl ChangeGroups {
    pub(super) fn add(&mut self, about: About, it: Waiting, repeated: Option<Recurrence>) {
        let reason = match about {
            About::Queued => 0,
            About::Refused => it.refused.map_or(0, |reason| reason as usize + 1),
        };
        let key = (about, repeated.is_some(), it.node, it.channel, reason);
        let group = self.0.entry(key).or_default();
        group.targets += 1;
        group.repeated = match (group.repeated, repeated) {
            (Some(one), Some(other)) => Some(one.merge(other)),
            (one, other) => one.or(other),
        };
        if group.named.len() < MAX_LISTED_TARGETS {
            group.named.push((it, repeated));
        }
    }

    /// The entries; those of newly queued targets come first.
    pub(super) fn into_plan_changes(self, limit: usize) -> PlanChanges {
        let mut changes = PlanChanges::default();
        let entries = self.0.into_iter().flat_map(
            |((about, ..), ChangeGroup { named, targets, repeated })| {
                if named.len() <= MAX_SEPARATE_ENTRIES {
                    let alone = |(it, repeated)| ChangeEntry {
                        change: about,
                        listed: vec![it],
                        targets: 1,
                        recurrence: repeated,
                    };
                    return named.into_iter().map(alone).collect::<Vec<_>>();
                }
                let named = named.into_iter().map(|(it, _)| it).collect();
                vec![ChangeEntry { change: about, listed: named, targets, recurrence: repeated }]
            },
        );
        for entry in entries {
            if changes.entries.len() < limit {
                changes.entries.push(entry);
            } else {
                match entry.change {
                    About::Queued => changes.more_queued += entry.targets,
                    About::Refused => changes.more_refused += entry.targets,
                }
            }
        }
        changes
    }
}
