//! A test as a process of its own, which prints what it was told is kept until it is killed.

use super::*;
use tokio::{io::AsyncReadExt as _, process::Command};

/// Where a child finds what it is to do.
const CHILD: &str = "RECLINER_TEST_JOURNAL_CHILD";

/// What this process is to do.
pub(super) fn told() -> String {
    std::env::var(CHILD).expect("another test starts this one")
}

/// Prints a line at once, and begins it: the harness may have printed before.
pub(super) fn say(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").unwrap();
    out.flush().unwrap();
}

/// Starts such a test, kills it a while after it printed more than so many bytes, and answers
/// with the whole lines it printed.
pub(super) async fn killed(
    test: &str,
    told: &str,
    bytes: Option<usize>,
    pause: Duration,
) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(CHILD, told)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut out, mut text) = (child.stdout.take().unwrap(), Vec::new());
    while bytes.is_some_and(|bytes| text.len() <= bytes) {
        let more = soon(out.read_buf(&mut text)).await.unwrap();
        assert!(more > 0, "it writes until it is killed");
    }
    time::sleep(pause).await;
    soon(child.kill()).await.unwrap();
    soon(out.read_to_end(&mut text)).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    // The last line may be torn.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(ToOwned::to_owned).collect()
}
