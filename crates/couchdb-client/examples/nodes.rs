//! Lists the nodes of a cluster, then the shards on one of them.
//!
//! ```text
//! COUCHDB_USER=admin COUCHDB_PASSWORD=secret \
//!     cargo run -p couchdb-client --example nodes -- http://127.0.0.1:5984 [NODE]
//! ```
//!
//! Without NODE, the shards of the first connected node are listed. The login must be a server
//! admin.
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use couchdb_client::{Cache, Client, Login};
use couchdb_names::ShardName;
use std::{env, error::Error};

/// How many shards are printed with their sizes. CouchDB has to open a file for each.
const MAX_SHARDS: usize = 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let url = arguments.next().ok_or("usage: nodes URL [NODE]")?;
    let user = env::var("COUCHDB_USER").map_err(|why| format!("COUCHDB_USER: {why}"))?;
    let password =
        env::var("COUCHDB_PASSWORD").map_err(|why| format!("COUCHDB_PASSWORD: {why}"))?;

    let client = Client::open(url.parse()?, Login::password(&user, &password)?)?;
    list(&client, arguments.next()).await
}

async fn list(client: &Client, node: Option<String>) -> Result<(), Box<dyn Error>> {
    let membership = client.membership().await?;
    let connected = membership.all_nodes.unwrap_or_default();
    for node in membership.cluster_nodes.unwrap_or_default() {
        let state = if connected.contains(&node) { "connected" } else { "not connected" };
        println!("{node}  {state}");
    }

    let node = node.or_else(|| connected.first().cloned()).ok_or("no node is connected")?;
    let files = client.node_files(&node).await?;
    let shards = || files.iter().filter(|file| ShardName::split(file).is_some());
    println!("\n{node}: {} shards", shards().count());
    for shard in shards().take(MAX_SHARDS) {
        // CouchDB may have to open the file, so the client paces this read.
        let info = client.shard_info(&node, shard, Cache::Cold).await?;
        match (info.sizes.file, info.sizes.active) {
            (Some(file), Some(active)) => println!("{shard}  {file} bytes, {active} active"),
            _ => println!("{shard}  size unknown"),
        }
    }
    Ok(())
}
