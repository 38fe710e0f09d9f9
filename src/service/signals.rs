//! Signals of the process, and the names of this machine.

use std::io;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The machine's host name, with and without its domain; empty if it has none.
pub(super) fn host_names() -> Vec<String> {
    let machine = rustix::system::uname();
    let whole = machine.nodename().to_str().unwrap_or_default().trim();
    let short = whole.split('.').next().unwrap_or_default();
    let mut names = vec![whole.to_owned(), short.to_owned()];
    names.dedup();
    names.retain(|name| !name.is_empty());
    names
}

/// Makes a write beyond the file size limit fail like on a full disk, instead of ending the process
/// by SIGXFSZ. A signal that once had a listener never has its default effect again.
pub(super) fn ignore_file_size_signal() -> io::Result<()> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessSignal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals this program handles.
#[derive(Debug)]
pub(super) struct ProcessSignals {
    term: Stream,
    int: Stream,
    hup: Stream,
}

impl ProcessSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal; cancel-safe.
    pub(super) async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            Some(()) = self.term.recv() => ProcessSignal::Stop,
            Some(()) = self.int.recv() => ProcessSignal::Stop,
            Some(()) = self.hup.recv() => ProcessSignal::Reload,
            else => std::future::pending().await,
        }
    }
}
