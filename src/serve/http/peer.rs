//! The connection and the peer of a request.
//!
//! Every request carries these types. The server sets them; the guard and `web` base their
//! decisions on them.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) peer: Peer,
    /// Whether the connection uses TLS.
    pub(super) encrypted: bool,
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Peer {
    /// An IP address in its canonical form. A proxy on this machine has a local address.
    Tcp(IpAddr),
    /// A process on this machine, over the Unix socket: the kernel reports its user.
    Socket { uid: u32 },
}

impl Peer {
    /// Whether the peer's address is on this machine.
    pub(super) const fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.is_loopback(),
            Self::Socket { .. } => true,
        }
    }

    /// The peer for limits per address: an IPv6 customer has 2^64 addresses, which count as one
    /// peer.
    pub(super) fn shared(self) -> Self {
        match self {
            Self::Tcp(IpAddr::V6(address)) => {
                let network = address.to_bits() & (u128::MAX << 64);
                Self::Tcp(Ipv6Addr::from_bits(network).into())
            }
            Self::Tcp(IpAddr::V4(_)) | Self::Socket { .. } => self,
        }
    }

    /// Whether the peer connected over the Unix socket, which belongs to the service's user.
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
