use super::*;
use std::{ffi::OsStr, fs};

mod examples;
mod flags;
mod schema;
mod secrets;
mod web;
mod write;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config")
}

/// Flags that name a CouchDB, so that all reported problems come from the file.
fn flags() -> Flags {
    Flags { couchdb_urls: vec!["http://127.0.0.1:5984".to_owned()], ..Flags::default() }
}

fn load_text(flags: &Flags, text: &str) -> Result<Loaded, Problems> {
    load(flags, Some(File { name: Path::new("x.yml"), bytes: text.as_bytes() }))
}

fn settings(text: &str) -> Settings {
    load_text(&flags(), text).unwrap_or_else(|why| panic!("{why}\n{text}")).settings
}
