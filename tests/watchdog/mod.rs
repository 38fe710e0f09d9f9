//! A limit on the whole run: a test that hangs ends it. The harness has said by then which test
//! runs for more than a minute.

use std::{
    io::{Write as _, stderr},
    sync::{Once, mpsc},
    thread,
    time::Duration,
};

/// Many times what all tests take together, for a machine that is busy with other work.
const LIMIT: Duration = Duration::from_secs(1_800);

/// Starts the clock, at the first call. Whatever a test waits for calls it.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        thread::spawn(|| {
            let (_open, never) = mpsc::channel::<()>();
            let _timeout = never.recv_timeout(LIMIT);
            // It ends the process whether or not anybody reads this.
            let _unread = writeln!(stderr(), "the tests have not ended after {LIMIT:?}: giving up");
            std::process::abort();
        });
    });
}
