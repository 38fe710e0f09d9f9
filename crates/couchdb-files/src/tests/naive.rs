//! A second, slow implementation of the search: checks every block from the end, byte by byte.

use super::Checksum;
use md5::{Digest, Md5};

/// The newest header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NaiveHeader {
    pub(super) at: usize,
    pub(super) bytes: usize,
    pub(super) checksum: Checksum,
    pub(super) tail: usize,
    pub(super) term: Vec<u8>,
}

/// The found header, and the rejected candidates.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NaiveSearch {
    pub(super) found: Option<NaiveHeader>,
    pub(super) rejected: u32,
    /// Total length that the tried headers claim, apart from lengths above twice the file's size.
    pub(super) claimed: u64,
}

/// Finds the newest header of a file.
pub(super) fn search(file: &[u8]) -> NaiveSearch {
    let mut search = NaiveSearch::default();
    for block in (0..=file.len() / 4096).rev() {
        let at = block * 4096;
        if file.get(at) != Some(&1) {
            continue;
        }
        search.found = header(file, at);
        if let Some(length) = length(file, at)
            && length <= file.len() * 2
        {
            search.claimed += length as u64;
        }
        if search.found.is_some() {
            break;
        }
        search.rejected += 1;
    }
    search
}

fn length(file: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_be_bytes(file.get(at + 1..at + 5)?.try_into().unwrap()) as usize)
}

fn header(file: &[u8], at: usize) -> Option<NaiveHeader> {
    let length = length(file, at)?;
    if !(16..=64 << 20).contains(&length) {
        return None;
    }
    let mut next = at + 5;
    let mut record = Vec::new();
    while record.len() < length {
        if !next.is_multiple_of(4096) {
            record.push(*file.get(next)?);
        }
        next += 1;
    }
    let (sum, term) = record.split_at(16);
    let checksum = if sum == xxhash_rust::xxh3::xxh3_128(term).to_be_bytes() {
        Checksum::Xxh3
    } else if sum == &Md5::digest(term)[..] {
        Checksum::Md5
    } else {
        return None;
    };
    Some(NaiveHeader { at, bytes: length, checksum, tail: file.len() - next, term: term.to_vec() })
}
