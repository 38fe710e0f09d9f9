//! A `recliner demo` in its own process, on a free port.

use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time,
};

/// Timeout for everything here that ends by itself.
const PATIENCE: Duration = Duration::from_secs(480);

/// A running demo, which ends when this value is dropped.
pub(crate) struct Demo {
    /// Host and port that it serves on.
    pub(crate) address: String,
    _process: Child,
}

impl Demo {
    /// Starts a demo with faults of every kind, and waits until it serves.
    pub(crate) async fn start() -> Self {
        Self::start_with(&["--faults"]).await
    }

    /// Starts a demo with these flags, and waits until it serves.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
        command.args(["demo", "--web.listen-address", "127.0.0.1:0"]).args(flags);
        command.env_clear().stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the process starts");
        let mut lines = BufReader::new(process.stderr.take().expect("the stream is piped")).lines();
        let served = async {
            while let Some(line) = lines.next_line().await.expect("the output is text") {
                if let Some((_, rest)) = line.split_once("http://") {
                    return rest.split('/').next().unwrap_or_default().to_owned();
                }
            }
            panic!("it ended without serving");
        };
        let address = time::timeout(PATIENCE, served).await.expect("it serves in time");
        Self { address, _process: process }
    }

    /// Suspends a scope, as any user of this machine may.
    pub(crate) async fn suspend(&self, scope: &str, why: &str) {
        let url = format!("http://{}/api/v1/suspend", self.address);
        let body = serde_json::json!({ "scope": scope, "why": why }).to_string();
        let request = super::tools::http().post(&url).header("content-type", "application/json");
        let answer = request.body(body).send().await.expect("a response arrives");
        assert_eq!(answer.status().as_u16(), 200, "the order is accepted");
    }

    /// The demo's `/metrics` once one of its compactions has ended, another is running, and its
    /// nodes were checked for pressure.
    pub(crate) async fn metrics(&self) -> String {
        let http = super::tools::http();
        let url = format!("http://{}/metrics", self.address);
        let signs = [
            "compaction_reclaimed_bytes_total",
            "job_progress_ratio",
            "pressure_probe_latency_seconds",
        ]
        .map(|name| format!("\nrecliner_{name}{{"));
        let lived = async {
            loop {
                let answer = http.get(&url).send().await.expect("a response arrives");
                let text = answer.text().await.expect("the body is text");
                if signs.iter().all(|sign| text.contains(sign)) {
                    return text;
                }
                time::sleep(Duration::from_millis(250)).await;
            }
        };
        time::timeout(PATIENCE, lived).await.expect("the metrics are complete in time")
    }
}
