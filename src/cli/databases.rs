//! `recliner databases`: what each database takes, wastes and grows.

use super::{
    CommandError, Exit,
    args::{DatabasesArgs, SourceArgs},
    printable,
    service_client::ServiceClient,
    table,
};
use crate::{
    serve::report::{DatabaseSort, Databases, NewestJobs, WantedDatabases},
    text::Label,
};
use wall_clock::Clock;

pub(super) async fn run(args: DatabasesArgs) -> Result<Exit, CommandError> {
    let ask = async |client: &ServiceClient| {
        let limit = args.limit.to_string();
        let get = async |only: Option<(&str, &str)>| {
            let mut query = vec![("sort", &*args.sort), ("limit", &*limit)];
            query.extend(only);
            client.get::<Databases>("/api/v1/databases", &query).await
        };
        let Some(name) = args.name.as_deref() else { return get(None).await };
        let named = get(Some(("name", name))).await?;
        if named.total > 0 { Ok(named) } else { get(Some(("search", name))).await }
    };
    let read = async |source: &SourceArgs| read_cluster(source, &args).await;
    let found = args.from.answer(ask, read).await?;
    let name = args.name.as_deref();
    if let Some(name) = name.filter(|_| found.answer.databases.is_empty()) {
        let why = format!("no database is named {name:?} or has this text in its name");
        return Err(CommandError::failed(printable(&why)));
    }
    let table = |found: &Databases, width| {
        table::databases(found, name, width) + &table::unanswered(&found.unanswered, width)
    };
    found.print(args.from.format, table, "growth and last compactions are unknown")
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
    let (plan, name, now) = (&reading.plan, args.name.as_deref(), Clock::System.now());
    let all = WantedDatabases { sort, limit: args.limit, ..WantedDatabases::default() };
    let of = |wanted| Databases::of(plan, &wanted, &NewestJobs::default(), now);
    let named = of(WantedDatabases { name, ..all.clone() });
    let found = if named.total > 0 { named } else { of(WantedDatabases { search: name, ..all }) };
    Ok((found, reading.exit()))
}
