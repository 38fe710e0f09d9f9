//! What sidecars read of files: other recliners, each beside one node.
//!
//! Asks for their facts page by page and believes no more of an answer than it needs. A sidecar
//! that is away costs exactness alone: what it told last is forgotten, and CouchDB is asked for
//! all again.

use super::{
    Directories, Observation, Unread,
    told::{FactsPage, Told},
};
use crate::{
    clock::{Clock, Moment},
    couch::Address,
    fetch,
    target::{TargetId, encode_part},
};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use reqwest::{Response, StatusCode, header::DATE};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Lines a page.
const PAGE: usize = 5_000;

/// Pages at most: a node that has more files than they hold is told by CouchDB alone.
const PAGES: usize = 400;

/// The largest page that is read. A line is less than a kilobyte.
const LONGEST: usize = 16 << 20;

/// The longest wait for a page.
const WITHIN: Duration = Duration::from_secs(30);

/// Reads facts from sidecars.
#[derive(Clone, Debug)]
pub struct PeersSource {
    http: reqwest::Client,
    peers: Arc<[Address]>,
    login: Option<Arc<(String, SecretString)>>,
    clock: Clock,
}

/// The API's envelope, as far as it is read.
#[derive(Debug, Deserialize)]
struct Envelope {
    data: Option<FactsPage>,
    error: Option<String>,
}

impl PeersSource {
    /// A source over these sidecars; `None` where there is none.
    ///
    /// # Errors
    /// When the HTTP library cannot be set up.
    pub fn new(
        peers: &[Address],
        login: Option<(String, SecretString)>,
        clock: Clock,
    ) -> Result<Option<Self>, reqwest::Error> {
        if peers.is_empty() {
            return Ok(None);
        }
        let http = fetch::client(WITHIN)?;
        Ok(Some(Self { http, peers: peers.into(), login: login.map(Arc::new), clock }))
    }

    /// All that one sidecar read, or why there is none of it: half would count for all.
    async fn of(&self, peer: &Address) -> Vec<Observation> {
        let name: Arc<str> = peer.to_string().into();
        match self.all(peer).await {
            Ok(told) => {
                let nodes = told.keys().cloned().collect();
                let mut seen: Vec<Observation> = told
                    .into_iter()
                    .map(|(node, Told { dbs, parts })| Observation::Told { node, dbs, parts })
                    .collect();
                seen.push(Observation::ToldEnd { peer: name, nodes: Ok(nodes) });
                seen
            }
            Err(why) => {
                let unread = Unread {
                    reason: "peer",
                    message: format!("cannot read what {peer} knows of its files: {why}"),
                    right: None,
                };
                vec![Observation::ToldEnd { peer: name, nodes: Err(unread) }]
            }
        }
    }

    async fn all(&self, peer: &Address) -> Result<BTreeMap<Arc<str>, Told>, String> {
        let mut all: BTreeMap<Arc<str>, Told> = BTreeMap::new();
        let mut after: Option<TargetId> = None;
        for _ in 0..PAGES {
            let (page, ahead) = self.page(peer, after.as_ref()).await?;
            for line in page.facts {
                line.put(&mut all, self.clock.now(), ahead);
            }
            // A page that does not go on would be asked for for ever.
            match page.next.filter(|next| after.as_ref() != Some(next)) {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
        Err(format!("it has more than {} files", PAGE * PAGES))
    }

    /// A page, and by how many seconds the sidecar's clock is ahead.
    async fn page(
        &self,
        peer: &Address,
        after: Option<&TargetId>,
    ) -> Result<(FactsPage, i64), String> {
        let base = peer.as_str().trim_end_matches('/');
        let mut at = format!("{base}/api/v1/facts?limit={PAGE}");
        if let Some(after) = after {
            at.push_str(&format!("&after={}", encode_part(&after.to_string())));
        }
        let mut request = self.http.get(at);
        if let Some(login) = &self.login {
            request = request.basic_auth(&login.0, Some(login.1.expose_secret()));
        }
        let answer = request.send().await.map_err(fetch::words)?;
        let status = answer.status();
        if status == StatusCode::UNAUTHORIZED {
            return Err(
                "it wants another user or password; give RECLINER_USER and RECLINER_PASSWORD"
                    .to_owned(),
            );
        }
        let ahead = ahead(&answer, self.clock.now());
        let body = fetch::body(answer, LONGEST).await?;
        let strange = || format!("it answered {status} and not as recliner does");
        let read: Envelope = serde_json::from_slice(&body).map_err(|_| strange())?;
        match (read.data, read.error) {
            (Some(page), _) => Ok((page, ahead)),
            (None, Some(why)) => {
                Err(format!("it answered {status}: {}", why.chars().take(200).collect::<String>()))
            }
            (None, None) => Err(strange()),
        }
    }
}

impl Directories for PeersSource {
    /// Asks every sidecar, all at once.
    fn read(&self) -> BoxStream<'static, Observation> {
        let asked = self.peers.iter().cloned().map(|peer| {
            let this = self.clone();
            stream::once(async move { this.of(&peer).await }).flat_map(stream::iter).boxed()
        });
        stream::select_all(asked).boxed()
    }
}

/// By how many seconds the clock that an answer was sent by is ahead of `now`; zero where it
/// does not say.
fn ahead(answer: &Response, now: Moment) -> i64 {
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    let sent = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    sent.map_or(0, |sent| {
        sent.timestamp().as_second() - i64::from(u32::try_from(now.unix()).unwrap_or(u32::MAX))
    })
}
