//! What must survive a restart, and the hands that keep it.
//!
//! Owns the words between the follower, which says what changed, and whoever writes it down.
//! Never writes anything itself: the journal implements [`Keeper`] with a database,
//! [`Fleeting`] for commands that look once and for tests.

use super::{Calibration, Intent, Outcome, Remembered, Scope, Suspension};
use crate::model::target::TargetId;
use futures::{FutureExt, future::BoxFuture};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};
use wall_clock::Moment;

/// What tells one open [`Intent`] from another: a target is started on a node, or on all of
/// them, once at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentKey {
    /// The target.
    pub target: TargetId,
    /// The node, or `_cluster`.
    pub node: String,
}

impl Intent {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> IntentKey {
        IntentKey { target: self.target.clone(), node: self.node.clone() }
    }
}

/// One thing to write down.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A start was decided; open until an outcome takes its place, or it is withdrawn. One
    /// with the same key takes the place of the older.
    Intended(Intent),
    /// Nothing was begun: the request was refused, or never went out.
    Withdrawn(IntentKey),
    /// A job ended: kept in the history, and the intent with this key, if there is one, is
    /// open no more.
    Ended {
        /// How.
        outcome: Outcome,
        /// The intent it takes the place of; none where somebody else started the job.
        closes: Option<IntentKey>,
    },
    /// What is remembered of a target from now on; `None` forgets it.
    Remember(TargetId, Option<Remembered>),
    /// What holds a scope back from now on.
    Suspend(Scope, Suspension),
    /// Nothing holds a scope back any more.
    Resume {
        /// What may start again.
        scope: Scope,
        /// Who ordered it, and from where.
        by: Option<String>,
    },
    /// What was learned of sizes and times, as a whole.
    Calibrate(Calibration),
}

/// What was kept, as it is read back at start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// Every intent that is open.
    pub intents: Vec<Intent>,
    /// What is remembered of targets.
    pub remembered: BTreeMap<TargetId, Remembered>,
    /// What an operator suspended.
    pub suspensions: BTreeMap<Scope, Suspension>,
    /// What was learned; its default where nothing was.
    pub calibration: Calibration,
    /// Outcomes of jobs that started within the last hour before this start, oldest first:
    /// the hourly budget counts them.
    pub recent: Vec<Outcome>,
}

/// Why something could not be kept, as an operator reads it: what was tried, with what, what
/// to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Trouble(pub String);

/// Whoever keeps what must survive.
pub trait Keeper: Send + Sync + std::fmt::Debug {
    /// Keeps changes, in this order, all or none of them. `Ok` only when they would survive a
    /// crash of the machine.
    ///
    /// After an error nobody knows whether they were kept: the caller sends them again, or
    /// changes that undo them, before any later ones, so keeping a change twice must be the
    /// same as once. The same outcome, by [`closes`](Change::Ended) or else by target, node
    /// and `started_at`, is in the history once. The future runs on when it is dropped, or
    /// has no effect.
    fn keep(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<(), Trouble>>;
}

/// Keeps until the process ends; for commands that look once, the demo, and tests.
#[derive(Clone, Debug, Default)]
pub struct Fleeting(Arc<Mutex<Recovered>>);

impl Fleeting {
    /// What was kept so far: what a restart would read, with every outcome as recent.
    #[must_use]
    pub fn kept(&self) -> Recovered {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Keeper for Fleeting {
    fn keep(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<(), Trouble>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes.into_iter().for_each(|change| kept.apply(change));
        futures::future::ready(Ok(())).boxed()
    }
}

impl Recovered {
    /// Takes in one change: what reading back would find after it was kept.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Intended(intent) => {
                self.intents.retain(|open| open.key() != intent.key());
                self.intents.push(intent);
            }
            Change::Withdrawn(key) => self.intents.retain(|open| open.key() != key),
            Change::Ended { outcome, closes } => {
                self.intents.retain(|open| Some(open.key()) != closes);
                if !self.recent.contains(&outcome) {
                    self.recent.push(outcome);
                }
            }
            Change::Remember(target, Some(remembered)) => {
                self.remembered.insert(target, remembered);
            }
            Change::Remember(target, None) => {
                self.remembered.remove(&target);
            }
            Change::Suspend(scope, suspension) => {
                self.suspensions.insert(scope, suspension);
            }
            Change::Resume { scope, by: _ } => {
                self.suspensions.remove(&scope);
            }
            Change::Calibrate(calibration) => self.calibration = calibration,
        }
    }

    /// The newest moment in it: what a clock that was set back is told by.
    #[must_use]
    pub fn newest(&self) -> Option<Moment> {
        let intents = self.intents.iter().map(|intent| intent.at);
        intents.chain(self.recent.iter().map(|outcome| outcome.ended_at)).max()
    }
}
