//! The last purge, for every way of storing its tree.

use super::*;
use flate2::{Compression, write::ZlibEncoder};
use std::io::Write as _;

/// A function that compresses terms.
type Pack = fn(&[u8]) -> Vec<u8>;

/// A node with one element, as a term: `{Kind, [{Key, Value}]}`.
fn node(kind: &[u8; 7], key: u8, value: &[u8]) -> Vec<u8> {
    let head = [131, 104, 2, 100, 0, 7];
    let pair = [108, 0, 0, 0, 1, 104, 2, 97, key];
    [&head[..], kind, &pair, value, &[106]].concat()
}

/// The state of a tree: `{Position, 1, 10}`.
fn state(position: u64) -> Vec<u8> {
    let position = u32::try_from(position).unwrap().to_be_bytes();
    [&[104, 3, 98][..], &position, &[97, 1, 97, 10]].concat()
}

/// Appends a chunk, including the block markers, and returns its offset.
fn append(file: &mut Vec<u8>, data: &[u8], summed: bool) -> u64 {
    let at = file.len() as u64;
    let length = u32::try_from(data.len()).unwrap() | u32::from(summed) << 31;
    let sum = if summed { Md5::digest(data).to_vec() } else { Vec::new() };
    for byte in length.to_be_bytes().iter().chain(&sum).chain(data) {
        if file.len().is_multiple_of(4096) {
            file.push(0);
        }
        file.push(*byte);
    }
    at
}

fn deflated(term: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&term[1..]).unwrap();
    [&[131, 80, 0, 0, 0, 0][..], &encoder.finish().unwrap()].concat()
}

fn snappy(term: &[u8]) -> Vec<u8> {
    [vec![1], snap::raw::Encoder::new().compress_vec(term).unwrap()].concat()
}

/// The last purge of a file whose tree of purges has its root at `root`.
fn last(mut file: Vec<u8>, root: u64) -> Option<u64> {
    let nil: &[u8] = &[100, 0, 3, b'n', b'i', b'l'];
    let fields = [&[97, 8][..], &[97, 9], &[97, 0], nil, nil, nil, nil, &state(root)].concat();
    let record = [&[131, 104, 9, 100, 0, 9][..], b"db_header", &fields].concat();
    append_header(&mut file, &record);
    let Ok(FileHeader { header: Header::Db(db), .. }) = read(&file.as_slice()) else {
        panic!("a db")
    };
    assert_eq!((db.purge_seq, db.purges), (None, Some(1)));
    last_purge(&file.as_slice(), &db)
}

#[test]
fn the_last_purge_is_read_at_any_offset_with_any_compression() {
    for pack in [<[u8]>::to_vec as Pack, deflated, snappy] {
        for (begin, summed) in
            [(100, false), (4096, true), (4090, true), (4095, false), (8175, true)]
        {
            let mut file = vec![7; begin];
            let leaf = append(&mut file, &pack(&node(b"kv_node", 42, &[106])), summed);
            let root = append(&mut file, &pack(&node(b"kp_node", 1, &state(leaf))), summed);
            assert_eq!(last(file.clone(), leaf), Some(42), "{begin}");
            assert_eq!(last(file, root), Some(42), "{begin}");
        }
    }
}

#[test]
fn an_unreadable_tree_has_no_last_purge() {
    let mut file = vec![0; 100];
    let own = file.len() as u64;
    // A node that refers to itself, one beyond the file, and one with an invalid checksum.
    append(&mut file, &node(b"kp_node", 1, &state(own)), false);
    assert_eq!(last(file.clone(), own), None);
    assert_eq!(last(file.clone(), 1 << 30), None);
    let at = append(&mut file, &node(b"kv_node", 5, &[106]), true);
    *file.last_mut().unwrap() ^= 1;
    assert_eq!(last(file, at), None);
}
