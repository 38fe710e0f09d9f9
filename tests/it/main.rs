//! One test binary: cross-cutting tests, one module each.

mod cluster;
mod command;
mod conformance;
mod docs;
mod faults;
mod house;
mod live;
mod support;
mod takeover;
