//! Signals of the process, and the names of this machine.

use std::io;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The machine's host name, with and without its domain, and its names in `/etc/hosts`; empty if it has none.
pub(super) fn host_names() -> Vec<String> {
    let machine = rustix::system::uname();
    let whole = machine.nodename().to_str().unwrap_or_default().trim();
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    names_of(whole, &hosts)
}

/// The names of a machine: most systems keep the one with the domain only in `/etc/hosts`, and Kubernetes writes
/// that of each pod there.
fn names_of(whole: &str, hosts: &str) -> Vec<String> {
    let short = whole.split('.').next().unwrap_or_default();
    let mut names = vec![whole.to_owned(), short.to_owned()];
    names.retain(|name| !name.is_empty());
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let named: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
        if named.iter().any(|name| *name == whole || *name == short) {
            names.extend(named);
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Makes a write beyond the file size limit fail as on a full disk, instead of ending the process
/// with SIGXFSZ. Once a signal had a listener, its default effect never returns.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_host_names_include_the_full_name_from_etc_hosts() {
        let hosts = "127.0.0.1 localhost # couch-a\n127.0.1.1 couch-a.example.com couch-a\n10.0.0.2\tcouch-b.example.com couch-b\n";
        assert_eq!(names_of("couch-a", hosts), ["couch-a", "couch-a.example.com"]);
        assert_eq!(names_of("couch-c.example.com", hosts), ["couch-c", "couch-c.example.com"]);
        assert_eq!(names_of("", hosts), [""; 0]);
    }
}
