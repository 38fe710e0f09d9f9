//! Orders over the Unix socket, and orders that are refused over TCP.

use super::{
    PASSWORD, PATIENCE, Ran, Site, data_of, recliner_beside, recliner_in,
    service::{Running, http_client, wait_until_ready},
    world, written,
};
use recliner::serve::report::{Events, Failed, Planned, Status, SuspensionLine, orders::Suspended};
use serde::de::DeserializeOwned;
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};
use tokio::time;

/// With an incomplete login no command connects over TCP, so that another program on the default
/// port is left alone.
const HALF_A_LOGIN: [(&str, &str); 1] = [("RECLINER_USER", "ann")];

/// Sends an order without parameters over TCP; returns the status and the error.
async fn refused(base: &str, path: &str) -> (u16, Failed) {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().expect("the HTTP client is valid");
    let request = http.post(format!("{base}{path}")).header("content-type", "application/json");
    let answer = request.body("{}").send().await.expect("a response arrives");
    let status = answer.status().as_u16();
    (
        status,
        serde_json::from_slice(&answer.bytes().await.expect("the body arrives"))
            .expect("valid JSON"),
    )
}

/// The data of a successful response.
async fn get<T: DeserializeOwned>(base: &str, path: &str) -> T {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().expect("the HTTP client is valid");
    let answer = http.get(format!("{base}{path}")).send().await.expect("a response arrives");
    data_of(&answer.text().await.expect("the body is text"))
}

/// Waits until the plan shows this many suspensions, and returns them.
async fn suspensions(base: &str, many: usize) -> Vec<SuspensionLine> {
    let shown = async {
        loop {
            let found = get::<Planned>(base, "/api/v1/plan").await.suspensions;
            if found.len() == many {
                return found;
            }
            time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    time::timeout(PATIENCE, shown).await.expect("it shows in time")
}

fn uid(of: &Path) -> u32 {
    fs::metadata(of).expect("the file exists").uid()
}

#[tokio::test]
async fn socket_allows_suspend_and_resume_but_tcp_does_not() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut running = Running::start(&site, dir.path(), &[]).await;
    let mut base = format!("http://{}", running.address);
    // Before its first scan, recliner knows no cluster to name.
    wait_until_ready(&http_client(), &base).await;
    let socket = dir.path().join("data/admin.sock");
    assert_eq!(fs::metadata(&socket).expect("the file exists").permissions().mode() & 0o777, 0o600);
    let own = async |words: &[&str]| -> Ran { recliner_beside(dir.path(), words).await };

    // Over TCP every order is refused: an address does not identify the user.
    for path in ["suspend", "resume", "rescan"] {
        let (status, failed) = refused(&base, &format!("/api/v1/{path}")).await;
        assert_eq!((status, failed.error_type.as_ref()), (403, "forbidden"), "{path}");
        assert!(failed.error.contains("--web.enable-admin-api"), "{failed:?}");
    }
    let ran = own(&["suspend", "--recliner.url", &base]).await;
    ran.refuses(1, &["without --recliner.url", "--web.enable-admin-api"]);

    let base_in_env = [("RECLINER_URL", &*base)];
    let ran = recliner_in(dir.path(), &["suspend"], &base_in_env).await;
    assert!(ran.err.contains("RECLINER_URL"), "the environment wins over the socket: {ran:?}");
    assert_eq!((ran.code, ran.err.contains("--web.enable-admin-api")), (1, true), "{ran:?}");
    let ran = recliner_in(dir.path(), &["resume", "node:couchdb@typo"], &[]).await;
    assert!(ran.err.contains("asking the recliner of the Unix socket data/admin.sock"), "{ran:?}");

    let ran = own(&["suspend", "--why", "disks are moved"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.starts_with("Everything is suspended since 20"), "{ran:?}");
    let by = format!("unix socket, uid {}", uid(dir.path()));
    let found = &suspensions(&base, 1).await[0];
    assert_eq!((found.scope.as_str(), found.by.as_ref()), ("all", Some(&by)));
    assert_eq!(found.why.as_deref(), Some("disks are moved"));
    let says = &found.says;
    let status: Status = get(&base, "/api/v1/status").await;
    assert_eq!(status.suspensions, std::slice::from_ref(found));
    let words = ["plan", "--recliner.url", &base];
    let ran = own(&words).await;
    assert!(ran.out.contains(&format!("\n{says}\n")), "{ran:?}");
    // The output names the cluster that answered, however the recliner was addressed, so a wrong one is noticed.
    let of = |ran: &Ran| ran.about.starts_with("recliner: answered for the cluster of node1@");
    assert!(of(&ran) && of(&own(&["resume", "node:couchdb@typo"]).await), "{ran:?}");
    let ran = own(&["resume", "node:node1@127.0.0.1"]).await;
    let says = "Node node1@127.0.0.1 is not suspended.\nStill suspended: all.\n";
    assert_eq!((ran.code, ran.out.as_str()), (0, says), "{ran:?}");
    let again: Suspended = own(&["suspend", "--format", "json"]).await.answer();
    assert_eq!((again.already, again.by.as_ref()), (true, Some(&by)));

    // The suspension survives the process, whose socket file a kill leaves behind.
    running.kill().await;
    assert!(socket.exists());
    let ran = recliner_in(dir.path(), &["resume"], &HALF_A_LOGIN).await;
    assert_eq!(ran.code, 64, "{ran:?}");
    let says =
        "no process listens on the Unix socket data/admin.sock; asking http://127.0.0.1:10984";
    assert!(ran.err.contains(says), "{ran:?}");
    running = Running::start(&site, dir.path(), &[]).await;
    base = format!("http://{}", running.address);
    suspensions(&base, 1).await;

    // All other orders need the flag here too.
    for words in [&["compact", "orders/2024+x"][..], &["rescan"], &["flush"], &["release", "--all"]]
    {
        own(words).await.refuses(1, &["--web.enable-admin-api"]);
    }
    let ran = own(&["resume"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "Resumed: all.\n"), "{ran:?}");
    assert_eq!(suspensions(&base, 0).await, []);
    let words = ["events", "--type", "suspended", "--type", "resumed", "--format", "json"];
    let events = own(&[&words[..], &["--recliner.url", &base]].concat()).await;
    let events = events.answer::<Events>().events;
    let events = events.iter().map(|it| (it.event_type.as_ref(), it.by.as_ref()));
    let by = Some(&by);
    assert_eq!(events.collect::<Vec<_>>(), [("suspended", by), ("resumed", by)]);
    running.stop().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn socket_needs_no_user_and_can_be_moved_or_disabled() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let hash = bcrypt::hash_with_salt(PASSWORD, 4, [7; 16]).expect("the password can be hashed");
    let hash = hash.format_for_version(bcrypt::Version::TwoY);
    let web = written(dir.path(), "web.yml", &format!("basic_auth_users: {{ann: {hash}}}\n"));
    let flags = ["--web.config.file", &web, "--web.admin-socket", "here.sock"];
    let mut running = Running::start(&site, dir.path(), &flags).await;
    let own = async |words: &[&str]| -> Ran { recliner_beside(dir.path(), words).await };
    for words in [&["suspend"][..], &["resume"]] {
        let ran = own(&[words, &["--web.admin-socket", "here.sock"]].concat()).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    }
    let base = format!("http://{}", running.address);
    own(&["suspend", "--recliner.url", &base]).await.refuses(1, &["it requires a user"]);

    // A socket given on the command line is not replaced by another one if it is missing.
    let ran = own(&["suspend", "--storage.path", "data"]).await;
    ran.refuses(1, &["there is no Unix socket data/admin.sock", "--recliner.url"]);
    let ran = recliner_in(dir.path(), &["suspend"], &HALF_A_LOGIN).await;
    assert_eq!(ran.code, 64, "{ran:?}");
    assert!(
        ran.err
            .contains("there is no Unix socket data/admin.sock; asking http://127.0.0.1:10984\n"),
        "{ran:?}"
    );
    for words in [
        &["suspend", "--web.admin-socket", "a", "--storage.path", "b"][..],
        &["suspend", "--web.admin-socket", "a", "--recliner.url", "http://a"],
        &["resume", "--storage.path", "a", "--recliner.url", "http://a"],
    ] {
        assert_eq!(own(words).await.code, 64, "{words:?}");
    }
    running.stop().await;

    // A socket that another process listens on is not taken over.
    let holder = std::os::unix::net::UnixListener::bind(dir.path().join("held.sock"))
        .expect("the socket can be bound");
    let url = format!("--couchdb.url={}", site.urls[0]);
    let words = ["serve", &url, "--web.listen-address", "127.0.0.1:0", "--web.admin-socket"];
    let ran = own(&[&words[..], &["held.sock"]].concat()).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("another process listens on held.sock"), "{ran:?}");
    drop(holder);

    let mut running = Running::start(&site, dir.path(), &["--web.admin-socket", "none"]).await;
    assert!(!dir.path().join("data/admin.sock").exists());
    running.stop().await;
}
