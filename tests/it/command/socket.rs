//! Orders over the Unix socket, and those that are not taken over TCP.

use super::{PASSWORD, PATIENCE, Ran, Site, recliner_in, service::Running, world, written};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};
use tokio::time;

/// With it no command asks anything over TCP: what else listens on the default port is left alone.
const HALF_A_LOGIN: [(&str, &str); 1] = [("RECLINER_USER", "ann")];

/// A POST over TCP: status and body.
async fn posted(base: &str, path: &str, body: &Value) -> (u16, Value) {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().expect("it is there");
    let request = http.post(format!("{base}{path}")).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.expect("it is there");
    let status = answer.status().as_u16();
    (
        status,
        serde_json::from_slice(&answer.bytes().await.expect("it is there")).expect("it is there"),
    )
}

async fn got(base: &str, path: &str) -> Value {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().expect("it is there");
    let answer = http.get(format!("{base}{path}")).send().await.expect("it is there");
    serde_json::from_slice(&answer.bytes().await.expect("it is there")).expect("it is there")
}

/// Waits until the plan shows so many suspensions, and returns them.
async fn suspensions(base: &str, many: usize) -> Vec<Value> {
    let shown = async {
        loop {
            let data = got(base, "/api/v1/plan").await["data"]["suspensions"].take();
            let found = data.as_array().cloned().unwrap_or_default();
            if found.len() == many {
                return found;
            }
            time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    time::timeout(PATIENCE, shown).await.expect("it shows in time")
}

fn uid(of: &Path) -> u32 {
    fs::metadata(of).expect("it is there").uid()
}

#[tokio::test]
async fn whoever_may_suspend_may_resume_from_the_same_place() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().expect("it is there");
    let mut running = Running::start(&site, dir.path(), &[]).await;
    let mut base = format!("http://{}", running.address);
    let socket = dir.path().join("data/admin.sock");
    assert_eq!(fs::metadata(&socket).expect("it is there").permissions().mode() & 0o777, 0o600);
    let own = async |words: &[&str]| -> Ran { recliner_in(dir.path(), words, &[]).await };

    // Over TCP nothing is taken, whatever the order: an address says nothing of who asks.
    for path in ["suspend", "resume", "rescan"] {
        let (status, body) = posted(&base, &format!("/api/v1/{path}"), &json!({})).await;
        assert_eq!((status, &body["errorType"]), (403, &json!("forbidden")), "{path}");
        assert!(
            body["error"].as_str().expect("it is there").contains("--web.enable-admin-api"),
            "{body}"
        );
    }
    let ran = own(&["suspend", "--recliner.url", &base]).await;
    ran.refuses(1, &["without --recliner.url", "--web.enable-admin-api"]);

    let ran = own(&["suspend", "--why", "disks are moved"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.starts_with("Everything is suspended since 20"), "{ran:?}");
    let by = format!("unix socket, uid {}", uid(dir.path()));
    let found = &suspensions(&base, 1).await[0];
    assert_eq!((&found["scope"], &found["by"]), (&json!("all"), &json!(by)));
    assert_eq!(found["why"], "disks are moved");
    let says = found["says"].as_str().expect("it is there").to_owned();
    let status = got(&base, "/api/v1/status").await;
    assert_eq!(status["data"]["suspensions"], json!([found]));
    let words = ["plan", "--recliner.url", &base];
    let ran = own(&words).await;
    assert!(ran.out.contains(&format!("\n{says}\n")), "{ran:?}");
    let again = own(&["suspend", "--format", "json"]).await.json();
    assert_eq!((&again["already"], &again["by"]), (&json!(true), &json!(by)));

    // It outlives the process, whose socket a kill leaves behind.
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

    // What else there is to order waits for its flag here too.
    for words in [&["compact", "orders/2024+x"][..], &["rescan"], &["flush"], &["release", "--all"]]
    {
        own(words).await.refuses(1, &["--web.enable-admin-api"]);
    }
    let ran = own(&["resume"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (0, "Resumed: all.\n"), "{ran:?}");
    assert_eq!(suspensions(&base, 0).await, [Value::Null; 0]);
    let words = ["events", "--type", "suspended", "--type", "resumed", "--format", "json"];
    let told = own(&[&words[..], &["--recliner.url", &base]].concat()).await.json();
    let told =
        told["events"].as_array().expect("it is there").iter().map(|it| (&it["type"], &it["by"]));
    let by = json!(by);
    assert_eq!(told.collect::<Vec<_>>(), [(&json!("suspended"), &by), (&json!("resumed"), &by)]);
    running.stop().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn the_socket_needs_no_user_and_can_be_elsewhere_or_nowhere() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().expect("it is there");
    let hash = bcrypt::hash_with_salt(PASSWORD, 4, [7; 16]).expect("it is there");
    let hash = hash.format_for_version(bcrypt::Version::TwoY);
    let web = written(dir.path(), "web.yml", &format!("basic_auth_users: {{ann: {hash}}}\n"));
    let flags = ["--web.config.file", &web, "--web.admin-socket", "here.sock"];
    let mut running = Running::start(&site, dir.path(), &flags).await;
    let own = async |words: &[&str]| -> Ran { recliner_in(dir.path(), words, &[]).await };
    for words in [&["suspend"][..], &["resume"]] {
        let ran = own(&[words, &["--web.admin-socket", "here.sock"]].concat()).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    }
    let base = format!("http://{}", running.address);
    own(&["suspend", "--recliner.url", &base]).await.refuses(1, &["it requires a user"]);

    // One that was named and is not there is not another one.
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

    // A live one is not taken over.
    let holder =
        std::os::unix::net::UnixListener::bind(dir.path().join("held.sock")).expect("it is there");
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
