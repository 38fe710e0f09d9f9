//! What is known about the deleted documents of one database: how many, how large, how old, and who
//! still reads them.
//!
//! Owns the requests, which only read. Keeps nothing.

mod kept;
mod peers;
mod progress;
mod sample;
mod shard_copy;

pub use kept::KeptPurges;
pub use peers::{Peer, PeerKind};
pub use sample::{Estimate, TombstoneSample};
pub use shard_copy::ShardCopy;

use super::couchdb::describe;
use couchdb_client::{Cache, Client, wire};
use couchdb_names::Range;
use peers::{links, peers};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// Maximum number of `_local` documents that are read of a copy.
const MAX_LOCAL_DOCS: usize = 10_000;
/// Maximum number of replications that are read.
const MAX_REPLICATIONS: usize = 10_000;

/// The database that advice copies a database to, without its deleted documents.
pub(crate) fn copy_name(db: &str) -> String {
    format!("{db}-new")
}

/// What CouchDB itself does about old deleted documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AutoPurge {
    /// It has no such feature.
    Missing,
    /// How long it keeps them in this database; `None` if no limit is set.
    Ttl(Option<String>),
    /// It could not be read.
    Unknown,
}

/// What is known about the deleted documents of a database.
#[derive(Clone, Debug)]
pub struct TombstoneFacts {
    /// The database.
    pub db: String,
    /// The suffix of its files, which distinguishes it from another database of the same name.
    pub suffix: String,
    /// The version of the CouchDB that answered.
    pub version: Option<String>,
    /// Every copy of every range.
    pub copies: Vec<ShardCopy>,
    /// Who has a checkpoint in the database, or replicates it.
    pub peers: Vec<Peer>,
    /// Start times of intervals and the number of changes in each, from one copy of each range; `None` if CouchDB
    /// keeps no times.
    pub ages: Option<Vec<(Moment, u64)>>,
    /// Whether CouchDB keeps such times; `None` if that is unknown.
    pub keeps_times: Option<bool>,
    /// The copies in which a compaction keeps more entries about purges than the limit; `None` if the limit is
    /// unknown.
    pub kept_purges: Option<Vec<KeptPurges>>,
    /// The limit, `_purged_infos_limit`.
    pub purges_limit: Option<u64>,
    /// What CouchDB purges by itself.
    pub auto_purge: AutoPurge,
    /// The documents that were read for their sizes.
    pub sample: TombstoneSample,
    /// What could not be read, in sentences.
    pub problems: Vec<String>,
}

impl TombstoneFacts {
    /// For each range, the copy with most deleted documents among those that were read.
    pub fn fullest_copies(&self) -> Vec<&ShardCopy> {
        let mut best: Vec<&ShardCopy> = Vec::new();
        for copy in self.copies.iter().filter(|copy| copy.deleted().is_some()) {
            match best.iter_mut().find(|other| other.range == copy.range) {
                Some(other) if other.deleted() < copy.deleted() => *other = copy,
                Some(_) => {}
                None => best.push(copy),
            }
        }
        best
    }

    /// Whether a copy of every range was read.
    pub fn knows_every_range(&self) -> bool {
        let known = self.fullest_copies();
        self.copies.iter().all(|copy| known.iter().any(|other| other.range == copy.range))
    }
}

/// Reads the facts, and the sizes of at most `sample` deleted documents, which `seed` selects.
///
/// # Errors
/// If nothing is known about the database; the text says why.
pub async fn read_tombstones(
    client: &Client,
    db: &str,
    sample: usize,
    seed: u64,
) -> Result<TombstoneFacts, String> {
    let entry = client.shard_map_entry(None, db).await.map_err(|error| describe(&error))?;
    let entry = entry.ok_or_else(|| format!("no database is called {db:?}"))?;
    let suffix = entry.suffix.ok_or("the shard map does not give the suffix of its files")?;
    let mut problems = Vec::new();
    let mut copies = Vec::new();
    for (range, nodes) in &entry.by_range {
        let Ok(parsed) = range.parse::<Range>() else {
            problems.push(format!("The shard map has a malformed range, {range:?}."));
            continue;
        };
        let shard = format!("shards/{range}/{db}{suffix}");
        for node in nodes {
            copies.push(read_copy(client, (parsed, node, &shard), &mut problems).await);
        }
    }
    let mut unknown = |what: &str, error: couchdb_client::Error| {
        problems.push(format!("{what}: {}.", describe(&error)));
    };
    let replications = client.replications(MAX_REPLICATIONS).await;
    let replications =
        replications.map_err(|error| unknown("Replications are unknown", error)).ok();
    let times = client.time_seq(db).await;
    let times = times.map_err(|error| unknown("The times of changes are unknown", error));
    let purges_limit = client.purges_limit(db).await;
    let purges_limit =
        purges_limit.map_err(|error| unknown("How many purges are kept is unknown", error)).ok();
    let auto_purge = match client.auto_purge(db).await {
        Ok(None) => AutoPurge::Missing,
        Ok(Some(settings)) => AutoPurge::Ttl(settings.deleted_document_ttl),
        Err(error) => {
            unknown("Whether CouchDB purges by itself is unknown", error);
            AutoPurge::Unknown
        }
    };
    if replications.as_ref().is_some_and(|all| all.len() >= MAX_REPLICATIONS) {
        problems.push(format!("Only {MAX_REPLICATIONS} replications of each list were read."));
    }
    let version = client.welcome().await.ok().and_then(|welcome| welcome.version);
    let parsed = version.as_deref().and_then(|version| version.parse().ok());
    let mut links = links(&copies);
    problems.extend(progress::count_unsent(client, &mut links).await);
    let mut peers = peers(db, &copies, &links, replications.as_deref());
    problems.extend(progress::ask(client, db, &mut peers).await);
    let mut facts = TombstoneFacts {
        db: db.to_owned(),
        suffix,
        version,
        peers,
        kept_purges: purges_limit.map(|limit| kept::kept_purges(&copies, limit, parsed)),
        purges_limit,
        copies,
        keeps_times: times.as_ref().ok().map(Option::is_some),
        ages: times.ok().flatten().map(|times| ages(&times)),
        auto_purge,
        sample: TombstoneSample::default(),
        problems,
    };
    let (sample, problem) = sample::read(client, &facts.fullest_copies(), sample, seed).await;
    facts.sample = sample;
    facts.problems.extend(problem);
    Ok(facts)
}

async fn read_copy(
    client: &Client,
    (range, node, shard): (Range, &str, &str),
    problems: &mut Vec<String>,
) -> ShardCopy {
    let mut copy = ShardCopy {
        range,
        node: node.to_owned(),
        shard: shard.to_owned(),
        info: None,
        local: None,
    };
    match client.shard_info(node, shard, Cache::Cold).await {
        Ok(info) => copy.info = Some(info),
        Err(error) => {
            problems.push(format!("{shard} on {node} was not read: {}.", describe(&error)));
            return copy;
        }
    }
    match client.local_docs(node, shard, MAX_LOCAL_DOCS).await {
        Ok((local, true)) => copy.local = Some(local),
        Ok((local, false)) => {
            problems.push(format!(
                "{shard} on {node} has more than {} checkpoints; the rest was not read.",
                local.len()
            ));
            copy.local = Some(local);
        }
        Err(error) => {
            problems.push(format!(
                "The checkpoints in {shard} on {node} are unknown: {}.",
                describe(&error)
            ));
        }
    }
    copy
}

/// The intervals of one copy of each range, the one with the most changes; changes with equal start times are added.
fn ages(times: &wire::TimeSeq) -> Vec<(Moment, u64)> {
    let known = |bins: &&Vec<wire::TimeBin>| bins.iter().map(|bin| bin.changes).sum::<u64>();
    let copies = times.time_seq.values().filter_map(|nodes| nodes.values().max_by_key(known));
    let bins = copies.flatten();
    let mut all: BTreeMap<Moment, u64> = BTreeMap::new();
    for (from, changes) in bins.filter_map(|bin| Some((Moment::parse(&bin.from)?, bin.changes))) {
        let sum = all.entry(from).or_default();
        *sum = sum.saturating_add(changes);
    }
    all.into_iter().collect()
}

#[cfg(test)]
impl TombstoneFacts {
    /// A database with one range in two copies, one of them behind, and one replication that lags.
    pub(crate) fn example(db: &str, auto_purge: AutoPurge) -> Self {
        let copy = |node: &str, deleted: u64| ShardCopy {
            range: "00000000-ffffffff".parse().unwrap(),
            node: node.to_owned(),
            shard: format!("shards/00000000-ffffffff/{db}.1795222434"),
            info: Some(wire::ShardInfo {
                doc_count: Some(2_000),
                doc_del_count: Some(deleted),
                ..wire::ShardInfo::default()
            }),
            local: None,
        };
        let peer = |kind, name: &str, behind| Peer {
            behind,
            last_seen: Some(Moment::from_unix(1_795_222_434)),
            ..Peer::new(kind, name)
        };
        Self {
            db: db.to_owned(),
            suffix: ".1795222434".to_owned(),
            version: Some("3.5.2".to_owned()),
            copies: vec![copy("a", 5_990), copy("b", 6_000)],
            peers: vec![
                peer(PeerKind::Replication, "to http://b:1/x/ (d)", Some(2_000)),
                peer(PeerKind::Replication, "checkpoint done", Some(0)),
                peer(PeerKind::Incoming, "from http://c:1/y/", None),
            ],
            ages: None,
            keeps_times: Some(false),
            kept_purges: Some(Vec::new()),
            purges_limit: Some(1_000),
            auto_purge,
            sample: TombstoneSample::default(),
            problems: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fullest_known_copy_of_a_range_counts() {
        let mut facts = TombstoneFacts::example("orders", AutoPurge::Missing);
        let nodes = |facts: &TombstoneFacts| {
            facts.fullest_copies().iter().map(|copy| copy.node.clone()).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&facts), ["b"]);
        facts.copies[1].info = None;
        assert_eq!(nodes(&facts), ["a"]);
        facts.copies[0].info = None;
        assert!(nodes(&facts).is_empty(), "unknown");
    }

    #[test]
    fn ages_come_from_the_copy_that_records_most_changes() {
        let times = serde_json::json!({ "time_seq": {
            "00000000-7fffffff": {
                "a": [["2026-11-20T00:00:00Z", 3]],
                "b": [["2026-11-19T00:00:00Z", 5], ["2026-11-21T00:00:00Z", 1]],
            },
            "80000000-ffffffff": { "a": [["2026-11-20T03:00:00Z", 2], ["2026-11-21T00:00:00Z", 4], ["never", 7]] },
        }});
        let times: wire::TimeSeq = serde_json::from_value(times).unwrap();
        let said: Vec<(String, u64)> =
            ages(&times).into_iter().map(|(at, changes)| (at.rfc3339(), changes)).collect();
        let expected = [
            ("2026-11-19T00:00:00Z".to_owned(), 5),
            ("2026-11-20T03:00:00Z".to_owned(), 2),
            ("2026-11-21T00:00:00Z".to_owned(), 5),
        ];
        assert_eq!(said, expected);
    }
}
