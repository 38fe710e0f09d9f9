//! A simulated CouchDB cluster inside the process.
//!
//! Owns a [`World`]: a pure state machine of nodes, databases, shard copies, view
//! indexes and compactions whose every number follows from (configuration, seed, time),
//! and a [`Cluster`]: that world behind CouchDB's HTTP routes, with faults to inject and
//! a wire log to judge from. Never opens a socket, never reads a clock of its own, never
//! names CouchDB's client: what it answers is held to recordings of real servers.
//!
//! Called by `recliner demo`, by tests and by benches. A world is described by
//! [`Config`]; [`demo_config`] is the one a newcomer sees. Numbers of shards that nothing
//! has touched are computed when asked, so that a [`Fleet`] of a million databases costs
//! no memory a shard.

mod access;
mod catalog;
mod cluster;
mod config;
mod demo;
mod design;
mod fault;
mod growth;
mod http;
mod session;
mod wire;
mod world;

pub use cluster::{Cluster, ConnectionRefused};
pub use config::{
    Config, ConfigError, Database, Deploy, Design, Fleet, Interrupted, Node, Orphan, Role,
    SYSTEM_DATABASES, Search, User,
};
pub use demo::demo_config;
pub use fault::{Effect, Fault, Faults};
pub use wire::Exchange;
pub use world::{
    Compaction, CompactionEnd, DiskFile, DiskUse, DiskWalk, Obstacle, SearchInfo, ShardInfo, Sizes,
    StartError, StartedBy, Task, TaskKind, ViewFile, ViewInfo, World,
};

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
