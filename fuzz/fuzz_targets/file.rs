//! Reads any bytes as a file: its header, and what its bytes are; and as a packed sequence.

#![no_main]

use libfuzzer_sys::fuzz_target;
use couchdb_files::{Difference, OpenAction, Role, Sample, read, shard_sequences, xray};

fuzz_target!(|file: &[u8]| {
    let read = read(&file);
    let _shards = shard_sequences(file);
    for name in ["a.couch", "a.couch.compact.data", "0f045e3b41d71d93aaa32f23021ba536.view"] {
        let role = Role::of(name);
        let _said = (OpenAction::of(role, &read).to_string(), Difference::of(role, &read));
    }
    for sample in [None, Some(Sample { share: 0.1, seed: 1 })] {
        if let Ok(xray) = xray(&file, sample) {
            let sum: u64 = xray.parts.iter().map(|part| part.bytes).sum();
            assert_eq!(sum, file.len() as u64);
        }
    }
});
