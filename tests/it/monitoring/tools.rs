//! Third-party programs that check what recliner ships. A test is skipped if a program that it
//! needs is not installed.

use crate::skipped::skipped;
use std::{
    process::{Output, Stdio},
    time::Duration,
};
use tokio::{io::AsyncWriteExt as _, process::Command, time};

/// Timeout for any of the programs.
const PATIENCE: Duration = Duration::from_secs(180);

/// A program, and the Debian package that contains it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

pub(crate) const PROMTOOL: Tool = Tool { program: "promtool", package: "prometheus" };
pub(crate) const PROMETHEUS: Tool = Tool { program: "prometheus", package: "prometheus" };
pub(crate) const ALERTMANAGER: Tool =
    Tool { program: "prometheus-alertmanager", package: "prometheus-alertmanager" };
pub(crate) const AMTOOL: Tool = Tool { program: "amtool", package: "prometheus-alertmanager" };

pub(crate) const SYSTEMD_ANALYZE: Tool = Tool { program: "systemd-analyze", package: "systemd" };

/// Whether all programs are installed; if not, prints which one is missing.
pub(crate) fn installed(tools: &[Tool]) -> bool {
    crate::watchdog::start();
    let missing = tools.iter().find(|tool| {
        let mut asked = std::process::Command::new(tool.program);
        asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_err()
    });
    if let Some(Tool { program, package }) = missing {
        skipped(&format!("{program}, which Debian has in the package {package}"));
    }
    missing.is_none()
}

/// Runs a tool in the repository's root to its end, with this standard input.
pub(crate) async fn run(tool: Tool, arguments: &[&str], input: &str) -> Ran {
    let mut command = Command::new(tool.program);
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).kill_on_drop(true);
    // Go programs that run for seconds should collect less garbage.
    command.env("GOGC", "400");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the process starts");
    let ended = async {
        let mut stdin = process.stdin.take().expect("the stream is piped");
        stdin.write_all(input.as_bytes()).await.expect("it reads its input");
        drop(stdin);
        process.wait_with_output().await
    };
    let ended = time::timeout(PATIENCE, ended).await.expect("it ends in time");
    let Output { status, stdout, stderr } = ended.expect("it ends");
    let said = [stdout, stderr].concat();
    Ran { success: status.success(), said: String::from_utf8_lossy(&said).into_owned() }
}

/// How a tool ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) success: bool,
    /// Standard output, followed by standard error.
    pub(crate) said: String,
}

/// A client without a proxy and with a short timeout.
pub(crate) fn http() -> reqwest::Client {
    // A second installation has no effect.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()
        .expect("a client without settings of its own can be made")
}
