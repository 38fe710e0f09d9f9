//! Why the waste of databases is not compacted, kept until the next sweep.
//!
//! Finding it looks at every target, and an open page asks again and again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

/// Number of questions whose reasons are kept.
const MAX_KEPT: usize = 32;

/// The reason of each database, in words.
pub(super) type Reasons = Arc<BTreeMap<String, String>>;

/// The reasons as of one sweep, by the databases asked for.
#[derive(Clone, Debug, Default)]
pub struct KeptReasons(Arc<Mutex<OfSweep>>);

#[derive(Debug, Default)]
struct OfSweep {
    sweep: u64,
    known: BTreeMap<BTreeSet<String>, Reasons>,
}

impl KeptReasons {
    /// The reasons that are known since this sweep.
    pub(super) fn known(&self, sweep: u64, names: &BTreeSet<String>) -> Option<Reasons> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.known.get(names).filter(|_| kept.sweep == sweep).cloned()
    }

    /// Keeps the reasons that were found since this sweep.
    pub(super) fn keep(
        &self,
        sweep: u64,
        names: BTreeSet<String>,
        found: BTreeMap<String, String>,
    ) -> Reasons {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.sweep != sweep || kept.known.len() >= MAX_KEPT {
            *kept = OfSweep { sweep, known: BTreeMap::new() };
        }
        let found = Arc::new(found);
        kept.known.insert(names, Arc::clone(&found));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_kept_for_one_snapshot_and_question() {
        let (kept, names) = (KeptReasons::default(), BTreeSet::from(["orders".to_owned()]));
        assert_eq!(kept.known(7, &names), None);
        let found = BTreeMap::from([("orders".to_owned(), "window".to_owned())]);
        kept.keep(7, names.clone(), found.clone());
        assert_eq!(kept.known(7, &names).as_deref(), Some(&found));
        assert_eq!(kept.known(7, &BTreeSet::new()), None, "another question");
        assert_eq!(kept.known(8, &names), None, "the next sweep");
    }
}
