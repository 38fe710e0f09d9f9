//! Connections: accepted, bounded in number and patience, and ended gracefully.
//!
//! Owns the listener and the tasks of its connections. `axum::serve` waits for ever for a
//! request's head and takes any number of connections: a few clients that never finish a
//! request could then hold every file descriptor, CouchDB's connections included.

use super::{
    peer::{Connection, Peer},
    socket::AdminSocket,
    web::Web,
};
use crate::feed;
use axum::{Router, body::Body};
use hyper::{Request, body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixStream},
    sync::Semaphore,
    task::JoinSet,
    time,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// How long a request's head may take, the wait for it on an idle connection included:
/// longer than scrapes usually lie apart.
const HEAD: Duration = Duration::from_secs(75);

/// How long the two sides may take to agree on encryption.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connections at a time, beside those of readers that wait for events; more wait in the
/// system's backlog.
const CONNECTIONS: usize = 512 + feed::ROOM;

/// Connections over the Unix socket at a time; more wait in the system's backlog.
const OWNERS: usize = 16;

/// Bytes that wait to be sent to one client before its answer is asked for more. A head is
/// no longer either.
const BUFFER: usize = 64 << 10;

/// How long clients may take to receive what they are owed when serving ends.
const DRAIN: Duration = Duration::from_secs(5);

/// The pause after a connection could not be accepted, for want of file descriptors.
const REST: Duration = Duration::from_millis(100);

/// Serves until `stop`, then until the requests under way are answered, but not for clients
/// that do not take their answers. Each request carries along its [`Connection`].
pub async fn serve(listener: TcpListener, router: Router, web: Web, stop: CancellationToken) {
    serve_with(listener, router, web, stop, HEAD, CONNECTIONS).await;
}

/// The same over the Unix socket, for its owner.
pub async fn serve_socket(socket: AdminSocket, router: Router, stop: CancellationToken) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(BUFFER);
    let door = Arc::new(Door { server, router, web: Web::default(), stop: stop.clone() });
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        // Every arm is cancel-safe, and no arm's body awaits.
        let (stream, uid) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next() => continue,
            accepted = accept_owner(&socket), if connections.len() < OWNERS => accepted,
        };
        let (door, watcher) = (Arc::clone(&door), graceful.watcher());
        let connection = Connection { peer: Peer::Socket { uid }, encrypted: false };
        connections.spawn(async move { door.serve(stream, connection, watcher).await });
    }
    drop(socket);
    if time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::debug!("some clients on the Unix socket did not take their answers in time");
    }
}

async fn serve_with(
    listener: TcpListener,
    router: Router,
    web: Web,
    stop: CancellationToken,
    head: Duration,
    at_a_time: usize,
) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(BUFFER);
    let door = Arc::new(Door { server, router, web, stop: stop.clone() });
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(at_a_time));
    let mut connections = JoinSet::new();
    loop {
        // Every arm is cancel-safe, and no arm's body awaits.
        let (stream, peer, place) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next() => continue,
            accepted = accept(&listener, &room) => match accepted {
                Some(accepted) => accepted,
                None => break,
            },
        };
        let (door, watcher) = (Arc::clone(&door), graceful.watcher());
        connections.spawn(async move {
            door.let_in(stream, peer, watcher).await;
            drop(place);
        });
    }
    drop(listener);
    if time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::debug!("some clients did not take their answers in time");
    }
}

/// What every connection passes.
struct Door {
    server: http1::Builder,
    router: Router,
    web: Web,
    stop: CancellationToken,
}

impl Door {
    /// Serves one connection to its end.
    async fn let_in(&self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        // Small answers should not wait for more; one that cannot be told so still works.
        let _slower = stream.set_nodelay(true);
        let at = |encrypted| Connection { peer: Peer::Tcp(peer.ip().to_canonical()), encrypted };
        let Some(config) = self.web.in_force().await.tls() else {
            return self.serve(stream, at(false), watcher).await;
        };
        let agreed = time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream));
        tokio::select! {
            () = self.stop.cancelled() => {}
            agreed = agreed => match agreed {
                Ok(Ok(stream)) => self.serve(stream, at(true), watcher).await,
                Ok(Err(why)) => tracing::debug!(%peer, %why, "a connection was not encrypted"),
                Err(_) => tracing::debug!(%peer, "a connection was not encrypted in time"),
            },
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: Connection,
        watcher: Watcher,
    ) {
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection);
            self.router.clone().oneshot(request)
        });
        let connection = self.server.serve_connection(TokioIo::new(stream), service);
        // The client learns of an error, if it is still there; nobody else can act.
        let _ended = watcher.watch(connection).await;
    }
}

/// The next connection over the Unix socket.
async fn accept_owner(socket: &AdminSocket) -> (UnixStream, u32) {
    loop {
        match socket.accept().await {
            Ok(accepted) => return accepted,
            Err(why) => {
                tracing::warn!(%why, "a connection over the Unix socket was not accepted");
                time::sleep(REST).await;
            }
        }
    }
}

/// The next connection and its place; `None` never, as nothing closes the semaphore.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return Some((stream, peer, place)),
            Err(why) => {
                tracing::warn!(%why, "a connection was not accepted");
                time::sleep(REST).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const PATIENCE: Duration = Duration::from_secs(60);

    struct Served {
        address: SocketAddr,
        stop: CancellationToken,
        tasks: JoinSet<()>,
    }

    async fn served(head: Duration, at_a_time: usize) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let endless = futures::stream::repeat(Ok::<_, std::convert::Infallible>("x".repeat(1000)));
        let router = Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/endless", get(|| async { Body::from_stream(endless) }));
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_with(listener, router, Web::default(), stop.clone(), head, at_a_time));
        Served { address, stop, tasks }
    }

    /// Sends bytes and reads until the other side closes.
    async fn said(address: SocketAddr, bytes: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let mut text = String::new();
        let read = time::timeout(PATIENCE, stream.read_to_string(&mut text)).await;
        read.expect("the other side closes").unwrap();
        text
    }

    #[tokio::test]
    async fn a_head_that_never_ends_is_not_waited_for() {
        let served = served(Duration::from_millis(50), 8).await;
        for part in ["", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX:"] {
            let text = said(served.address, part).await;
            assert!(!text.contains("hello"), "{text}");
        }
    }

    #[tokio::test]
    async fn the_end_does_not_wait_for_who_takes_nothing() {
        let mut served = served(PATIENCE, 8).await;
        let mut stalled = TcpStream::connect(served.address).await.unwrap();
        stalled.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut first = [0; 64];
        stalled.read_exact(&mut first).await.unwrap();
        served.stop.cancel();
        let ended = time::timeout(PATIENCE, served.tasks.join_next()).await;
        ended.expect("it stops").expect("there is one").unwrap();
    }

    #[tokio::test]
    async fn one_connection_too_many_waits_for_a_place() {
        let mut served = served(PATIENCE, 1).await;
        let silent = TcpStream::connect(served.address).await.unwrap();
        let asked = said(served.address, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        tokio::pin!(asked);
        // It can only pass by mistake, never fail by one.
        let early = time::timeout(Duration::from_millis(50), &mut asked).await;
        assert!(early.is_err(), "no place yet: {early:?}");
        drop(silent);
        assert!(asked.await.ends_with("hello"));
        served.stop.cancel();
        let ended = time::timeout(PATIENCE, served.tasks.join_next()).await;
        ended.expect("it stops").expect("there is one").unwrap();
    }
}
