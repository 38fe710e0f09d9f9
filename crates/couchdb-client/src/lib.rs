//! A client of CouchDB's HTTP interface for operators.
//!
//! Owns every URL that is sent to CouchDB, the login and the proof of it, the address of each node,
//! limits on requests in flight, and the shape of every answer. Reads are retried if that may
//! help; requests that start work are sent once. Never decides what to read or what to compact.
//!
//! [`Client::open`] opens a [`Client`], cheap to clone. [`Client::builder`] sets everything else.
//! Its [`Builder::build`] also returns the [`ClientTask`] that proves the login and learns addresses, for
//! callers that supervise their tasks.

mod active_login;
mod address;
mod auth;
mod breaker;
mod certificate;
mod client;
mod credential;
mod directory;
mod endpoint_auth;
mod error;
mod host_pattern;
mod lines;
mod observer;
mod paging;
mod redact;
mod route;
mod sender;
mod settings;
mod token_bucket;
mod transport;
pub mod wire;

pub use address::{Address, ParseAddressError};
pub use certificate::CertificateEnds;
pub use client::{
    Client, ClientTask, NodeAccess, OwnAddress,
    builder::{Builder, OpenError},
    entries::EntryStatus,
    feeds::Updates,
    reads::{Cache, MapPage},
    writes::WriteOutcome,
};
pub use error::{Error, ErrorKind, RequestInfo};
pub use host_pattern::{HostPattern, ParseHostPatternError};
pub use observer::{Observer, status_label};
pub use paging::Paging;
pub use route::{DbUpdates, MapPoll, Route, ShardRead, Unaddressable};
pub use settings::{ClientSettings, Login, LoginError, Tls};
pub use transport::{TlsError, Transport, TransportError};

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
