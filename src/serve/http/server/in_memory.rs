//! Connections without a network, for tests on a paused clock.
//!
//! The clock advances to the next deadline as soon as no task can run. A busy kernel delivers the
//! bytes of a TCP connection later than that.

use super::{
    ConnectionHandler, ConnectionLimits, Listener, MAX_BUFFER, Peer, WebAccess, serve_all,
};
use axum::Router;
use std::{
    io,
    net::{IpAddr, Ipv4Addr},
};
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

/// The connections that may wait to be accepted.
const BACKLOG: usize = 1_024;

/// A server that runs until `stop`.
pub(in crate::serve::http) struct InMemoryServer {
    connections: mpsc::Sender<DuplexStream>,
    pub(in crate::serve::http) stop: CancellationToken,
    pub(in crate::serve::http) tasks: JoinSet<()>,
}

impl InMemoryServer {
    pub(in crate::serve::http) fn start(router: Router, web: WebAccess) -> Self {
        let (connections, incoming) = mpsc::channel(BACKLOG);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let handler = ConnectionHandler::new(router, web, &stop);
        let limits = ConnectionLimits::default();
        tasks.spawn(serve_all(InMemory(incoming), handler, limits, stop.clone()));
        Self { connections, stop, tasks }
    }

    pub(in crate::serve::http) fn connect(&self) -> DuplexStream {
        let (near, far) = duplex(MAX_BUFFER);
        self.connections.try_send(far).expect("the server runs");
        near
    }
}

struct InMemory(mpsc::Receiver<DuplexStream>);

impl Listener for InMemory {
    type Stream = DuplexStream;

    async fn next(&mut self) -> io::Result<(DuplexStream, Peer)> {
        match self.0.recv().await {
            Some(stream) => Ok((stream, Peer::Tcp(IpAddr::V4(Ipv4Addr::LOCALHOST)))),
            None => std::future::pending().await,
        }
    }
}
