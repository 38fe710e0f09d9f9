//! `recliner history` and `recliner events`: the journal of a running recliner.

mod follow;

use super::{
    CommandError, Exit,
    args::{EventsArgs, Format, HistoryArgs},
    output::{print_json_lines, print_part},
    print_error, print_note, table,
};
use crate::{
    serve::report::{EventLine, Events, Outcomes},
    store::journal::EventType,
    text::Label,
};
pub(super) use follow::{LONG_POLL_WAIT, NextPosition, next_position};

pub(super) async fn history(args: HistoryArgs) -> Result<Exit, CommandError> {
    let limit = args.limit.to_string();
    let query = [
        ("target", args.target.as_deref()),
        ("node", args.node.as_deref()),
        ("since", args.since.as_deref()),
        ("until", args.until.as_deref()),
        ("result", args.result.as_deref()),
        ("limit", Some(&limit)),
    ];
    let answer: Outcomes =
        args.service.client()?.get("/api/v1/history", &present_params(query)).await?;
    args.format.print(&answer, |answer, width| table::outcomes(&answer.outcomes, width))?;
    if answer.next_before.is_some() {
        print_note("There are older jobs; raise --limit to see them.");
    }
    Ok(Exit::Done)
}

pub(super) async fn events(args: EventsArgs) -> Result<Exit, CommandError> {
    let limit = args.limit.to_string();
    let client = args.service.client()?;
    let types = if args.types.is_empty() && !args.all {
        print_error("database events (created, updated, deleted) are hidden; show them with --all");
        own_event_types()
    } else {
        args.types.join(",")
    };
    if args.follow {
        let shown = EventOutput::new(args.format);
        let wanted = follow::EventFilter { types: &types, target: args.target.as_deref() };
        return follow::follow(&client, wanted, args.since, &limit, shown).await;
    }
    let query = [
        ("types", Some(&*types).filter(|types| !types.is_empty())),
        ("target", args.target.as_deref()),
        ("since", args.since.as_deref()),
        ("limit", Some(&limit)),
    ];
    let answer: Events = client.get("/api/v1/events", &present_params(query)).await?;
    let rows = &answer.events;
    args.format.print(&answer, |_, width| match &**rows {
        [] => "No matching events.\n".to_owned(),
        rows => table::Events::new(width).rows(rows),
    })?;
    if let (true, Some(last)) = (answer.more, rows.last()) {
        print_note(&format!(
            "There are more events; continue with --since {}, or raise --limit.",
            last.seq
        ));
    }
    Ok(Exit::Done)
}

/// All event types except those of databases, as the API's comma-separated list.
pub(super) fn own_event_types() -> String {
    let own = EventType::each().filter(|it| !it.is_database_event());
    own.map(EventType::label).collect::<Vec<_>>().join(",")
}

/// Prints events as they arrive.
#[derive(Debug)]
enum EventOutput {
    Table(table::Events),
    Json,
}

impl EventOutput {
    fn new(format: Format) -> Self {
        match format {
            Format::Json => Self::Json,
            Format::Table => Self::Table(table::Events::new(table::width())),
        }
    }

    /// Prints more events; returns whether the output is still open.
    fn print(&mut self, rows_of: &[EventLine]) -> Result<bool, CommandError> {
        match self {
            _ if rows_of.is_empty() => Ok(true),
            Self::Table(table) => print_part(&table.rows(rows_of)),
            Self::Json => print_json_lines(rows_of),
        }
    }
}

pub(super) fn present_params<'a, const N: usize>(
    all: [(&'static str, Option<&'a str>); N],
) -> Vec<(&'static str, &'a str)> {
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
