//! Attacks on a built binary: by whoever reaches its port, by the CouchDB that it reads, and by those
//! who share its machine. Each one is small for the attacker, bounded, and stays on this machine.
//!
//! `cargo test --test attacks` attacks the binary of this build; `RECLINER_ATTACKED` names another.
//! What is held: it goes on answering, its memory and its disk stay within bounds, logins reach
//! nobody, and no file of others changes.

mod clients;
mod couchdb;
mod files;
mod names;
mod victim;
#[path = "../watchdog/mod.rs"]
mod watchdog;
