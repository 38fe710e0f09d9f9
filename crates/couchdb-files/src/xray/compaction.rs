//! What a compaction of a database would write.
//!
//! Owns the order and the batches of `couch_bt_engine_compactor`: purges, then documents by
//! sequence, with bodies, attachments and a row each; then rows by id, and `_local` documents.
//! Each revision gets its own copy of an attachment, and only leaves keep a body.

use super::{attachments::Attachment, body::Body};
use crate::{
    DbHeader,
    block::BLOCK,
    chunk::{Compression, HEAD, Reader},
    compacted::{AppendTree, CompactedFile, Item, Reduction},
    design::Encoder,
    revisions::{Content, DocRow, DocTree, Revision},
    term::Term,
    tree::WalkError,
};

/// `[database_compaction] doc_buffer_size`.
const BUFFER_BYTES: usize = 524_288;
/// `checkpoint_after`: bytes of rows between two headers.
const CHECKPOINT_BYTES: usize = 10 * BUFFER_BYTES;
/// Number of rows of one batch by id.
const ID_BATCH: usize = 1001;
/// A chunk of an attachment ends once it exceeds this many bytes.
const ATTACHMENT_BUFFER: u64 = 4096;
/// Bytes of the default security object, which a new file holds before the copied one.
const DEFAULT_SECURITY: u64 = 100;
/// Bytes that CouchDB's record of a document has beyond its row, and beyond each content in it.
const RECORD_BYTES: (usize, usize) = (38, 26);

/// A document of the current batch.
struct WaitingDoc {
    id: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// A simulated compaction.
pub(super) struct DbCompaction {
    file: CompactedFile,
    /// Bytes of a header.
    record: u64,
    file_bytes: u64,
    revs_limit: u64,
    /// Rows of the tree being read: purges or `_local` documents.
    rows: Vec<Item>,
    docs: Vec<WaitingDoc>,
    /// Bytes of the waiting documents, and of those since the last header.
    buffered: usize,
    copied: usize,
    /// The tree of sequences, compressed like the file's.
    seqs: Option<AppendTree>,
    /// Where documents begin and end in the new file.
    docs_from: u64,
    docs_to: u64,
    ids_from: u64,
    ids: AppendTree,
    id_rows: Vec<Item>,
}

impl DbCompaction {
    pub(super) fn new(db: &DbHeader, record: u64, file_bytes: u64) -> Self {
        let mut file = CompactedFile::default();
        file.header(record);
        file.append(DEFAULT_SECURITY);
        file.header(record);
        Self {
            file,
            record,
            file_bytes,
            revs_limit: db.revs_limit,
            rows: Vec::new(),
            docs: Vec::new(),
            buffered: 0,
            copied: 0,
            seqs: None,
            docs_from: 0,
            docs_to: 0,
            ids_from: 0,
            // Without the option, CouchDB compresses with snappy.
            ids: AppendTree::new(Compression::Snappy),
            id_rows: Vec::new(),
        }
    }

    /// Adds a row that is copied as it is.
    pub(super) fn row(&mut self, key: Term<'_>, value: Term<'_>, reduction: Reduction) {
        self.rows.push(Item::row(key.encoded(), reduction, |out| out.encoded(value.encoded())));
    }

    /// Writes the rows of a tree; each stands for `weight` rows.
    pub(super) fn end_tree(&mut self, compression: Compression, weight: f64) {
        let before = self.file.end;
        let mut tree = AppendTree::new(compression);
        tree.add(&mut self.file, std::mem::take(&mut self.rows));
        self.file.scale(before, weight);
        self.docs_from = self.file.end;
    }

    /// Adds a document of the tree of sequences.
    pub(super) fn doc(
        &mut self,
        reader: &mut Reader<'_>,
        row: &DocRow<'_>,
        (key, value): (Term<'_>, Term<'_>),
        compression: Compression,
    ) -> Result<(), WalkError> {
        // A sample may end before the first batch is full.
        self.seqs.get_or_insert_with(|| AppendTree::new(compression));
        let contents = row.revisions.iter().filter(|revision| revision.content.is_some()).count();
        let (of_row, of_content) = RECORD_BYTES;
        self.buffered +=
            key.encoded().len() + value.encoded().len() + of_row + of_content * contents;
        self.docs.push(WaitingDoc {
            id: row.id.to_vec(),
            key: key.encoded().to_vec(),
            value: value.encoded().to_vec(),
        });
        if self.buffered >= BUFFER_BYTES {
            self.copied += self.buffered;
            self.copy_docs(reader, compression)?;
            if self.copied >= CHECKPOINT_BYTES {
                self.file.header(self.record);
                self.copied = 0;
            }
        }
        Ok(())
    }

    /// Writes the waiting documents by id, and their rows by sequence.
    fn copy_docs(
        &mut self,
        reader: &mut Reader<'_>,
        compression: Compression,
    ) -> Result<(), WalkError> {
        let mut docs = std::mem::take(&mut self.docs);
        self.buffered = 0;
        docs.sort_by(|one, other| one.id.cmp(&other.id));
        let mut rows = Vec::with_capacity(docs.len());
        let mut row = DocRow::default();
        for doc in &docs {
            let (key, value) = (Term::Encoded(&doc.key), Term::Encoded(&doc.value));
            if row.read(DocTree::Seq, key, value).is_none() {
                continue;
            }
            let copies = self.copy_bodies(reader, &row)?;
            rows.push((row.seq, doc_item(DocTree::Seq, &row, &copies, self.revs_limit)));
        }
        rows.sort_by_key(|(seq, _)| *seq);
        let rows = rows.into_iter().map(|(_, item)| item).collect();
        let seqs = self.seqs.get_or_insert_with(|| AppendTree::new(compression));
        seqs.add(&mut self.file, rows);
        Ok(())
    }

    fn copy_bodies(
        &mut self,
        reader: &mut Reader<'_>,
        row: &DocRow<'_>,
    ) -> Result<Vec<Option<Copy>>, WalkError> {
        copies_of(reader, row, |content, body| {
            let file = &mut self.file;
            let mut copy = Copy::default();
            body.each_attachment(|attachment| {
                let place = |length| (file.append(length + HEAD as u64).0, length);
                let chunks = copied_chunks(attachment).into_iter().map(place).collect();
                copy.attachments.push((chunks, attachment.length));
            });
            (copy.at, copy.stored) = file.append(without_markers(content.at, body.stored));
            copy
        })
    }

    /// Writes the remaining documents, each standing for `weight` documents, and the header's terms, which
    /// have `terms` bytes.
    pub(super) fn end_docs(
        &mut self,
        reader: &mut Reader<'_>,
        weight: f64,
        terms: u64,
    ) -> Result<(), WalkError> {
        self.copy_docs(reader, Compression::Snappy)?;
        self.file.scale(self.docs_from, weight);
        self.docs_to = self.file.end;
        self.file.append(terms);
        // One header before sorting and one after.
        self.file.header(self.record);
        self.file.header(self.record);
        self.ids_from = self.file.end;
        Ok(())
    }

    /// Adds a document of the tree of ids.
    ///
    /// The new positions of its bodies are estimated from the old ones: the numbers have nearly the same lengths and
    /// compress alike.
    pub(super) fn id_row(
        &mut self,
        reader: &mut Reader<'_>,
        row: &DocRow<'_>,
    ) -> Result<(), WalkError> {
        let space = u128::from(self.docs_to - self.docs_from);
        let (from, file_bytes) = (self.docs_from, u128::from(self.file_bytes.max(1)));
        let place = |at: u64| {
            let into = u128::from(at) * space / file_bytes;
            from.saturating_add(u64::try_from(into).unwrap_or(u64::MAX))
        };
        let copies = copies_of(reader, row, |content, body| {
            let mut copy = Copy { at: place(content.at), stored: body.stored, ..Copy::default() };
            body.each_attachment(|attachment| {
                let mut at = attachment.chunks().next().map_or(0, |(at, _)| place(at));
                let mut chunk = |length| {
                    let begin = at;
                    at = at.saturating_add(length + HEAD as u64);
                    (begin, length)
                };
                let chunks = copied_chunks(attachment).into_iter().map(&mut chunk).collect();
                copy.attachments.push((chunks, attachment.length));
            });
            copy
        })?;
        self.id_rows.push(doc_item(DocTree::Id, row, &copies, self.revs_limit));
        if self.id_rows.len() >= ID_BATCH {
            self.add_ids();
        }
        Ok(())
    }

    fn add_ids(&mut self) {
        self.ids.add(&mut self.file, std::mem::take(&mut self.id_rows));
    }

    /// Writes the remaining rows by id; each stands for `weight` rows.
    pub(super) fn end_ids(&mut self, weight: f64) {
        self.add_ids();
        self.file.scale(self.ids_from, weight);
    }

    /// Ends the compaction with the rows of `_local` documents; returns the size of the file.
    pub(super) fn finish(mut self, compression: Compression, weight: f64) -> u64 {
        self.file.header(self.record);
        // Without `_local` documents, the swap has nothing to commit.
        if !self.rows.is_empty() {
            self.end_tree(compression, weight);
            self.file.header(self.record);
        }
        self.file.end
    }
}

/// The copies of a document's leaf revisions, in the order of its revisions; `copy` yields the new positions of a body
/// and its attachments.
fn copies_of<'a>(
    reader: &mut Reader<'_>,
    row: &DocRow<'a>,
    mut copy: impl FnMut(Content<'a>, &Body<'a>) -> Copy,
) -> Result<Vec<Option<Copy>>, WalkError> {
    let copies = row.revisions.iter().map(|revision| {
        let Revision { leaf: true, content: Some(content), .. } = *revision else {
            return Ok(None);
        };
        let body = Body::of(reader, content)?;
        Ok(Some(copy(content, &body)))
    });
    copies.collect()
}

/// A body in the new file, with its attachments: positions and lengths of chunks, and the length.
#[derive(Debug, Default)]
struct Copy {
    at: u64,
    stored: u64,
    attachments: Vec<(Vec<(u64, u64)>, u64)>,
}

/// The lengths of an attachment's chunks after copying through a buffer (`couch_stream`).
fn copied_chunks(attachment: Attachment<'_>) -> Vec<u64> {
    let (mut chunks, mut buffered) = (Vec::new(), 0_u64);
    for (_, length) in attachment.chunks() {
        let all = buffered.saturating_add(length);
        if all > ATTACHMENT_BUFFER {
            chunks.push(all);
            buffered = 0;
        } else {
            buffered = all;
        }
    }
    if buffered > 0 {
        chunks.push(buffered);
    }
    chunks
}

/// The bytes of data among the `stored` bytes from `at` on.
const fn without_markers(at: u64, stored: u64) -> u64 {
    let block = BLOCK as u64;
    stored - (at.saturating_add(stored).div_ceil(block) - at.div_ceil(block))
}

/// The row of a document after a compaction.
fn doc_item(tree: DocTree, row: &DocRow<'_>, copies: &[Option<Copy>], revs_limit: u64) -> Item {
    let (mut active, mut external) = (0_u64, 0_u64);
    for (revision, copy) in row.revisions.iter().zip(copies) {
        let Some(copy) = copy else { continue };
        let attachments: u64 = copy.attachments.iter().map(|(_, length)| length).sum();
        let body = revision.content.and_then(|content| content.bytes).unwrap_or_default().1;
        active = active.saturating_add(copy.stored).saturating_add(attachments);
        external = external.saturating_add(body).saturating_add(attachments);
    }
    let deleted = u64::from(row.deleted);
    let reduction = match tree {
        DocTree::Seq => Reduction::Count(1),
        DocTree::Id => Reduction::Docs { docs: 1 - deleted, deleted, active, external },
    };
    let mut id = Encoder::part(Vec::new());
    id.bytes(row.id);
    let mut seq = Encoder::part(Vec::new());
    seq.integer(row.seq.into());
    let (key, other) = match tree {
        DocTree::Id => (id.finish(), seq.finish()),
        DocTree::Seq => (seq.finish(), id.finish()),
    };
    Item::row(&key, reduction, |out| {
        out.tuple(4);
        out.encoded(&other);
        out.integer(deleted.into());
        out.tuple(2);
        out.integer(active.into());
        out.integer(external.into());
        encode_revisions(out, row, copies, revs_limit);
    })
}

/// Encodes a tree of revisions, without those further from a leaf than `revs_limit` (`couch_key_tree:stem/2`).
fn encode_revisions(out: &mut Encoder, row: &DocRow<'_>, copies: &[Option<Copy>], revs_limit: u64) {
    let count = row.revisions.len();
    // Distance to the nearest leaf, computed only if the limit may be exceeded. Parents precede their children.
    let may_exceed = count as u64 > revs_limit;
    let mut steps = if may_exceed { vec![u64::MAX; count] } else { Vec::new() };
    for (index, revision) in row.revisions.iter().enumerate().rev().filter(|_| may_exceed) {
        let own = if revision.leaf { 0 } else { steps.get(index).copied().unwrap_or(u64::MAX) };
        if let Some(place) = steps.get_mut(index) {
            *place = own;
        }
        if let Some(place) = revision.parent.and_then(|parent| steps.get_mut(parent)) {
            *place = (*place).min(own.saturating_add(1));
        }
    }
    let is_kept = |index: usize| steps.get(index).is_none_or(|steps| *steps < revs_limit.max(1));
    let (mut children, mut roots) = (vec![0_usize; count], 0);
    for (index, revision) in row.revisions.iter().enumerate().filter(|(index, _)| is_kept(*index)) {
        let _ = index;
        match revision.parent.filter(|parent| is_kept(*parent)) {
            None => roots += 1,
            Some(parent) => children.iter_mut().skip(parent).take(1).for_each(|it| *it += 1),
        }
    }
    out.begin_list(roots);
    let mut open = vec![roots];
    for (index, revision) in row.revisions.iter().enumerate().filter(|(index, _)| is_kept(*index)) {
        if revision.parent.filter(|parent| is_kept(*parent)).is_none() {
            out.tuple(2);
            out.integer(revision.depth.into());
        }
        out.tuple(3);
        out.encoded(revision.id.encoded());
        match copies.get(index).and_then(Option::as_ref).zip(revision.content) {
            Some((copy, content)) => encode_content(out, copy, content),
            None => out.nil(),
        }
        let below = children.get(index).copied().unwrap_or_default();
        out.begin_list(below);
        open.push(below);
        // A node without further children ends here, and perhaps its ancestors.
        while open.last() == Some(&0) {
            open.pop();
            out.nil();
            if let Some(above) = open.last_mut() {
                *above -= 1;
            }
        }
    }
}

/// `{Deleted, Position, Seq, {Active, External}, Attachments}`.
fn encode_content(out: &mut Encoder, copy: &Copy, content: Content<'_>) {
    out.tuple(5);
    out.integer(content.deleted.into());
    out.integer(copy.at.into());
    out.integer(content.seq.into());
    out.tuple(2);
    out.integer(copy.stored.into());
    out.integer(content.bytes.unwrap_or_default().1.into());
    out.list(copy.attachments.iter(), |out, (chunks, length)| {
        out.tuple(2);
        out.list(chunks.iter(), |out, (at, length)| {
            out.tuple(2);
            out.integer((*at).into());
            out.integer((*length).into());
        });
        out.integer((*length).into());
    });
}
