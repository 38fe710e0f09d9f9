//! The domain model: targets, their facts, channels, scores, estimates, settings.
//!
//! Owns values and the pure rules between them. Does no I/O and reads no clock: every rule takes `now`.

pub mod cause;
pub mod channel;
pub mod correction;
pub mod deletions;
pub(crate) mod estimate;
pub mod facts;
pub mod forecast;
pub mod growth;
pub(crate) mod priority;
pub(crate) mod queue;
pub mod reads;
pub mod records;
pub mod rent;
pub(crate) mod rounding;
pub mod score;
pub mod settings;
pub mod share;
pub mod target;
pub mod window;
