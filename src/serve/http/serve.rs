//! Connections: let in, bounded in number and patience, and ended gracefully.
//!
//! Owns the listeners and the tasks of their connections. `axum::serve` waits for ever for a
//! request's head and takes any number of connections: a few clients that never finish a
//! request could then hold every file descriptor, CouchDB's connections included, and a few
//! that never read an answer all memory.

mod crowd;
mod life;
mod sent;
mod wire;

pub use crowd::Room;

use super::{
    api, guard,
    peer::{Connection, Peer},
    socket::AdminSocket,
    web::Web,
};
use axum::{
    Router,
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use crowd::Crowd;
use hyper::{Request, body::Incoming, server::conn::http1};
use hyper_util::{
    rt::TokioIo,
    server::graceful::{GracefulShutdown, Watcher},
};
use life::{Ended, HEAD, Life};
use sent::{Class, Flight, Sent};
use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream, UnixStream},
    task::JoinSet,
    time,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use wire::{Abort, Wire};

/// Bytes that wait to be sent to one client before its answer is asked for more. A head is
/// no longer either.
const BUFFER: usize = 64 << 10;

/// Bytes that the system keeps for a client that does not take them, which it doubles: left to
/// itself it goes up to several megabytes.
const SYSTEM_BUFFER: u32 = 128 << 10;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// How long clients may take to receive what they are owed when serving ends.
const DRAIN: Duration = Duration::from_secs(5);

/// The pause after a connection could not be accepted, for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens, with a bound on what the system keeps for clients that do not read.
///
/// # Errors
/// When the address cannot be had.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SYSTEM_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop`, then until the requests under way are answered, but not for clients
/// that do not take their answers. Each request carries along its [`Connection`].
pub async fn serve(
    listener: TcpListener,
    router: Router,
    web: Web,
    room: Room,
    stop: CancellationToken,
) {
    let door = Door::new(router, web, &stop);
    serve_all(Tcp(listener), door, room, stop).await;
}

/// The same over the Unix socket, for its owner.
pub async fn serve_socket(socket: AdminSocket, router: Router, stop: CancellationToken) {
    let door = Door::new(router, Web::default(), &stop);
    serve_all(socket, door, Room::OF_THE_OWNER, stop).await;
}

/// Where connections come from.
trait Source {
    /// One of them.
    type Stream: AsyncRead + AsyncWrite + Abort + Unpin + Send + 'static;

    /// The next, and who is at its other end.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

struct Tcp(TcpListener);

impl Source for Tcp {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, from) = self.0.accept().await?;
        // Small answers should not wait for more; one that cannot be told so still works.
        let _slower = stream.set_nodelay(true);
        Ok((stream, Peer::Tcp(from.ip().to_canonical())))
    }
}

impl Source for AdminSocket {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, uid) = self.accept().await?;
        Ok((stream, Peer::Socket { uid }))
    }
}

async fn serve_all(source: impl Source, door: Door, room: Room, stop: CancellationToken) {
    let door = Arc::new(door);
    let graceful = GracefulShutdown::new();
    let mut crowd = Crowd::new(room);
    let mut connections = JoinSet::new();
    loop {
        // Every arm is cancel-safe, and no arm's body awaits but for a pause.
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next_with_id() => crowd.left(match ended {
                Ok((task, ())) => task,
                Err(lost) => lost.id(),
            }),
            next = source.next() => match next {
                Ok((stream, peer)) => {
                    // Dropped, it is closed.
                    let Some(life) = crowd.admit(peer) else { continue };
                    let (door, watcher) = (Arc::clone(&door), graceful.watcher());
                    let own = Arc::clone(&life);
                    let task = connections.spawn(async move {
                        let stream = Wire::new(stream, Arc::clone(&own));
                        let ended = own.lasts(door.let_in(stream, peer, &own, watcher)).await;
                        if ended == Ended::Late {
                            tracing::debug!(%peer, "a connection took too long and was closed");
                        }
                    });
                    crowd.joined(task.id(), peer, life);
                }
                Err(why) => {
                    tracing::warn!(%why, "a connection was not accepted");
                    crowd.close(None);
                    time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(source);
    if time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::debug!("some clients did not take their answers in time");
    }
}

/// What every connection passes.
struct Door {
    server: http1::Builder,
    router: Router,
    web: Web,
    flight: Flight,
    stop: CancellationToken,
}

impl Door {
    fn new(router: Router, web: Web, stop: &CancellationToken) -> Self {
        let mut server = http1::Builder::new();
        // Heads have their time by the connection's own clock.
        server.header_read_timeout(None).max_buf_size(BUFFER);
        Self { server, router, web, flight: Flight::default(), stop: stop.clone() }
    }

    /// Serves one connection to its end.
    async fn let_in(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        life: &Arc<Life>,
        watcher: Watcher,
    ) {
        let at = |encrypted| Connection { peer, encrypted };
        let Some(config) = self.web.in_force().await.tls() else {
            return self.serve(stream, at(false), life, watcher).await;
        };
        let agreed = time::timeout(HEAD, TlsAcceptor::from(config).accept(stream));
        tokio::select! {
            () = self.stop.cancelled() => {}
            agreed = agreed => match agreed {
                Ok(Ok(stream)) => {
                    life.agreed();
                    self.serve(stream, at(true), life, watcher).await;
                }
                Ok(Err(why)) => tracing::debug!(%peer, %why, "a connection was not encrypted"),
                Err(_) => tracing::debug!(%peer, "a connection was not encrypted in time"),
            },
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: Connection,
        life: &Arc<Life>,
        watcher: Watcher,
    ) {
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            self.answer(request, connection, Arc::clone(life))
        });
        let connection = self.server.serve_connection(TokioIo::new(stream), service);
        // The client learns of an error, if it is still there; nobody else can act.
        let _ended = watcher.watch(connection).await;
    }

    /// Answers a request, where there is room for its answer.
    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: Connection,
        life: Arc<Life>,
    ) -> Result<Response, Infallible> {
        life.asked();
        let class = Class::of(request.uri().path());
        let turned_away = class != Class::Watch && (life.reserved || !self.flight.has_room());
        let response = if turned_away {
            full(request.uri().path()).await
        } else {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection);
            self.router.clone().oneshot(request).await?
        };
        Ok(response.map(|body| Body::new(Sent::new(body, class, life, &self.flight))))
    }
}

/// The answer where there is room for probes and scrapes alone.
async fn full(path: &str) -> Response {
    let why = "recliner has no room for more answers: others do not take theirs; try again";
    let mut response = if path.starts_with("/api/") {
        api::Refused::unavailable(why).into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, [why, "\n"].concat()).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    guard::harden(response).await
}

#[cfg(test)]
mod tests;
