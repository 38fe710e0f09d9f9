//! Bodies of documents, with the attachments of their revisions.
//!
//! Owns what is known of a body from the row that refers to it, and reads it where that is not
//! enough.

use super::attachments::Attachment;
use crate::{
    chunk::{Reader, decompress},
    revisions::Content,
    term::{Elements, Term},
    tree::WalkError,
};

/// Maximum length of a body that is read for its attachments.
const MAX_BODY_BYTES: usize = 64 << 20;

/// A body of at most this length, including checksum and marker, has no fields under any compression.
const EMPTY_BODY_BYTES: u64 = 46;
/// A longer one than this has fields.
const SHORT_BODY_BYTES: u64 = 100;

pub(super) struct Body<'a> {
    /// Its bytes in the file.
    pub(super) stored: u64,
    /// Whether it cannot be read.
    pub(super) is_lost: bool,
    attachments: Attachments<'a>,
}

enum Attachments<'a> {
    /// From the row.
    Row(Term<'a>),
    /// From the body, as a term with version byte.
    Body(Vec<u8>),
}

impl<'a> Body<'a> {
    /// The body of a revision; it is read only if its row does not give its size.
    pub(super) fn of(reader: &mut Reader<'_>, content: Content<'a>) -> Result<Self, WalkError> {
        if let Some(((stored, _), attachments)) = content.bytes.zip(content.attachments) {
            let is_lost = content.at.saturating_add(stored) > reader.size();
            let attachments = Attachments::Row(attachments);
            return Ok(Self { stored, is_lost, attachments });
        }
        let chunk = reader.chunk(content.at, MAX_BODY_BYTES).map_err(WalkError::Read)?;
        let is_lost = chunk.is_none();
        let stored = chunk.as_ref().map_or(0, |chunk| chunk.stored);
        let list = chunk.and_then(|chunk| {
            let second = Term::decode(&chunk.term).ok()?.tuple()?.nth(1)?;
            match second.binary() {
                Some(packed) => Some(decompress(packed, MAX_BODY_BYTES)?.0),
                None => Some([&[131], second.encoded()].concat()),
            }
        });
        Ok(Self { stored, is_lost, attachments: Attachments::Body(list.unwrap_or_default()) })
    }

    /// Calls `each` with the attachments.
    pub(super) fn each_attachment(&self, mut each: impl FnMut(Attachment<'_>)) {
        match &self.attachments {
            Attachments::Row(term) => term
                .list()
                .into_iter()
                .flatten()
                .filter_map(Term::tuple)
                .filter_map(Attachment::of)
                .for_each(each),
            Attachments::Body(term) => {
                let list = Term::decode(term).ok().and_then(Term::list).into_iter().flatten();
                // `{Name, Type, Chunks, Length, …}`.
                let fields = list.filter_map(Term::tuple).map(|mut fields: Elements<'_>| {
                    fields.next();
                    fields.next();
                    fields
                });
                fields.filter_map(Attachment::of).for_each(&mut each);
            }
        }
    }
}

/// Whether the body of a tombstone has fields. Reads the body only if its length does not decide it.
pub(super) fn has_fields(reader: &mut Reader<'_>, at: u64, stored: u64) -> Result<bool, WalkError> {
    if !(EMPTY_BODY_BYTES + 1..=SHORT_BODY_BYTES).contains(&stored) {
        return Ok(stored > EMPTY_BODY_BYTES);
    }
    let chunk = reader.chunk(at, MAX_BODY_BYTES).map_err(WalkError::Read)?;
    let is_empty = chunk.and_then(|chunk| {
        let body = Term::decode(&chunk.term).ok()?.tuple()?.next()?;
        let body = match body.binary() {
            Some(packed) => decompress(packed, MAX_BODY_BYTES)?.0,
            None => [&[131], body.encoded()].concat(),
        };
        // `{[]}`.
        Some(body == [131, 104, 1, 106])
    });
    Ok(!is_empty.unwrap_or(false))
}
