//! `recliner databases`: what each database takes, wastes and grows.

use super::{
    CommandError, Exit,
    args::{DatabasesArgs, SourceArgs},
    printable,
    service_client::ServiceClient,
    table,
};
use crate::{
    serve::report::{DatabaseSort, Databases, LastCompactions, WantedDatabases},
    text::Label,
};
use wall_clock::Clock;

pub(super) async fn run(args: DatabasesArgs) -> Result<Exit, CommandError> {
    let ask = async |client: &ServiceClient| {
        let limit = limit(&args).to_string();
        let mut query = vec![("sort", &*args.sort), ("limit", &*limit)];
        query.extend(args.name.as_deref().map(|name| ("search", name)));
        client.get("/api/v1/databases", &query).await
    };
    let read = async |source: &SourceArgs| read_cluster(source, &args).await;
    let mut found = args.from.answer(ask, read).await?;
    let name = args.name.as_deref();
    let is_exact = keep_exact(&mut found.answer, name);
    if let Some(name) = name.filter(|_| found.answer.databases.is_empty()) {
        let why = format!("no database is named {name:?}, and none has this text in its name");
        return Err(CommandError::failed(printable(&why)));
    }
    let table = |found: &Databases, width| table::databases(found, is_exact, width);
    found.print(args.from.format, table, "growth and last compactions are unknown")
}

/// Keeps only the database of this name, if there is one; returns whether there is.
fn keep_exact(found: &mut Databases, name: Option<&str>) -> bool {
    let is_exact = found.databases.iter().any(|line| Some(&*line.db) == name);
    if is_exact {
        found.databases.retain(|line| Some(&*line.db) == name);
        (found.total, found.offset) = (1, 0);
    }
    is_exact
}

/// With a name, more databases are read than are printed: the one of that name may not be among the first.
fn limit(args: &DatabasesArgs) -> usize {
    const NAMED: usize = 10_000;
    if args.name.is_some() { NAMED } else { args.limit }
}

/// Reads the cluster; also returns whether part of it could not be read.
async fn read_cluster(
    source: &SourceArgs,
    args: &DatabasesArgs,
) -> Result<(Databases, Exit), CommandError> {
    let sort = DatabaseSort::from_label(&args.sort).ok_or_else(|| {
        let known = DatabaseSort::labels().join(", ");
        CommandError::usage(format!("--sort={:?} is not one of {known}", args.sort))
    })?;
    let reading = source.read().await?;
    let (search, limit) = (args.name.as_deref(), limit(args));
    let wanted = WantedDatabases { search, sort, limit, ..WantedDatabases::default() };
    let (now, last) = (Clock::System.now(), LastCompactions::new());
    Ok((Databases::of(&reading.plan, &wanted, &last, now), reading.exit()))
}
