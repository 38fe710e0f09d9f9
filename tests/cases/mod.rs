//! How many cases a property test draws. Included by path, so that the library's tests can use it
//! too.

use proptest::test_runner::Config;

/// For a property that is expensive to check: one case in `share` of those that other properties
/// draw, which are 256, and more in `tests/random.rs`.
pub(crate) fn one_case_in(share: u32) -> Config {
    let usual = Config::default();
    Config { cases: usual.cases.div_ceil(share), ..usual }
}
