//! Attacks by anyone who reaches the port: without a login, from a web page, or with a faulty
//! program.

use crate::victim::{PATIENCE, Victim};
use futures::future::join_all;
use std::{fmt::Write as _, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time,
};

/// Percent-encodes a text for a query string.
fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// The requests that carry a configuration: as a link that any page may contain, and as recliner's
/// own command sends it.
fn questions(victim: &Victim, config: &str) -> [String; 2] {
    let host = &victim.address;
    let body = serde_json::json!({ "config": config }).to_string();
    [
        format!(
            "GET /api/v1/what-if?days=1&config={} HTTP/1.1\r\nHost: {host}\r\n\
             Sec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n",
            encoded(config)
        ),
        format!(
            "POST /api/v1/what-if HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ),
    ]
}

/// Configurations that are short as text and huge once parsed.
fn bombs() -> Vec<String> {
    let aliases = |letters: usize, times: usize| {
        let text = "x".repeat(letters);
        format!("ignore: [&a {text}{}]\n", ",*a".repeat(times))
    };
    let nested = {
        let mut text = String::from("ignore:\n- &a0 [x,x,x,x,x,x,x,x,x]\n");
        for level in 1..9 {
            let inner = format!("*a{}", level - 1);
            let _never = writeln!(text, "- &a{level} [{}]", [inner.as_str(); 9].join(","));
        }
        text
    };
    let patterns = {
        let names = (0..400).map(|at| format!("'*a*b{at}*?c*'")).collect::<Vec<_>>().join(",");
        let mut text =
            format!("channels:\n- {{name: c0, kind: db, databases: {{include: &p [{names}]}}}}\n");
        for at in 1..32 {
            let _never = writeln!(text, "- {{name: c{at}, kind: db, databases: {{include: *p}}}}");
        }
        text
    };
    let deep = format!("ignore: {}{}", "[".repeat(8_000), "]".repeat(8_000));
    vec![aliases(10_000, 4_000), aliases(4_000, 5_000), nested, patterns, deep]
}

#[tokio::test]
async fn configuration_bombs_do_not_stall_the_service() {
    let victim = Victim::demo(&[]).await;
    let requests: Vec<_> = bombs().iter().flat_map(|bomb| questions(&victim, bomb)).collect();
    let attack = async {
        for request in &requests {
            let answers = join_all((0..10).map(|_| victim.send(request))).await;
            for (status, body) in answers {
                assert!(
                    [0, 400, 403, 405, 413, 414, 422, 429, 431, 503].contains(&status),
                    "{status} {body:.300}"
                );
            }
        }
    };
    let ((), harm) = victim.during(attack).await;
    harm.within(300);
    victim.stop().await;
}

#[tokio::test]
async fn large_concurrent_requests_stay_within_memory_limit() {
    let victim = Victim::demo(&[]).await;
    let filler = "1,".repeat(1_000_000);
    let body = format!("{{\"db\":\"orders\",\"design\":{{\"x\":[{filler}1]}}}}");
    let request = format!(
        "POST /api/v1/preflight HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        victim.address,
        body.len()
    );
    let attack = async {
        for _ in 0..2 {
            join_all((0..12).map(|_| victim.send(&request))).await;
        }
    };
    let ((), harm) = victim.during(attack).await;
    harm.within(400);
    victim.stop().await;
}

#[tokio::test]
async fn dns_rebinding_reads_nothing() {
    for listen in ["127.0.0.1", "0.0.0.0", "[::]"] {
        let victim = Victim::demo_on(listen).await;
        let port = victim.address.rsplit(':').next().expect("the address has a port").to_owned();
        let ask = async |host: &str, path: &str| {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            victim.send(&request).await
        };
        let foreign = ["evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1"]
            .map(|host| format!("{host}:{port}"));
        for host in foreign.iter().map(String::as_str).chain([""]) {
            for path in [
                "/",
                "/api/v1/status",
                "/api/v1/targets",
                "/api/v1/config",
                "/live?page=/",
                "/metrics",
                "/sd",
                "/_db_updates",
                "/docs/",
                "//",
                "/%2e%2e/",
                "/-/healthy/",
            ] {
                let (status, body) = ask(host, path).await;
                assert!([400, 403, 421].contains(&status), "{host} {path}: {status} {body:.200}");
            }
            assert_eq!(ask(host, "/-/healthy").await.0, 200, "{host}");
        }
        let (_, told) = ask(&foreign[0], "/metrics").await;
        assert!(told.contains("start recliner with --web.allowed-host=evil.example"), "{told}");
        for host in ["localhost", "127.0.0.1", "[::1]", "10.9.8.7", "[fd00::7]"] {
            assert_eq!(ask(&format!("{host}:{port}"), "/metrics").await.0, 200, "{listen} {host}");
        }
        let log = victim.stop().await;
        let told = log.matches("--web.allowed-host=evil.example").count();
        assert_eq!(told, 1, "each name is logged once: {log}");
    }
}

#[tokio::test]
async fn cross_site_requests_cannot_give_orders() {
    let victim = Victim::demo(&["--web.enable-admin-api", "--web.enable-lifecycle"]).await;
    let (host, body) = (&victim.address, r#"{"scope":"all","reason":"x"}"#);
    for path in ["/api/v1/suspend", "/api/v1/rescan", "/-/quit", "/-/reload", "/api/v1/flush"] {
        for foreign in [
            "Content-Type: application/json\r\nOrigin: http://evil.example\r\n",
            "Content-Type: application/json\r\nOrigin: null\r\n",
            "Content-Type: application/json\r\nSec-Fetch-Site: cross-site\r\n",
            "Content-Type: text/plain\r\n",
            "Content-Type: application/x-www-form-urlencoded\r\n",
            "Content-Type: application/json\r\nX-Forwarded-For: 127.0.0.1\r\n",
        ] {
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\n{foreign}Content-Length: {}\r\n\
                 Connection: close\r\n\r\n{body}",
                body.len()
            );
            let (status, said) = victim.send(&request).await;
            assert!([403, 415].contains(&status), "{path} {foreign}: {status} {said}");
        }
    }
    assert_eq!(victim.get("/-/healthy").await.0, 200);
}

#[tokio::test]
async fn ambiguous_framing_never_splits_a_request() {
    let victim = Victim::demo(&[]).await;
    let host = &victim.address;
    for head in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nContent-Length: 60\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length: +4\r\n",
        "X: y\r\n Content-Length: 4\r\n",
    ] {
        let request = format!(
            "POST /api/v1/preflight HTTP/1.1\r\nHost: {host}\r\n{head}\r\n\
             0\r\n\r\nGET /-/smuggled HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        );
        let exchange = async {
            let mut stream = TcpStream::connect(host).await.expect("it listens");
            stream.write_all(request.as_bytes()).await.expect("it reads");
            let mut answer = Vec::new();
            let _reset = stream.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        let answer = time::timeout(PATIENCE, exchange)
            .await
            .expect("the server answers or closes the connection");
        assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{head}: {answer}");
    }
}

#[tokio::test]
async fn idle_and_stalled_clients_are_disconnected() {
    let victim = Victim::demo(&[]).await;
    let attack = async {
        let mut held = Vec::new();
        for at in 0..600 {
            let Ok(mut stream) = TcpStream::connect(&victim.address).await else { break };
            let request = match at % 3 {
                0 => String::new(),
                1 => "GET /metrics HTTP/1.1\r\nHost: lo".to_owned(),
                _ => format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", victim.address),
            };
            let _closed = stream.write_all(request.as_bytes()).await;
            held.push(stream);
        }
        time::sleep(Duration::from_secs(5)).await;
        held.len()
    };
    let (held, harm) = victim.during(attack).await;
    assert!(held > 0);
    harm.within(400);
    assert_eq!(victim.get("/metrics").await.0, 200);
}

#[tokio::test]
async fn open_live_pages_are_limited() {
    let victim = Victim::demo(&[]).await;
    let open = async |page: &str| {
        let mut stream = TcpStream::connect(&victim.address).await.expect("it listens");
        let (page, host) = (encoded(page), &victim.address);
        let request = format!("GET /live?page={page} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        stream
    };
    let attack = async {
        let mut first = open("").await;
        until(&mut first, &["event: parts"]).await;
        let mut others = Vec::new();
        for at in 1..255 {
            others.push(open(&format!("targets?search={at}")).await);
        }
        // The first page still gets updates; pages beyond the limit are told that too many are open.
        for _ in 0..3 {
            until(&mut first, &["event: parts"]).await;
        }
        let mut refused = 0;
        for other in &mut others {
            refused += until(other, &["event: parts", "pages are already open"]).await;
        }
        assert_eq!(refused, 255 - 64);
    };
    let ((), harm) = victim.during(attack).await;
    harm.within(300);
}

/// Reads until one of these texts arrives; returns its position.
async fn until(stream: &mut TcpStream, says: &[&str]) -> usize {
    let read = async {
        let mut text = Vec::new();
        loop {
            let so_far = String::from_utf8_lossy(&text);
            if let Some(which) = says.iter().position(|it| so_far.contains(it)) {
                return which;
            }
            text.push(stream.read_u8().await.expect("the stream stays open"));
        }
    };
    time::timeout(2 * PATIENCE, read).await.unwrap_or_else(|_| panic!("it never said {says:?}"))
}

#[tokio::test]
async fn concurrent_openapi_readers_stay_within_memory_limit() {
    let victim = Victim::demo(&[]).await;
    let attack = async { join_all((0..300).map(|_| victim.get("/api/v1/openapi.json"))).await };
    let (answers, harm) = victim.during(attack).await;
    assert!(answers.iter().all(|(status, _)| [0, 200, 503].contains(status)));
    assert!(answers.iter().any(|(status, _)| *status == 200));
    harm.within(300);
}

/// For this path, the head of a request whose body never comes, and a complete request.
fn slow_and_whole(victim: &Victim, path: &str, content: &str, body: &str) -> [String; 2] {
    let host = &victim.address;
    let head = |length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\
             Content-Type: {content}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )
    };
    [head(1_000), head(body.len()) + body]
}

/// Holds bodies back on this path while requesting it and other pages.
async fn hold_bodies_back(path: &str, content: &str, body: &str) {
    let victim = Victim::demo(&["--web.enable-admin-api"]).await;
    victim.until("/-/ready", "ready").await;
    let [slow, whole] = slow_and_whole(&victim, path, content, body);
    let attack = async {
        let mut held = Vec::new();
        for _ in 0..20 {
            let mut stream = TcpStream::connect(&victim.address).await.expect("it listens");
            stream.write_all(slow.as_bytes()).await.expect("it reads");
            held.push(stream);
        }
        let others = join_all(["/", "/api/v1/targets", "/metrics"].map(|at| victim.get(at)));
        let others = time::timeout(Duration::from_secs(5), others).await;
        let others = others.unwrap_or_else(|_| panic!("{path}: others wait"));
        assert!(others.iter().all(|(status, _)| *status == 200), "{path}: {others:?}");
        let answer = time::timeout(Duration::from_secs(25), victim.send(&whole)).await;
        answer.unwrap_or_else(|_| panic!("{path} waits for slow bodies"))
    };
    let ((status, said), harm) = victim.during(attack).await;
    assert!([200, 409].contains(&status), "{path}: {status} {said:.300}");
    harm.within(200);
    victim.stop().await;
}

#[tokio::test]
async fn slow_request_bodies_block_no_other_client() {
    let (json, form) = ("application/json", "application/x-www-form-urlencoded");
    let all = [
        ("/api/v1/what-if", json, "{}"),
        ("/api/v1/preflight", json, r#"{"db":"orders","design":{"_id":"_design/x"}}"#),
        ("/what-if", form, "days=1"),
        ("/act", form, "order=rescan"),
        ("/api/v1/rescan", json, "{}"),
        ("/api/v1/suspend", json, r#"{"scope":"all"}"#),
    ];
    join_all(all.map(|(path, content, body)| hold_bodies_back(path, content, body))).await;
}
