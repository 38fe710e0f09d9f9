mod differences;
pub(super) mod files;
mod hostile;
mod mutate;
mod naive;
mod purges;
mod tombstones;
mod xrays;

use super::*;
use md5::{Digest, Md5};

/// A term with its version byte.
pub(super) fn versioned(term: &[u8]) -> Vec<u8> {
    [&[131], term].concat()
}

/// A file with one block of data and a header that contains `record`, with a valid checksum.
pub(super) fn with_header(record: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 4096];
    append_header(&mut file, record);
    file
}

/// Appends a header at the next block, as CouchDB does.
pub(super) fn append_header(file: &mut Vec<u8>, record: &[u8]) {
    file.resize(file.len().next_multiple_of(4096), 0);
    let length = u32::try_from(record.len() + 16).unwrap();
    file.push(1);
    file.extend(length.to_be_bytes());
    for byte in Md5::digest(record).iter().chain(record) {
        if file.len().is_multiple_of(4096) {
            file.push(0);
        }
        file.push(*byte);
    }
}
