//! A browser, driven through Chromium's own driver by the W3C's `WebDriver` protocol.
//!
//! Written on the HTTP client that is already a dependency: of the protocol, tests need sessions, navigation,
//! elements, scripts, and two commands specific to Chromium. The client fantoccini would add 28 crates, and
//! would need those commands by hand as well.

use crate::{
    monitoring::tools::{Tool, http, installed},
    watchdog,
};
use base64::Engine as _;
use serde_json::{Value, json};
use std::{process::Stdio, time::Duration};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::{Semaphore, SemaphorePermit},
    time,
};

/// Timeout for a browser command on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The protocol's key for the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The protocol's error codes for elements that do not exist, or no longer exist.
const NOT_THERE: [&str; 2] = ["no such element", "stale element reference"];

/// The code points that the protocol uses for keys.
pub(super) const ENTER: &str = "\u{e007}";
pub(super) const ESCAPE: &str = "\u{e00c}";

const CHROMIUM: Tool = Tool { program: "chromium", package: "chromium" };
const CHROMEDRIVER: Tool = Tool { program: "chromedriver", package: "chromium-driver" };

/// Runs few browsers at a time: each takes hundreds of megabytes, and a core while it draws.
static TURN: Semaphore = Semaphore::const_new(4);

/// A running browser with one window.
pub(super) struct Browser {
    http: reqwest::Client,
    session: String,
    _driver: Child,
    _home: TempDir,
    _turn: SemaphorePermit<'static>,
}

impl Browser {
    /// Starts a browser; `None`, after printing a notice, where Chromium is not installed.
    pub(super) async fn start() -> Option<Self> {
        Self::with_scripts(true).await
    }

    /// Starts a browser whose pages run scripts only if `scripts` is set.
    pub(super) async fn with_scripts(scripts: bool) -> Option<Self> {
        watchdog::start();
        if !installed(&[CHROMIUM, CHROMEDRIVER]) {
            return None;
        }
        let turn = TURN.acquire().await.expect("nothing closes the semaphore");
        let home = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(CHROMEDRIVER.program);
        command.arg("--port=0").env("HOME", home.path()).env("TMPDIR", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = command.kill_on_drop(true).spawn().expect("chromedriver runs");
        let stdout = driver.stdout.take().expect("the stream is piped");
        let mut lines = BufReader::new(stdout).lines();
        let port = async {
            while let Some(line) = lines.next_line().await.expect("chromedriver prints text") {
                if let Some((_, port)) = line.split_once("successfully on port ") {
                    return port.trim_end_matches('.').to_owned();
                }
            }
            panic!("chromedriver ended without a port");
        };
        let port = time::timeout(PATIENCE, port).await.expect("chromedriver starts in time");
        let mut options = json!({ "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-proxy-server", "--remote-debugging-pipe", "--window-size=1440,900",
        ] });
        if !scripts {
            options["prefs"] = json!({ "profile.managed_default_content_settings.javascript": 2 });
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": 60_000, "pageLoad": 60_000 },
        } } });
        let http = http();
        let driver_url = format!("http://127.0.0.1:{port}/session");
        let begun = command_of(&http, &driver_url, Some(&wanted)).await;
        let id = begun["sessionId"].as_str().expect("a session has an id");
        let session = format!("{driver_url}/{id}");
        Some(Self { http, session, _driver: driver, _home: home, _turn: turn })
    }

    pub(super) async fn close(self) {
        let ended = self.http.delete(&self.session).timeout(PATIENCE).send().await;
        ended.expect("the session ends");
    }

    async fn tell(&self, command: &str, body: Value) -> Value {
        command_of(&self.http, &format!("{}/{command}", self.session), Some(&body)).await
    }

    pub(super) async fn open(&self, url: &str) {
        self.tell("url", json!({ "url": url })).await;
    }

    pub(super) async fn address(&self) -> String {
        let url = command_of(&self.http, &format!("{}/url", self.session), None).await;
        url.as_str().expect("an address is text").to_owned()
    }

    /// Runs a script and returns its value.
    pub(super) async fn script(&self, script: &str) -> Value {
        self.tell("execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Runs a script and returns the value that it passes to its callback, `arguments[0]`.
    pub(super) async fn script_async(&self, script: &str) -> Value {
        self.tell("execute/async", json!({ "script": script, "args": [] })).await
    }

    /// Waits until an expression is true.
    pub(super) async fn until(&self, expression: &str) {
        let script = format!("return Boolean({expression});");
        let holds = async {
            while self.script(&script).await != true {
                time::sleep(Duration::from_millis(50)).await;
            }
        };
        if time::timeout(PATIENCE, holds).await.is_err() {
            let text = self.text("body").await;
            panic!("{expression} does not hold on {}: {text}", self.address().await);
        }
    }

    /// Applies a command to the first matching element, as soon as there is one: an open page may replace
    /// elements at any moment.
    async fn with_element(
        &self,
        using: &str,
        value: &str,
        act: &str,
        body: Option<&Value>,
    ) -> Value {
        let found = json!({ "using": using, "value": value });
        let done = async {
            loop {
                match self.try_with_element(&found, act, body).await {
                    Ok(answer) => return answer,
                    Err(why) if NOT_THERE.iter().any(|known| why.starts_with(known)) => {}
                    Err(why) => panic!("{value}: {why}"),
                }
                time::sleep(Duration::from_millis(50)).await;
            }
        };
        match time::timeout(PATIENCE, done).await {
            Ok(answer) => answer,
            Err(_) => panic!("{value} is not on {}", self.address().await),
        }
    }

    async fn try_with_element(
        &self,
        found: &Value,
        act: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let url = format!("{}/element", self.session);
        let element = try_command(&self.http, &url, Some(found)).await?;
        let id = element[ELEMENT].as_str().expect("an element has an id");
        try_command(&self.http, &format!("{url}/{id}/{act}"), body).await
    }

    /// Clicks the first element that a selector matches.
    pub(super) async fn click(&self, css: &str) {
        self.with_element("css selector", css, "click", Some(&json!({}))).await;
    }

    /// Clicks the first link or button of the page with this text.
    pub(super) async fn click_text(&self, text: &str) {
        let of = |kind: &str| format!("//main//{kind}[normalize-space()={}]", json!(text));
        let either = [of("a"), of("button")].join(" | ");
        self.with_element("xpath", &either, "click", Some(&json!({}))).await;
    }

    /// Types into the first element that a selector matches.
    pub(super) async fn write(&self, css: &str, text: &str) {
        let body = json!({ "text": text });
        self.with_element("css selector", css, "value", Some(&body)).await;
    }

    /// The text of the first element that a selector matches.
    pub(super) async fn text(&self, css: &str) -> String {
        let text = self.with_element("css selector", css, "text", None).await;
        text.as_str().expect("the text is a string").to_owned()
    }

    /// Presses keys one by one, at the current focus.
    pub(super) async fn press(&self, keys: &str) {
        let each = |kind: &'static str| move |key: char| json!({ "type": kind, "value": key });
        let actions: Vec<Value> =
            keys.chars().flat_map(|key| [each("keyDown")(key), each("keyUp")(key)]).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.tell("actions", json!({ "actions": [keyboard] })).await;
    }

    /// Runs a command of Chromium's developer tools.
    pub(super) async fn devtools(&self, cmd: &str, params: Value) -> Value {
        self.tell("goog/cdp/execute", json!({ "cmd": cmd, "params": params })).await
    }

    /// Console lines since the last call: errors of scripts, the policy and loading.
    pub(super) async fn console(&self) -> Vec<String> {
        let log = self.tell("se/log", json!({ "type": "browser" })).await;
        let lines = log.as_array().expect("the log is a list").iter();
        lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Sets the size of the window and the colour scheme.
    pub(super) async fn looks(&self, width: u32, height: u32, dark: bool) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        // Scrollbars are not judged.
        self.devtools("Emulation.setScrollbarsHidden", json!({ "hidden": true })).await;
        let scheme = if dark { "dark" } else { "light" };
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", scheme).await;
    }

    /// A picture of the whole page.
    pub(super) async fn picture(&self) -> Vec<u8> {
        let whole = json!({ "captureBeyondViewport": true, "format": "png" });
        let picture = self.devtools("Page.captureScreenshot", whole).await;
        let text = picture["data"].as_str().expect("a picture is text");
        base64::prelude::BASE64_STANDARD.decode(text).expect("the picture is base64")
    }
}

/// Sends a command to the driver and returns the value of the response.
async fn command_of(http: &reqwest::Client, url: &str, body: Option<&Value>) -> Value {
    let done = try_command(http, url, body).await;
    done.unwrap_or_else(|why| panic!("{url}: {body:?}: {why}"))
}

/// Sends a command to the driver; fails with the protocol's error code and its message.
async fn try_command(
    http: &reqwest::Client,
    url: &str,
    body: Option<&Value>,
) -> Result<Value, String> {
    let request = match body {
        Some(body) => http.post(url).body(body.to_string()),
        None => http.get(url),
    };
    let answer = request.timeout(PATIENCE).send().await.expect("chromedriver answers");
    let text = answer.text().await.expect("the body is text");
    let mut answer: Value = serde_json::from_str(&text).expect("valid JSON");
    match answer["value"]["error"].as_str() {
        Some(why) => Err(format!("{why}: {}", answer["value"]["message"])),
        None => Ok(answer["value"].take()),
    }
}
