//! The JSON of `recliner tombstones`.

use crate::{
    advice::tombstones::Choice,
    model::rounding::to_bytes,
    serve::report::{AdviceRemedy, DeletionAges},
    sources::tombstones::{AutoPurge, KeptPurges, PeerKind, TombstoneFacts},
};
use serde::{Serialize, Serializer};

#[derive(Debug, Default)]
pub(in crate::cli) struct FileBytes {
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) docs: u64,
    pub(in crate::cli) with_body: u64,
}

/// A database's deleted documents, and the choices. Unknown is null.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct TombstonesAnswer {
    pub(in crate::cli) db: String,
    pub(in crate::cli) version: Option<String>,
    /// Deleted documents; null if a range was not read.
    pub(in crate::cli) tombstones: Option<u64>,
    /// Other documents; null if a range was not read.
    pub(in crate::cli) documents: Option<u64>,
    /// The number of copies of all ranges, and how many of them were read.
    pub(in crate::cli) copies: usize,
    pub(in crate::cli) copies_read: usize,
    pub(in crate::cli) size: Option<TombstoneSize>,
    /// Live bytes of all copies; null if one was not read.
    pub(in crate::cli) active_bytes: Option<u64>,
    /// When the database's changes, including deletions, were made; null if CouchDB does not keep these times.
    pub(in crate::cli) ages: Option<Vec<AgeLine>>,
    /// Whether CouchDB keeps these times; null if that is unknown.
    pub(in crate::cli) keeps_times: Option<bool>,
    /// The ages that recliner recorded; null if CouchDB knows them, or nothing is recorded.
    pub(in crate::cli) recorded: Recorded,
    pub(in crate::cli) peers: Vec<PeerLine>,
    /// The copies in which a compaction keeps more entries about purges than `purges_limit`; null if the limit is
    /// unknown.
    pub(in crate::cli) kept_purges: Option<Vec<KeptPurges>>,
    pub(in crate::cli) purges_limit: Option<u64>,
    /// How long CouchDB itself keeps deleted documents: `never_purges`, `not_set`, a time such as `90_days`; null if
    /// unknown.
    pub(in crate::cli) deleted_document_ttl: Option<String>,
    pub(in crate::cli) choices: Vec<ChoiceLine>,
    /// What could not be read, and why.
    pub(in crate::cli) unknown: Vec<String>,
}

/// What a running recliner answered about the ages.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(in crate::cli) enum Recorded {
    Ages(DeletionAges),
    /// This recliner has recorded no deletions of the database.
    #[serde(serialize_with = "null")]
    Nothing(String),
    /// No recliner was asked, or none answered.
    NotAsked,
}

fn null<S: Serializer>(_: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_none()
}

/// How large deleted documents are.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct TombstoneSize {
    /// `files` if they were read whole, `sample` if only some documents were read, over HTTP.
    pub(in crate::cli) from: &'static str,
    /// The number of documents that were read.
    pub(in crate::cli) documents_read: u64,
    /// How many of them have fields; null in a sample.
    pub(in crate::cli) with_body: Option<u64>,
    /// Mean bytes of a deleted document in one copy.
    pub(in crate::cli) bytes_each: u64,
    /// Half-width of the 95 % confidence interval of the mean.
    pub(in crate::cli) error_each: u64,
    /// Bytes of all deleted documents in all copies that were read.
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) error: u64,
}

/// The start of a period, and the number of changes in it.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct AgeLine {
    pub(in crate::cli) from: String,
    pub(in crate::cli) changes: u64,
}

/// A reader of changes or purges.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct PeerLine {
    /// `replication`, `unknown`, `incoming`, `copy`, `internal_replication` or `purge_reader`.
    pub(in crate::cli) kind: PeerKind,
    pub(in crate::cli) name: String,
    /// Changes that it has not read; for a purge reader, purges. Null if unknown.
    pub(in crate::cli) behind: Option<u64>,
    pub(in crate::cli) last_seen: Option<String>,
    /// Its state as the replicator reports it.
    pub(in crate::cli) state: Option<String>,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct ChoiceLine {
    /// `auto_purge`, `replicate`, `purge` or `compact`.
    pub(in crate::cli) choice: &'static str,
    pub(in crate::cli) does: String,
    pub(in crate::cli) risk: String,
    pub(in crate::cli) remedy: Vec<AdviceRemedy>,
}

impl TombstonesAnswer {
    pub(in crate::cli) fn of(
        facts: &TombstoneFacts,
        files: Option<FileBytes>,
        choices: &[Choice],
    ) -> Self {
        let fullest = facts.fullest_copies();
        let is_whole = facts.knows_every_range();
        let infos = || fullest.iter().filter_map(|copy| copy.info.as_ref());
        let sum = |number: Option<u64>| number.filter(|_| is_whole);
        let peers = facts.peers.iter().map(|peer| PeerLine {
            kind: peer.kind,
            name: peer.name.clone(),
            behind: peer.behind,
            last_seen: peer.last_seen.map(wall_clock::Moment::rfc3339),
            state: peer.state.clone(),
        });
        let choice = |choice: &Choice| ChoiceLine {
            choice: choice.kind.into(),
            does: choice.does.clone(),
            risk: choice.risk.clone(),
            remedy: choice.remedy.iter().map(AdviceRemedy::of).collect(),
        };
        let active = facts.copies.iter().map(|copy| copy.info.as_ref()?.sizes.active);
        Self {
            db: facts.db.clone(),
            version: facts.version.clone(),
            tombstones: sum(infos().map(|info| info.doc_del_count).sum()),
            documents: sum(infos().map(|info| info.doc_count).sum()),
            copies: facts.copies.len(),
            copies_read: facts.copies.iter().filter(|copy| copy.deleted().is_some()).count(),
            size: size(facts, files),
            active_bytes: active.sum(),
            ages: facts.ages.as_ref().map(|ages| {
                let line = |(from, changes): &(wall_clock::Moment, u64)| AgeLine {
                    from: from.rfc3339(),
                    changes: *changes,
                };
                ages.iter().map(line).collect()
            }),
            keeps_times: facts.keeps_times,
            recorded: Recorded::NotAsked,
            peers: peers.collect(),
            kept_purges: facts.kept_purges.clone(),
            purges_limit: facts.purges_limit,
            deleted_document_ttl: match &facts.auto_purge {
                AutoPurge::Missing => Some("never_purges".to_owned()),
                AutoPurge::Ttl(ttl) => Some(ttl.clone().unwrap_or_else(|| "not_set".to_owned())),
                AutoPurge::Unknown => None,
            },
            choices: choices.iter().map(choice).collect(),
            unknown: facts.problems.clone(),
        }
    }

    /// The reader of changes that is furthest behind, if there is one.
    pub(in crate::cli) fn slowest(&self) -> Option<&PeerLine> {
        let readers = self.peers.iter().filter(|peer| peer.kind.reads_changes());
        readers.max_by_key(|peer| {
            let is_known = peer.kind == PeerKind::Replication;
            (peer.behind != Some(0), is_known, peer.behind.is_none(), peer.behind)
        })
    }
}

/// The size from files if there are any, otherwise from the sample.
fn size(facts: &TombstoneFacts, files: Option<FileBytes>) -> Option<TombstoneSize> {
    let all: u64 = facts.copies.iter().filter_map(|copy| copy.deleted()).sum();
    let (each, error, from, documents_read, with_body) = match files {
        Some(files) => {
            let each = files.bytes as f64 / files.docs.max(1) as f64;
            (each, 0.0, "files", files.docs, Some(files.with_body))
        }
        None => {
            let estimate = facts.sample.estimate()?;
            (estimate.bytes, estimate.error, "sample", estimate.docs as u64, None)
        }
    };
    Some(TombstoneSize {
        from,
        documents_read,
        with_body,
        bytes_each: to_bytes(each),
        error_each: to_bytes(error),
        bytes: to_bytes(each * all as f64),
        error: to_bytes(error * all as f64),
    })
}
