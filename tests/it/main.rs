//! One test binary: cross-cutting tests, one module each.

mod browser;
#[path = "../cases/mod.rs"]
mod cases;
mod changes;
mod cluster;
mod command;
mod conformance;
mod deploy;
mod docs;
mod enforcer;
mod faults;
mod hot_databases;
mod house;
mod live;
mod monitoring;
mod rent;
#[path = "../../benches/rent_world/mod.rs"]
mod rent_world;
mod revision;
mod scenario;
#[path = "../seeded/mod.rs"]
mod seeded;
#[path = "../skipped/mod.rs"]
mod skipped;
mod support;
mod takeover;
mod tidy;
mod warmer;
#[path = "../watchdog/mod.rs"]
mod watchdog;
