//! Signals, and by what names orders may call this machine.

use std::io;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The machine's host name, whole and without its domain; none where the system does not
/// tell.
pub(super) fn own_names() -> Vec<String> {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let whole = told.trim();
    let short = whole.split('.').next().unwrap_or_default();
    let mut names = vec![whole.to_owned(), short.to_owned()];
    names.dedup();
    names.retain(|name| !name.is_empty());
    names
}

/// Has a write beyond the limit on file sizes fail, as on a full disk, where SIGXFSZ would
/// end the process. A signal that was listened to once never has its default effect again.
pub(super) fn outlive_file_size_limit() -> io::Result<()> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map(drop)
}

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
