//! The console in a real browser: Chromium, through chromedriver.

mod pages;
mod stories;
mod tasks;
mod webdriver;

use crate::{
    command::{Site, service::Running, written},
    monitoring::tools::http,
};
use couchdb_sim::{Config, Database, Design, Orphan, Role, User};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::{path::Path, time::Duration};
use tokio::time;
use webdriver::Browser;

/// Timeout for a service to read a small cluster.
const PATIENCE: Duration = Duration::from_secs(40);

const PASSWORD: &str = crate::command::PASSWORD;

/// A name that would run scripts if a page took it for markup.
const MARKUP: &str =
    "<script>hacked=1</script><img src=x onerror='hacked=1'>\"'&amp;\u{202e}\u{7}\n";

/// A cluster with every kind of hostile name that CouchDB accepts.
fn hostile() -> Config {
    let nodes = [
        "<b onclick='hacked=1'>&\"\u{202e}one@127.0.0.1".to_owned(),
        format!("{}@127.0.0.1", "n".repeat(200)),
        "node3@127.0.0.1".to_owned(),
    ];
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let design =
        |name: &str| Design { bloat: 5.0, views: vec![name.to_owned()], ..Design::new(name) };
    let long = "a$()+/-".repeat(28);
    let mut config = Config::new(&names)
        .with(Database {
            bloat: 6.0,
            docs: 30_000,
            designs: vec![design(MARKUP), design(&"d".repeat(200)), design("..")],
            ..Database::new("orders/2024+x")
        })
        .with(Database { bloat: 8.0, docs: 20_000, q: 1, ..Database::new(&long) })
        .with(Database { missing: vec![(0, nodes[1].clone())], ..Database::new("torn") });
    config.orphans.push(Orphan {
        node: nodes[2].clone(),
        file: "shards/00000000-ffffffff/gone.1700000000".to_owned(),
        bytes: 3 << 20,
    });
    config.users = administrator();
    config
}

fn administrator() -> Vec<User> {
    vec![User { name: "adm".into(), password: PASSWORD.into(), role: Role::ServerAdmin }]
}

/// Percent-encodes a text for a query string.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

struct Served {
    service: Running,
    base: String,
}

impl Served {
    async fn start(site: &Site, dir: &Path, yaml: &str, flags: &[&str]) -> Self {
        let config = written(dir, "recliner.yml", yaml);
        let mut all = vec!["--config.file", &config, "--web.admin-socket", "none"];
        all.extend(flags);
        let service = Running::start(site, dir, &all).await;
        let served = Self { base: format!("http://{}/", service.address), service };
        served.is_ready().await;
        served
    }

    async fn is_ready(&self) {
        let url = format!("{}-/ready", self.base);
        let ready = async {
            while !http().get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                time::sleep(Duration::from_millis(50)).await;
            }
        };
        time::timeout(PATIENCE, ready).await.expect("the cluster is read in time");
    }

    /// The data of a response of the API.
    async fn data(&self, path: &str) -> Value {
        let answer = http().get(format!("{}api/v1/{path}", self.base)).send().await;
        let text = answer.expect("a response arrives").text().await.expect("the body is text");
        let mut answer: Value = serde_json::from_str(&text).expect("valid JSON");
        answer["data"].take()
    }

    fn page(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    async fn open(&self, browser: &Browser, path: &str) {
        browser.open(&self.page(path)).await;
    }
}

/// Asserts that the console has no errors of scripts or of the policy, and that no name became
/// markup.
async fn assert_quiet(browser: &Browser, page: &str) {
    assert_eq!(browser.console().await, [""; 0], "{page}");
    assert_eq!(browser.script("return typeof hacked;").await, "undefined", "{page}");
}
