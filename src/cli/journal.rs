//! `recliner history` and `recliner events`: what a running recliner remembers.

mod follow;

use super::{
    Exit, Failure,
    args::{EventsArgs, Format, HistoryArgs},
    complain, print, print_json, printed, table,
};
use crate::{
    clock::{Clock, Moment},
    journal::Type,
};
use serde_json::Value;
use std::{io::Write as _, time::Duration};

pub(super) async fn history(args: HistoryArgs) -> Result<Exit, Failure> {
    let since = args.since.as_deref().map(|text| since(text, Clock::System.now())).transpose()?;
    let limit = args.limit.to_string();
    let query = [
        ("target", args.target.as_deref()),
        ("node", args.node.as_deref()),
        ("since", since.as_deref()),
        ("result", args.result.as_deref()),
        ("limit", Some(&limit)),
    ];
    let answer = args.service.client()?.get("/api/v1/history", &given(query)).await?;
    match args.format {
        Format::Json => print_json(&answer)?,
        Format::Table => print(&table::outcomes(&rows(&answer, "outcomes")?, table::width()))?,
    }
    Ok(Exit::Done)
}

pub(super) async fn events(args: EventsArgs) -> Result<Exit, Failure> {
    let (limit, since) = (args.limit.to_string(), args.since.map(|seq| seq.to_string()));
    let client = args.service.client()?;
    let types = if args.types.is_empty() && !args.all {
        complain("events of databases (created, updated, deleted) are left out; see --all");
        let own = Type::ALL.into_iter().filter(|it| !it.is_of_database());
        own.map(|it| it.label().to_owned()).collect()
    } else {
        args.types
    };
    let types = types.join(",");
    if args.follow {
        let shown = Shown::new(args.format);
        return follow::follow(&client, &types, args.since, &limit, shown).await;
    }
    let query = [
        ("types", Some(&*types).filter(|types| !types.is_empty())),
        ("since", since.as_deref()),
        ("limit", Some(&limit)),
    ];
    let answer = client.get("/api/v1/events", &given(query)).await?;
    let rows = rows(&answer, "events")?;
    match args.format {
        Format::Json => print_json(&answer)?,
        Format::Table if rows.is_empty() => print("No event is remembered.\n")?,
        Format::Table => print(&table::Events::new(table::width()).rows(&rows))?,
    }
    Ok(Exit::Done)
}

/// How events are printed that keep coming.
#[derive(Debug)]
enum Shown {
    Table(table::Events),
    Json,
}

impl Shown {
    fn new(format: Format) -> Self {
        match format {
            Format::Json => Self::Json,
            Format::Table => Self::Table(table::Events::new(table::width())),
        }
    }

    /// Prints some more; answers whether anybody still reads.
    fn print(&mut self, rows: &[Value]) -> Result<bool, Failure> {
        let text = match self {
            _ if rows.is_empty() => return Ok(true),
            Self::Table(table) => table.rows(rows),
            Self::Json => rows.iter().map(|row| format!("{row}\n")).collect(),
        };
        printed(|out| out.write_all(text.as_bytes()))
    }
}

fn given<'a, const N: usize>(
    all: [(&'static str, Option<&'a str>); N],
) -> Vec<(&'static str, &'a str)> {
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn rows(answer: &Value, name: &str) -> Result<Vec<Value>, Failure> {
    let rows = answer[name].as_array().cloned();
    rows.ok_or_else(|| Failure::failed(format!("recliner answered without {name}")))
}

/// A moment, or how long ago it was (`2h`, `7d`), as a moment.
fn since(text: &str, now: Moment) -> Result<String, Failure> {
    let Ok(ago) = humantime::parse_duration(text) else {
        // The service reads moments, and says what is wrong with one.
        return Ok(text.to_owned());
    };
    let then = Duration::from_secs(now.unix()).saturating_sub(ago);
    Ok(Moment::from_unix(then.as_secs()).rfc3339())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_counted_back_from_now() {
        let now = Moment::from_unix(1_795_222_440);
        for (text, expected) in [
            ("0s", "2026-11-21T00:54:00Z"),
            ("1d", "2026-11-20T00:54:00Z"),
            ("200years", "1970-01-01T00:00:00Z"),
            ("2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z"),
            ("yesterday", "yesterday"),
        ] {
            assert_eq!(since(text, now).unwrap(), expected);
        }
    }
}
