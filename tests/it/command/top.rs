//! `recliner top` on a pseudo-terminal: what a person sees, and that the terminal is restored afterwards.

use super::{PATIENCE, Site, manual::SCRIPT, recliner, service::Running, world};
use crate::monitoring::tools;
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Command},
    time,
};

/// The size of the terminal.
const ROWS: u16 = 24;
const COLUMNS: u16 = 80;

/// A terminal that runs `recliner top` and then `stty -a`.
struct Terminal {
    process: Child,
    keys: ChildStdin,
    output: ChildStdout,
    screen: vt100::Parser,
    /// The whole output, as text.
    written: String,
}

impl Terminal {
    fn start(url: &str, env: &[(&str, &str)]) -> Self {
        let program = env!("CARGO_BIN_EXE_recliner");
        let line = format!(
            "stty rows {ROWS} cols {COLUMNS}; \
             sh -c 'echo pid=$$.; exec {program} top --recliner.url {url}'; echo status=$?.; stty -a"
        );
        let mut command = Command::new(SCRIPT.program);
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR").envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the process starts");
        Self {
            keys: process.stdin.take().expect("the stream is piped"),
            output: process.stdout.take().expect("the stream is piped"),
            process,
            screen: vt100::Parser::new(ROWS, COLUMNS, 0),
            written: String::new(),
        }
    }

    async fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.expect("keys are accepted");
        self.keys.flush().await.expect("keys are accepted");
    }

    /// The current content of the screen.
    fn seen(&self) -> String {
        self.screen.screen().contents()
    }

    /// Reads until the screen shows the wanted content.
    async fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) {
        let shows = async {
            while !wanted(&self.seen()) {
                assert!(self.read().await, "{what}: it ended: {}", self.written);
            }
        };
        let shown = time::timeout(PATIENCE, shows).await;
        shown.unwrap_or_else(|_| panic!("{what} does not show:\n{}", self.seen()));
    }

    async fn shows(&mut self, text: &str) {
        self.until(text, |seen| seen.contains(text)).await;
    }

    /// Reads more output; returns whether there was any.
    async fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let read = self.output.read(&mut bytes).await.unwrap_or(0);
        self.screen.process(&bytes[..read]);
        self.written.push_str(&String::from_utf8_lossy(&bytes[..read]));
        read > 0
    }

    /// The number between `before` and the next full stop in the output.
    fn number(&self, before: &str) -> String {
        let (_, rest) = self.written.split_once(before).expect("it was written");
        rest.split_once('.').expect("it was written").0.to_owned()
    }

    async fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.number("pid=")]).status();
        assert!(kill.await.expect("kill runs").success());
    }

    /// Reads until the terminal is on the alternate screen, or has left it.
    async fn alternates(&mut self, wanted: bool) {
        let changes = async {
            while self.screen.screen().alternate_screen() != wanted {
                assert!(self.read().await, "it ended: {}", self.written);
            }
        };
        time::timeout(PATIENCE, changes).await.expect("the screen changes");
    }

    /// Sends SIGCONT until it draws again: it may release the screen a moment before it stops, and
    /// SIGCONT has no effect before that.
    async fn goes_on(&mut self) {
        let wakes = async {
            loop {
                self.signal("-CONT").await;
                let drawn = time::timeout(Duration::from_millis(200), self.alternates(true));
                if drawn.await.is_ok() {
                    return;
                }
            }
        };
        time::timeout(PATIENCE, wakes).await.expect("it draws again");
    }

    /// Waits for the end and asserts that the terminal is restored.
    async fn ends_well(mut self) {
        let ends = async { while self.read().await {} };
        time::timeout(PATIENCE, ends).await.expect("it ends in time");
        time::timeout(PATIENCE, self.process.wait()).await.expect("it ends").expect("it ends");
        let screen = self.screen.screen();
        assert!(self.written.contains("\u{1b}[?1049h"), "it was on the alternate screen");
        assert!(!screen.alternate_screen(), "it left the alternate screen");
        assert!(!screen.hide_cursor(), "the cursor is shown");
        assert_eq!(self.number("status="), "0", "{}", self.written);
        let stty = self.written.rsplit_once("status=").expect("it was written").1;
        for on in ["icanon", "echo", "isig", "opost"] {
            assert!(stty.split_whitespace().any(|word| word == on), "{on} is on again: {stty}");
        }
    }
}

/// Waits until a service has read its cluster.
async fn ready(base: &str) {
    let ready = async {
        while recliner(&["health", "--recliner.url", base], &[]).await.code != 0
            || recliner(&["explain", "torn", "--recliner.url", base], &[]).await.code != 0
        {
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    time::timeout(PATIENCE, ready).await.expect("it is ready in time");
}

#[tokio::test]
async fn top_shows_the_service_and_restores_the_terminal() {
    if !tools::installed(&[SCRIPT]) {
        return;
    }
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&site, dir.path(), &["--web.enable-admin-api"]).await;
    let base = format!("http://{}", running.address);
    ready(&base).await;

    let mut terminal = Terminal::start(&base, &[]);
    terminal.shows("mode advise").await;
    terminal.shows("on disk in all copies").await;
    terminal.press("3").await;
    terminal.shows("RECLAIMABLE").await;
    terminal.press("/orders\r").await;
    terminal.shows("orders/2024+x").await;
    terminal.press("\r").await;
    terminal.shows(" Explained ").await;
    terminal.press("\u{1b}").await;
    terminal.until("the list", |seen| !seen.contains(" Explained ")).await;
    terminal.press("S").await;
    terminal.shows("Suspend starts?").await;
    terminal.press("tests\r").await;
    terminal.shows("Done: suspend").await;
    terminal.press("\u{1b}").await;
    terminal.shows("All starts are suspended since").await;
    terminal.press("q").await;
    terminal.ends_well().await;

    // Every other way to quit.
    let mut terminal = Terminal::start(&base, &[("NO_COLOR", "1")]);
    terminal.shows("All starts are suspended since").await;
    terminal.press("\u{3}").await;
    terminal.ends_well().await;
    for signal in ["-TERM", "-QUIT"] {
        let mut terminal = Terminal::start(&base, &[]);
        terminal.shows("All starts are suspended since").await;
        terminal.signal(signal).await;
        terminal.ends_well().await;
    }
    // The shell has the terminal for a while.
    for pause in ["\u{1a}", ""] {
        let mut terminal = Terminal::start(&base, &[]);
        terminal.shows("All starts are suspended since").await;
        match pause {
            "" => terminal.signal("-TSTP").await,
            keys => terminal.press(keys).await,
        }
        terminal.alternates(false).await;
        terminal.goes_on().await;
        terminal.shows("All starts are suspended since").await;
        terminal.press("q").await;
        terminal.ends_well().await;
    }
    running.stop().await;
}

#[tokio::test]
async fn top_survives_a_service_restart() {
    if !tools::installed(&[SCRIPT]) {
        return;
    }
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let flags = ["--web.listen-address", &free];
    let mut running = Running::start(&site, dir.path(), &flags).await;
    let base = format!("http://{free}");
    ready(&base).await;
    let mut terminal = Terminal::start(&base, &[]);
    terminal.shows("mode advise").await;
    running.stop().await;
    terminal.shows("No answer for").await;
    terminal.press("S").await;
    terminal.shows("Not allowed: suspend and resume over TCP are disabled").await;
    terminal.press("\u{1b}").await;
    let mut running = Running::start(&site, dir.path(), &flags).await;
    terminal.until("the service", |seen| !seen.contains("No answer for")).await;
    terminal.press("q").await;
    terminal.ends_well().await;
    running.stop().await;
}

#[tokio::test]
async fn top_without_a_terminal_fails_in_one_sentence() {
    let ran = recliner(&["top", "--recliner.url", "http://127.0.0.1:1"], &[]).await;
    assert_eq!((ran.code, ran.out.as_str(), ran.err.lines().count()), (64, "", 1), "{ran:?}");
    assert!(ran.err.contains("needs a terminal") && ran.err.contains("recliner plan"), "{ran:?}");
}
