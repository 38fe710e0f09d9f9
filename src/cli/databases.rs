//! `recliner databases`: what each database takes, wastes and grows.

use super::{
    CommandError, Exit,
    args::{DatabasesArgs, Format},
    output::WithMemory,
    print, print_json, printable,
    service_client::ServiceClient,
    table,
};
use crate::{
    serve::report::{DatabaseSort, Databases, LastCompactions, WantedDatabases},
    text::Label,
};
use wall_clock::Clock;

pub(super) async fn run(args: DatabasesArgs) -> Result<Exit, CommandError> {
    let (mut found, unseen) = match args.from.recliner()? {
        Some(client) => (ask_service(&client, &args).await?, None),
        None => read_cluster(&args).await.map(|(found, unseen)| (found, Some(unseen)))?,
    };
    let name = args.name.as_deref();
    let is_exact = keep_exact(&mut found, name);
    if let Some(name) = name.filter(|_| found.databases.is_empty()) {
        let why = format!("no database is named {name:?}, and none has this text in its name");
        return Err(CommandError::failed(printable(&why)));
    }
    let memory = unseen.is_none();
    match args.from.format {
        Format::Json => print_json(&WithMemory { answer: &found, memory })?,
        Format::Table => {
            let mut text = table::databases(&found, is_exact, table::width());
            if !memory {
                text.push_str(
                    "\nRead directly, without a running recliner: growth and last compactions are unknown.\n",
                );
            }
            print(&text)?;
        }
    }
    Ok(unseen.unwrap_or(Exit::Done))
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

/// Asks a running recliner.
async fn ask_service(
    client: &ServiceClient,
    args: &DatabasesArgs,
) -> Result<Databases, CommandError> {
    let limit = limit(args).to_string();
    let mut query = vec![("sort", &*args.sort), ("limit", &*limit)];
    query.extend(args.name.as_deref().map(|name| ("search", name)));
    client.get("/api/v1/databases", &query).await
}

/// With a name, more databases are read than are printed: the one of that name may not be among the first.
fn limit(args: &DatabasesArgs) -> usize {
    const NAMED: usize = 10_000;
    if args.name.is_some() { NAMED } else { args.limit }
}

/// Reads the cluster; also returns whether part of it could not be read.
async fn read_cluster(args: &DatabasesArgs) -> Result<(Databases, Exit), CommandError> {
    let sort = DatabaseSort::from_label(&args.sort).ok_or_else(|| {
        let known = DatabaseSort::labels().join(", ");
        CommandError::usage(format!("--sort={:?} is not one of {known}", args.sort))
    })?;
    let (reading, exit) = args.from.source.read().await?;
    let wanted = WantedDatabases {
        search: args.name.as_deref(),
        sort,
        limit: limit(args),
        ..WantedDatabases::default()
    };
    let now = Clock::System.now();
    Ok((Databases::of(&reading.plan, &wanted, &LastCompactions::new(), now), exit))
}
