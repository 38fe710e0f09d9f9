//! How many entries about purges a compaction keeps beyond the limit, and for whom.

use super::{peers::purge_reader, shard_copy::ShardCopy};
use couchdb_client::wire::Checkpoint;
use couchdb_names::Version;
use serde::Serialize;
use std::collections::BTreeSet;

/// Ids of checkpoints of copies begin so.
const COPY_PREFIX: &str = "purge-mem3-";

/// Entries about purges that a compaction keeps in one copy, more than the limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptPurges {
    /// The node of the copy.
    pub node: String,
    /// The shard file's name.
    pub shard: String,
    /// At most so many: how many an earlier compaction dropped is known only from the file.
    pub purges: u64,
    /// The nodes of other copies of which this copy has no checkpoint that names them. With any, CouchDB keeps all
    /// entries.
    pub without_checkpoint: Vec<String>,
    /// Otherwise the readers that have not processed purges beyond the limit.
    pub readers: Vec<String>,
}

/// The copies in which a compaction keeps more entries than the limit, those with most first.
/// The rules are those of `couch_db:get_minimum_purge_seq/1` and `mem3_rep:have_all_purge_checkpoints/1`.
pub(super) fn kept_purges(
    copies: &[ShardCopy],
    limit: u64,
    version: Option<Version>,
) -> Vec<KeptPurges> {
    let waits = version.is_some_and(|version| version >= Version::WAITS_FOR_PURGE_CHECKPOINTS);
    let kept = copies.iter().filter_map(|copy| kept_in(copy, copies, limit, waits));
    let mut kept: Vec<KeptPurges> = kept.filter(|kept| kept.purges > limit).collect();
    kept.sort_by(|one, two| two.purges.cmp(&one.purges).then_with(|| one.node.cmp(&two.node)));
    kept
}

/// What is kept in a copy for checkpoints; `None` if nothing is, or if it is unknown.
fn kept_in(copy: &ShardCopy, copies: &[ShardCopy], limit: u64, waits: bool) -> Option<KeptPurges> {
    let (info, _) = copy.info.as_ref().zip(copy.local.as_ref())?;
    let last = info.purge_seq?;
    let own = format!("{COPY_PREFIX}{}-", info.uuid.as_deref()?);
    let missing = if waits { without_checkpoint(copy, copies, &own) } else { Vec::new() };
    let (purges, readers) = if missing.is_empty() {
        // Versions that wait first delete the checkpoints of other copies.
        let counts = |id: &str| !waits || !id.starts_with(COPY_PREFIX) || id.starts_with(&own);
        let mut late = behind(copy, last, counts);
        late.retain(|(purges, _)| *purges > limit);
        let most = late.iter().map(|(purges, _)| *purges).max()?;
        (most, late.into_iter().map(|(_, reader)| reader).collect())
    } else {
        (last, Vec::new())
    };
    Some(KeptPurges {
        node: copy.node.clone(),
        shard: copy.shard.clone(),
        purges,
        without_checkpoint: missing,
        readers,
    })
}

/// The purge readers of a copy that count, each with the number of purges that it has not processed.
fn behind(copy: &ShardCopy, last: u64, counts: impl Fn(&str) -> bool) -> Vec<(u64, String)> {
    let readers = copy.checkpoints().filter(|(id, _)| id.starts_with("purge-") && counts(id));
    // CouchDB keeps everything for a checkpoint without a number.
    let purges = |doc: &Checkpoint| last.saturating_sub(doc.purge_seq.unwrap_or_default());
    readers.map(|(id, doc)| (purges(doc), purge_reader(copy, id, doc))).collect()
}

/// The nodes of other copies that no checkpoint of this copy names.
fn without_checkpoint(copy: &ShardCopy, copies: &[ShardCopy], own: &str) -> Vec<String> {
    let checkpoints = copy.checkpoints().filter(|(id, _)| id.starts_with(own));
    let named: BTreeSet<&str> = checkpoints.filter_map(|(_, doc)| doc.target.as_deref()).collect();
    let others = copies.iter().filter(|other| other.range == copy.range && other.node != copy.node);
    let missing = others.map(|other| &other.node).filter(|node| !named.contains(&***node));
    missing.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use couchdb_client::wire::LocalDocs;
    use serde_json::{Value, json};

    fn copy(node: &str, purges: u64, local: &Value) -> ShardCopy {
        let rows: LocalDocs = serde_json::from_value(json!({ "rows": local })).unwrap();
        let info = json!({ "uuid": format!("uuid-{node}"), "purge_seq": purges });
        ShardCopy {
            range: "00000000-ffffffff".parse().unwrap(),
            node: node.to_owned(),
            shard: "shards/x".to_owned(),
            info: Some(serde_json::from_value(info).unwrap()),
            local: Some(rows.rows),
        }
    }

    fn checkpoint(from: &str, to: &str, source: &str, target: &str, purge_seq: u64) -> Value {
        json!({ "id": format!("_local/purge-mem3-uuid-{from}-uuid-{to}"), "doc": {
            "source": source, "target": target, "purge_seq": purge_seq,
        }})
    }

    fn kept(a: &Value, version: Option<Version>) -> Vec<(u64, Vec<String>, Vec<String>)> {
        let copies = [copy("a", 3_000, a), copy("b", 900, &json!([]))];
        let kept = kept_purges(&copies, 1_000, version).into_iter();
        kept.map(|it| (it.purges, it.without_checkpoint, it.readers)).collect()
    }

    #[test]
    fn entries_that_a_reader_has_still_to_process_are_kept() {
        let view = json!({ "id": "_local/purge-mrview-1", "doc": { "ddoc_id": "_design/d", "purge_seq": 700 } });
        let local = json!([checkpoint("a", "b", "a", "b", 3_000), view]);
        let expected = [(2_300, Vec::new(), vec!["_design/d".to_owned()])];
        for version in [None, Some(Version::new(3, 5, 1)), Some(Version::new(3, 5, 2))] {
            assert_eq!(kept(&local, version), expected);
        }
        let all_read = json!([checkpoint("a", "b", "a", "b", 2_000)]);
        assert_eq!(kept(&all_read, None), [], "as many as the limit");
    }

    #[test]
    fn checkpoint_that_the_other_side_wrote_names_no_other_copy() {
        let local = json!([checkpoint("a", "b", "b", "a", 3_000)]);
        assert_eq!(kept(&local, Some(Version::new(3, 5, 1))), []);
        let of_new = kept(&local, Some(Version::new(3, 5, 2)));
        assert_eq!(of_new, [(3_000, vec!["b".to_owned()], Vec::new())]);
    }
}
