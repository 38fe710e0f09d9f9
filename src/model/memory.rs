//! What is remembered of targets in addition to their facts: job outcomes, back-off after
//! failures, operators' suspensions.
//!
//! Owns the records and the pure rules that lead from one to the next. Never measures and never
//! writes: the follower applies the rules, `journal` stores the records across restarts, and
//! `plan` reads them.

mod calibration;
mod keep;
mod ordered;
mod outcome;
mod rest;
mod suspension;

pub use calibration::Calibration;
pub use keep::{Change, Fleeting, IntentKey, Keeper, Recovered, Trouble};
pub use ordered::Ordered;
pub use outcome::{Ending, Intent, Outcome, Owner};
pub use rest::{CaughtUp, Futile, Left, Remembered, Rest};
pub use suspension::{ParseScopeError, Scope, Suspension, Suspensions};
