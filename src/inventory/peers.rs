//! Parts of views from sidecars: other recliners, each of which reads one node's files.
//!
//! Asks for their targets page by page and believes no more of an answer than it needs. A
//! sidecar that is away costs exactness alone: what it told last is forgotten, and CouchDB's
//! own numbers count again.

use super::{Directories, Observation, PartSeen, Unread};
use crate::{
    clock::Moment,
    couch::Address,
    facts::{Facts, Measured, Source as MeasuredBy},
    target::ShardName,
};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Targets a page.
const PAGE: usize = 2_000;

/// Pages at most: a node that has more index files than they hold is told by CouchDB alone.
const PAGES: usize = 1_000;

/// The largest page that is read. A target is a kilobyte or two.
const LONGEST: usize = 16 << 20;

/// The longest wait for a page.
const WITHIN: Duration = Duration::from_secs(30);

/// Reads parts from sidecars.
#[derive(Clone, Debug)]
pub struct PeersSource {
    http: reqwest::Client,
    peers: Arc<[Address]>,
    login: Option<Arc<(String, SecretString)>>,
}

/// The API's envelope, as far as it is read.
#[derive(Debug, Deserialize)]
struct Envelope {
    data: Option<Page>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Page {
    total: usize,
    targets: Vec<Line>,
}

/// A target, as far as it is read.
#[derive(Debug, Deserialize)]
struct Line {
    node: String,
    name: Option<String>,
    signature: Option<String>,
    file_bytes: Option<u64>,
    active_bytes: Option<u64>,
    external_bytes: Option<u64>,
    update_seq: Option<u64>,
    collator_versions: Option<Vec<String>>,
    measured_at: Option<String>,
}

impl PeersSource {
    /// A source over these sidecars; `None` where there is none.
    ///
    /// # Errors
    /// When the HTTP library cannot be set up.
    pub fn new(
        peers: &[Address],
        login: Option<(String, SecretString)>,
    ) -> Result<Option<Self>, reqwest::Error> {
        if peers.is_empty() {
            return Ok(None);
        }
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(WITHIN)
            .user_agent(concat!("recliner/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Some(Self { http, peers: peers.into(), login: login.map(Arc::new) }))
    }

    /// All of one sidecar's parts, or why there are none: half of them would count for all.
    async fn of(&self, peer: &Address) -> Vec<Observation> {
        let name: Arc<str> = peer.to_string().into();
        match self.all(peer).await {
            Ok(parts) => {
                let nodes = parts.keys().cloned().collect();
                let mut seen: Vec<Observation> = parts
                    .into_iter()
                    .map(|(node, parts)| Observation::Parts { node, parts })
                    .collect();
                seen.push(Observation::PartsEnd { peer: name, nodes: Ok(nodes) });
                seen
            }
            Err(why) => {
                let unread = Unread {
                    reason: "peer",
                    message: format!("cannot read the parts of views from {peer}: {why}"),
                    right: None,
                };
                vec![Observation::PartsEnd { peer: name, nodes: Err(unread) }]
            }
        }
    }

    async fn all(&self, peer: &Address) -> Result<BTreeMap<Arc<str>, Vec<PartSeen>>, String> {
        let mut all: BTreeMap<Arc<str>, Vec<PartSeen>> = BTreeMap::new();
        let mut met = BTreeSet::new();
        for at in 0..PAGES {
            let page = self.page(peer, at * PAGE).await?;
            let last = page.targets.is_empty() || (at + 1) * PAGE >= page.total;
            for line in page.targets {
                // Views of the cluster have no shard; and a list that moved between two pages
                // may show one part twice.
                let Some((node, part)) = part(line) else { continue };
                if met.insert((part.shard.clone(), part.signature)) {
                    all.entry(node).or_default().push(part);
                }
            }
            if last {
                return Ok(all);
            }
        }
        Err(format!("it has more than {} parts", PAGE * PAGES))
    }

    async fn page(&self, peer: &Address, offset: usize) -> Result<Page, String> {
        let at = format!(
            "{}/api/v1/targets?kind=view&state=ok&limit={PAGE}&offset={offset}",
            peer.as_str().trim_end_matches('/')
        );
        let mut request = self.http.get(at);
        if let Some(login) = &self.login {
            request = request.basic_auth(&login.0, Some(login.1.expose_secret()));
        }
        let mut answer = request.send().await.map_err(|why| why.without_url().to_string())?;
        let status = answer.status();
        if status == reqwest::StatusCode::UNAUTHORIZED {
            return Err(
                "it wants another user or password; give RECLINER_USER and RECLINER_PASSWORD"
                    .to_owned(),
            );
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|why| why.without_url().to_string())? {
            if body.len() + chunk.len() > LONGEST {
                return Err(format!("its answer is longer than {LONGEST} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        let read: Envelope = serde_json::from_slice(&body)
            .map_err(|_| format!("it answered {status} and not as recliner does"))?;
        match (read.data, read.error) {
            (Some(page), _) => Ok(page),
            (None, Some(why)) => {
                Err(format!("it answered {status}: {}", why.chars().take(200).collect::<String>()))
            }
            (None, None) => Err(format!("it answered {status} and not as recliner does")),
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

/// A part of a clustered database's view, with the numbers of one file.
fn part(line: Line) -> Option<(Arc<str>, PartSeen)> {
    let shard = line.name?;
    ShardName::split(&shard)?;
    let facts = Facts {
        file: line.file_bytes.into(),
        active: line.active_bytes.into(),
        external: line.external_bytes.into(),
        update_seq: line.update_seq.into(),
        measured_at: Some(Measured {
            at: Moment::read(line.measured_at.as_deref()?)?,
            by: MeasuredBy::Files,
        }),
        ..Facts::default()
    };
    let collators = line.collator_versions.unwrap_or_default();
    let part = PartSeen {
        shard: shard.into(),
        signature: line.signature?.parse().ok()?,
        facts: facts.all_by_files(),
        collators: collators.iter().map(|version| Arc::from(&**version)).collect(),
    };
    Some((line.node.into(), part))
}
