//! What is remembered of targets beside their facts: how jobs ended, who must rest, what an
//! operator suspended.
//!
//! Owns the records and the pure rules that lead from one to the next. Never measures and
//! never writes: the follower applies the rules, `journal` keeps the records over a
//! restart, `plan` reads them.

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
