//! A time limit for the whole run of a test binary, which ends a run with a hanging test. After a
//! minute the harness has already printed the test's name. Included by path, so that the library's
//! tests can use it too.

use std::{
    io::{Write as _, stderr},
    sync::{Once, mpsc},
    thread,
    time::Duration,
};

/// A multiple of the duration of all tests of a binary, for a machine that is busy with other work.
const LIMIT: Duration = Duration::from_secs(1_800);

/// Starts the time limit at the first call. Every test helper that waits calls it.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        after(LIMIT, || {
            // The process ends even if nobody reads this.
            let _unread = writeln!(
                stderr(),
                "the tests have not ended after {LIMIT:?}, and are aborted; the harness names \
                 above those that have been running for over 60 seconds"
            );
            std::process::abort();
        });
    });
}

/// Calls a function after a delay in real time, even if the test pauses its own.
fn after(limit: Duration, act: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        let (_open, never) = mpsc::channel::<()>();
        let _timeout = never.recv_timeout(limit);
        act();
    });
}

/// Also starts the time limit, for tests that never call a waiting helper.
#[test]
fn hanging_run_ends_at_the_time_limit() {
    start();
    let (expired, waiting) = mpsc::channel();
    after(Duration::from_millis(1), move || expired.send(()).expect("the test waits"));
    waiting.recv_timeout(LIMIT).expect("the limit passes");
}
