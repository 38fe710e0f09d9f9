//! Connections: accepts them within limits and timeouts, and ends them gracefully.
//!
//! Owns the listeners and one task for each connection. `axum::serve` waits without limit for a
//! request's head and accepts any number of connections: a few clients that never finish a
//! request could hold every file descriptor, including those for CouchDB, and a few that never
//! read a response could hold all memory.

mod connection_table;
#[cfg(test)]
pub(super) mod in_memory;
mod response_body;

pub use connection_table::ConnectionLimits;

use super::{
    error::ApiError,
    guard,
    peer::{Connection, Peer},
    socket::AdminSocket,
    web::WebAccess,
};
use axum::{
    Router,
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use connection_table::{ConnectionState, ConnectionTable};
use hyper::{Request, body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use response_body::{RequestClass, ResponseMemory, counted};
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

/// The maximum number of unsent bytes for one client before its response body is polled again.
/// Also the maximum size of a request head.
const MAX_BUFFER: usize = 64 << 10;

/// The kernel's send buffer for a client that does not read, before the kernel doubles it.
/// Without this limit it grows to several megabytes.
const SYSTEM_BUFFER: u32 = 128 << 10;

/// The time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for a complete request head, from the start of the connection or the last response:
/// longer than the usual scrape interval. A slow client holds nothing that others need, because
/// connections without a complete head are the first to be closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a peer may leave sent data unread, in milliseconds. Then the kernel ends the connection
/// and discards the data, also if the process has closed it before.
#[cfg(target_os = "linux")]
const STALL_TIMEOUT: u32 = 30_000;

/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// How long clients may take to receive their responses at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after `accept` failed, usually because no file descriptor was free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens, with a limit on the kernel's buffers for clients that do not read.
///
/// # Errors
/// When the address cannot be bound.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SYSTEM_BUFFER)?;
    // Accepted connections inherit this timeout.
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(&socket, STALL_TIMEOUT)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `stop`, then until the current requests are answered, except to clients that do
/// not read their responses. Each request carries its [`Connection`].
pub async fn serve(
    listener: TcpListener,
    router: Router,
    web: WebAccess,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    let handler = ConnectionHandler::new(router, web, &stop);
    serve_all(Tcp(listener), handler, limits, stop).await;
}

/// Serves the Unix socket in the same way, for its owner.
pub async fn serve_socket(socket: AdminSocket, router: Router, stop: CancellationToken) {
    let handler = ConnectionHandler::new(router, WebAccess::default(), &stop);
    serve_all(socket, handler, ConnectionLimits::ADMIN_SOCKET, stop).await;
}

trait Listener {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection and its peer.
    fn next(&mut self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

struct Tcp(TcpListener);

impl Listener for Tcp {
    type Stream = TcpStream;

    async fn next(&mut self) -> io::Result<(TcpStream, Peer)> {
        let (stream, from) = self.0.accept().await?;
        // Small responses should not wait for more data. If this fails, the connection still works.
        let _slower = stream.set_nodelay(true);
        Ok((stream, Peer::Tcp(from.ip().to_canonical())))
    }
}

impl Listener for AdminSocket {
    type Stream = UnixStream;

    async fn next(&mut self) -> io::Result<(UnixStream, Peer)> {
        let (stream, uid) = self.accept().await?;
        Ok((stream, Peer::Socket { uid }))
    }
}

async fn serve_all(
    mut source: impl Listener,
    handler: ConnectionHandler,
    limits: ConnectionLimits,
    stop: CancellationToken,
) {
    let handler = Arc::new(handler);
    let graceful = GracefulShutdown::new();
    let mut table = ConnectionTable::new(limits);
    let mut connections = JoinSet::new();
    loop {
        // Every branch is cancel-safe, and no branch awaits, except for the pause.
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next_with_id() => table.remove(match ended {
                Ok((task, ())) => task,
                Err(lost) => lost.id(),
            }),
            next = source.next() => match next {
                Ok((stream, peer)) => {
                    // Dropping the stream closes the connection.
                    let Some(state) = table.admit(peer) else { continue };
                    let (handler, watcher) = (Arc::clone(&handler), graceful.watcher());
                    let task_state = Arc::clone(&state);
                    let task = connections.spawn(async move {
                        let served = handler.handle(stream, peer, &task_state, watcher);
                        task_state.close.run_until_cancelled(served).await;
                    });
                    table.insert(task.id(), peer, state);
                }
                Err(why) => {
                    tracing::warn!(%why, "could not accept a connection");
                    table.close_one(None);
                    time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(source);
    if time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::debug!("some clients did not read their responses before the shutdown deadline");
    }
}

/// Handles each connection of a listener.
struct ConnectionHandler {
    server: http1::Builder,
    router: Router,
    web: WebAccess,
    memory: ResponseMemory,
    stop: CancellationToken,
}

impl ConnectionHandler {
    fn new(router: Router, web: WebAccess, stop: &CancellationToken) -> Self {
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_BUFFER);
        Self { server, router, web, memory: ResponseMemory::default(), stop: stop.clone() }
    }

    /// Serves one connection until it ends.
    async fn handle(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        state: &Arc<ConnectionState>,
        watcher: Watcher,
    ) {
        let at = |encrypted| Connection { peer, encrypted };
        let Some(config) = self.web.active().await.tls() else {
            return self.serve(stream, at(false), state, watcher).await;
        };
        let agreed = time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream));
        tokio::select! {
            () = self.stop.cancelled() => {}
            agreed = agreed => match agreed {
                Ok(Ok(stream)) => self.serve(stream, at(true), state, watcher).await,
                Ok(Err(why)) => tracing::debug!(%peer, %why, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "a TLS handshake timed out"),
            },
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: Connection,
        state: &Arc<ConnectionState>,
        watcher: Watcher,
    ) {
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            self.answer(request, connection, Arc::clone(state))
        });
        let connection = self.server.serve_connection(TokioIo::new(stream), service);
        // Only the client could act on an error, and it has already seen it.
        let _ended = watcher.watch(connection).await;
    }

    /// Answers a request, if memory allows another response.
    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: Connection,
        state: Arc<ConnectionState>,
    ) -> Result<Response, Infallible> {
        state.set_busy();
        let class = RequestClass::of(request.uri().path());
        let rejected =
            class != RequestClass::Monitoring && (state.reserved || !self.memory.has_room());
        let response = if rejected {
            overloaded(request.uri().path()).await
        } else {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection);
            self.router.clone().oneshot(request).await?
        };
        Ok(response.map(|body| counted(body, class, state, &self.memory)))
    }
}

/// The response to all requests but probes and scrapes while memory is short.
async fn overloaded(path: &str) -> Response {
    let why = "too many unread responses are waiting to be sent; try again in 5 s";
    let mut response = guard::refused_at(path, ApiError::unavailable(why));
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    guard::add_security_headers(response).await
}

#[cfg(test)]
mod tests;
