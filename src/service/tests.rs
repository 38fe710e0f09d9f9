//! The service from start to shutdown, over the simulated cluster.

mod other_cluster;
mod sidecar;
mod views;

use super::*;
use crate::{
    config::{File, Flags},
    simulated::SimulatedDisks,
};
use couchdb_sim::{Cluster, faulty_demo_config};
use std::{collections::VecDeque, path::Path};
use tokio::task::JoinSet;

/// Long enough for a loaded machine; no test waits for a clock on purpose.
const PATIENCE: Duration = Duration::from_secs(60);

const FILE: &str = "scan: {interval: 1h}\npoll: 1h\ncouchdb: {cold_reads_per_second: off}\n";

fn flags() -> Flags {
    let world = faulty_demo_config();
    let user = &world.users[0];
    Flags {
        couchdb_urls: ["sim-1", "sim-2", "sim-3"]
            .map(|host| format!("http://{host}.local:5984"))
            .to_vec(),
        couchdb_username: Some(user.name.clone()),
        env_password: Some(user.password.as_str().into()),
        web_admin_socket: Some("none".into()),
        web_listen_address: Some("127.0.0.1:0".to_owned()),
        web_enable_lifecycle: true,
        ..Flags::default()
    }
}

fn loaded(flags: &Flags, file: &str) -> Result<Loaded, String> {
    let file = File { name: Path::new("recliner.yml"), bytes: file.as_bytes() };
    config::load(flags, Some(file)).map_err(|problems| problems.to_string())
}

async fn start(settings: Settings) -> Result<Service, StartError> {
    start_with(settings, journal::InMemory::default()).await
}

async fn start_with(
    settings: Settings,
    storage: impl Storage + 'static,
) -> Result<Service, StartError> {
    let cluster = Cluster::new(faulty_demo_config(), 1, Clock::System).unwrap();
    let transport = Transport::in_process(cluster.by_host());
    let about = ProcessInfo::of_this_build(true);
    let machine = HostAccess { meter: Arc::new(SimulatedDisks(cluster)), directories: None };
    Service::start(settings, transport, about, Clock::System, storage, machine).await
}

/// A running service, and a client for it.
struct RunningService {
    url: String,
    client: reqwest::Client,
    watch: (crate::scan::ScanHandle, crate::plan::planner::PlannerHandle),
    stop: CancellationToken,
    tasks: JoinSet<ServiceEnd>,
}

impl RunningService {
    /// Starts a service whose reloads read the given configurations one after the other.
    async fn start(reloads: impl IntoIterator<Item = (Flags, String)>) -> Self {
        let settings = loaded(&flags(), FILE).unwrap().settings;
        Self::start_with(settings, journal::InMemory::default(), reloads).await
    }

    /// Starts a service with these settings and this journal.
    async fn start_with(
        settings: Settings,
        storage: impl Storage + 'static,
        reloads: impl IntoIterator<Item = (Flags, String)>,
    ) -> Self {
        // Another test may have installed the same provider before.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let service = start_with(settings, storage).await.unwrap();
        let url = format!("http://{}", service.address());
        let watch = (service.monitor().scanner.clone(), service.monitor().planner.clone());
        let stop = service.stop_token();
        let mut reloads: VecDeque<_> = reloads.into_iter().collect();
        let reload: ReloadFn = Box::new(move || {
            let (flags, file) = reloads.pop_front().ok_or("no more reloads are planned")?;
            loaded(&flags, &file)
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(service.run(reload));
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { url, client, watch, stop, tasks }
    }

    async fn get(&self, path: &str) -> String {
        let answer = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        answer.text().await.unwrap()
    }

    async fn post(&self, path: &str) -> (u16, String) {
        let answer = self.client.post(format!("{}{path}", self.url)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn has(&self, line: &str) -> bool {
        self.get("/metrics").await.lines().any(|it| it == line)
    }

    async fn ended(mut self) -> ServiceEnd {
        let ended = time::timeout(PATIENCE, self.tasks.join_next()).await;
        ended
            .expect("the service ends in time")
            .expect("the set holds the service")
            .expect("no panic")
    }
}

fn config_status(text: &str) -> serde_json::Value {
    let mut body: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut config = body["data"]["config"].take();
    config.as_object_mut().unwrap().remove("loaded_at");
    config
}

#[tokio::test]
async fn reload_takes_effect_as_a_whole_or_not_at_all() {
    const SUCCESSFUL: &str = "recliner_config_last_reload_successful";
    let good = "scan: {interval: 2h}\npoll: 1h\ncouchdb: {cold_reads_per_second: off}\n\
        channels: [{name: big_dbs, kind: db, priority: slack, min_priority: 1MiB}]\n";
    let bad = "scan: {interval: 3h, intervall: 1h}\nchannels: [{name: x, kind: y}]\n";
    let other = Flags { log_format: Some("json".to_owned()), ..flags() };
    let mut running = RunningService::start([
        (flags(), bad.to_owned()),
        (flags(), good.to_owned()),
        (other.clone(), good.to_owned()),
        (other, good.to_owned()),
        (flags(), good.to_owned()),
    ])
    .await;
    let ready = running.watch.0.status.wait_for(|status| status.ready);
    drop(time::timeout(PATIENCE, ready).await.expect("the simulation answers").unwrap());
    assert!(running.has(&format!("{SUCCESSFUL} 1")).await);
    assert_eq!(running.get("/-/ready").await, "recliner is ready\n");

    let (status, why) = running.post("/-/reload").await;
    assert_eq!(status, 500);
    assert!(why.contains("intervall") && why.contains("recliner.yml"), "{why}");
    assert!(why.ends_with("the old configuration stays active\n"), "{why}");
    assert!(running.has(&format!("{SUCCESSFUL} 0")).await);
    assert!(running.has("recliner_channel_concurrency_limit{channel=\"ratio_dbs\"} 1").await);
    assert!(running.get("/api/v1/config").await.contains("\"interval\":\"1h\""));

    let (status, text) = running.post("/-/reload").await;
    assert_eq!((status, &*text), (200, "the new configuration is active\n"));
    assert!(running.has(&format!("{SUCCESSFUL} 1")).await);
    assert!(running.get("/api/v1/config").await.contains("\"interval\":\"2h\""));
    let planned = running.watch.1.plan.wait_for(|plan| plan.channels.list.len() == 1);
    drop(time::timeout(PATIENCE, planned).await.expect("the planner follows").unwrap());
    assert!(running.has("recliner_channel_concurrency_limit{channel=\"big_dbs\"} 1").await);
    assert!(!running.get("/metrics").await.contains("ratio_dbs\"} 1\n# HELP recliner_node_up"));
    let nothing = serde_json::json!({"last_reload_successful": true, "needs_restart": [], "web_problem": null});
    assert_eq!(config_status(&running.get("/api/v1/status").await), nothing);

    // A change that needs a restart is listed until it is undone.
    for _ in 0..2 {
        assert_eq!(running.post("/-/reload").await.0, 200);
        assert_eq!(
            config_status(&running.get("/api/v1/status").await),
            serde_json::json!({
                "last_reload_successful": true, "needs_restart": ["--log.format"],
                "web_problem": null,
            })
        );
    }
    assert_eq!(running.post("/-/reload").await.0, 200);
    assert_eq!(config_status(&running.get("/api/v1/status").await), nothing);

    // Neither a failed reload nor a quit ends a task unexpectedly.
    assert_eq!(running.post("/-/reload").await.0, 500);
    assert_eq!(running.post("/-/quit").await, (200, "recliner is stopping\n".to_owned()));
    assert_eq!(running.ended().await, ServiceEnd::Stopped);
}

#[tokio::test]
async fn stops_on_request_while_clients_stay_connected() {
    let running = RunningService::start([]).await;
    // One client never sends a request; another sent one and may send more.
    let silent = tokio::net::TcpStream::connect(running.url.trim_start_matches("http://")).await;
    assert_eq!(running.get("/-/healthy").await, "recliner is healthy\n");
    running.stop.cancel();
    assert_eq!(running.ended().await, ServiceEnd::Stopped);
    drop(silent);
}

#[tokio::test]
async fn start_fails_with_the_reason_if_port_or_web_file_is_unusable() {
    let occupied_port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = occupied_port.local_addr().unwrap();
    let listen = Flags { web_listen_address: Some(address.to_string()), ..flags() };
    let refused = start(loaded(&listen, FILE).unwrap().settings).await.unwrap_err();
    let message = refused.to_string();
    assert!(matches!(refused, StartError::Listen { .. }), "{message}");
    assert!(message.starts_with(&format!("cannot listen on {address}: ")), "{message}");
    assert!(message.ends_with("; choose another one with --web.listen-address"), "{message}");

    let users = Flags { web_config_file: Some("web.yml".into()), ..flags() };
    let refused = start(loaded(&users, FILE).unwrap().settings).await.unwrap_err();
    assert!(matches!(refused, StartError::Web(_)));
    let message = refused.to_string();
    let says = "web.yml: cannot read the configuration named by --web.config.file: ";
    assert!(message.starts_with(says), "{message}");

    // A file without users gives access to everybody.
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("web.yml");
    std::fs::write(&empty, "http_server_config: {http2: false}\n").unwrap();
    let open = Flags {
        mode: Some("enforce".to_owned()),
        web_listen_address: Some("0.0.0.0:0".to_owned()),
        web_enable_admin_api: true,
        web_config_file: Some(empty),
        ..flags()
    };
    let refused = start(loaded(&open, FILE).unwrap().settings).await.unwrap_err();
    assert!(matches!(refused, StartError::Web(_)));
    let message = refused.to_string();
    assert!(
        message.contains("anyone who can reach 0.0.0.0:0 could start compactions"),
        "{message}"
    );
}
