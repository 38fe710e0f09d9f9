//! Sidecars: other recliners, each on one node, and the facts they read from files.
//!
//! Requests their facts page by page and validates everything it uses. A missing sidecar only costs
//! exactness: its last facts are dropped, and CouchDB is asked for everything again.

use super::{
    Directories, Observation, ReadError,
    facts_page::{FactsPage, NodeFiles},
};
use crate::{
    model::target::TargetId,
    sources::{
        recliner::{Login, ReclinerClient},
        xray::DatabaseXray,
    },
};
use couchdb_client::Address;
use couchdb_names::encode_part;
use futures::{
    StreamExt as _, future,
    stream::{self, BoxStream},
};
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time;
use wall_clock::{Clock, Moment};

/// The number of entries in a page.
const LINES_PER_PAGE: usize = 5_000;

/// The maximum number of pages: for a node with more files, only CouchDB is asked.
const MAX_PAGES: usize = 400;

/// The maximum size of a page. An entry is less than a kilobyte.
const MAX_PAGE_BYTES: usize = 16 << 20;

/// The maximum size of all pages together: a million entries are 350 MB.
const MAX_TOTAL_BYTES: usize = 512 << 20;

/// The maximum wait for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a sidecar may take to X-ray the files of a database, and the interval between two requests for the result.
const XRAY_TIMEOUT: Duration = Duration::from_secs(12 * 60);
const BETWEEN_XRAY_POLLS: Duration = Duration::from_secs(2);

/// Reads facts from sidecars.
#[derive(Clone, Debug)]
pub struct PeersSource {
    client: ReclinerClient,
    peers: Arc<[Address]>,
    clock: Clock,
}

impl PeersSource {
    /// A source for these sidecars; `None` if there are none.
    ///
    /// # Errors
    /// If the HTTP library cannot be set up.
    pub(crate) fn new(
        peers: &[Address],
        login: Option<Login>,
        clock: Clock,
    ) -> Result<Option<Self>, reqwest::Error> {
        if peers.is_empty() {
            return Ok(None);
        }
        let client = ReclinerClient::new(PAGE_TIMEOUT, login)?;
        Ok(Some(Self { client, peers: peers.into(), clock }))
    }

    /// All facts of one sidecar, or why it could not be asked. Incomplete facts are discarded.
    async fn of(&self, peer: &Address) -> Vec<Observation> {
        let name: Arc<str> = peer.to_string().into();
        match self.all(peer).await {
            Ok(files) => {
                let nodes = files.keys().cloned().collect();
                let mut observations: Vec<Observation> = files
                    .into_iter()
                    .map(|(node, NodeFiles { dbs, parts })| Observation::PeerFiles {
                        node,
                        dbs,
                        parts,
                    })
                    .collect();
                observations.push(Observation::PeerEnd { peer: name, nodes: Ok(nodes) });
                observations
            }
            Err(why) => {
                let unread = ReadError {
                    reason: "peer",
                    message: format!("cannot read {peer}'s measurements of its files: {why}"),
                    right: None,
                };
                vec![Observation::PeerEnd { peer: name, nodes: Err(unread) }]
            }
        }
    }

    async fn all(&self, peer: &Address) -> Result<BTreeMap<Arc<str>, NodeFiles>, String> {
        let mut all: BTreeMap<Arc<str>, NodeFiles> = BTreeMap::new();
        let (mut after, mut read): (Option<TargetId>, usize) = (None, 0);
        let mut begun = BTreeSet::new();
        for _ in 0..MAX_PAGES {
            let (page, ahead, bytes) = self.page(peer, after.as_ref()).await?;
            read = read.saturating_add(bytes);
            if read > MAX_TOTAL_BYTES {
                return Err(format!("its measurements are larger than {MAX_TOTAL_BYTES} bytes"));
            }
            if page.facts.len() > LINES_PER_PAGE {
                return Err(format!("one of its pages has more than {LINES_PER_PAGE} lines"));
            }
            let last = page.facts.last().map(|line| line.id.clone());
            for line in page.facts {
                line.add_to(&mut all, self.clock.now(), ahead);
            }
            let Some(next) = page.next else { return Ok(all) };
            // Requesting the same page again, or an empty one, would never end.
            if Some(&next) != last.as_ref() || !begun.insert(next.to_string()) {
                return Err("the sidecar sent the same page twice".to_owned());
            }
            after = Some(next);
        }
        Err(format!("it has more than {} files", LINES_PER_PAGE * MAX_PAGES))
    }

    /// A page, the number of seconds by which the sidecar's clock is ahead, and the page's size in
    /// bytes.
    async fn page(
        &self,
        peer: &Address,
        after: Option<&TargetId>,
    ) -> Result<(FactsPage, i64, usize), String> {
        let mut path = format!("facts?limit={LINES_PER_PAGE}");
        if let Some(after) = after {
            path.push_str(&format!("&after={}", encode_part(&after.to_string())));
        }
        self.get(peer, &path, MAX_PAGE_BYTES).await
    }

    /// The addresses of the sidecars.
    pub fn addresses(&self) -> &[Address] {
        &self.peers
    }

    /// A sidecar's answer to a path of the API, up to `max_bytes`; by how many seconds its clock is
    /// ahead; and the size of the answer.
    ///
    /// # Errors
    /// If it gave no answer; the text says why.
    pub async fn get<T: DeserializeOwned>(
        &self,
        peer: &Address,
        path: &str,
        max_bytes: usize,
    ) -> Result<(T, i64, usize), String> {
        let reply = self.client.answer(self.client.get(peer, path), max_bytes).await?;
        Ok((reply.data, ahead(&reply.headers, self.clock.now()), reply.bytes))
    }

    /// Has each sidecar X-ray a database's files, and waits for the results: by sidecar, its X-rays or
    /// why it gave none.
    pub async fn xrays(&self, db: &str) -> Vec<(String, Result<DatabaseXray, String>)> {
        let asked = self.peers.iter().map(|peer| async move {
            let asked = async {
                loop {
                    let order = self.client.post(peer, "xray");
                    let order = order.header(CONTENT_TYPE, "application/json");
                    let order = order.body(json!({ "db": db }).to_string());
                    let reply = self.client.answer::<DatabaseXray>(order, MAX_PAGE_BYTES);
                    let found = reply.await?.data;
                    if !found.is_running {
                        return Ok(found);
                    }
                    time::sleep(BETWEEN_XRAY_POLLS).await;
                }
            };
            let late = |_| Err(format!("no answer within {} minutes", XRAY_TIMEOUT.as_secs() / 60));
            (peer.to_string(), time::timeout(XRAY_TIMEOUT, asked).await.unwrap_or_else(late))
        });
        future::join_all(asked).await
    }
}

impl Directories for PeersSource {
    /// Asks all sidecars concurrently.
    fn read(&self) -> BoxStream<'static, Observation> {
        let reads = self.peers.iter().cloned().map(|peer| {
            let this = self.clone();
            stream::once(async move { this.of(&peer).await }).flat_map(stream::iter).boxed()
        });
        stream::select_all(reads).boxed()
    }
}

/// By how many seconds the sender's clock is ahead of `now`; zero if unknown.
fn ahead(headers: &HeaderMap, now: Moment) -> i64 {
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let sent = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    sent.map_or(0, |sent| {
        sent.timestamp().as_second() - i64::from(u32::try_from(now.unix()).unwrap_or(u32::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Router, extract::Query};
    use serde_json::{Value, json};
    use std::collections::HashMap;
    use tokio::net::TcpListener;
    use tokio_util::task::AbortOnDropHandle;

    fn id(number: usize) -> String {
        format!("db:couchdb%40a/shards%2F00000000-ffffffff%2Fdb{number:07}.1700000000")
    }

    fn line(number: usize) -> Value {
        json!({ "id": id(number), "exact": true, "measured_at": "2026-11-21T00:54:00Z" })
    }

    /// The result for a sidecar that answers with `page`, which gets the number to continue after.
    #[expect(clippy::disallowed_methods, reason = "a test is its own supervisor")]
    async fn of(page: fn(usize) -> Value) -> Result<usize, String> {
        let answer = move |Query(query): Query<HashMap<String, String>>| async move {
            let after = query.get("after").and_then(|id| id.get(id.len() - 18..id.len() - 11));
            let after = after.and_then(|number| number.parse::<usize>().ok());
            axum::Json(json!({ "data": page(after.map_or(0, |after| after + 1)) }))
        };
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let router = Router::new().route("/api/v1/facts", axum::routing::get(answer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer: Address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let _server = AbortOnDropHandle::new(tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        }));
        let source = PeersSource::new(std::slice::from_ref(&peer), None, Clock::System).unwrap();
        let all = source.unwrap().all(&peer).await?;
        Ok(all.values().map(|files| files.dbs.len()).sum())
    }

    #[tokio::test]
    async fn refuses_pages_that_never_end() {
        let two = |from: usize| match from {
            0 => json!({ "facts": [line(0), line(1)], "next": id(1) }),
            _ => json!({ "facts": [line(2)], "next": null }),
        };
        assert_eq!(of(two).await, Ok(3));
        let again = |_: usize| json!({ "facts": [line(0), line(1)], "next": id(1) });
        let elsewhere = |from: usize| json!({ "facts": [line(from)], "next": id(from + 9) });
        let nothing = |from: usize| json!({ "facts": [], "next": id(from) });
        for page in [again, elsewhere, nothing] as [fn(usize) -> Value; 3] {
            assert_eq!(of(page).await, Err("the sidecar sent the same page twice".to_owned()));
        }
        let many =
            |_: usize| json!({ "facts": (0..=LINES_PER_PAGE).map(line).collect::<Vec<_>>() });
        assert_eq!(
            of(many).await,
            Err(format!("one of its pages has more than {LINES_PER_PAGE} lines"))
        );
        let more = |from: usize| json!({ "facts": [line(from)], "next": id(from) });
        assert_eq!(
            of(more).await,
            Err(format!("it has more than {} files", LINES_PER_PAGE * MAX_PAGES))
        );
    }
}
