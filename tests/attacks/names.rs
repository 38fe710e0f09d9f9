//! Hostile names from a cluster in texts that an operator saves or pastes.

use crate::{
    couchdb::{FalseCouch, PASSWORD, small_world},
    victim::run,
};
use couchdb_sim::{Config, Database, Design};
use std::fs;

/// Text that a shell, YAML or a terminal would interpret.
const HOSTILE: [&str; 6] = [
    "x\nmode: enforce\ncouchdb: {trust_node_hosts: true}\n#",
    "$(touch pwned)",
    "`touch pwned`",
    "';touch pwned;'",
    "\";touch pwned;\"",
    "${COUCHDB_PASSWORD}",
];

fn world(name: &str) -> Config {
    let mut config = small_world().with(Database {
        q: 1,
        n: 1,
        docs: 9_000,
        bloat: 9.0,
        designs: vec![Design { bloat: 9.0, ..Design::new(name) }],
        ..Database::new("app")
    });
    let node = &mut config.nodes[0];
    for key in ["db_channels", "view_channels"] {
        node.settings.push(("smoosh".to_owned(), key.to_owned(), name.to_owned()));
    }
    config
}

const LOGIN: [(&str, &str); 2] = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];

#[tokio::test]
async fn hostile_name_cannot_inject_configuration() {
    for name in HOSTILE {
        let couch = FalseCouch::open(world(name), |_| None).await;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let words = ["import", "smoosh", "--couchdb.url", &couch.url];
        let (code, out, err) = run(dir.path(), &words, &LOGIN).await;
        if code != 0 {
            assert!(!err.is_empty(), "{name}");
            continue;
        }
        fs::write(dir.path().join("recliner.yml"), &out).expect("the file is writable");
        let words = [
            "check-config",
            "--config.file",
            "recliner.yml",
            "--couchdb.url",
            "http://127.0.0.1:1",
        ];
        let (_, shown, _) = run(dir.path(), &words, &LOGIN).await;
        assert!(!out.contains(PASSWORD) && !shown.contains(PASSWORD), "{name}: {out}\n{shown}");
        assert!(!shown.contains("trust_node_hosts: true"), "{name}: {out}");
        // Only the top-level mode matters: a channel may have this mode.
        assert!(shown.lines().all(|line| line != "mode: enforce"), "{name}: {out}");
    }
}

#[tokio::test]
async fn pasted_command_never_executes_a_hostile_name() {
    for name in HOSTILE {
        let couch = FalseCouch::open(world(name), |_| None).await;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).expect("the directory is created");
        let (code, out, err) =
            run(dir.path(), &["plan", "--couchdb.url", &couch.url], &LOGIN).await;
        assert!(code == 0 || code == 2, "{name}: {code} {err}");
        let pastes: String = out
            .lines()
            .filter(|line| line.starts_with("curl "))
            .map(|line| format!("{line}\n"))
            .collect();
        for shell in ["bash", "dash"] {
            // `curl` is replaced by a shell function that does nothing.
            let script = format!("curl() {{ :; }}\n{pastes}");
            let ran = std::process::Command::new(shell)
                .args(["-c", &script])
                .current_dir(dir.path())
                .env_clear()
                .output();
            assert!(ran.expect("the shell runs").status.success(), "{shell} {name}: {pastes}");
            assert!(!dir.path().join("pwned").exists(), "{shell} {name}: {pastes}");
        }
    }
}
