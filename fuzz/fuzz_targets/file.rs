//! Reads any bytes as a file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use couchdb_files::{Difference, Opening, Role, read};

fuzz_target!(|file: &[u8]| {
    let read = read(&file);
    for name in ["a.couch", "a.couch.compact.data", "0f045e3b41d71d93aaa32f23021ba536.view"] {
        let role = Role::of(name);
        let _said = (Opening::of(role, &read).to_string(), Difference::of(role, &read));
    }
});
