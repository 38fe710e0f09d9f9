use super::*;
use axum::routing::get;
use connection_table::{ConnectionState, ConnectionTable};
use in_memory::InMemoryServer;
use std::{net::IpAddr, task::Poll};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    time::Instant,
};

const PATIENCE: Duration = Duration::from_secs(60);

struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// A server with pages that are whole, that never end, and that never begin.
fn served(room: ConnectionLimits) -> Served {
    served_on(listen("127.0.0.1:0".parse().unwrap()).unwrap(), room)
}

fn served_on(listener: TcpListener, room: ConnectionLimits) -> Served {
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let endless = || futures::stream::repeat(Ok::<_, Infallible>("x".repeat(1_000)));
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/metrics", get(|| async { "metrics" }))
        .route("/-/healthy", get(|| async { "healthy" }))
        .route("/waits", get(|| async { std::future::pending::<&str>().await }))
        .route("/endless", get(move || async move { Body::from_stream(endless()) }));
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(listener, router, WebAccess::default(), room, stop.clone()));
    Served { address, stop, tasks }
}

impl Served {
    async fn ends(mut self) {
        self.stop.cancel();
        let ended = time::timeout(PATIENCE, self.tasks.join_next()).await;
        ended.expect("it stops").expect("there is one").unwrap();
    }

    /// A connection from one of the machine's own addresses.
    async fn from(&self, address: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
        time::timeout(PATIENCE, socket.connect(self.address)).await.expect("in time").unwrap()
    }

    /// Sends a request and reads until the other side closes.
    async fn asked(&self, from: &str, path: &str) -> String {
        self.try_asked(from, path).await.unwrap()
    }

    /// Like `asked`, but returns an error if the connection is refused.
    async fn try_asked(&self, from: &str, path: &str) -> io::Result<String> {
        let mut stream = self.from(from).await;
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut text = String::new();
        let read = time::timeout(PATIENCE, stream.read_to_string(&mut text)).await;
        read.expect("the other side closes").map(|_| text)
    }
}

/// Whether the other side has closed, or will without being asked anything.
async fn closed(stream: &mut TcpStream) -> bool {
    let read = time::timeout(PATIENCE, stream.read(&mut [0; 16])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test(start_paused = true)]
async fn endless_request_head_is_given_up() {
    let router = Router::new().route("/", get(|| async { "hello" }));
    let server = InMemoryServer::start(router, WebAccess::default());
    for (sent, is_answered) in [
        ("", false),
        ("GET / HTTP/1.1\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nX:", false),
        // The limit also applies after an answer.
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET", true),
    ] {
        let begun = Instant::now();
        let mut stream = server.connect();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text.ends_with("hello"), is_answered, "{sent:?}: {text}");
        assert_eq!(begun.elapsed().as_secs(), HEAD_TIMEOUT.as_secs(), "{sent:?}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn clients_that_never_read_block_only_their_address_briefly() {
    use rustix::net::sockopt;
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(sockopt::tcp_user_timeout(&listener).unwrap(), STALL_TIMEOUT);
    sockopt::set_tcp_user_timeout(&listener, 3_000).unwrap();
    let served = served_on(listener, small());
    let mut stalled = Vec::new();
    for _ in 0..100 {
        let mut stream = served.from("127.0.0.2").await;
        // The last connections are refused.
        let _closed = stream.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").await;
        stalled.push(stream);
    }
    // A connection that waits for an answer that has not begun does not count as silent.
    let mut waits = served.from("127.0.0.1").await;
    waits.write_all(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    for (path, says) in [("/metrics", "metrics"), ("/-/healthy", "healthy"), ("/", "hello")] {
        let text = served.asked("127.0.0.3", path).await;
        assert!(text.ends_with(says), "{path}: {text}");
    }
    let begun = Instant::now();
    let served_again = async {
        while !served.try_asked("127.0.0.2", "/").await.is_ok_and(|it| it.ends_with("hello")) {
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    time::timeout(PATIENCE, served_again).await.expect("the kernel closes them");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let silent = time::timeout(Duration::from_secs(1), waits.read(&mut [0; 16])).await;
    assert!(silent.is_err(), "{silent:?}");
    served.ends().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_clients_that_read_nothing() {
    let served = served(ConnectionLimits::default());
    let mut stalled = served.from("127.0.0.1").await;
    stalled.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut first = [0; 64];
    stalled.read_exact(&mut first).await.unwrap();
    served.ends().await;
}

/// The limits for a process that may open 256 files: 112 connections, 14 idle ones per address.
fn small() -> ConnectionLimits {
    ConnectionLimits::for_descriptors(Some(256))
}

#[tokio::test]
async fn probes_and_scrapes_are_answered_while_idle_connections_fill_the_limit() {
    let served = served(small());
    let mut idle = Vec::new();
    // One address that opens more than there is room for, then many that share the room.
    for _ in 0..150 {
        idle.push(served.from("127.0.0.2").await);
    }
    for address in 10..25 {
        for _ in 0..12 {
            idle.push(served.from(&format!("127.0.0.{address}")).await);
        }
    }
    for from in ["127.0.0.1", "127.0.0.2", "127.0.0.10", "127.0.0.99"] {
        for (path, says) in [("/metrics", "metrics"), ("/-/healthy", "healthy"), ("/", "hello")] {
            let begun = Instant::now();
            let text = served.asked(from, path).await;
            assert!(text.ends_with(says), "{from} {path}: {text}");
            // An idle connection would keep its place for the whole time limit.
            assert!(begun.elapsed() < HEAD_TIMEOUT / 2, "{:?}", begun.elapsed());
        }
    }
    // The oldest went first, and the newest are still there.
    assert!(closed(&mut idle[0]).await);
    let last = idle.last_mut().unwrap();
    last.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    last.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("hello"), "{text}");
    served.ends().await;
}

#[tokio::test]
async fn reserve_of_connections_serves_probes_when_all_others_are_busy() {
    let served = served(small());
    let mut busy = Vec::new();
    for number in 0..112 {
        let mut stream = served.from(&format!("127.0.0.{}", 2 + number % 4)).await;
        stream.write_all(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        busy.push(stream);
    }
    let turned_away = async {
        loop {
            let text = served.asked("127.0.0.1", "/").await;
            // The last of those above may not have been read yet.
            if !text.ends_with("hello") {
                return text;
            }
        }
    };
    let text = time::timeout(PATIENCE, turned_away).await.expect("there is no room");
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("retry-after: 5"), "{text}");
    assert!(text.contains("x-content-type-options: nosniff"), "{text}");
    let text = served.asked("127.0.0.1", "/api/v1/status").await;
    assert!(text.contains("\"errorType\":\"unavailable\""), "{text}");
    for (path, says) in [("/metrics", "metrics"), ("/-/healthy", "healthy")] {
        let text = served.asked("127.0.0.1", path).await;
        assert!(text.ends_with(says), "{path}: {text}");
    }
    busy.clear();
    let served_again = async {
        while !served.asked("127.0.0.1", "/").await.ends_with("hello") {
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(PATIENCE, served_again).await.expect("there is room");
    served.ends().await;
}

#[test]
fn connection_limit_follows_descriptors_and_leaves_some_free() {
    for (descriptors, connections, feeds) in
        [(Some(16), 6, 3), (Some(512), 240, 120), (Some(1_024), 496, 248), (None, 2_512, 2_000)]
    {
        let room = ConnectionLimits::for_descriptors(descriptors);
        assert_eq!(
            (room.connections(), room.max_feed_readers()),
            (connections, feeds),
            "{descriptors:?}"
        );
    }
    assert_eq!(ConnectionLimits::for_descriptors(Some(1 << 40)), ConnectionLimits::default());
}

/// A list with its tasks' ids, without connections.
struct List {
    crowd: ConnectionTable,
    tasks: JoinSet<()>,
}

impl List {
    fn new(room: ConnectionLimits) -> Self {
        Self { crowd: ConnectionTable::new(room), tasks: JoinSet::new() }
    }

    fn admit(&mut self, peer: &str) -> Option<Arc<ConnectionState>> {
        let peer = Peer::Tcp(peer.parse::<IpAddr>().unwrap());
        let life = self.crowd.admit(peer)?;
        let task = self.tasks.spawn(std::future::pending()).id();
        self.crowd.insert(task, peer, Arc::clone(&life));
        Some(life)
    }

    /// Admits `many` connections, each active at once.
    fn busy(&mut self, peer: &str, many: usize) -> Vec<Arc<ConnectionState>> {
        let one = |_| {
            let life = self.admit(peer).unwrap();
            life.set_busy();
            life
        };
        (0..many).map(one).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn longest_idle_connection_closes_first_and_busy_ones_stay() {
    let mut list = List::new(small());
    let second = Duration::from_secs(1);
    let gone =
        |lives: &[Arc<ConnectionState>]| lives.iter().filter(|it| it.close.is_cancelled()).count();
    // Of one address, idle ones make room for each other.
    let mut one = Vec::new();
    for number in 0..20 {
        one.push(list.admit("10.0.0.1").unwrap());
        time::advance(second).await;
        assert_eq!(gone(&one), (number + 1_usize).saturating_sub(14));
    }
    assert!(one[..6].iter().all(|it| it.close.is_cancelled()), "the oldest");
    // Busy ones do not count as idle, up to what one address may have.
    one.iter().for_each(|it| it.set_busy());
    let most = list.busy("10.0.0.1", 84);
    assert!(list.admit("10.0.0.1").is_none(), "14 and 84 are what one may have");
    let other = list.admit("10.0.0.2").unwrap();
    assert!(!other.reserved);
    assert_eq!(gone(&most), 0);
    // The rest of the room, then the reserve, then none.
    other.set_busy();
    assert!(list.busy("10.0.0.2", 13).iter().all(|it| !it.reserved));
    let reserve = list.busy("10.0.0.2", 16);
    assert!(reserve.iter().all(|it| it.reserved));
    assert!(list.admit("10.0.0.4").is_none());
    // Answered, it rests, and makes room.
    reserve[7].set_idle();
    assert!(list.admit("10.0.0.4").is_some_and(|it| it.reserved));
    assert!(reserve[7].close.is_cancelled());
}

#[tokio::test]
async fn all_addresses_of_an_ipv6_network_count_as_one() {
    let mut list = List::new(small());
    let lives: Vec<_> =
        (0..20).map(|host| list.admit(&format!("2001:db8::{host:x}:1")).unwrap()).collect();
    assert_eq!(lives.iter().filter(|it| it.close.is_cancelled()).count(), 6);
    assert!(!list.admit("2001:db8:0:1::1").unwrap().close.is_cancelled());
    assert_eq!(lives.iter().filter(|it| it.close.is_cancelled()).count(), 6);
}

/// Asks for all that can be had of a body now.
async fn taken(body: &mut Body) -> usize {
    use axum::body::HttpBody as _;
    let mut bytes = 0;
    std::future::poll_fn(|cx| {
        while let Poll::Ready(Some(frame)) = std::pin::Pin::new(&mut *body).poll_frame(cx) {
            bytes += frame.unwrap().into_data().unwrap().len();
        }
        Poll::Ready(bytes)
    })
    .await
}

#[tokio::test]
async fn memory_held_for_responses_is_bounded() {
    let flight = ResponseMemory::new(3 << 20);
    let life = Arc::new(ConnectionState::new(false));
    let sent = |bytes: usize, class| {
        counted(Body::from(vec![0; bytes]), class, Arc::clone(&life), &flight)
    };
    let (mut one, mut two) =
        (sent(2 << 20, RequestClass::Other), sent(2 << 20, RequestClass::Other));
    use axum::body::HttpBody as _;
    let first = std::future::poll_fn(|cx| std::pin::Pin::new(&mut one).poll_frame(cx)).await;
    assert_eq!(first.unwrap().unwrap().into_data().unwrap().len(), 64 << 10);
    assert_eq!(taken(&mut two).await, 0, "there is no room for a second");
    assert!(!flight.has_room(), "no other begins while one waits");
    let mut third = sent(1 << 20, RequestClass::Other);
    assert_eq!(taken(&mut third).await, 0, "behind the one that waits");
    assert_eq!(
        taken(&mut sent(9 << 20, RequestClass::Monitoring)).await,
        9 << 20,
        "a scrape waits for nobody"
    );
    drop(one);
    assert_eq!(taken(&mut two).await, 2 << 20);
    drop(two);
    assert_eq!(taken(&mut third).await, 1 << 20);
    // More than all there is takes all there is.
    drop(third);
    let mut large = sent(5 << 20, RequestClass::Other);
    let first = std::future::poll_fn(|cx| std::pin::Pin::new(&mut large).poll_frame(cx)).await;
    assert!(first.is_some() && !flight.has_room());
}

#[tokio::test(start_paused = true)]
async fn response_other_than_a_feed_ends_after_ten_minutes() {
    let flight = ResponseMemory::default();
    let life = Arc::new(ConnectionState::new(false));
    for (class, ends) in
        [(RequestClass::Other, true), (RequestClass::Monitoring, true), (RequestClass::Feed, false)]
    {
        let endless = futures::stream::repeat(Ok::<_, Infallible>("x"));
        let mut body = counted(Body::from_stream(endless), class, Arc::clone(&life), &flight);
        let mut next = async || {
            use axum::body::HttpBody as _;
            std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await.unwrap()
        };
        assert!(next().await.is_ok());
        time::advance(Duration::from_secs(601)).await;
        assert_eq!(next().await.is_err(), ends, "{class:?}");
    }
}
