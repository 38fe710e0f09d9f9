//! What changes something: starts compactions, has indexes built, takes settings over, and sees each through to its end.
//!
//! Owns every request that is not a read. Does only what `plan` says, and nothing in advise mode.

pub mod enforcer;
pub mod follower;
pub mod takeover;
pub mod warmer;
