//! Runs a test as a separate process that prints what was acknowledged, until it is killed.

use super::*;
use tokio::{io::AsyncReadExt as _, process::Command};

/// Environment variable with the child's instructions.
const CHILD_VAR: &str = "RECLINER_TEST_JOURNAL_CHILD";

/// The instructions of this process.
pub(super) fn child_instructions() -> String {
    std::env::var(CHILD_VAR).expect("another test starts this one")
}

/// Prints a whole line at once. It begins with a line break, because the harness may have printed before.
pub(super) fn print_line(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").unwrap();
    out.flush().unwrap();
}

/// Starts a test as a child, kills it some time after it printed more than the given number of
/// bytes, and returns the complete lines it printed.
pub(super) async fn run_and_kill(
    test: &str,
    instructions: &str,
    bytes: Option<usize>,
    pause: Duration,
) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(CHILD_VAR, instructions)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut out, mut text) = (child.stdout.take().unwrap(), Vec::new());
    while bytes.is_some_and(|bytes| text.len() <= bytes) {
        let more = within_patience(out.read_buf(&mut text)).await.unwrap();
        assert!(more > 0, "it writes until it is killed");
    }
    time::sleep(pause).await;
    within_patience(child.kill()).await.unwrap();
    within_patience(out.read_to_end(&mut text)).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    // The last line may be incomplete.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(ToOwned::to_owned).collect()
}
