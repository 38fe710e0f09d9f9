//! One test binary: cross-cutting tests, one module each.

mod cluster;
mod conformance;
mod house;
mod support;
