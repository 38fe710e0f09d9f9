//! One test binary: cross-cutting tests, one module each.

mod cluster;
mod conformance;
mod faults;
mod house;
mod support;
