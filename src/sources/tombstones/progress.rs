//! What CouchDB itself says about the checkpoints in a database.

use super::{
    copy_name,
    peers::{Link, Peer, PeerKind, sort},
};
use crate::sources::{couchdb::describe, tombstones::shard_copy::ShardCopy};
use couchdb_client::{Client, Error};

/// Maximum number of checkpoints that CouchDB is asked about, for each question.
const MAX_ASKED: usize = 50;
/// Maximum number of changes that are counted for one copy; with more, the distance of sequences is close enough.
const MAX_CHANGES: usize = 1_000;
/// What BEHIND may count too, in sentences about why.
const NOT_ASKED: &str = "BEHIND also counts purges for some peers:";

/// Counts the changes that readers lack, and recognises the checkpoints of a copy; returns what could not be read.
pub(super) async fn ask(client: &Client, db: &str, peers: &mut [Peer]) -> Vec<String> {
    let mut problems = Vec::new();
    problems.extend(count_changes(client, db, peers).await);
    if let Err(error) = recognise_copies(client, db, peers).await {
        let why = describe(&error);
        problems
            .push(format!("Whether a checkpoint belongs to {} is unknown: {why}.", copy_name(db)));
    }
    sort(peers);
    problems
}

/// Replaces distances of sequences, which each purge increases too, by the numbers of changes.
async fn count_changes(client: &Client, db: &str, peers: &mut [Peer]) -> Option<String> {
    let late = |peer: &&mut Peer| peer.kind.reads_changes() && peer.behind > Some(0);
    for (at, peer) in peers.iter_mut().filter(late).enumerate() {
        let Some(since) = peer.since.as_deref() else { continue };
        if at >= MAX_ASKED {
            return Some(too_many());
        }
        match client.changes_left(db, since).await {
            Ok(left) => peer.behind = left.or(peer.behind),
            Err(error) => return Some(format!("{NOT_ASKED} {}.", describe(&error))),
        }
    }
    None
}

/// The same for what copies have not sent to each other.
pub(super) async fn count_unsent(client: &Client, links: &mut [Link<'_>]) -> Option<String> {
    let late = |link: &&mut Link<'_>| link.behind > Some(0);
    for (at, link) in links.iter_mut().filter(late).enumerate() {
        let Some(since) = link.since else { continue };
        if at >= MAX_ASKED {
            return Some(too_many());
        }
        let ShardCopy { node, shard, .. } = link.from;
        match client.shard_changes(node, shard, since, MAX_CHANGES).await {
            Ok(changes) if changes.len() < MAX_CHANGES => link.behind = Some(changes.len() as u64),
            Ok(_) => {}
            Err(error) => return Some(format!("{NOT_ASKED} {}.", describe(&error))),
        }
    }
    None
}

fn too_many() -> String {
    format!("{NOT_ASKED} CouchDB was asked about {MAX_ASKED}.")
}

/// A replicator keeps its checkpoint in the source and in the target.
async fn recognise_copies(client: &Client, db: &str, peers: &mut [Peer]) -> Result<(), Error> {
    let copy = copy_name(db);
    let mut unlisted = peers.iter_mut().filter(|peer| peer.kind.reads_changes()).peekable();
    if unlisted.peek().is_none() || client.shard_map_entry(None, &copy).await?.is_none() {
        return Ok(());
    }
    for peer in unlisted.filter(|peer| peer.unlisted.is_some()).take(MAX_ASKED) {
        let Some(id) = peer.unlisted.as_deref() else { continue };
        if client.has_local_doc(&copy, id).await? {
            (peer.kind, peer.name) = (PeerKind::Copy, format!("{copy}, checkpoint {id}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{
        Json, Router,
        http::{StatusCode, Uri},
        response::IntoResponse as _,
    };
    use couchdb_client::{ClientSettings, Transport};
    use serde_json::json;

    /// As CouchDB 3.5.2 answers for a database with purges, and its copy.
    async fn couchdb(uri: Uri) -> axum::response::Response {
        let answer = match uri.path_and_query().map_or("", |it| it.as_str()) {
            "/orders/_changes?limit=1&since=9-a" => {
                json!({ "results": [], "last_seq": "12-a", "pending": 0 })
            }
            "/orders/_changes?limit=1&since=5-a" => {
                json!({ "results": [{ "seq": "6-a", "id": "x", "changes": [] }], "pending": 2 })
            }
            map if map.starts_with("/_node/_local/_dbs/_all_docs?") => {
                json!({ "rows": [{ "id": "orders-new", "doc": { "by_range": {} } }] })
            }
            "/orders-new/_local/copied" => json!({ "_id": "_local/copied" }),
            _ => {
                return (
                    StatusCode::NOT_FOUND,
                    Json(json!({ "error": "not_found", "reason": "missing" })),
                )
                    .into_response();
            }
        };
        Json(answer).into_response()
    }

    #[tokio::test(start_paused = true)]
    async fn purges_are_not_changes_and_a_copy_is_no_reader() {
        let settings = ClientSettings::new(vec!["http://a:5984".parse().unwrap()]);
        let transport = Transport::in_process(Router::new().fallback(couchdb));
        let client = Client::builder(settings).transport(transport).open().unwrap();
        let peer = |id: &str, since: &str| Peer {
            behind: Some(382),
            unlisted: Some(id.to_owned()),
            since: Some(since.to_owned()),
            ..Peer::new(PeerKind::Replication, format!("checkpoint {id}"))
        };
        let mut peers = vec![peer("done", "9-a"), peer("late", "5-a"), peer("copied", "5-a")];
        assert_eq!(ask(&client, "orders", &mut peers).await, Vec::<String>::new());
        let found: Vec<_> = peers.iter().map(|it| (it.kind, &*it.name, it.behind)).collect();
        assert_eq!(
            found,
            [
                (PeerKind::Replication, "checkpoint late", Some(3)),
                (PeerKind::Replication, "checkpoint done", Some(0)),
                (PeerKind::Copy, "orders-new, checkpoint copied", Some(3)),
            ]
        );
    }
}
