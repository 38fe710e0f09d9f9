//! Serves a simulated cluster of three nodes on loopback until ctrl-c.
//!
//! ```text
//! cargo run -p couchdb-sim --example serve
//! curl -u admin:secret http://127.0.0.1:PORT/_membership
//! ```
//!
//! Each node gets a free port of its own; the URLs are printed.
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use couchdb_sim::{Cluster, Config, Database, Design};
use std::{error::Error, net::Ipv4Addr};
use tokio::{net::TcpListener, task::JoinSet};
use wall_clock::Clock;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let nodes = ["couchdb@sim-1.local", "couchdb@sim-2.local", "couchdb@sim-3.local"];
    let config = Config::new(&nodes)
        .with(Database {
            q: 4,
            docs: 200_000,
            bloat: 3.0,
            writes_per_second: 20.0,
            designs: vec![Design::new("by_customer")],
            ..Database::new("orders")
        })
        .with(Database::new("customers"));

    // The same configuration, seed and elapsed time give the same cluster.
    let seed = 1;
    let cluster = Cluster::new(config, seed, Clock::System)?;

    let mut servers = JoinSet::new();
    for (node, router) in cluster.routers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("http://{}  {node}", listener.local_addr()?);
        servers.spawn(async move { axum::serve(listener, router).await });
    }
    println!("user admin, password secret; stop with ctrl-c");

    tokio::signal::ctrl_c().await?;
    println!("{} requests answered", cluster.requests());
    Ok(())
}
