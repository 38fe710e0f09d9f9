//! A test that cannot run where it is says so where a person sees it, and fails in CI.
//! Included by path, so that the library's tests have it too.

use std::io::{Write as _, stderr};

/// Says that the calling test is skipped, and what it lacks. The harness captures what the print
/// macros write, so this writes to the real standard error. Where `RECLINER_TEST_NO_SKIP` is set,
/// as `.ci/run` does, the test fails instead.
pub(crate) fn skipped(lacks: &str) {
    let fails = std::env::var_os("RECLINER_TEST_NO_SKIP").is_some();
    assert!(!fails, "RECLINER_TEST_NO_SKIP is set, and this test cannot run: {lacks}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // A test is not worth failing because nobody reads its standard error.
    let _unread = writeln!(stderr(), "skipped: {test}: {lacks}");
}
