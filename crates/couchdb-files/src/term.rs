//! Erlang's external term format, as far as headers use it.
//!
//! Owns the tags and the traversal of terms: in place, without recursion and without allocation,
//! so that neither depth nor a claimed length costs anything. Never builds a tree of terms. Only
//! the decoders of this crate use it.

use super::DecodeError;

/// The first byte of `term_to_binary`'s output.
const VERSION: u8 = 131;

/// One complete term, in place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Term<'a> {
    /// Its bytes, from its tag to its end.
    Encoded(&'a [u8]),
    /// An element of a list of small integers that is encoded as a string.
    Small(u8),
}

impl<'a> Term<'a> {
    /// The term at the beginning of `bytes`, traversed once; like in `binary_to_term`, bytes after
    /// it are ignored.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        match bytes {
            [VERSION, term @ ..] => Ok(Self::Encoded(split_term(term)?.0)),
            _ => Err(DecodeError::NotATerm),
        }
    }

    pub(super) fn tuple(self) -> Option<Elements<'a>> {
        let Self::Encoded(bytes) = self else { return None };
        let Ok(TermShape::Tuple(count)) = term_shape(bytes) else { return None };
        elements(bytes.get(head_length(bytes)?..)?, u64::from(count))
    }

    /// The elements of a proper list.
    pub(super) fn list(self) -> Option<Elements<'a>> {
        let Self::Encoded(bytes) = self else { return None };
        let rest = bytes.get(head_length(bytes)?..)?;
        match term_shape(bytes).ok()? {
            TermShape::Nil => Some(Elements::Small(&[])),
            TermShape::String(length) => Some(Elements::Small(rest.get(..usize::from(length))?)),
            TermShape::List(count) => {
                let mut tail = rest;
                for _ in 0..count {
                    tail = split_term(tail).ok()?.1;
                }
                if tail == [tag::NIL] { elements(rest, u64::from(count)) } else { None }
            }
            TermShape::Bytes(_) | TermShape::Tuple(_) | TermShape::Map(_) => None,
        }
    }

    /// The elements of a proper list with at most `most` elements.
    ///
    /// Decoded elements need more space than their bytes: a list that no CouchDB writes must not
    /// fill the memory.
    pub(super) fn bounded_list(self, most: usize) -> Option<Elements<'a>> {
        self.list().filter(|list| list.len() <= most)
    }

    /// Alternating keys and values of a map.
    pub(super) fn map(self) -> Option<Elements<'a>> {
        let Self::Encoded(bytes) = self else { return None };
        let Ok(TermShape::Map(pairs)) = term_shape(bytes) else { return None };
        elements(bytes.get(head_length(bytes)?..)?, u64::from(pairs) * 2)
    }

    /// A non-negative integer.
    pub(super) fn number(self) -> Option<u64> {
        let bytes = match self {
            Self::Small(value) => return Some(u64::from(value)),
            Self::Encoded(bytes) => bytes,
        };
        match bytes {
            [tag::SMALL_INTEGER, value] => Some(u64::from(*value)),
            [tag::INTEGER, a, b, c, d] => u64::try_from(i32::from_be_bytes([*a, *b, *c, *d])).ok(),
            [tag::SMALL_BIG, _, 0, digits @ ..] | [tag::LARGE_BIG, _, _, _, _, 0, digits @ ..] => {
                let used = digits.iter().rposition(|digit| *digit != 0).map_or(0, |at| at + 1);
                let mut value = [0; 8];
                value.get_mut(..used)?.copy_from_slice(digits.get(..used)?);
                Some(u64::from_le_bytes(value))
            }
            _ => None,
        }
    }

    /// The bytes of a binary.
    pub(super) fn binary(self) -> Option<&'a [u8]> {
        let Self::Encoded([tag::BINARY, _, _, _, _, bytes @ ..]) = self else { return None };
        Some(bytes)
    }

    /// Its encoding; empty for an element of a string, which has no encoding of its own.
    pub(super) const fn encoded(self) -> &'a [u8] {
        match self {
            Self::Encoded(bytes) => bytes,
            Self::Small(_) => &[],
        }
    }

    /// The text of an atom, in its own encoding.
    pub(super) fn atom(self) -> Option<&'a [u8]> {
        let Self::Encoded(
            [tag::ATOM | tag::ATOM_UTF8, _, _, name @ ..]
            | [tag::SMALL_ATOM | tag::SMALL_ATOM_UTF8, _, name @ ..],
        ) = self
        else {
            return None;
        };
        Some(name)
    }

    pub(super) fn is_atom(self, name: &str) -> bool {
        self.atom() == Some(name.as_bytes())
    }
}

/// A term read from its beginning to its end, each byte once.
///
/// [`Elements`] reads a nested term once for each level around it, which takes too long for trees
/// of revisions.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// The tokens of `term_to_binary`'s output.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.strip_prefix(&[VERSION]).map(|rest| Self { rest })
    }

    /// The tokens of a term without version byte.
    pub(super) const fn within(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// The bytes that were not read yet.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Enters a tuple, and returns the number of its elements.
    pub(super) fn tuple(&mut self) -> Option<u32> {
        let TermShape::Tuple(count) = term_shape(self.rest).ok()? else { return None };
        self.rest = self.rest.get(head_length(self.rest)?..)?;
        Some(count)
    }

    /// Enters a list, and returns the number of its elements; [`Self::end`] follows them unless the list is empty. A
    /// list that is encoded as a string is not recognised.
    pub(super) fn list(&mut self) -> Option<u32> {
        let count = match term_shape(self.rest).ok()? {
            TermShape::Nil => 0,
            TermShape::List(count) if count > 0 => count,
            TermShape::List(_)
            | TermShape::String(_)
            | TermShape::Bytes(_)
            | TermShape::Tuple(_)
            | TermShape::Map(_) => return None,
        };
        self.rest = self.rest.get(head_length(self.rest)?..)?;
        Some(count)
    }

    /// Leaves a proper list.
    pub(super) fn end(&mut self) -> Option<()> {
        self.rest = self.rest.strip_prefix(&[tag::NIL])?;
        Some(())
    }

    /// The next whole term.
    pub(super) fn next(&mut self) -> Option<Term<'a>> {
        let (term, rest) = split_term(self.rest).ok()?;
        self.rest = rest;
        Some(Term::Encoded(term))
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.next()?.number()
    }
}

/// The terms of a tuple, list or map, in order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Elements<'a> {
    Encoded { rest: &'a [u8], left: usize },
    Small(&'a [u8]),
}

/// `None` if `count` exceeds the bytes that are left.
fn elements(rest: &[u8], count: u64) -> Option<Elements<'_>> {
    let left = usize::try_from(count).ok().filter(|left| *left <= rest.len())?;
    Some(Elements::Encoded { rest, left })
}

impl<'a> Iterator for Elements<'a> {
    type Item = Term<'a>;

    fn next(&mut self) -> Option<Term<'a>> {
        match self {
            Self::Small(bytes) => {
                let (first, rest) = bytes.split_first()?;
                *bytes = rest;
                Some(Term::Small(*first))
            }
            Self::Encoded { rest, left } => {
                *left = left.checked_sub(1)?;
                let (term, behind) = split_term(rest).ok()?;
                *rest = behind;
                Some(Term::Encoded(term))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for Elements<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Encoded { left, .. } => *left,
            Self::Small(bytes) => bytes.len(),
        }
    }
}

mod tag {
    pub(super) const FLOAT: u8 = 70;
    pub(super) const BIT_BINARY: u8 = 77;
    pub(super) const SMALL_INTEGER: u8 = 97;
    pub(super) const INTEGER: u8 = 98;
    pub(super) const FLOAT_TEXT: u8 = 99;
    pub(super) const ATOM: u8 = 100;
    pub(super) const SMALL_TUPLE: u8 = 104;
    pub(super) const LARGE_TUPLE: u8 = 105;
    pub(super) const NIL: u8 = 106;
    pub(super) const STRING: u8 = 107;
    pub(super) const LIST: u8 = 108;
    pub(super) const BINARY: u8 = 109;
    pub(super) const SMALL_BIG: u8 = 110;
    pub(super) const LARGE_BIG: u8 = 111;
    pub(super) const SMALL_ATOM: u8 = 115;
    pub(super) const MAP: u8 = 116;
    pub(super) const ATOM_UTF8: u8 = 118;
    pub(super) const SMALL_ATOM_UTF8: u8 = 119;
}

/// The data after a term's tag and length.
#[derive(Clone, Copy)]
enum TermShape {
    /// Number of bytes without terms.
    Bytes(u64),
    Nil,
    String(u16),
    Tuple(u32),
    /// Number of terms, with one more for the tail.
    List(u32),
    /// Number of pairs of terms.
    Map(u32),
}

/// Size of tag and length in bytes.
fn head_length(term: &[u8]) -> Option<usize> {
    Some(match *term.first()? {
        tag::SMALL_TUPLE | tag::SMALL_BIG | tag::SMALL_ATOM | tag::SMALL_ATOM_UTF8 => 2,
        tag::STRING | tag::ATOM | tag::ATOM_UTF8 => 3,
        tag::LARGE_TUPLE | tag::LIST | tag::BINARY | tag::LARGE_BIG | tag::MAP => 5,
        // A byte between length and data counts the bits of the last byte.
        tag::BIT_BINARY => 6,
        _ => 1,
    })
}

fn term_shape(term: &[u8]) -> Result<TermShape, DecodeError> {
    let at = |at: usize| term.get(at).copied().ok_or(DecodeError::Truncated);
    let short = || Ok(u16::from_be_bytes([at(1)?, at(2)?]));
    let long = || Ok(u32::from_be_bytes([at(1)?, at(2)?, at(3)?, at(4)?]));
    Ok(match at(0)? {
        tag::SMALL_INTEGER => TermShape::Bytes(1),
        tag::INTEGER => TermShape::Bytes(4),
        tag::FLOAT => TermShape::Bytes(8),
        tag::FLOAT_TEXT => TermShape::Bytes(31),
        // A sign, then the digits.
        tag::SMALL_BIG => TermShape::Bytes(u64::from(at(1)?) + 1),
        tag::LARGE_BIG => TermShape::Bytes(u64::from(long()?) + 1),
        tag::SMALL_ATOM | tag::SMALL_ATOM_UTF8 => TermShape::Bytes(u64::from(at(1)?)),
        tag::ATOM | tag::ATOM_UTF8 => TermShape::Bytes(u64::from(short()?)),
        tag::BINARY | tag::BIT_BINARY => TermShape::Bytes(u64::from(long()?)),
        tag::NIL => TermShape::Nil,
        tag::STRING => TermShape::String(short()?),
        tag::SMALL_TUPLE => TermShape::Tuple(u32::from(at(1)?)),
        tag::LARGE_TUPLE => TermShape::Tuple(long()?),
        tag::LIST => TermShape::List(long()?),
        tag::MAP => TermShape::Map(long()?),
        other => return Err(DecodeError::UnknownTag(other)),
    })
}

/// Splits bytes after the term at their beginning.
///
/// Each term takes at least one byte, so more terms than bytes cannot exist, whatever is claimed.
fn split_term(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let mut rest = bytes;
    let mut wanted: u64 = 1;
    while wanted > 0 {
        if wanted > rest.len() as u64 {
            return Err(DecodeError::Truncated);
        }
        let (plain, inner) = match term_shape(rest)? {
            TermShape::Bytes(length) => (length, 0),
            TermShape::Nil => (0, 0),
            TermShape::String(length) => (u64::from(length), 0),
            TermShape::Tuple(count) => (0, u64::from(count)),
            TermShape::List(count) => (0, u64::from(count) + 1),
            TermShape::Map(pairs) => (0, u64::from(pairs) * 2),
        };
        let length = usize::try_from(plain)
            .ok()
            .and_then(|plain| plain.checked_add(head_length(rest)?))
            .ok_or(DecodeError::Truncated)?;
        rest = rest.get(length..).ok_or(DecodeError::Truncated)?;
        wanted = wanted - 1 + inner;
    }
    let length = bytes.len() - rest.len();
    bytes.split_at_checked(length).ok_or(DecodeError::Truncated)
}

#[cfg(test)]
#[path = "tests/terms.rs"]
mod tests;
