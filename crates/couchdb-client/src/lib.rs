//! The CouchDB HTTP client.
//!
//! Owns every URL that is sent to CouchDB, the login and its gate, the way to each
//! node, limits on what is in flight, and the shape of every answer. What only reads is asked
//! again where that may help; what starts work is sent once. It never decides what to ask or
//! what an answer means for a compaction: the inventory, the commands and the hands of enforcer,
//! warmer and takeover do.
//!
//! [`Client::connect`] gives a [`Client`], cheap to clone, and a [`Task`] that has to
//! run as long as the client is used: it proves the login and learns addresses.

mod address;
mod breaker;
mod certificate;
mod client;
mod credential;
mod directory;
mod door;
mod error;
mod gate;
mod greeting;
mod hidden;
mod host_pattern;
mod lines;
mod metrics;
mod pace;
mod paging;
mod route;
mod sender;
mod settings;
mod silence;
mod transport;
pub mod wire;

pub use address::{Address, ParseAddressError};
pub use certificate::CertificateEnds;
pub use client::{
    Client, ConnectError, Entry, MapPage, NodeAccess, OwnAddress, Task, Updates, Written,
};
pub use error::{Asked, Error, Kind, NO_USER};
pub use host_pattern::{HostPattern, ParseHostPatternError};
pub use metrics::Metrics;
pub use paging::Paging;
pub use route::{Route, Unaddressable};
pub use settings::{Login, LoginError, Settings, Tls};
pub use transport::{TlsError, Transport, TransportError};
