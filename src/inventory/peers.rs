//! What sidecars read of files: other recliners, each beside one node.
//!
//! Asks for their facts page by page and believes no more of an answer than it needs. A sidecar
//! that is away costs exactness alone: what it told last is forgotten, and CouchDB is asked for
//! all again.

use super::{DbSeen, Directories, Observation, PartSeen, Unread};
use crate::{
    clock::{Clock, Moment},
    couch::Address,
    couchfile::Reported,
    facts::{Facts, Flags, Measured, Source as MeasuredBy},
    fetch,
    target::{ShardName, TargetId, encode_part},
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
    data: Option<Page>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Page {
    facts: Vec<Line>,
    /// Where the next page begins, if there is one.
    next: Option<String>,
}

/// What one file's header said.
#[derive(Debug, Deserialize)]
struct Line {
    id: TargetId,
    file_bytes: Option<u64>,
    active_bytes: Option<u64>,
    external_bytes: Option<u64>,
    update_seq: Option<u64>,
    compacted_seq: Option<u64>,
    docs: Option<u64>,
    deleted_docs: Option<u64>,
    collator_versions: Option<Vec<String>>,
    exact: bool,
    measured_at: String,
}

/// What a sidecar told of one node.
#[derive(Debug, Default)]
struct Told {
    dbs: Vec<DbSeen>,
    parts: Vec<PartSeen>,
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
        let mut after: Option<String> = None;
        for _ in 0..PAGES {
            let (page, ahead) = self.page(peer, after.as_deref()).await?;
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
    async fn page(&self, peer: &Address, after: Option<&str>) -> Result<(Page, i64), String> {
        let base = peer.as_str().trim_end_matches('/');
        let mut at = format!("{base}/api/v1/facts?limit={PAGE}");
        if let Some(after) = after {
            at.push_str(&format!("&after={}", encode_part(after)));
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

impl Line {
    /// Puts what it says to what is known of its node; what is no file is left out.
    fn put(self, all: &mut BTreeMap<Arc<str>, Told>, now: Moment, ahead: i64) {
        let Some(at) = self.at(now, ahead) else { return };
        let collators = self.collator_versions.as_deref().unwrap_or_default();
        let facts = Facts {
            file: self.file_bytes.into(),
            active: self.active_bytes.into(),
            external: self.external_bytes.into(),
            update_seq: self.update_seq.into(),
            compacted_seq: self.compacted_seq.into(),
            docs: self.docs.into(),
            deleted_docs: self.deleted_docs.into(),
            measured_at: Some(Measured { at, by: MeasuredBy::Files }),
            flags: Flags { needs_upgrade: collators.len() >= 2, ..Flags::default() },
            ..Facts::default()
        };
        let facts = facts.all_by_files();
        match self.id {
            TargetId::Db { node, shard } => {
                let reported = if self.exact { Reported::AsRead } else { Reported::Otherwise };
                let seen = DbSeen { shard: shard.into(), facts, reported, same: true };
                all.entry(node.into()).or_default().dbs.push(seen);
            }
            TargetId::View { node, db: shard, signature } if ShardName::split(&shard).is_some() => {
                let collators = collators.iter().map(|version| Arc::from(&**version)).collect();
                let seen = PartSeen { shard: shard.into(), signature, facts, collators };
                all.entry(node.into()).or_default().parts.push(seen);
            }
            TargetId::View { .. } | TargetId::Cleanup { .. } | TargetId::Search { .. } => {}
        }
    }

    /// When it was read, by this machine's clock.
    fn at(&self, now: Moment, ahead: i64) -> Option<Moment> {
        let theirs = i64::try_from(Moment::read(&self.measured_at)?.unix()).ok()?;
        let ours = u64::try_from(theirs.saturating_sub(ahead)).unwrap_or_default();
        Some(Moment::from_unix(ours).min(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(id: &str, at: &str, exact: bool) -> Line {
        serde_json::from_value(json!({
            "id": id, "file_bytes": 9, "active_bytes": null, "exact": exact, "measured_at": at,
        }))
        .unwrap()
    }

    #[test]
    fn lines_are_sorted_by_node_and_what_is_no_file_is_left_out() {
        let mut all = BTreeMap::new();
        let part = format!("view:a/shards%2F00000000-ffffffff%2Fx.1/{}", "01".repeat(16));
        let cluster = format!("view:_cluster/x.1/{}", "01".repeat(16));
        for id in ["db:a/_dbs", "db:b/_dbs", &part, &cluster, "cleanup:x"] {
            line(id, "1000", true).put(&mut all, Moment::from_unix(2_000), 0);
        }
        let counts: Vec<_> =
            all.iter().map(|(node, told)| (&**node, told.dbs.len(), told.parts.len())).collect();
        assert_eq!(counts, [("a", 1, 1), ("b", 1, 0)]);
        let facts = all["a"].dbs[0].facts;
        assert_eq!((facts.file.get(), facts.active.get()), (Some(9), None));
        line("db:c/_dbs", "1000", false).put(&mut all, Moment::from_unix(2_000), 0);
        assert_eq!(all["c"].dbs[0].reported, Reported::Otherwise);
    }

    #[test]
    fn an_age_is_told_by_the_sidecars_own_clock() {
        let now = Moment::from_unix(2_000);
        for (theirs, ahead, ours) in
            [("1990", 0, 1_990), ("5590", 3_600, 1_990), ("990", -1_000, 1_990), ("3000", 0, 2_000)]
        {
            let at = line("db:a/_dbs", theirs, true).at(now, ahead);
            assert_eq!(at, Some(Moment::from_unix(ours)), "{theirs} {ahead}");
        }
        assert_eq!(line("db:a/_dbs", "yesterday", true).at(now, 0), None);
    }
}
