//! The revision and date that a build reports: the rules of the build script, and its use of git.

#[path = "../../build/revision.rs"]
#[expect(dead_code, reason = "cargo runs the rest")]
mod build_script;

use build_script::{checked_out, date, revision};
use std::{fs, path::Path, process::Command};

/// Runs git without the machine's own configuration.
fn git(directory: &Path, arguments: &[&str]) {
    let ran = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_COMMITTER_DATE", "2026-11-23T23:30:00+0000")
        .output()
        .expect("git runs");
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn given_revision_and_date_take_precedence() {
    let folder = tempfile::tempdir().unwrap();
    let revision_of = |text: &str| revision(Some(text.to_owned()), None);
    assert_eq!(revision_of("v0.1.0-3-gabc").as_deref(), Ok("v0.1.0-3-gabc"));
    assert_eq!(revision_of(&"0123456789abcdef".repeat(4)).as_deref(), Ok("0123456789ab"));
    assert!(revision_of("two words").is_err());
    assert_eq!(revision(None, None).as_deref(), Ok("unknown"));
    for (seconds, written) in [
        ("0", "1970-01-01"),
        ("951782400", "2000-02-29"),
        ("1795392000", "2026-11-23"),
        ("1795391999", "2026-11-22"),
        ("4107542400", "2100-03-01"),
        ("-1", "1969-12-31"),
    ] {
        assert_eq!(date(Some(seconds.to_owned()), None).as_deref(), Ok(written));
    }
    assert!(date(Some("today".to_owned()), None).is_err());
    assert_eq!(date(None, None).as_deref(), Ok("unknown"));
    assert_eq!(checked_out(folder.path()), None, "there is no repository");
}

#[test]
fn commit_is_found_in_repositories_and_worktrees_only() {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repository");
    fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    assert_eq!(checked_out(&repository), None, "the repository has no commit yet");
    git(&repository, &["commit", "--quiet", "--allow-empty", "--message=first"]);
    let first = checked_out(&repository).expect("it has a commit");
    assert_eq!(revision(None, Some(&first)).map(|shown| shown.len()), Ok(12));
    assert_eq!(date(None, Some(&first)).as_deref(), Ok("2026-11-23"));
    assert!(!first.changing_files.is_empty());
    assert!(first.changing_files.iter().all(|file| file.is_file()), "{first:?}");

    let worktree = folder.path().join("worktree");
    git(&repository, &["worktree", "add", "--quiet", "-b", "side", worktree.to_str().unwrap()]);
    assert!(worktree.join(".git").is_file());
    let before: Vec<_> = contents(&checked_out(&worktree).expect("it has a commit"));
    git(&worktree, &["commit", "--quiet", "--allow-empty", "--message=second"]);
    let second = checked_out(&worktree).expect("it has a commit");
    assert_ne!(first.hash, second.hash);
    assert_ne!(before, contents(&second), "cargo sees that a commit was made");

    let unpacked = repository.join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    assert_eq!(checked_out(&unpacked), None, "an enclosing repository's commit does not count");
}

fn contents(commit: &build_script::Commit) -> Vec<Vec<u8>> {
    commit.changing_files.iter().map(|file| fs::read(file).expect("it is readable")).collect()
}
