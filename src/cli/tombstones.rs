//! `recliner tombstones`: how many documents of a database are deleted, how large they are, who still reads their
//! deletions, and what can be done about them.
//!
//! Reads CouchDB, a running recliner where CouchDB keeps no times, and files of its data directory if one is named.
//! Changes nothing.

pub(super) mod answer;

use super::{
    CommandError, Exit,
    args::{SourceArgs, TombstonesArgs},
    output::print_problems,
    printable, read_once,
    service_client::url_in_environment,
    table,
};
use crate::{
    advice::tombstones::choices,
    datadir::{NodeDirectories, ReadPace, database_files, xray_file},
    serve::report::Databases,
    sources::tombstones::{TombstoneFacts, read_tombstones},
};
use answer::{FileBytes, Recorded, TombstonesAnswer};
use couchdb_files::Part;
use std::hash::{BuildHasher as _, RandomState};

/// Maximum rate of reading files, in bytes per second; CouchDB keeps most of the disk's throughput.
const MAX_READ: u64 = 50 << 20;

pub(super) async fn run(args: TombstonesArgs) -> Result<Exit, CommandError> {
    let connected = read_once::connect(&args.source)?;
    if connected.settings.couchdb.urls.is_empty() {
        return Err(CommandError::usage(
            "tombstones reads CouchDB itself and asks a running recliner only for ages: name a CouchDB with --couchdb.url",
        ));
    }
    let seed = RandomState::new().hash_one("tombstones");
    let facts = read_tombstones(&connected.client, &args.db, args.sample, seed).await;
    let mut facts = facts.map_err(CommandError::failed)?;
    let recorded = recorded(&args, &mut facts).await?;
    let files = files(&args.source, &args.db)?;
    let answer =
        TombstonesAnswer { recorded, ..TombstonesAnswer::of(&facts, files, &choices(&facts)) };
    args.format.print(&answer, table::tombstones)?;
    Ok(print_problems(&answer.unknown))
}

/// The ages that a running recliner has recorded, if one is named and CouchDB does not keep them.
async fn recorded(
    args: &TombstonesArgs,
    facts: &mut TombstoneFacts,
) -> Result<Recorded, CommandError> {
    let url = args.recliner.clone().or_else(url_in_environment);
    let Some(url) = url.filter(|_| facts.ages.is_none()) else { return Ok(Recorded::NotAsked) };
    let client = args.login.client(&url)?;
    let asked = client.get::<Databases>("/api/v1/databases", &[("name", &facts.db)]).await;
    let found = match asked {
        Ok(found) => found.databases.into_iter().find_map(|line| line.deletions),
        Err(failed) => {
            facts.problems.push(format!("The recorded ages are unknown: {}.", failed.why));
            return Ok(Recorded::NotAsked);
        }
    };
    // A database of this name in another cluster has other files.
    let found = found.filter(|ages| ages.suffix == facts.suffix);
    Ok(found.map_or_else(|| Recorded::Nothing(client.name().to_owned()), Recorded::Ages))
}

/// The bytes of deleted documents in the files below the data directory, if one is named.
fn files(source: &SourceArgs, db: &str) -> Result<Option<FileBytes>, CommandError> {
    let Some(data) = &source.data_dir else { return Ok(None) };
    let mut sum = FileBytes::default();
    let directories = NodeDirectories { data: data.clone(), views: None };
    let pace = ReadPace { bytes_per_second: MAX_READ, ..ReadPace::default() };
    for path in database_files(&directories, db, false).map_err(CommandError::failed)? {
        let found = xray_file(&path, None, &pace).map_err(|why| {
            CommandError::failed(format!("{} {why}", printable(&path.display().to_string())))
        })?;
        let rows = [Part::TombstoneRows];
        let bodies = [Part::TombstonesWithBody, Part::TombstonesWithoutBody];
        for part in found.parts {
            if rows.contains(&part.part) || bodies.contains(&part.part) {
                sum.bytes += part.bytes;
            }
            if bodies.contains(&part.part) {
                sum.docs += part.count;
            }
            if part.part == Part::TombstonesWithBody {
                sum.with_body += part.count;
            }
        }
    }
    Ok(Some(sum).filter(|sum| sum.docs > 0))
}
