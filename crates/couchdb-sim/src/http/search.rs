//! Routes of search indexes: their information, and queries, which build them.
//!
//! The messages are those of CouchDB's side; there is no search server behind them.

use super::{
    answer::{Answer, Routed, error, json, not_found},
    ask::ParsedRequest,
};
use crate::{
    cluster::{Cluster, Inner},
    config::V3_4_0,
    growth::mix,
    world::LookupError,
};
use couchdb_names::Engine;
use serde_json::json as value;
use std::time::Duration;

/// How often a query checks whether its index is built.
const LOOKS: Duration = Duration::from_millis(250);

/// A query that waits for its index.
#[derive(Debug)]
struct Query {
    engine: Engine,
    db: String,
    ddoc: String,
    index: String,
}

/// Whether a node has a search engine.
pub(super) fn has(inner: &Inner, node: &str, engine: Engine) -> bool {
    let version = inner.world.version_of(node);
    match engine {
        Engine::Nouveau => {
            version >= V3_4_0 && inner.world.setting(node, "nouveau", "enable") == Some("true")
        }
        Engine::Clouseau => inner.world.has_clouseau(node),
    }
}

/// The engine that a route's segment names, and whether the route is a query.
fn engine(word: &str) -> Option<(Engine, bool)> {
    match word {
        "_nouveau_info" => Some((Engine::Nouveau, false)),
        "_nouveau" => Some((Engine::Nouveau, true)),
        "_search_info" => Some((Engine::Clouseau, false)),
        "_search" => Some((Engine::Clouseau, true)),
        _ => None,
    }
}

/// The response of a design document's route; `None`: it is not a search route.
pub(super) fn route(
    inner: &mut Inner,
    ask: &ParsedRequest,
    db: &str,
    rest: &[&str],
) -> Option<Routed> {
    let ["_design", ddoc, word, index] = rest else { return None };
    let (engine, queries) = engine(word)?;
    if !has(inner, &ask.node, engine) {
        return Some(absent(inner, &ask.node, engine).into());
    }
    let designs = inner.world.description(db).map_or(&[][..], |like| &like.designs);
    let Some(design) = designs.iter().find(|design| design.name == *ddoc) else {
        return Some(not_found("missing").into());
    };
    if !design.searches.iter().any(|it| it.engine == engine && it.name == *index) {
        return Some(not_found(&format!("{index} not found.")).into());
    }
    if !queries {
        return Some(info(inner, engine, db, ddoc, index).into());
    }
    if engine == Engine::Nouveau && ask.param("q").is_none() {
        return Some(error(400, "query_parse_error", "q parameter is mandatory").into());
    }
    let lazy = match engine {
        Engine::Nouveau => ask.param("update") == Some("false"),
        Engine::Clouseau => ask.param("stale") == Some("ok"),
    };
    if !lazy {
        inner.world.build_search(db, (engine, ddoc, index));
    }
    let [db, ddoc, index] = [db, ddoc, index].map(str::to_owned);
    Some(Routed::wait(move |cluster| Query { engine, db, ddoc, index }.answer(cluster)))
}

fn absent(inner: &Inner, node: &str, engine: Engine) -> Answer {
    let version = inner.world.version_of(node);
    match engine {
        // The older server takes the path for an attachment's name.
        Engine::Nouveau if version < V3_4_0 => not_found("Document is missing attachment"),
        Engine::Nouveau => not_found("missing"),
        Engine::Clouseau => error(503, "service unavailable", "Search is not available"),
    }
}

fn info(inner: &Inner, engine: Engine, db: &str, ddoc: &str, index: &str) -> Answer {
    let found_index = match inner.world.cluster_search(db, (engine, ddoc, index)) {
        Ok(found_index) => found_index,
        Err(LookupError::Range) => return error(500, "nodedown", "progress not possible"),
        Err(_) => return not_found("missing"),
    };
    let of_name = |salt| format!("{:016x}", mix(crate::growth::key_of(index), salt));
    let info = match engine {
        Engine::Nouveau if !found_index.exists => return not_found("Index does not exist"),
        Engine::Nouveau => value!({
            "update_seq": found_index.update_seq,
            "purge_seq": 0,
            "num_docs": found_index.docs,
            "disk_size": found_index.disk_size,
            "signature": (1..=4).map(of_name).collect::<String>(),
        }),
        Engine::Clouseau => value!({
            "signature": (1..=2).map(of_name).collect::<String>(),
            "pending_seq": found_index.update_seq,
            "doc_del_count": 0,
            "doc_count": found_index.docs,
            "disk_size": found_index.disk_size,
            "committed_seq": found_index.update_seq,
        }),
    };
    json(200, &value!({"name": format!("_design/{ddoc}/{index}"), "search_index": info}))
}

impl Query {
    /// The response, once all indexers of the index have ended.
    async fn answer(self, cluster: Cluster) -> Answer {
        let of = (self.engine, self.ddoc.as_str(), self.index.as_str());
        while cluster.world(|world| world.is_building_search(&self.db, of)) {
            tokio::time::sleep(LOOKS).await;
        }
        let known = cluster.world(|world| world.cluster_search(&self.db, of)).unwrap_or_default();
        json(
            200,
            &match self.engine {
                Engine::Nouveau => value!({
                    "update_latency": 7, "total_hits_relation": "EQUAL_TO", "total_hits": known.docs,
                    "ranges": null, "hits": [], "counts": null, "bookmark": "W10",
                }),
                Engine::Clouseau => {
                    value!({"total_rows": known.docs, "bookmark": "g2o", "rows": []})
                }
            },
        )
    }
}
