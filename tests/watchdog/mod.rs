//! A limit on the whole run of a test binary: a test that hangs ends it. After a minute the harness
//! has already printed which test still runs. Included by path, so that the library's tests have
//! it too.

use std::{
    io::{Write as _, stderr},
    sync::{Once, mpsc},
    thread,
    time::Duration,
};

/// Many times what all tests of a binary take together, for a machine that is busy with other work.
const LIMIT: Duration = Duration::from_secs(1_800);

/// Starts the clock at the first call. Everything that waits in a test calls it.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        after(LIMIT, || {
            // The process ends whether or not anybody reads this.
            let _unread = writeln!(
                stderr(),
                "the tests have not ended after {LIMIT:?}, and are aborted; the harness names \
                 above those that have been running for over 60 seconds"
            );
            std::process::abort();
        });
    });
}

/// Calls a function after a time, which is real even where a test pauses its own.
fn after(limit: Duration, act: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        let (_open, never) = mpsc::channel::<()>();
        let _timeout = never.recv_timeout(limit);
        act();
    });
}

/// Starts the clock for tests that wait for nothing of their own accord, too.
#[test]
fn a_run_that_hangs_ends_at_its_limit() {
    start();
    let (expired, waiting) = mpsc::channel();
    after(Duration::from_millis(1), move || expired.send(()).expect("the test waits"));
    waiting.recv_timeout(LIMIT).expect("the limit passes");
}
