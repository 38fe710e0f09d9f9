//! Everything that changes CouchDB: starting compactions, building indexes, overriding smoosh
//! settings. Also tracks started jobs to their end.
//!
//! Owns every request that is not a read. Follows `plan`, and sends nothing in advise mode.

pub(crate) mod enforcer;
pub(crate) mod job_state;
pub(crate) mod runs;
pub mod sharing;
pub mod takeover;
pub mod warmer;
