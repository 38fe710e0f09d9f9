//! What a request came over.
//!
//! Owns the words for the two sides of a connection, which go along with each request. The
//! server says them; the guard and `web` decide by them.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// A connection, as each of its requests carries it along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    /// Who is at its other end.
    pub(super) peer: Peer,
    /// Whether it is TLS.
    pub(super) encrypted: bool,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Peer {
    /// This address, in its canonical form. A proxy on this machine looks like this machine.
    Tcp(IpAddr),
    /// A process of this machine, over the Unix socket: the kernel says whose it is.
    Socket {
        /// The user it runs as.
        uid: u32,
    },
}

impl Peer {
    /// Whether it is on this machine, as far as its address tells.
    pub(super) const fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.is_loopback(),
            Self::Socket { .. } => true,
        }
    }

    /// The peer that it counts as: one IPv6 customer has 2^64 addresses.
    pub(super) fn shared(self) -> Self {
        match self {
            Self::Tcp(IpAddr::V6(address)) => {
                let network = address.to_bits() & (u128::MAX << 64);
                Self::Tcp(Ipv6Addr::from_bits(network).into())
            }
            Self::Tcp(IpAddr::V4(_)) | Self::Socket { .. } => self,
        }
    }

    /// Whether it came over the Unix socket, which belongs to the service's user alone.
    pub(super) const fn is_owner(&self) -> bool {
        matches!(self, Self::Socket { .. })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Socket { uid } => write!(out, "unix socket, uid {uid}"),
        }
    }
}
