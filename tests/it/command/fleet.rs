//! Several recliners seen as one: through a service, asked directly, and served without a cluster.

use super::{
    PATIENCE, Site, recliner,
    service::{Running, http_client, wait_until_ready},
    world, written,
};
use axum::Router;
use serde_json::Value;
use std::{process::Command, time::Duration};
use tokio::{net::TcpListener, task::JoinSet, time};

/// Waits until the fleet of this recliner is as wanted.
async fn until(address: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let (http, url) = (http_client(), format!("http://{address}/api/v1/fleet"));
    let found = async {
        loop {
            let answer = http.get(&url).send().await.expect("it answers");
            let bytes = answer.bytes().await.expect("it is complete");
            let mut answer: Value = serde_json::from_slice(&bytes).expect("it is JSON");
            if wanted(&answer["data"]) {
                return answer["data"].take();
            }
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    time::timeout(PATIENCE, found).await.expect("it comes in time")
}

#[tokio::test]
async fn fleet_is_the_same_from_a_service_directly_and_standalone() {
    let site = Site::open(world()).await;
    let dirs = [0; 3].map(|_| tempfile::tempdir().expect("a temporary directory"));
    let [member, central, alone] = dirs.each_ref().map(|dir| dir.path());
    let none = ["--web.admin-socket", "none"];
    let running = Running::start(&site, member, &none).await;
    wait_until_ready(&http_client(), &format!("http://{}", running.address)).await;
    let url = format!("http://{}", running.address);
    let fleet = format!("fleet: {{urls: ['{url}', 'http://127.0.0.1:1'], interval: 1s}}\n");
    let config = written(central, "recliner.yml", &fleet);
    let service =
        Running::start(&site, central, &[&none[..], &["--config.file", &config]].concat()).await;
    let whole = |fleet: &Value| {
        let members = fleet["members"].as_array().expect("a list");
        let is_known = |of: usize, key: &str| members.get(of).is_some_and(|it| !it[key].is_null());
        is_known(1, "file_bytes") && is_known(0, "silent_since")
    };
    let found = until(&service.address, whole).await;
    assert_eq!(found["members"][0]["attention"], "silent");
    assert_eq!(found["members"][1]["url"], url);
    let asked =
        recliner(&["fleet", "--recliner.url", &format!("http://{}", service.address)], &[]).await;
    let direct = recliner(&["fleet", "--config.file", &config], &[]).await;
    for ran in [&asked, &direct] {
        assert_eq!(ran.code, 2, "{ran:?}");
        for wanted in ["2 recliners: 1 silent", "ATTENTION", "127.0.0.1:1: silent since "] {
            assert!(ran.out.contains(wanted), "{wanted}: {ran:?}");
        }
    }
    let file = written(alone, "fleet.yml", &fleet);
    let checked = recliner(&["check-config", "--config.file", &file], &[]).await;
    assert_eq!((checked.code, checked.out.contains(&url)), (0, true), "{checked:?}");
    let words = ["fleet", "--config.file", &file, "--serve", "--web.listen-address", "127.0.0.1:0"];
    let mut served = Running::start_with(alone, &words, &[]).await;
    until(&served.address, whole).await;
    // A reload replaces the members; one that cannot be used is refused.
    for (text, members) in
        [("fleet: {urls: 7}\n", 2), ("fleet: {urls: ['http://127.0.0.1:2']}\n", 1)]
    {
        written(alone, "fleet.yml", text);
        let pid = served.pid().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("kill runs").success());
        let count = |fleet: &Value| fleet["members"].as_array().map_or(0, Vec::len);
        until(&served.address, |fleet| count(fleet) == members).await;
    }
    served.stop().await;
}

#[tokio::test]
async fn file_without_members_and_flags_without_effect_are_refused() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let empty = written(dir.path(), "fleet.yml", "fleet: {}\n");
    let wrong = written(dir.path(), "wrong.yml", "fleet: {urls: ['http://a:b@c'], username: x}\n");
    for (words, why) in [
        (&["fleet", "--config.file", &empty][..], "fleet.urls, fleet.file_sd or fleet.http_sd"),
        (&["fleet", "--config.file", &wrong], "password_file"),
        (&["fleet", "--serve"], "--config.file"),
        (&["fleet", "--web.listen-address", "127.0.0.1:0"], "--serve"),
        (&["fleet", "--config.file", &empty, "--recliner.url", "http://a"], "cannot be used with"),
    ] {
        let ran = recliner(words, &[]).await;
        assert_eq!((ran.code, &*ran.out), (64, ""), "{ran:?}");
        assert!(ran.err.contains(why) && !ran.err.contains("a:b@"), "{why}: {ran:?}");
    }
}

/// The processor time of a process, in seconds.
#[cfg(target_os = "linux")]
fn processor_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in parentheses");
    let ticks = fields.split(' ').skip(11).take(2).map(|it| it.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / 100.0
}

/// For a quiet machine: `cargo test --release --test it -- --ignored --nocapture five_hundred`.
#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "measures for two minutes"]
async fn five_hundred_members_take_two_percent_of_a_core() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let member = Running::start(&site, dir.path(), &["--web.admin-socket", "none"]).await;
    let base = format!("http://{}", member.address);
    wait_until_ready(&http_client(), &base).await;
    let status = http_client().get(format!("{base}/api/v1/status")).send().await;
    let status = status.expect("it answers").bytes().await.expect("it is complete");
    let router = Router::new().fallback(async move || status.clone());
    let (mut servers, mut urls) = (JoinSet::new(), Vec::new());
    for _ in 0..500 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        urls.push(format!("'http://{}'", listener.local_addr().expect("it is bound")));
        let router = router.clone();
        servers.spawn(async move { axum::serve(listener, router).await });
    }
    let fleet = format!("fleet: {{urls: [{}]}}\n", urls.join(", "));
    let file = written(dir.path(), "fleet.yml", &fleet);
    let words = ["fleet", "--config.file", &file, "--serve", "--web.listen-address", "127.0.0.1:0"];
    let served = Running::start_with(dir.path(), &words, &[]).await;
    let is_known = |fleet: &Value| {
        let members = fleet["members"].as_array().expect("a list");
        members.len() == 500 && members.iter().all(|it| !it["version"].is_null())
    };
    until(&served.address, is_known).await;
    let (before, seconds) = (processor_seconds(served.pid()), 120);
    time::sleep(Duration::from_secs(seconds)).await;
    let share = (processor_seconds(served.pid()) - before) / seconds as f64;
    println!("500 members every 30 seconds: {:.2} % of a core", share * 100.0);
    until(&served.address, is_known).await;
    assert!(share <= 0.02, "{share}");
}
