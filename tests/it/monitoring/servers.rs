//! A real Prometheus and a real Alertmanager, on loopback and free ports, for one test.

use super::tools::{self, ALERTMANAGER, PROMETHEUS, Tool};
use serde_json::Value;
use std::{fs, process::Stdio, time::Duration};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    time,
};

/// Timeout for either to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Dropping it ends the process and deletes its files.
pub(crate) struct Server {
    /// Host and port that it serves on.
    pub(crate) address: String,
    dir: TempDir,
    _process: Child,
}

/// An address whose port was free a moment ago: neither server reports the port that it chose.
async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    listener.local_addr().expect("the listener is bound").to_string()
}

impl Server {
    /// Prometheus with this configuration, which may name `files` relative to its own.
    pub(crate) async fn prometheus(configuration: &str, files: &[(&str, &str)]) -> Self {
        let flags = ["--storage.tsdb.path=data", "--log.level=warn"];
        Self::start(PROMETHEUS, configuration, files, &flags).await
    }

    /// Alertmanager with this configuration, without a cluster.
    pub(crate) async fn alertmanager(configuration: &str) -> Self {
        let flags = ["--storage.path=data", "--cluster.listen-address=", "--log.level=warn"];
        Self::start(ALERTMANAGER, configuration, &[], &flags).await
    }

    async fn start(
        tool: Tool,
        configuration: &str,
        files: &[(&str, &str)],
        flags: &[&str],
    ) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in files.iter().chain(&[("configuration.yml", configuration)]) {
            fs::write(dir.path().join(name), text).expect("the file is writable");
        }
        let address = free_address().await;
        let mut command = Command::new(tool.program);
        command.args(["--config.file=configuration.yml", "--web.listen-address"]).arg(&address);
        command.args(flags).current_dir(dir.path()).kill_on_drop(true);
        let log = fs::File::create(dir.path().join("log")).expect("the file is writable");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().expect("the process starts");
        let server = Self { address, dir, _process: process };
        server.until("/-/ready").await;
        server
    }

    /// Waits until a path answers with success.
    async fn until(&self, path: &str) {
        let http = tools::http();
        let url = format!("http://{}{path}", self.address);
        let answers = async {
            loop {
                if http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                    return;
                }
                time::sleep(Duration::from_millis(100)).await;
            }
        };
        if time::timeout(PATIENCE, answers).await.is_err() {
            panic!("{url} does not answer; it says: {}", self.said());
        }
    }

    /// The server's log.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The server's JSON response to a GET.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let url = format!("http://{}{path}", self.address);
        let answer = tools::http().get(url).send().await.expect("a response arrives");
        let text = answer.text().await.expect("the body is text");
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{path}: {why}: {text}"))
    }
}
