//! One test binary: cross-cutting tests, one module each.

mod conformance;
mod docs;
mod house;
