//! `recliner events --follow`, over a restart of the service.

use super::{PATIENCE, Site, service::Running, world};
use recliner::serve::report::EventLine;
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::TcpListener,
    process::{ChildStdout, Command},
    time,
};

/// The events that `--follow` prints.
struct Events(Lines<BufReader<ChildStdout>>);

impl Events {
    /// The next event about a database.
    async fn of(&mut self, db: &str) -> u64 {
        let found = async {
            while let Some(line) = self.0.next_line().await.expect("the output is readable") {
                let event: EventLine = serde_json::from_str(&line).expect("a line is an event");
                if event.db.as_deref() == Some(db) {
                    return event.seq;
                }
            }
            panic!("it ended by itself");
        };
        time::timeout(PATIENCE, found).await.expect("it comes in time")
    }
}

/// Waits until a service is connected to both feeds.
async fn connected(address: &str) {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().expect("the HTTP client is valid");
    let connected = async {
        loop {
            let asked = http.get(format!("http://{address}/metrics")).send().await;
            let text = asked.expect("a response arrives").text().await.expect("the body is text");
            let feeds = text.lines().filter(|it| it.starts_with("recliner_feed_connected{"));
            if feeds.filter(|line| line.ends_with(" 1")).count() == 2 {
                return;
            }
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    time::timeout(PATIENCE, connected).await.expect("it listens in time");
}

#[tokio::test]
async fn followed_events_survive_a_service_restart() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let flags = ["--web.listen-address", &free];
    let mut running = Running::start(&site, dir.path(), &flags).await;
    connected(&running.address).await;

    let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
    command.args(["events", "--follow", "--all", "--format", "json"]);
    command.args(["--recliner.url", &format!("http://{free}")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut follows = command.spawn().expect("the process starts");
    let out = follows.stdout.take().expect("the stream is piped");
    let mut events = Events(BufReader::new(out).lines());
    let mut messages = BufReader::new(follows.stderr.take().expect("the stream is piped")).lines();
    let mut says = async |what: &str| {
        let line = time::timeout(PATIENCE, messages.next_line())
            .await
            .expect("the message arrives in time");
        let line = line.expect("it is text").expect("the output continues");
        assert!(line.contains(what), "{line}");
    };

    let make = |name: &str| {
        let database = couchdb_sim::Database::new(name);
        site.cluster.world(|world| world.create(database)).unwrap();
    };
    make("one");
    let one = events.of("one").await;
    says("answered for the cluster of").await;
    running.stop().await;
    says("trying again").await;
    // Changes made while the service is down are reported after its start.
    make("two");
    let mut running = Running::start(&site, dir.path(), &flags).await;
    let two = events.of("two").await;
    assert!(two > one, "{one} {two}");
    says("recliner is answering again").await;
    running.stop().await;
}
