//! `recliner tidy` as a process: what it prints, how it ends, and what it leaves when it is killed.

use super::{PASSWORD, PATIENCE, Ran, Site};
use couchdb_sim::{Config, Database, Design, Node, Role, User};
use serde_json::Value;
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time,
};

const NODE: &str = "nonode@nohost";
const LOGIN: [(&str, &str); 2] = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];

/// A single node as it comes in a container, with a few megabytes of waste.
fn world() -> Config {
    let design = Design { views: vec!["v".into()], bloat: 5.0, ..Design::new("d") };
    let designs = vec![design];
    let mut config = Config::new(&[NODE])
        .with(Database { q: 2, n: 1, docs: 20_000, bloat: 6.0, designs, ..Database::new("orders") })
        .with(Database { q: 1, n: 1, docs: 3_000, bloat: 8.0, ..Database::new("carts") })
        .with(Database { q: 1, n: 1, docs: 100, ..Database::new("clean") });
    config.nodes = vec![Node::new(NODE)];
    config.users =
        vec![User { name: "adm".into(), password: PASSWORD.into(), role: Role::ServerAdmin }];
    config
}

async fn tidy(site: &Site, words: &[&str]) -> Ran {
    let all: Vec<&str> = ["tidy"].iter().chain(words).copied().collect();
    site.run(&all).await
}

fn compactions(site: &Site) -> usize {
    site.cluster.world(|world| world.compactions()).len()
}

#[tokio::test]
async fn dry_run_changes_nothing_and_real_run_leaves_nothing_to_do() {
    let site = Site::open(world()).await;
    let ran = tidy(&site, &["--assume-free", "10GiB"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    for part in ["carts", "orders/_design/d", "orders (2 files)", "Dry run: nothing was changed"] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(!ran.out.contains("clean"), "{}", ran.out);
    assert!(site.cluster.write_requests().is_empty(), "a dry run sends nothing");
    for word in ["cluster", "shard", "copies", "smoosh"] {
        assert!(!ran.out.contains(word), "{word}: {}", ran.out);
    }

    let ran = tidy(&site, &["--assume-free", "10GiB", "--format", "json"]).await;
    let found = ran.json();
    assert_eq!((ran.code, &found["done"]), (0, &Value::Null), "{ran:?}");
    let named = |list: &Value| -> Vec<String> {
        let each = list.as_array().expect("a list").iter();
        each.map(|it| it["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(named(&found["starts"]).len(), 4, "{found}");
    assert!(named(&found["starts"]).contains(&"orders/_design/d".to_owned()), "{found}");

    let ran = tidy(&site, &["--assume-free", "10GiB", "--yes"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("Compacted 4 files in ") && ran.out.contains("After:"), "{}", ran.out);
    assert!(ran.err.contains("index files of orders: cleaned up"), "{}", ran.err);
    // Two files of the view are one request.
    assert_eq!(compactions(&site), 5);

    let ran = tidy(&site, &["--assume-free", "10GiB", "--fail-if-idle"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    let ran = tidy(&site, &["--assume-free", "10GiB"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("Nothing to compact."), "{}", ran.out);
}

#[tokio::test]
async fn only_named_databases_are_compacted() {
    let site = Site::open(world()).await;
    let ran = tidy(&site, &["--database", "carts", "--yes"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(compactions(&site), 1, "{ran:?}");
    // Without a data directory the free space is unknown, and one sentence says so.
    assert_eq!(ran.out.matches("--data-dir").count(), 1, "{}", ran.out);
    let ran = tidy(&site, &["--database", "cart"]).await;
    ran.refuses(64, &["no database is called \"cart\"; did you mean \"carts\"?"]);
}

#[tokio::test]
async fn databases_that_do_not_fit_are_left_with_a_reason() {
    let site = Site::open(world()).await;
    let ran = tidy(&site, &["--assume-free", "1kB", "--yes"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.out.contains("Will be left:") && ran.out.contains("Nothing fits"), "{}", ran.out);
    assert_eq!(compactions(&site), 0);
    // The small database fits, the others do not.
    let ran = tidy(&site, &["--assume-free", "5MB", "--yes", "--format", "json"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    let done = &ran.json()["done"];
    assert_eq!(done["end"], "finished", "{done}");
    let before = |it: &Value| it["reason"] == "headroom" && it["name"] == "orders";
    assert!(done["left"].as_array().is_some_and(|left| left.iter().any(before)), "{done}");
    let outcomes = done["outcomes"].as_array().expect("a list");
    assert!(outcomes.iter().any(|it| it["result"] == "freed"), "{done}");
    assert!(compactions(&site) > 0, "{ran:?}");
}

#[tokio::test]
async fn invalid_flags_send_no_request() {
    let site = Site::open(world()).await;
    for words in [
        &["--until-free", "much"][..],
        &["--max-duration", "0s"],
        &["--yes", "--dry-run"],
        &["--assume-free", "1GB", "--data-dir", "/"],
    ] {
        let ran = tidy(&site, words).await;
        assert_eq!((ran.code, &*ran.out), (64, ""), "{words:?}: {ran:?}");
    }
    assert!(site.cluster.exchanges().is_empty());
    let ran = tidy(&site, &["--until-free", "1GB"]).await;
    ran.refuses(64, &["--data-dir"]);
    assert!(site.cluster.write_requests().is_empty());
}

/// Starts it, and waits until it says that it compacts something.
async fn begin(site: &Site, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    command.args(["tidy", "--yes", "--couchdb.url", &site.urls[0]]).args(words);
    command.env_clear().envs(LOGIN).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child =
        command.stderr(Stdio::piped()).kill_on_drop(true).spawn().expect("the process starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let waits = async {
        while let Some(line) = lines.next_line().await.expect("it prints UTF-8") {
            if line.starts_with("compacting ") {
                return;
            }
        }
        panic!("it ended before it compacted anything");
    };
    time::timeout(PATIENCE, waits).await.expect("it begins in time");
    child
}

/// A compaction takes a minute.
fn slow() -> Config {
    Config { compaction_rate: 50_000, ..world() }
}

#[tokio::test]
async fn killed_tidy_leaves_only_compactions_that_couchdb_finishes() {
    let site = Site::open(slow()).await;
    let mut child = begin(&site, &[]).await;
    time::timeout(PATIENCE, child.kill()).await.expect("in time").expect("it is killed");
    let sent = site.cluster.write_requests();
    let is_start = |path: &str| path.contains("/_compact") || path.contains("/_view_cleanup");
    assert!(!sent.is_empty() && sent.iter().all(|it| is_start(&it.path)), "{sent:?}");
    // Another run reports that the file is being compacted, and does not request it again.
    let ran = tidy(&site, &["--yes", "--max-duration", "3s"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.out.contains("Stopped early (--max-duration is over)"), "{}", ran.out);
}

#[tokio::test]
async fn signal_stops_tidy_and_it_reports_what_still_runs() {
    let site = Site::open(slow()).await;
    let child = begin(&site, &[]).await;
    let pid = child.id().expect("the process is running").to_string();
    let kill = std::process::Command::new("kill").args(["-TERM", &pid]).status();
    assert!(kill.expect("kill runs").success());
    let ended = time::timeout(PATIENCE, child.wait_with_output()).await;
    let output = ended.expect("it ends in time").expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("interrupted") && text.contains("CouchDB is still compacting"), "{text}");
    let before = site.cluster.write_requests().len();
    time::sleep(Duration::from_millis(300)).await;
    assert_eq!(site.cluster.write_requests().len(), before);
}

#[tokio::test]
async fn output_for_a_single_node_mentions_no_cluster_or_copies() {
    let site = Site::open(world()).await;
    for words in [
        &["scan"][..],
        &["explain", "carts"],
        &["explain", "orders"],
        &["databases"],
        &["databases", "orders"],
        &["advise"],
        &["plan"],
        &["tidy", "--assume-free", "10GiB"],
    ] {
        let ran = site.run(words).await;
        assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
        // Ids are excluded: other commands take them as they are.
        let is_id = |line: &&str| line.starts_with("view:") || line.starts_with("db:");
        let says = ran.out.lines().filter(|line| !is_id(line));
        for line in says {
            for word in ["cluster", "copies", "copy", " 00-ff", "_global_changes", "direct address"]
            {
                assert!(!line.contains(word), "{words:?} says {word}: {line}");
            }
        }
    }
    let ran = site.run(&["scan"]).await;
    assert!(ran.out.starts_with("a CouchDB node, read at "), "{}", ran.out);
}

/// Like a container that has only a static binary.
#[tokio::test]
async fn works_without_certificate_authorities() {
    let site = Site::open(world()).await;
    let nowhere = [("SSL_CERT_FILE", "/nonexistent"), ("SSL_CERT_DIR", "/nonexistent")];
    let env: Vec<_> = LOGIN.into_iter().chain(nowhere).collect();
    let ran = site.run_with(&["tidy", "--assume-free", "10GiB"], &env).await;
    assert_eq!(ran.code, 0, "{ran:?}");
}
