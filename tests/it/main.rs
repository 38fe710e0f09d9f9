//! One test binary: cross-cutting tests, one module each.

mod changes;
mod cluster;
mod command;
mod conformance;
mod deploy;
mod docs;
mod enforcer;
mod faults;
mod house;
mod live;
#[path = "../luck/mod.rs"]
mod luck;
mod monitoring;
mod scenario;
mod support;
mod takeover;
mod warmer;
