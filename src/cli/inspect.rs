//! `recliner inspect`: prints the content of CouchDB's files without a CouchDB.
//!
//! Owns the JSON of files. Sends no request and writes nothing.

pub(super) mod file;

use super::{CommandError, Exit, args::InspectArgs, table};
use file::InspectedFile;
use serde::Serialize;

#[derive(Serialize)]
struct InspectAnswer<'a> {
    files: &'a [InspectedFile],
}

pub(super) fn run(args: &InspectArgs) -> Result<Exit, CommandError> {
    let files: Vec<InspectedFile> = args.files.iter().map(|path| InspectedFile::of(path)).collect();
    let answer = InspectAnswer { files: &files };
    args.format.print(&answer, |answer, width| table::inspected(answer.files, width))?;
    let failed = files.iter().any(|file| file.error.is_some());
    Ok(if failed { Exit::Failed } else { Exit::Done })
}
