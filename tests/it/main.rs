//! One test binary: cross-cutting tests, one module each.

mod house;
