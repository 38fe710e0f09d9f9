//! A simulated CouchDB cluster inside the process.
//!
//! Owns a [`World`], a pure state machine of nodes, databases, shard copies, view indexes and
//! compactions whose numbers all follow from (configuration, seed, time), and a [`Cluster`], which is
//! that world behind CouchDB's HTTP routes, with faults to inject and a log of requests. Never opens a
//! socket, never reads its own clock, and never uses CouchDB's client: its responses are checked against
//! recordings of real servers.
//!
//! Used by `recliner demo`, tests and benches. [`Config`] describes a world; [`demo_config`] is the one
//! of the demo, [`faulty_demo_config`] the one with faults. The numbers of unchanged shards are computed on
//! request, so a [`Fleet`] of a million databases needs no memory per shard.

mod access;
mod catalog;
mod cluster;
mod config;
mod demo;
mod design;
mod fault;
mod faults;
mod faulty_demo;
mod growth;
mod http;
mod session;
mod wire;
mod world;

pub use cluster::{Cluster, ConnectionRefused};
pub use config::{
    Batch, Config, ConfigError, Database, Deploy, Design, Fleet, Interrupted, Node, Orphan, Role,
    SYSTEM_DATABASES, Search, User,
};
pub use demo::demo_config;
pub use fault::{Effect, Fault};
pub use faults::Faults;
pub use faulty_demo::faulty_demo_config;
pub use wire::Exchange;
pub use world::{
    Compaction, CompactionEnd, DiskFile, DiskUse, DiskWalk, Obstacle, SearchInfo, ShardInfo, Sizes,
    StartedBy, Tally, Task, TaskKind, ViewFile, ViewInfo, World,
};

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
