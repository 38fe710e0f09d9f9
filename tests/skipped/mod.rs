//! A test that cannot run prints the reason where a person sees it, and fails in CI. Included by
//! path, so that the library's tests can use it too.

use std::io::{Write as _, stderr};

/// Prints that the calling test is skipped, and what it lacks. The harness captures the output of
/// the print macros, so this writes to the real standard error. If `RECLINER_TEST_NO_SKIP` is set,
/// as in `.ci/run`, the test fails instead.
pub(crate) fn skipped(lacks: &str) {
    let fails = std::env::var_os("RECLINER_TEST_NO_SKIP").is_some();
    assert!(!fails, "RECLINER_TEST_NO_SKIP is set, and this test cannot run: {lacks}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // A failed write to standard error is no reason to fail the test.
    let _unread = writeln!(stderr(), "skipped: {test}: {lacks}");
}
