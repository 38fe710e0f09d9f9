//! A cluster with a sidecar on each node and a central process, with the configurations of
//! `deploy/kubernetes`: the central process counts the same targets as a single process, and no
//! sidecar counts targets of the whole cluster.

use super::read;
use crate::{
    command::{NODES, PASSWORD, PATIENCE, Site, service::Running, world},
    monitoring::tools,
};
use std::{collections::BTreeMap, fs, path::Path, time::Duration};
use tokio::time;

const USER: &str = "prometheus";

/// The signature of the view whose file the sidecars find.
const VIEW: &str = "9fc623f8178b1907d8922afdd34debf1";

/// A directory with a shipped configuration whose addresses and logins are replaced by real ones,
/// and a users file.
fn prepare_directory(configuration: &str, urls: &str, more: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let put = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("the file is writable");
    };
    let mut out = String::new();
    let mut of_urls = false;
    for line in configuration.lines() {
        let is_item = line.trim_start().starts_with("- http");
        of_urls = line.trim_start().starts_with("urls:") || of_urls && is_item;
        match line.trim_start() {
            _ if of_urls && is_item => {}
            it if it.starts_with("urls:") => out.push_str(&format!("  urls: {urls}\n")),
            it if it.starts_with("username:") => out.push_str("  username: adm\n"),
            it if it.starts_with("password_file:") => out.push_str("  password_file: password\n"),
            it if it.starts_with("data_dir:") => out.push_str("  data_dir: .\n"),
            // The addresses of the sidecars follow in `more`.
            it if it.starts_with("peers:") || is_item => {}
            _ => out.push_str(&format!("{line}\n")),
        }
    }
    put("recliner.yml", &(out + more));
    put("password", PASSWORD);
    let hash = bcrypt::hash(PASSWORD, 4).expect("the password can be hashed");
    put("web.yml", &format!("basic_auth_users: {{{USER}: {hash}}}\n"));
    folder
}

const FLAGS: [&str; 4] = [
    "serve",
    "--config.file=recliner.yml",
    "--web.config.file=web.yml",
    "--web.listen-address=127.0.0.1:0",
];

async fn start(dir: &Path, flags: &[&str], env: &[(&str, &str)]) -> Running {
    Running::start_with(dir, &[&FLAGS, flags].concat(), env).await
}

/// A process's metrics after its first sweep, read with its own login.
async fn metrics(running: &Running) -> String {
    let get = async |path: &str| {
        let request = tools::http().get(format!("http://{}{path}", running.address));
        let answer =
            request.basic_auth(USER, Some(PASSWORD)).send().await.expect("a response arrives");
        (answer.status().as_u16(), answer.text().await.expect("the body is text"))
    };
    let ready = async {
        while get("/-/ready").await.0 != 200 {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(PATIENCE, ready).await.expect("the first sweep ends");
    let (status, text) = get("/metrics").await;
    assert_eq!(status, 200, "{text}");
    text
}

/// The samples of the families that count targets.
fn targets(metrics: &str) -> BTreeMap<String, String> {
    let lines = metrics.lines().filter(|line| line.starts_with("recliner_targets{"));
    let lines = lines.filter_map(|line| line.rsplit_once(' '));
    lines.map(|(series, value)| (series.to_owned(), value.to_owned())).collect()
}

fn has_failing_peers(metrics: &str) -> bool {
    let errors = metrics.lines().filter(|line| line.starts_with("recliner_scan_errors_total{"));
    errors.filter(|line| line.contains("reason=\"peer\"")).any(|line| !line.ends_with(" 0"))
}

/// Real CouchDB files as a sidecar finds them: one shard with one view.
fn put_files(folder: &Path) {
    let shard = "shards/00000000-ffffffff/orders.1795222434";
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/couchdb-files/tests/data");
    for (from, to) in [
        ("updates.couch", format!("{shard}.couch")),
        ("view_multi.view", format!(".{shard}_design/mrview/{VIEW}.view")),
    ] {
        let to = folder.join(to);
        fs::create_dir_all(to.parent().expect("it has a folder"))
            .expect("the directory is created");
        fs::copy(data.join(from), to).expect("it can be copied");
    }
}

#[tokio::test]
async fn central_process_and_sidecars_count_targets_once() {
    let site = Site::open(world()).await;
    let urls = format!("[{}]", site.urls.join(", "));
    let configuration = read("deploy/kubernetes/components/sidecar/recliner.yml");
    let mut sidecars = Vec::new();
    for node in NODES {
        let folder = prepare_directory(&configuration, "[]", "");
        put_files(folder.path());
        let flag = format!("--node={node}");
        sidecars.push((start(folder.path(), &[&flag], &[]).await, folder));
    }
    for (node, (sidecar, _)) in NODES.iter().zip(&sidecars) {
        let text = metrics(sidecar).await;
        let found = targets(&text);
        let own = format!("node=\"{node}\"");
        // A sidecar counts its own node's targets and none of the cluster; its view is one part of
        // a view.
        assert!(!found.is_empty() && found.keys().all(|it| it.contains(&own)), "{found:?}");
        assert!(text.contains(&format!("recliner_node_view_file_bytes{{{own}}} ")), "{text}");
    }

    let configuration = read("deploy/kubernetes/overlays/sidecars/recliner.yml");
    let peers: Vec<String> =
        sidecars.iter().map(|(running, _)| format!("http://{}", running.address)).collect();
    let peers = format!("peers: [{}]\n", peers.join(", "));
    let folder = prepare_directory(&configuration, &urls, &peers);
    let login = [("RECLINER_USER", USER), ("RECLINER_PASSWORD", PASSWORD)];
    let central = start(folder.path(), &[], &login).await;
    let text = metrics(&central).await;
    assert!(!has_failing_peers(&text), "{text}");
    let found = targets(&text);

    // The central process counts the same targets as a process without sidecars.
    let folder = prepare_directory(&read("deploy/kubernetes/base/recliner.yml"), &urls, "");
    let single = start(folder.path(), &[], &[]).await;
    assert_eq!(found, targets(&metrics(&single).await));
    let views = "recliner_targets{node=\"_cluster\",kind=\"view\",state=\"ok\"}";
    assert_ne!(found[views], "0");

    // Without the login, the sidecars refuse.
    let folder = prepare_directory(&configuration, &urls, &peers);
    let stranger = start(folder.path(), &[], &[]).await;
    assert!(has_failing_peers(&metrics(&stranger).await));
}
