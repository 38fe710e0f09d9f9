//! Who still reads the changes of a database, from its checkpoints and the replicator's lists.

use super::shard_copy::ShardCopy;
use crate::{config_format::problem::redact_secrets, text::listed};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use couchdb_client::wire::{Checkpoint, History, Replication, SourceSeq};
use couchdb_files::{ShardSequence, shard_sequences};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use strum::IntoStaticStr;
use wall_clock::Moment;

/// The kind of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, Serialize)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum PeerKind {
    /// A replication from the database, or another reader of its changes.
    Replication,
    /// A checkpoint that does not show whether the database is its source.
    Unknown,
    /// A replication into the database, which does not read its deletions.
    Incoming,
    /// A checkpoint that the copy without deleted documents left behind.
    Copy,
    /// Another copy of the same shards.
    InternalReplication,
    /// An index or a copy that must process purges.
    PurgeReader,
}

impl PeerKind {
    /// Whether it reads, or may read, the database's changes, so that it must see deletions.
    pub fn reads_changes(self) -> bool {
        matches!(self, Self::Replication | Self::Unknown)
    }
}

/// A reader of the database's changes or purges, and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its kind.
    pub kind: PeerKind,
    /// Its name, if known.
    pub name: String,
    /// Number of changes, deletions included, or of purges, that it has not read; `None` if unknown.
    pub behind: Option<u64>,
    /// When it last read, according to its own server's clock.
    pub last_seen: Option<Moment>,
    /// Its state as the replicator reports it.
    pub state: Option<String>,
    /// The id of its checkpoint, if no replication in CouchDB's lists has it.
    pub unlisted: Option<String>,
    /// The sequence in its checkpoint.
    pub(super) since: Option<String>,
}

impl Peer {
    /// A reader of which nothing else is known.
    pub(crate) fn new(kind: PeerKind, name: impl Into<String>) -> Self {
        let name = name.into();
        let (behind, last_seen, state, unlisted, since) = (None, None, None, None, None);
        Self { kind, name, behind, last_seen, state, unlisted, since }
    }
}

/// All peers by kind, those furthest behind first; `links` are those of these copies.
/// `replications` is `None` if they could not be read.
pub(super) fn peers(
    db: &str,
    copies: &[ShardCopy],
    links: &[Link<'_>],
    replications: Option<&[Replication]>,
) -> Vec<Peer> {
    let mut all = replicators(db, copies, replications);
    all.extend(internal(links));
    all.extend(purge_readers(copies));
    sort(&mut all);
    all
}

/// Sorts peers by kind; unknown counts as furthest behind.
pub(super) fn sort(peers: &mut [Peer]) {
    peers.sort_by_key(|peer| {
        (peer.kind, peer.behind.is_some(), std::cmp::Reverse(peer.behind), peer.name.clone())
    });
}

/// The rows of a copy, with the copy.
fn rows(copies: &[ShardCopy]) -> impl Iterator<Item = (&ShardCopy, &str, &Checkpoint)> {
    copies.iter().flat_map(|copy| copy.checkpoints().map(move |(id, doc)| (copy, id, doc)))
}

/// Checkpoints of replicators, and replications without a checkpoint.
fn replicators(db: &str, copies: &[ShardCopy], replications: Option<&[Replication]>) -> Vec<Peer> {
    let mut by_id: BTreeMap<&str, Peer> = BTreeMap::new();
    for (_, id, doc) in rows(copies) {
        let is_internal = id.starts_with("shard-sync-") || id.starts_with("purge-");
        let of_couchdb = &doc.source_last_seq;
        let seq = if *of_couchdb == SourceSeq::Unknown { &doc.last_seq } else { of_couchdb };
        let has_history = matches!(doc.history, History::Replicator(_));
        if is_internal || (*seq == SourceSeq::Unknown && !has_history) {
            continue;
        }
        let Progress { kind, behind, of_nodes } = progress(seq, copies);
        let name = match &of_nodes[..] {
            [] => format!("checkpoint {id}"),
            nodes => format!("checkpoint {id}, with a sequence of {}", listed(nodes)),
        };
        let since = match seq {
            SourceSeq::Packed(seq) => Some(seq.clone()),
            SourceSeq::Number(_) | SourceSeq::Unknown => None,
        };
        let peer = Peer {
            behind,
            last_seen: last_session(doc),
            unlisted: replications.is_some().then(|| id.to_owned()),
            since,
            ..Peer::new(kind, name)
        };
        // One copy may have an older checkpoint than another.
        match by_id.get(id) {
            Some(known) if known.last_seen >= peer.last_seen => {}
            Some(_) | None => {
                by_id.insert(id, peer);
            }
        }
    }
    for replication in replications.unwrap_or_default() {
        let is_of = |end: &Option<String>| end.as_deref().is_some_and(|end| names(end, db));
        let kind = match (is_of(&replication.source), is_of(&replication.target)) {
            (true, _) => PeerKind::Replication,
            (false, true) => PeerKind::Incoming,
            (false, false) => continue,
        };
        let id = replication.id.as_deref().unwrap_or_default();
        let id = id.split('+').next().unwrap_or_default();
        let other =
            if kind == PeerKind::Replication { &replication.target } else { &replication.source };
        let other = redact_secrets(other.as_deref().unwrap_or("?")).replace("<secret>@", "");
        let way = if kind == PeerKind::Incoming { "from" } else { "to" };
        let doc = replication.doc_id.as_ref().map_or_else(String::new, |doc| format!(" ({doc})"));
        let name = format!("{way} {other}{doc}");
        let state = replication.state.clone();
        // The same replication may be in the list of documents and in the list of jobs.
        let key =
            if id.is_empty() { replication.doc_id.as_deref().unwrap_or_default() } else { id };
        let peer = by_id.entry(key).or_insert_with(|| Peer::new(kind, ""));
        peer.name = name;
        peer.unlisted = None;
        peer.state = state.or_else(|| peer.state.take());
        if peer.kind == PeerKind::Unknown {
            peer.kind = kind;
        }
    }
    by_id.into_values().collect()
}

/// What a sequence in a checkpoint shows.
struct Progress {
    kind: PeerKind,
    behind: Option<u64>,
    /// The nodes that it names, if it names none of the database's copies.
    of_nodes: Vec<String>,
}

/// The kind of reader that a checkpoint belongs to, and how far it is behind the copies that it names.
fn progress(seq: &SourceSeq, copies: &[ShardCopy]) -> Progress {
    let unknown = |kind| Progress { kind, behind: None, of_nodes: Vec::new() };
    let shards = match seq {
        SourceSeq::Packed(seq) => unpacked(seq).unwrap_or_default(),
        // A number means that the source is a single file, not this database. A source that was not
        // read yet has 0 in any case.
        SourceSeq::Number(1..) => return unknown(PeerKind::Incoming),
        SourceSeq::Number(0) | SourceSeq::Unknown => Vec::new(),
    };
    let behind: Vec<Option<u64>> = shards.iter().map(|shard| behind(shard, copies)).collect();
    if behind.iter().all(Option::is_none) {
        // The sequence names copies of another database, or copies that have moved since.
        let nodes: BTreeSet<String> = shards.into_iter().map(|shard| shard.node).collect();
        return Progress { of_nodes: nodes.into_iter().collect(), ..unknown(PeerKind::Unknown) };
    }
    Progress { behind: sum(behind), ..unknown(PeerKind::Replication) }
}

/// The sum of numbers that come from elsewhere; `None` if one is unknown.
fn sum(numbers: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    numbers.into_iter().try_fold(0_u64, |sum, more| Some(sum.saturating_add(more?)))
}

/// The shards in `123-g1AAAA…`.
fn unpacked(seq: &str) -> Option<Vec<ShardSequence>> {
    let (_, packed) = seq.split_once('-')?;
    shard_sequences(&URL_SAFE_NO_PAD.decode(packed).ok()?)
}

fn behind(shard: &ShardSequence, copies: &[ShardCopy]) -> Option<u64> {
    let uuid = shard.uuid.as_deref().filter(|uuid| !uuid.is_empty())?;
    let infos = copies.iter().filter_map(|copy| copy.info.as_ref());
    let mut same = infos
        .filter(|info| info.uuid.as_ref().is_some_and(|known| known.as_bytes().starts_with(uuid)));
    Some(same.next()?.update_seq?.saturating_sub(shard.seq))
}

/// When a replicator last wrote its checkpoint.
fn last_session(doc: &Checkpoint) -> Option<Moment> {
    let History::Replicator(sessions) = &doc.history else { return None };
    Moment::parse_http(sessions.first()?.end_time.as_deref()?)
}

/// Whether a URL or a name refers to the database.
fn names(end: &str, db: &str) -> bool {
    let path = end.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    // Names may contain slashes, which some clients do not encode.
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    decoded == db || decoded.strip_suffix(db).is_some_and(|rest| rest.ends_with('/'))
}

/// A copy's progress in sending changes to another copy.
pub(super) struct Link<'a> {
    pub(super) from: &'a ShardCopy,
    to: &'a str,
    /// The last sequence that was sent.
    pub(super) since: Option<u64>,
    /// The number of changes that were not sent; at first, the distance of sequences, which each purge
    /// increases too.
    pub(super) behind: Option<u64>,
    last_seen: Option<Moment>,
}

/// Every copy with each other copy of its range.
pub(super) fn links(copies: &[ShardCopy]) -> Vec<Link<'_>> {
    let is_other =
        |from: &ShardCopy, to: &ShardCopy| to.range == from.range && to.node != from.node;
    let of_copy =
        |from| copies.iter().filter(move |to| is_other(from, to)).map(move |to| (from, to));
    copies.iter().flat_map(of_copy).map(|(from, to)| Link::of(from, &to.node)).collect()
}

impl<'a> Link<'a> {
    fn of(from: &'a ShardCopy, to: &'a str) -> Self {
        let info = from.info.as_ref();
        let uuid = info.and_then(|info| info.uuid.as_deref());
        let sessions = from.local.iter().flatten().filter_map(|row| match &row.doc.history {
            History::Internal(by_node) => by_node.get(&from.node),
            History::Unknown | History::Replicator(_) => None,
        });
        let sessions = sessions.flatten().filter(|session| {
            uuid.is_some()
                && session.source_uuid.as_deref() == uuid
                && session.target_node.as_deref() == Some(to)
        });
        let latest = sessions.max_by_key(|session| session.source_seq);
        let since = latest.and_then(|session| session.source_seq);
        let last = info.and_then(|info| info.update_seq);
        let timestamp = latest.and_then(|session| session.timestamp.as_deref());
        Self {
            from,
            to,
            since,
            behind: last.zip(since).map(|(last, since)| last.saturating_sub(since)),
            last_seen: timestamp.and_then(Moment::parse),
        }
    }
}

/// The progress of each node in sending changes to other nodes with copies of the same ranges.
fn internal(links: &[Link<'_>]) -> Vec<Peer> {
    let mut pairs: BTreeMap<(&str, &str), Vec<&Link<'_>>> = BTreeMap::new();
    for link in links {
        pairs.entry((&link.from.node, link.to)).or_default().push(link);
    }
    let peer = |((from, to), links): ((&str, &str), Vec<&Link<'_>>)| Peer {
        behind: sum(links.iter().map(|link| link.behind)),
        // The oldest, or none if one is unknown.
        last_seen: links.iter().map(|link| link.last_seen).min().flatten(),
        ..Peer::new(PeerKind::InternalReplication, format!("{from} to {to}"))
    };
    pairs.into_iter().map(peer).collect()
}

/// The name of the reader that a checkpoint of purges belongs to.
pub(super) fn purge_reader(copy: &ShardCopy, id: &str, doc: &Checkpoint) -> String {
    // A node reads the purges of others before it sends its own, so this copy's node may be either end.
    let other = [&doc.target, &doc.source].into_iter().flatten().find(|it| **it != copy.node);
    match (&doc.ddoc_id, other) {
        (Some(ddoc), _) => ddoc.clone(),
        (None, Some(node)) => format!("{} to {node}", copy.node),
        (None, None) => id.to_owned(),
    }
}

/// Indexes and copies that process purges, each with the copy where it is furthest behind.
fn purge_readers(copies: &[ShardCopy]) -> Vec<Peer> {
    let mut by_name: BTreeMap<String, Peer> = BTreeMap::new();
    for (copy, id, doc) in rows(copies).filter(|(_, id, _)| id.starts_with("purge-")) {
        let name = purge_reader(copy, id, doc);
        let purged = copy.info.as_ref().and_then(|info| info.purge_seq);
        let behind = purged.zip(doc.purge_seq).map(|(last, done)| last.saturating_sub(done));
        let last_seen = doc.updated_on.map(Moment::from_unix);
        let peer = Peer { behind, last_seen, ..Peer::new(PeerKind::PurgeReader, name.clone()) };
        let known = by_name.entry(name).or_insert_with(|| peer.clone());
        let rank = |peer: &Peer| (peer.behind.is_none(), peer.behind);
        if rank(&peer) > rank(known) {
            *known = peer;
        }
    }
    by_name.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use couchdb_client::wire::{LocalDocs, Replications};
    use serde_json::{Value, json};

    // Sequences of a real database with two copies of one range and one copy of another.
    const BEFORE: &str = "12000-g1AAAACZeJzLYWBgYMpgTmHgz8tPSTV2MDQy1zMAQsMckEQiQ1L9____szKYkxgYxF_kAsXYLc3NU1JNjTB1wE0xQjMljwVIMjQAqf9ww8R-gA0zsUg2SbVMxtSYBQBVOCZq";
    const UUIDS: [&str; 3] = ["977de52329cb", "380207e42064", "48c4e9ca4c59"];

    fn copy(at: usize, local: &Value) -> ShardCopy {
        let (range, node) = [
            ("00000000-7fffffff", "node3"),
            ("00000000-7fffffff", "node1"),
            ("80000000-ffffffff", "node2"),
        ][at];
        let rows: LocalDocs = serde_json::from_value(json!({ "rows": local })).unwrap();
        let info = json!({ "uuid": UUIDS[at], "update_seq": 7000, "purge_seq": 12 });
        ShardCopy {
            range: range.parse().unwrap(),
            node: node.to_owned(),
            shard: String::new(),
            info: Some(serde_json::from_value(info).unwrap()),
            local: Some(rows.rows),
        }
    }

    fn found(local: &Value, replications: &Value) -> Vec<Peer> {
        let copies = [copy(0, local), copy(1, &json!([])), copy(2, &json!([]))];
        let known: Replications = serde_json::from_value(replications.clone()).unwrap();
        let all: Vec<Replication> = known.docs.into_iter().chain(known.jobs).collect();
        peers("orders/eu", &copies, &links(&copies), Some(&all))
    }

    fn of_kind(peers: &[Peer], kind: PeerKind) -> Vec<(&str, Option<u64>, Option<String>)> {
        let of_kind = peers.iter().filter(|peer| peer.kind == kind);
        of_kind.map(|it| (&*it.name, it.behind, it.last_seen.map(Moment::rfc3339))).collect()
    }

    fn checkpoint(id: &str, seq: &Value) -> Value {
        let end = "Fri, 27 Nov 2026 02:11:04 GMT";
        json!({ "id": format!("_local/{id}"), "doc": {
            "source_last_seq": seq, "history": [{ "end_time": end, "recorded_seq": seq }],
        }})
    }

    #[test]
    fn checkpoint_shows_how_far_a_replication_has_read() {
        let foreign = format!("9-{}", URL_SAFE_NO_PAD.encode(
            b"\x83l\0\0\0\x01h\x03d\0\x01nl\0\0\0\x02a\0a\x01jh\x03a\x07m\0\0\0\x03xyzd\0\x01nj",
        ));
        let local = json!([
            checkpoint("paused", &BEFORE.into()),
            checkpoint("into", &foreign.into()),
            checkpoint("file", &77.into()),
            checkpoint("nothing", &0.into()),
            { "id": "_local/phone", "doc": { "last_seq": BEFORE, "replicator": "pouchdb", "history": [{}] } },
            { "id": "_local/settings", "doc": { "colour": "blue" } },
        ]);
        let job = |id: &str, source: &str, target: &str| {
            json!({
                "id": id, "doc_id": "d", "source": source, "target": target, "state": "running",
            })
        };
        let lists = json!({ "docs": [
            job("paused+continuous", "http://u:p@a:1/orders%2Feu/", "http://u:p@b:1/x/"),
            job("new", "http://a:1/orders/eu", "http://b:1/y/"),
            job("other", "http://a:1/eu", "http://b:1/y/"),
            job("back", "http://b:1/y/", "http://a:1/orders%2feu"),
        ]});
        let peers = found(&local, &lists);
        let at = || Some("2026-11-27T02:11:04Z".to_owned());
        let unlisted: Vec<&str> = peers.iter().filter_map(|it| it.unlisted.as_deref()).collect();
        assert_eq!(unlisted, ["phone", "into", "nothing", "file"]);
        // 7000 - 6120 in one range, 7000 - 5880 in the other.
        assert_eq!(
            of_kind(&peers, PeerKind::Replication),
            [
                ("to http://b:1/y/ (d)", None, None),
                ("checkpoint phone", Some(2000), None),
                ("to http://b:1/x/ (d)", Some(2000), at()),
            ]
        );
        assert_eq!(
            of_kind(&peers, PeerKind::Unknown),
            [
                ("checkpoint into, with a sequence of n", None, at()),
                ("checkpoint nothing", None, at()),
            ]
        );
        assert_eq!(
            of_kind(&peers, PeerKind::Incoming),
            [("checkpoint file", None, at()), ("from http://b:1/y/ (d)", None, None)]
        );
    }

    #[test]
    fn lagging_copies_and_purge_readers_are_named() {
        let sent = |uuid: &str, to: &str, seq: u64| {
            json!({
                "source_uuid": uuid, "source_seq": seq, "target_node": to,
                "timestamp": "2026-11-27T02:11:11.023688Z",
            })
        };
        let local = json!([
            { "id": "_local/shard-sync-a-b", "doc": { "seq": 6990, "history": {
                "node3": [sent(UUIDS[0], "node1", 6990), sent(UUIDS[0], "node1", 5000)],
                "node1": [sent(UUIDS[1], "node3", 7000)],
            }}},
            { "id": "_local/purge-mrview-1", "doc": { "type": "mrview", "ddoc_id": "_design/d", "purge_seq": 2, "updated_on": 1_795_222_434 } },
            { "id": "_local/purge-mem3-1", "doc": { "type": "internal_replication", "source": "node3", "target": "node1", "purge_seq": 12 } },
            { "id": "_local/purge-mem3-2", "doc": { "type": "internal_replication", "source": "node2", "target": "node3", "purge_seq": 11 } },
        ]);
        let peers = found(&local, &json!({}));
        let at = || Some("2026-11-27T02:11:11Z".to_owned());
        // The progress of node1 would be in its own copy, which has no checkpoint.
        assert_eq!(
            of_kind(&peers, PeerKind::InternalReplication),
            [("node1 to node3", None, None), ("node3 to node1", Some(10), at())]
        );
        assert_eq!(
            of_kind(&peers, PeerKind::PurgeReader),
            [
                ("_design/d", Some(10), Some("2026-11-21T00:53:54Z".to_owned())),
                ("node3 to node2", Some(1), None),
                ("node3 to node1", Some(0), None),
            ]
        );
        assert_eq!(of_kind(&peers, PeerKind::Replication), []);
    }
}
