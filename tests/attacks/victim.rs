//! The attacked process, and the measured effects of an attack.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::{Child, Command},
    sync::{Semaphore, SemaphorePermit},
    task::JoinSet,
    time::{self, Instant},
};

/// Timeout for a process that ends by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Runs few attacks at a time, because each measures how promptly its victim answers; most of them
/// mainly wait.
static TURN: Semaphore = Semaphore::const_new(8);

const MIB: u64 = 1 << 20;

pub(crate) fn program() -> PathBuf {
    std::env::var_os("RECLINER_ATTACKED")
        .map_or_else(|| env!("CARGO_BIN_EXE_recliner").into(), PathBuf::from)
}

/// Runs a command that ends by itself; returns its status, standard output and standard error.
pub(crate) async fn run(dir: &Path, words: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
    crate::watchdog::start();
    let mut command = Command::new(program());
    command.args(words).current_dir(dir).env_clear().envs(env.iter().copied());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ended = time::timeout(PATIENCE, command.output()).await;
    let ended = ended.unwrap_or_else(|_| panic!("{words:?} has not ended after {PATIENCE:?}"));
    let ended = ended.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = ended.status.code().expect("no signal ended it");
    (code, text(&ended.stdout), text(&ended.stderr))
}

pub(crate) struct Victim {
    pub(crate) address: String,
    pub(crate) dir: tempfile::TempDir,
    process: Child,
    log: JoinSet<String>,
    _turn: SemaphorePermit<'static>,
}

/// The effects of an attack.
#[derive(Debug)]
pub(crate) struct Harm {
    /// The longest wait for an answer of `/-/healthy` during the attack.
    pub(crate) silence: Duration,
    /// The peak growth of memory.
    pub(crate) memory_mib: u64,
    /// The size of the victim's directory after the attack.
    pub(crate) disk_mib: u64,
}

impl Harm {
    /// Asserts that the victim kept answering and that its memory grew by less than this.
    #[track_caller]
    pub(crate) fn within(&self, memory_mib: u64) {
        assert!(self.silence < Duration::from_secs(5), "it stopped answering: {self:?}");
        assert!(self.memory_mib < memory_mib, "it took more than {memory_mib} MiB: {self:?}");
    }
}

impl Victim {
    pub(crate) async fn demo(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self::start(
            dir,
            &[&["demo", "--faults", "--log.level", "info"], flags].concat(),
            "127.0.0.1",
        )
        .await
    }

    /// Starts a demo that listens on this address.
    pub(crate) async fn demo_on(listen: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self::start(dir, &["demo", "--faults", "--log.level", "info"], listen).await
    }

    /// Starts a service for these URLs with a configuration, logged in as `adm`.
    pub(crate) async fn serving(urls: &[String], yaml: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join("recliner.yml"), yaml).expect("the file is writable");
        let mut words = vec!["serve", "--config.file", "recliner.yml", "--mode", "enforce"];
        words.extend(urls.iter().flat_map(|url| ["--couchdb.url", url]));
        Self::start(dir, &words, "127.0.0.1").await
    }

    async fn start(dir: tempfile::TempDir, words: &[&str], listen: &str) -> Self {
        crate::watchdog::start();
        let turn = TURN.acquire().await.expect("nobody closes it");
        let (mut address, mut process, mut log) = Self::spawn(dir.path(), words, listen);
        let ready = async {
            while send_to(&address, &get(&address, "/-/healthy")).await.0 != 200 {
                time::sleep(Duration::from_millis(100)).await;
                // Another process may have taken the port that was free.
                if process.try_wait().is_ok_and(|ended| ended.is_some()) {
                    (address, process, log) = Self::spawn(dir.path(), words, listen);
                }
            }
        };
        let is_ready = time::timeout(PATIENCE, ready).await.is_ok();
        if !is_ready {
            process.kill().await.expect("it can be killed");
            panic!("it is not ready after {PATIENCE:?}: {:?}", log.join_next().await);
        }
        Self { address, dir, process, log, _turn: turn }
    }

    /// Starts a process at a free port; returns its address and its log.
    fn spawn(dir: &Path, words: &[&str], listen: &str) -> (String, Child, JoinSet<String>) {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("a port is free").port();
        let listen = format!("{listen}:{port}");
        let mut command = Command::new(program());
        command.args(words).args(["--web.listen-address", &listen]).env_clear();
        command.envs([("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", crate::couchdb::PASSWORD)]);
        command.current_dir(dir).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().expect("the process starts");
        let mut stderr = process.stderr.take().expect("the stream is piped");
        let mut log = JoinSet::new();
        log.spawn(async move {
            let mut log = Vec::new();
            let _ended = stderr.read_to_end(&mut log).await;
            String::from_utf8_lossy(&log).into_owned()
        });
        (format!("127.0.0.1:{port}"), process, log)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("the process is running")
    }

    /// Attacks the victim and measures the effects.
    pub(crate) async fn during<T>(&self, attack: impl Future<Output = T>) -> (T, Harm) {
        let process = format!("/proc/{}", self.pid());
        // Resets the peak memory that the kernel reports.
        fs::write(format!("{process}/clear_refs"), "5").expect("the process is ours");
        let before = memory(&process, "VmRSS:");
        let attack = async {
            let done = attack.await;
            // Requests that the attack left behind are still being processed.
            time::sleep(Duration::from_secs(1)).await;
            done
        };
        tokio::pin!(attack);
        let mut silence = Duration::ZERO;
        let done = loop {
            let asked = Instant::now();
            let (status, _) = self.get("/-/healthy").await;
            assert_eq!(status, 200, "after {:?}", asked.elapsed());
            silence = silence.max(asked.elapsed());
            tokio::select! {
                done = &mut attack => break done,
                () = time::sleep(Duration::from_millis(100)) => {}
            }
        };
        let memory_mib = memory(&process, "VmHWM:").saturating_sub(before) / MIB;
        (done, Harm { silence, memory_mib, disk_mib: size(self.dir.path()) / MIB })
    }

    /// Sends a plain GET; returns the status and the body.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        self.send(&get(&self.address, path)).await
    }

    /// Sends these bytes and reads to the end; returns the status and the body. Status 0: the
    /// connection was closed.
    pub(crate) async fn send(&self, request: &str) -> (u16, String) {
        send_to(&self.address, request).await
    }

    /// Waits until the response contains this text.
    pub(crate) async fn until(&self, path: &str, says: &str) {
        let found = async {
            while !self.get(path).await.1.contains(says) {
                time::sleep(Duration::from_millis(100)).await;
            }
        };
        let found = time::timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("{path} never said {says}"));
    }

    /// Sends SIGTERM, asserts that the victim ends soon, and returns its log.
    pub(crate) async fn stop(mut self) -> String {
        let asked = std::process::Command::new("kill").arg(self.pid().to_string()).status();
        assert!(asked.expect("kill runs").success());
        let ended = time::timeout(Duration::from_secs(20), self.process.wait()).await;
        let ended = ended.expect("it ends in time").expect("it ends");
        let log = self.log.join_next().await.expect("it logs").expect("it is text");
        assert_eq!(ended.code(), Some(0), "{log}");
        assert!(!log.contains("panicked"), "{log}");
        log
    }
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

/// Sends bytes to an address and reads to the end; returns the status and the body.
pub(crate) async fn send_to(address: &str, request: &str) -> (u16, String) {
    let exchange = async {
        let Ok(mut stream) = TcpStream::connect(address).await else { return String::new() };
        // A server that refuses early may close before everything is written.
        let _early = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = time::timeout(Duration::from_secs(60), exchange).await;
    let answer = answer.unwrap_or_else(|_| panic!("no answer: {request:.200}"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}

/// The value of a line of `/proc/PID/status`, in bytes.
fn memory(process: &str, line: &str) -> u64 {
    let status = fs::read_to_string(format!("{process}/status")).expect("it still runs");
    let line = status.lines().find_map(|it| it.strip_prefix(line)).expect("Linux reports it");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("it is a number");
    kib * 1024
}

/// The bytes of all files below a directory.
fn size(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(file) if file.is_dir() => size(&entry.path()),
            Ok(file) => file.len(),
            Err(_) => 0,
        })
        .sum()
}
