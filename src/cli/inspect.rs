//! `recliner inspect`: prints the content of CouchDB's files without a CouchDB.
//!
//! Owns the JSON of files. Sends no request and writes nothing.

pub(super) mod file;

use super::{
    CommandError, Exit,
    args::{Format, InspectArgs},
    print, print_json, table,
};
use file::InspectedFile;
use serde::Serialize;

#[derive(Serialize)]
struct InspectAnswer<'a> {
    files: &'a [InspectedFile],
}

pub(super) fn run(args: &InspectArgs) -> Result<Exit, CommandError> {
    let files: Vec<InspectedFile> = args.files.iter().map(|path| InspectedFile::of(path)).collect();
    match args.format {
        Format::Table => print(&table::inspected(&files, table::width()))?,
        Format::Json => print_json(&InspectAnswer { files: &files })?,
    }
    let failed = files.iter().any(|file| file.error.is_some());
    Ok(if failed { Exit::Failed } else { Exit::Done })
}
