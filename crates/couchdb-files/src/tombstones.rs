//! The bytes of deleted documents that are known over HTTP only.
//!
//! Owns the rows and bodies that a compaction would write for them, with CouchDB's default
//! compression. Reads no file.

use super::{
    block::CHECKSUM,
    chunk::{Compression, HEAD},
    compacted::{AppendTree, CompactedFile, Item, Packer, Reduction},
    design::{Encoder, body_term},
};

/// A deleted document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedDoc {
    /// Its id.
    pub id: String,
    /// The sequence of the last change, in its shard.
    pub seq: u64,
    /// Its leaf revisions; all are deleted.
    pub leaves: Vec<DeletedLeaf>,
}

/// A deleted revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedLeaf {
    /// Its number, counted from one.
    pub depth: u64,
    /// The hashes of the revision and its stored ancestors.
    pub revisions: Vec<u128>,
    /// Its JSON, without CouchDB's own fields such as `_id`.
    pub body: String,
    /// Bytes of its attachments.
    pub attachment_bytes: u64,
}

/// Bytes that these documents take in a file written by a compaction: rows in the trees of ids and sequences, bodies
/// and attachments. `None` if a body is not a JSON object.
#[must_use]
pub fn compacted_bytes(docs: &[DeletedDoc]) -> Option<u64> {
    let mut file = CompactedFile::default();
    let mut packer = Packer::new(Compression::Snappy);
    let (mut ids, mut seqs) = (Vec::new(), Vec::new());
    let mut all: Vec<&DeletedDoc> = docs.iter().collect();
    all.sort_by(|one, other| one.id.cmp(&other.id));
    for doc in all {
        let (mut active, mut external) = (0, 0);
        let mut revisions = Encoder::part(Vec::new());
        revisions.begin_list(doc.leaves.len());
        for leaf in &doc.leaves {
            let body = body_term(&leaf.body)?;
            let (at, stored) = file.append(stored_body(&mut packer, &body));
            file.end = file.end.saturating_add(leaf.attachment_bytes);
            active += stored + leaf.attachment_bytes;
            external += body.len() as u64 + leaf.attachment_bytes;
            revision_path(&mut revisions, leaf, doc.seq, (at, stored, body.len() as u64));
        }
        revisions.nil();
        let (revisions, mut id, mut seq) =
            (revisions.finish(), Encoder::part(Vec::new()), Encoder::part(Vec::new()));
        id.binary(&doc.id);
        seq.integer(doc.seq.into());
        let (id, seq) = (id.finish(), seq.finish());
        let row = |key: &[u8], other: &[u8], reduction| {
            Item::row(key, reduction, |out| {
                out.tuple(4);
                out.encoded(other);
                out.integer(1);
                out.tuple(2);
                out.integer(active.into());
                out.integer(external.into());
                out.encoded(&revisions);
            })
        };
        ids.push(row(&id, &seq, Reduction::Docs { docs: 0, deleted: 1, active, external }));
        seqs.push((doc.seq, row(&seq, &id, Reduction::Count(1))));
    }
    seqs.sort_by_key(|(seq, _)| *seq);
    let seqs = seqs.into_iter().map(|(_, item)| item).collect();
    for rows in [ids, seqs] {
        AppendTree::new(Compression::Snappy).add(&mut file, rows);
    }
    Some(file.end)
}

/// Length of a body in the file: `{Body, Attachments}`, both compressed.
fn stored_body(packer: &mut Packer, body: &[u8]) -> u64 {
    const NO_ATTACHMENTS: &[u8] = &[131, 106];
    let parts = [packer.length(body), packer.length(NO_ATTACHMENTS)];
    // The 3 bytes are the version and the tuple's two; each binary has a tag and a length.
    let term = 3 + parts.iter().map(|length| 5 + length).sum::<usize>();
    (HEAD + CHECKSUM + term) as u64
}

/// `{Depth, {Id, [], [… {Id, {1, Position, Seq, Sizes, []}, []} …]}}`, from the oldest revision to the leaf.
fn revision_path(
    out: &mut Encoder,
    leaf: &DeletedLeaf,
    seq: u64,
    (at, stored, external): (u64, u64, u64),
) {
    let ancestors = leaf.revisions.len().saturating_sub(1);
    out.tuple(2);
    out.integer(leaf.depth.saturating_sub(ancestors as u64).into());
    for (index, revision) in leaf.revisions.iter().enumerate().rev() {
        out.tuple(3);
        out.bytes(&revision.to_be_bytes());
        if index > 0 {
            out.nil();
            out.begin_list(1);
            continue;
        }
        out.tuple(5);
        out.integer(1);
        out.integer(at.into());
        out.integer(seq.into());
        out.tuple(2);
        out.integer(stored.into());
        out.integer(external.into());
        out.nil();
        out.nil();
    }
    // Ends the lists of children.
    (0..ancestors).for_each(|_| out.nil());
}
