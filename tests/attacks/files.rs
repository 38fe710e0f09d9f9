//! Attacks by users of the same machine: links where files are created, and endless files.

use crate::{
    couchdb::{FalseCouch, PASSWORD, small_world},
    victim::{Victim, program, run},
};
use std::{
    fs::{self, File},
    os::unix::fs::{FileExt as _, MetadataExt as _, symlink},
};
use tokio::time::Instant;

#[tokio::test]
async fn settings_are_read_from_pipes_and_standard_input() {
    let (dir, ini) = (tempfile::tempdir().expect("a temporary directory"), "[smoosh]\nx = 1\n");
    fs::write(dir.path().join("local.ini"), ini).expect("the file is writable");
    let program = program();
    for from in [
        "--ini <(sleep 1; cat local.ini)",
        "--ini <(cat local.ini)",
        "--ini /dev/stdin < local.ini",
        "--ini - < local.ini",
        "--ini local.ini",
    ] {
        for words in [from.to_owned(), format!("{from} --ini /dev/null")] {
            let script = format!("exec '{}' import smoosh {words}", program.display());
            let mut command = tokio::process::Command::new("bash");
            let ended = command.args(["-c", &script]).current_dir(dir.path()).output().await;
            let ended = ended.expect("bash runs");
            let (out, err) = (ended.stdout, String::from_utf8_lossy(&ended.stderr));
            assert!(ended.status.code() != Some(64) && !out.is_empty(), "{from}: {err}");
        }
    }
    let script = format!("cat local.ini | '{}' import smoosh --ini -", program.display());
    let mut command = tokio::process::Command::new("bash");
    let ended = command.args(["-c", &script]).current_dir(dir.path()).output().await;
    assert!(!ended.expect("bash runs").stdout.is_empty());
}

#[tokio::test]
async fn backup_does_not_follow_symlinks() {
    let victim = Victim::demo(&["--web.enable-admin-api"]).await;
    let url = format!("http://{}", victim.address);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (target, owned) = (dir.path().join("journal.backup"), dir.path().join("owned"));
    for link in ["journal.backup", "journal.backup.part", "journal.backup.tmp"] {
        fs::write(&owned, "of somebody else").expect("the file is writable");
        symlink(&owned, dir.path().join(link)).expect("a link can be made");
        let file = target.to_str().expect("it is UTF-8");
        let (code, out, err) =
            run(dir.path(), &["backup", file, "--recliner.url", &url], &[]).await;
        let kept = fs::read_to_string(&owned).unwrap_or_default();
        assert_eq!(kept, "of somebody else", "{link}: {code} {out} {err}");
        let _gone = fs::remove_file(dir.path().join(link));
        let _gone = fs::remove_file(&target);
    }
}

#[tokio::test]
async fn journal_is_readable_only_by_its_owner() {
    let couch = FalseCouch::open(small_world(), |_| None).await;
    let victim = Victim::serving(std::slice::from_ref(&couch.url), "poll: 1s\n").await;
    victim.until("/metrics", "recliner_journal_usable 1").await;
    let files = fs::read_dir(victim.dir.path().join("data")).expect("it is there");
    for file in files.flatten() {
        let mode = file.metadata().expect("it is there").mode() & 0o077;
        assert_eq!(mode, 0, "{:?}: {mode:o}", file.path());
    }
    victim.stop().await;
}

#[tokio::test]
async fn huge_sparse_file_is_inspected_quickly() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("sparse.couch");
    let file = File::create(&path).expect("it can be made");
    file.write_at(b"x", 1 << 40).expect("the file system has sparse files");
    let began = Instant::now();
    let (code, out, err) = run(dir.path(), &["inspect", "sparse.couch"], &[]).await;
    assert!(code != 0 && began.elapsed().as_secs() < 20, "{:?} {out} {err}", began.elapsed());
}

#[tokio::test]
async fn refuses_endless_settings_files() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for what in ["smoosh", "compaction-daemon"] {
        for endless in ["/dev/zero", "/dev/urandom"] {
            let words = ["import", what, "--ini", endless];
            let (code, out, err) = run(dir.path(), &words, &[("COUCHDB_PASSWORD", PASSWORD)]).await;
            assert!(code != 0 && out.is_empty() && !err.is_empty(), "{words:?}: {code} {out:.200}");
        }
    }
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("silent")).status();
    assert!(made.expect("mkfifo runs").success());
    let began = Instant::now();
    let silent = tokio::join!(
        run(dir.path(), &["import", "smoosh", "--ini", "silent"], &[]),
        run(dir.path(), &["check-config", "--config.file", "silent"], &[]),
        run(dir.path(), &["preflight", "orders", "silent"], &[]),
    );
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    for (code, out, err) in [silent.0, silent.1, silent.2] {
        let says = err.contains("it is a pipe, and nothing was written to it for 20 s");
        assert!(code != 0 && out.is_empty() && says, "{code} {out} {err}");
    }
    for words in [["check-config", "--config.file", "/dev/zero"]] {
        let (code, _, err) = run(dir.path(), &words, &[]).await;
        assert!(code != 0 && !err.is_empty(), "{words:?}");
    }
}
