//! Parses any text as a design document.

#![no_main]

use libfuzzer_sys::fuzz_target;
use couchdb_files::Design;

fuzz_target!(|text: &str| {
    let _design = Design::parse(text);
});
