//! Attachments, each counted once even if several revisions share it.
//!
//! Owns the positions seen, up to a number that bounds memory; beyond it, an attachment that documents share may be
//! counted twice, and the X-ray is no longer exact.

use super::parts::{Part, Parts};
use crate::{
    block::{self, BLOCK},
    chunk::HEAD,
    term::{Elements, Term},
};
use std::collections::HashMap;

/// Maximum number of positions; they take about 64 MiB.
const MAX_SEEN: usize = 2_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Attachment<'a> {
    /// A list of positions, or of `{Position, Length}`.
    pub(super) chunks: Term<'a>,
    /// Its stored bytes.
    pub(super) length: u64,
}

impl<'a> Attachment<'a> {
    /// The attachment whose next fields are its chunks and its length.
    pub(super) fn of(mut fields: Elements<'a>) -> Option<Self> {
        Some(Self { chunks: fields.next()?, length: fields.next()?.number()? })
    }

    /// Positions and lengths of its chunks. Before CouchDB 2.3 chunks have no lengths, and the attachment is treated as
    /// one chunk.
    pub(super) fn chunks(self) -> impl Iterator<Item = (u64, u64)> {
        let list = self.chunks.list().into_iter().flatten();
        let count = self.chunks.list().map_or(0, |list| list.len() as u64);
        let mean = self.length.checked_div(count).unwrap_or_default();
        let extra = self.length - mean * count;
        list.enumerate().filter_map(move |(index, chunk)| match chunk.tuple() {
            Some(mut pair) => pair.next()?.number().zip(pair.next()?.number()),
            None => Some((chunk.number()?, if index == 0 { mean + extra } else { mean })),
        })
    }

    /// Its start, its end, and its bytes in the file.
    fn place(self) -> Option<(u64, u64, u64)> {
        let mut place: Option<(u64, u64, u64)> = None;
        for (at, length) in self.chunks() {
            let into = usize::try_from(at % BLOCK as u64).unwrap_or_default();
            let stored = block::with_markers(into, length.saturating_add(HEAD as u64));
            let (first, end, sum) = place.unwrap_or((at, 0, 0));
            let end = end.max(at.saturating_add(stored));
            place = Some((first, end, sum.saturating_add(stored)));
        }
        place
    }
}

/// The attachments already counted, by start position.
#[derive(Debug, Default)]
pub(super) struct SeenAttachments {
    seen: HashMap<u64, Part>,
    /// Whether there were too many to remember all.
    pub(super) is_overfull: bool,
}

impl SeenAttachments {
    /// Adds an attachment of a leaf revision or of a replaced one.
    pub(super) fn add(&mut self, parts: &mut Parts, attachment: Attachment<'_>, is_leaf: bool) {
        let Some((first, end, bytes)) = attachment.place() else { return };
        let before = self.seen.get(&first).copied();
        let now = match (before, is_leaf) {
            (None, false) => Part::DeadAttachments,
            (None | Some(Part::DeadAttachments), true) => Part::Attachments,
            (Some(_), true) => Part::SharedAttachments,
            (Some(_), false) => return,
        };
        if is_leaf {
            parts.reach(first, end - first);
        }
        match before {
            Some(before) => parts.shift(before, now, bytes, 1),
            None => parts.add(now, bytes, 1),
        }
        if before.is_some() || self.seen.len() < MAX_SEEN {
            self.seen.insert(first, now);
        } else {
            self.is_overfull = true;
        }
    }
}
