//! Decodes any bytes as the content of a header with a correct checksum, so that the fuzzer reaches the decoder directly.

#![no_main]

use libfuzzer_sys::fuzz_target;
use md5::{Digest, Md5};
use couchdb_files::{Unreadable, read};

fuzz_target!(|record: &[u8]| {
    let mut file = vec![1];
    file.extend((record.len() as u32 + 16).to_be_bytes());
    for byte in Md5::digest(record).iter().chain(record) {
        if file.len().is_multiple_of(4096) {
            file.push(0);
        }
        file.push(*byte);
    }
    match read(&file.as_slice()) {
        Ok(headed) => assert_eq!((headed.place.at, headed.place.tail), (0, 0)),
        Err(Unreadable::UndecodableHeader { .. } | Unreadable::UnknownDiskVersion { .. }) => {}
        Err(why) => panic!("the header was not found: {why}"),
    }
});
