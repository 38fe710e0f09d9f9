//! Tests over sockets, in real time.

use super::fake::{Cluster, Running, run, settings};
use crate::{Cache, ClientSettings, ErrorKind, Transport};
use axum::{Router, extract::Request, response::Response};
use std::{io::Write as _, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_util::task::AbortOnDropHandle;

#[expect(clippy::disallowed_methods, reason = "a test is its own supervisor")]
fn spawn(work: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(work))
}

async fn serve(router: Router) -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, spawn(async move { axum::serve(listener, router).await.unwrap() }))
}

fn over(at: SocketAddr, change: impl FnOnce(&mut ClientSettings)) -> Running {
    let mut settings = settings(&[&format!("http://{at}")]);
    settings.timeout = Duration::from_secs(10);
    change(&mut settings);
    let transport = Transport::http(&settings, "test").unwrap();
    run(settings, transport)
}

/// Answers every request of a connection with these bytes, and closes it.
async fn raw(answer: &'static [u8]) -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _read = socket.read(&mut request).await;
            let _written = socket.write_all(answer).await;
        }
    };
    (address, spawn(serving))
}

#[tokio::test]
async fn names_reach_the_server_byte_for_byte() {
    let (cluster, mut seen) = Cluster::new(|_| None);
    let (at, _server) = serve(cluster.router()).await;
    let client = over(at, |_| {});
    for name in [
        "shards/00000000-7fffffff/app/_design/x.1795222434",
        "a+b",
        "a b\t\r\n\"'%2e%2E%00\\?#&=;:@~",
        "%2e%2e",
        "...",
        "..%2f..",
        "Ünïcode 数据库 \u{202e}",
        &"x/".repeat(100),
    ] {
        let info = client.shard_info("couchdb@127.0.0.1", name, Cache::Warm).await.unwrap();
        assert_eq!(info.db_name.as_deref(), Some(name));
        let path = std::iter::from_fn(|| seen.try_recv().ok()).last().unwrap().path;
        let sent = path.strip_prefix("/_node/couchdb@127.0.0.1/").unwrap();
        assert!(!sent.contains('/'), "{sent}");
        let decoded = percent_encoding::percent_decode_str(sent).decode_utf8().unwrap();
        assert_eq!(decoded, name);
    }
}

#[tokio::test]
async fn body_too_large_after_decompression_is_refused() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&vec![b' '; 4 << 20]).unwrap();
    let bomb = gzip.finish().unwrap();
    assert!(bomb.len() < 8192);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(br#"{"db_name":"small","sizes":{"file":77}}"#).unwrap();
    let small = gzip.finish().unwrap();
    let (cluster, _seen) = Cluster::new(move |seen| {
        let body = match seen.path.rsplit('/').next() {
            Some("bomb") => bomb.clone(),
            Some("small") => small.clone(),
            Some("broken") => b"no gzip at all".to_vec(),
            _ => return None,
        };
        Some(Response::builder().header("content-encoding", "gzip").body(body.into()).unwrap())
    });
    let (at, _server) = serve(cluster.router()).await;
    let client = over(at, |_| {});
    let read = async |name| client.shard_info("couchdb@127.0.0.1", name, Cache::Warm).await;
    assert_eq!(read("small").await.unwrap().sizes.file, Some(77));
    assert_eq!(read("bomb").await.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(read("broken").await.unwrap_err().kind(), ErrorKind::Malformed);
}

#[tokio::test]
async fn truncated_body_and_missing_server_are_connection_failures() {
    let (at, _server) = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"userCtx\":").await;
    let error = over(at, |_| {}).session().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    let (at, server) = raw(b"").await;
    let error = over(at, |_| {}).session().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    drop(server);
    tokio::task::yield_now().await;
    let error = over(at, |_| {}).session().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    assert!(error.to_string().contains("is CouchDB running there"), "{error}");
}

#[tokio::test]
async fn error_names_plain_http_behind_an_https_url() {
    let (at, _server) = raw(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let client = over(at, |settings| {
        settings.urls = vec![format!("https://{at}").parse().unwrap()];
    });
    let error = client.session().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    let text = error.to_string();
    assert!(text.contains("does not speak TLS") && text.contains("http or https"), "{text}");
}

#[tokio::test]
async fn silent_server_ends_with_the_timeout() {
    let silent =
        Router::new().fallback(async |_: Request| -> Response { std::future::pending().await });
    let (at, _server) = serve(silent).await;
    let client = over(at, |settings| settings.timeout = Duration::from_millis(200));
    assert_eq!(client.session().await.unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (cluster, mut seen) = Cluster::new(|seen| {
        let moved = Response::builder().status(301).header("location", "/shard");
        seen.path.ends_with("/moved").then(|| moved.body("".into()).unwrap())
    });
    let (at, _server) = serve(cluster.router()).await;
    let client = over(at, |_| {});
    let error = client.shard_info("couchdb@127.0.0.1", "moved", Cache::Warm).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Redirect, "{error}");
    assert!(!std::iter::from_fn(|| seen.try_recv().ok()).any(|seen| seen.path == "/shard"));
}

#[tokio::test]
async fn url_prefix_precedes_every_path() {
    let (cluster, mut seen) = Cluster::new(|seen| {
        let inner = seen.path.strip_prefix("/couch/db")?;
        (inner == "/_session")
            .then(|| super::fake::json(200, r#"{"userCtx":{"name":"adm","roles":[]}}"#))
    });
    let (at, _server) = serve(cluster.router()).await;
    let client = over(at, |settings| {
        settings.urls = vec![super::fake::address(&format!("http://{at}/couch/db/"))];
    });
    assert_eq!(client.session().await.unwrap().name(), Some("adm"));
    let paths: Vec<_> = std::iter::from_fn(|| seen.try_recv().ok()).map(|seen| seen.path).collect();
    let session = "/couch/db/_session";
    let steps = "no session, a look without the login, the password instead, the request";
    assert_eq!(paths, [session, "/couch/db/", session, session], "{steps}");
}
