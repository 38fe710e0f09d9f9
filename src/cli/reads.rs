//! `recliner reads` and `recliner indexes`: who reads the indexes, from logs or from a running recliner.
//!
//! Reads the logs that are named, and sends nothing but a request to a running recliner. Changes nothing.

use super::{
    CommandError, Exit,
    args::{IndexesArgs, ReadsArgs},
    output::print_problems,
    table,
};
use crate::{
    model::reads::Reads,
    reads::{ReadLog, ReadsAnswer, read_stream},
    serve::report::Indexes,
};
use access_log::LogReads;
use std::{io, path::Path};

pub(super) async fn run(args: ReadsArgs) -> Result<Exit, CommandError> {
    let answer = if args.logs.is_empty() {
        args.service.client()?.get("/api/v1/reads", &[]).await?
    } else {
        of_logs(&args)
    };
    args.format.print(&answer, table::reads)?;
    Ok(print_problems(&answer.problems))
}

pub(super) async fn indexes(args: IndexesArgs) -> Result<Exit, CommandError> {
    let limit = args.limit.to_string();
    let mut query = vec![("limit", &*limit)];
    query.extend(args.db.as_deref().map(|db| ("db", db)));
    let answer: Indexes = args.service.client()?.get("/api/v1/indexes", &query).await?;
    args.format.print(&answer, table::indexes)?;
    Ok(print_problems(&answer.problems))
}

fn of_logs(args: &ReadsArgs) -> ReadsAnswer {
    let (mut logs, mut problems) = (LogReads::default(), Vec::new());
    for path in &args.logs {
        let read = if path == Path::new("-") {
            read_stream(io::stdin().lock(), "-", &mut logs)
        } else {
            ReadLog::of_file(path, &mut logs)
        };
        let name = path.display();
        match read {
            Ok(read) if read.lines > 0 && read.requests == 0 => {
                problems.push(format!(
                    "{name}: none of its {} lines is a request in a known log format",
                    read.lines
                ));
            }
            Ok(_) => {}
            Err((read, why)) => {
                problems.push(format!("{name}: cannot be read after {} lines: {why}", read.lines));
            }
        }
    }
    ReadsAnswer::of(&Reads { problems, ..Reads::of_logs(&logs) })
}
