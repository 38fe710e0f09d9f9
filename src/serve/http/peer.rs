//! The connection and the peer of a request.
//!
//! Owns the types for them, which each request carries. The server sets them; the guard and `web`
//! decide by them.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// The connection of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    /// The peer.
    pub(super) peer: Peer,
    /// Whether it is TLS.
    pub(super) encrypted: bool,
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Peer {
    /// An address, in its canonical form. A proxy on this machine looks like this machine.
    Tcp(IpAddr),
    /// A process on this machine, over the Unix socket: the kernel reports its user.
    Socket {
        /// The user id of the process.
        uid: u32,
    },
}

impl Peer {
    /// Whether its address is on this machine.
    pub(super) const fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.is_loopback(),
            Self::Socket { .. } => true,
        }
    }

    /// The peer for limits per address: one IPv6 customer has 2^64 addresses, which count as one.
    pub(super) fn shared(self) -> Self {
        match self {
            Self::Tcp(IpAddr::V6(address)) => {
                let network = address.to_bits() & (u128::MAX << 64);
                Self::Tcp(Ipv6Addr::from_bits(network).into())
            }
            Self::Tcp(IpAddr::V4(_)) | Self::Socket { .. } => self,
        }
    }

    /// Whether it connected over the Unix socket, which belongs to the service's user.
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
