//! Signals.

use std::io;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals this program listens to.
#[derive(Debug)]
pub(super) struct Signals {
    term: Stream,
    int: Stream,
    hup: Stream,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one; cancel-safe.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.term.recv() => Signal::Stop,
            Some(()) = self.int.recv() => Signal::Stop,
            Some(()) = self.hup.recv() => Signal::Reload,
            else => std::future::pending().await,
        }
    }
}
