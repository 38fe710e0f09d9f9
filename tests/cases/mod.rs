//! How many cases a property test draws. Included by path, so that the library's tests can use it
//! too.

use proptest::test_runner::Config;

/// For expensive properties: one `share`-th of the usual cases, which are 256 and more in `tests/random.rs`.
pub(crate) fn one_case_in(share: u32) -> Config {
    let usual = Config::default();
    Config { cases: usual.cases.div_ceil(share), ..usual }
}
