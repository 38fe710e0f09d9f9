//! The plan: which targets wait in which queue, what would start now, and why the others do not.
//!
//! Owns the queues and their policy, as pure functions of (snapshot, channels, conditions, rules,
//! now): no clock, no I/O, no logging. The planner task holds the [`Queues`] and publishes
//! [`Plan`]s; metrics, API, commands and the enforcer read those. Misses and refusals are computed
//! on request; a queued target stores only its channel, its priority and when it was
//! queued.

mod admission;
mod candidate_summary;
mod compaction_space;
mod conditions;
mod db_copies;
mod decision_counts;
pub mod disk;
mod duty;
mod forecast;
mod freshness;
mod gates;
mod horizon;
mod leading;
mod limit_usage;
mod orders;
mod placement;
pub mod planner;
pub(crate) mod pressure;
mod published;
mod queue_bounds;
mod queue_view;
mod queues;
mod queues_if;
mod refusal;
mod reservation;
mod rules;
mod runs;
mod selected;
mod selection;
mod slot_reservation;
mod slots;
mod start;
mod target_activity;
mod tidy;
mod volume_space;

pub use compaction_space::UsableSpace;
pub use conditions::Conditions;
pub use decision_counts::DecisionCounts;
pub(crate) use duty::{MAX_COUNTED_WORK, rest_after};
pub use freshness::Freshness;
pub use gates::WindowState;
pub use horizon::{HorizonFactor, HorizonFactors, ScarceVolume};
pub use limit_usage::LimitUsage;
pub use orders::OrderAnswer;
pub use placement::{Placement, first_channel, miss_of};
pub use published::{Decision, Plan};
pub use queue_view::QueueView;
pub use queues::Queues;
pub(crate) use queues_if::SupposedTarget;
pub use refusal::{Refusal, RefusalClass, RefusalReason};
pub use reservation::SlotReservation;
pub use rules::Rules;
pub use runs::{Member, RunProgress, SUPPOSED_RUN};
pub use start::{Caveat, CompactionRequest, PlannedStart};
pub use tidy::{TidyOutlook, TidyState};

#[cfg(test)]
mod tests;
