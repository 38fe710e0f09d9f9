//! Runs a test about denied access as an unprivileged user, because root, as whom CI often runs, is
//! denied nothing. Included by path.

use crate::skipped::skipped;
use std::{
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

/// If the user is root, runs the calling test again as `nobody` in a separate process and returns
/// `true`: the caller is done.
pub(crate) fn ran_as_nobody() -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let thread = std::thread::current();
    let test = thread.name().expect("the harness names a thread after its test");
    let itself = std::env::current_exe().expect("a test has a file");
    let mut again = Command::new(itself);
    again.args(["--exact", test]).uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    match again.output() {
        Ok(ran) => {
            let out = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(ran.status.success() && out.contains("1 passed"), "as nobody: {out}");
        }
        Err(why) => skipped(&format!("access to its own file as the user nobody: {why}")),
    }
    true
}
