//! Attacks on a built binary: by clients that reach its port, by the CouchDB that it reads, and by
//! users of its machine. Each attack is cheap for the attacker, bounded, and stays on this machine.
//!
//! `cargo test --test attacks` attacks the binary of this build; `RECLINER_ATTACKED` names another.
//! Every attack checks that the process keeps answering, that its memory and disk use stay bounded,
//! that logins reach nobody, and that no foreign file changes.

mod clients;
mod couchdb;
mod files;
mod names;
mod victim;
#[path = "../watchdog/mod.rs"]
mod watchdog;
