//! A simulated CouchDB cluster of any size on loopback ports, for measurements.
//!
//! ```text
//! cargo run --release --example simulated -- --databases 1000000 --q 1 --n 1 --nodes 1
//! ```
//!
//! It prints a configuration with which `recliner serve` or `recliner scan` can read it, then
//! serves until it is stopped. The login is `admin` with the password `secret`.

use clap::Parser;
use couchdb_sim::{Cluster, Config, Database, Fleet};
use std::{
    error::Error,
    io::Write,
    net::{Ipv4Addr, SocketAddr},
};
use tokio::{net::TcpListener, task::JoinSet};
use wall_clock::Clock;

/// Serve a simulated cluster of many databases without design documents.
#[derive(Debug, Parser)]
struct Args {
    /// Databases
    #[arg(long, default_value_t = 1_000_000)]
    databases: u32,
    /// Ranges of each
    #[arg(long, default_value_t = 1)]
    q: u32,
    /// Copies of each range
    #[arg(long, default_value_t = 1)]
    n: u32,
    /// Nodes
    #[arg(long, default_value_t = 1)]
    nodes: u16,
    /// The first node's port; the others follow
    #[arg(long, default_value_t = 15_100)]
    port: u16,
    /// Characters of a database's name
    #[arg(long, default_value_t = 40)]
    name_length: usize,
    /// File over active bytes
    #[arg(long, default_value_t = 3.0)]
    bloat: f64,
    /// Writes a second that each database gets
    #[arg(long, default_value_t = 0.0)]
    writes: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let names: Vec<String> =
        (1..=args.nodes).map(|node| format!("couchdb@sim-{node}.local")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let like = Database {
        q: args.q,
        n: args.n,
        docs: 100_000,
        bloat: args.bloat,
        writes_per_second: args.writes,
        ..Database::new("tenant-")
    };
    let fleet = Fleet::named(like, args.databases, args.name_length);
    let cluster = Cluster::new(Config::new(&names).with_fleet(fleet), 1, Clock::System)?;
    let mut servers = JoinSet::new();
    let mut urls = Vec::new();
    let mut nodes = Vec::new();
    for (node, port) in names.iter().zip(args.port..) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).await?;
        let router = cluster.router(node);
        servers.spawn(async move { axum::serve(listener, router).await });
        urls.push(format!("http://{address}"));
        nodes.push(format!("{node}: \"http://{address}\""));
    }
    let config = format!(
        "couchdb:\n  urls: [{}]\n  username: admin\n  cold_reads_per_second: off\n  nodes: {{{}}}\n",
        urls.join(", "),
        nodes.join(", "),
    );
    std::io::stdout().lock().write_all(config.as_bytes())?;
    while let Some(ended) = servers.join_next().await {
        ended??;
    }
    Ok(())
}
