//! One test binary: cross-cutting tests, one module each.

mod conformance;
mod house;
