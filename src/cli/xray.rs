//! `recliner xray`: prints what the bytes of CouchDB's files are, without a CouchDB.
//!
//! Owns which files its arguments name. Sends no request and writes nothing.

use super::{
    CommandError, Exit,
    args::{Format, XrayArgs},
    output, printable, table,
};
use crate::{
    datadir::{NodeDirectories, ReadPace, database_files, xray_file},
    sources::xray::XrayAnswer,
    text::counted,
};
use couchdb_files::Sample;
use std::{
    hash::{BuildHasher as _, RandomState},
    path::{Path, PathBuf},
};

pub(super) fn run(args: &XrayArgs) -> Result<Exit, CommandError> {
    let sample =
        args.sample.map(|share| Sample { share, seed: RandomState::new().hash_one("xray") });
    let pace = ReadPace { bytes_per_second: args.max_read, ..ReadPace::default() };
    let (mut exit, mut answers, mut shown) = (Exit::Done, Vec::new(), Vec::new());
    for name in &args.files {
        let (paths, is_database) = paths(args, name)?;
        if is_database && let Some(note) = note_on_indexes(args) {
            output::print_note(&note);
        }
        let mut files = Vec::new();
        for path in paths {
            match xray_file(&path, sample, &pace) {
                Ok(xray) => files.push(XrayAnswer::of(&path, &xray, sample.is_some())),
                Err(why) => {
                    exit = Exit::Failed;
                    let path = printable(&path.display().to_string());
                    output::print_error(&format!("{path} {why}"));
                }
            }
        }
        if is_database {
            let count = counted(files.len() as u64, "file", "files");
            shown.extend(XrayAnswer::sum(&format!("{}, {count}", name.display()), &files));
        } else {
            shown.extend(files.iter().cloned());
        }
        answers.append(&mut files);
    }
    if args.format == Format::Json {
        output::print_json_lines(&answers)?;
    } else {
        output::print(&table::xrayed(&shown, table::width()))?;
    }
    Ok(exit)
}

/// That indexes are missing, if CouchDB keeps them in a directory that was not given.
fn note_on_indexes(args: &XrayArgs) -> Option<String> {
    let data = args.data_dir.as_ref().filter(|_| args.view_index_dir.is_none())?;
    let note = "without indexes: {} has none (.shards); if CouchDB's view_index_dir is another directory, name it with --view-index-dir";
    let is_absent = !data.join(".shards").is_dir();
    is_absent.then(|| note.replacen("{}", &printable(&data.display().to_string()), 1))
}

/// The files that an argument names: a path or, with a data directory, the name of a database. The flag tells
/// whether it is a database.
fn paths(args: &XrayArgs, name: &Path) -> Result<(Vec<PathBuf>, bool), CommandError> {
    let (Some(data), Some(db), false) = (&args.data_dir, name.to_str(), name.is_file()) else {
        return Ok((vec![name.to_owned()], false));
    };
    let directories = NodeDirectories { data: data.clone(), views: args.view_index_dir.clone() };
    let found = database_files(&directories, db, true).map_err(CommandError::failed)?;
    if found.is_empty() {
        let why = format!("{} has no files of the database {}", data.display(), printable(db));
        return Err(CommandError::usage(why));
    }
    Ok((found, true))
}
