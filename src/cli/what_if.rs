//! `recliner what-if`: what would happen under several rules, or what would have happened if
//! recliner had enforced; and how accurate forecasts were. A running recliner simulates it.

use super::{CommandError, Exit, args::WhatIfArgs, print_note, service_client::WORK, table};
use crate::{
    config::{self, File},
    serve::report::{Forecasts, Scorecard, WhatIf, WhatIfQuestion},
};
use std::{io::IsTerminal as _, path::Path};

pub(super) async fn run(args: WhatIfArgs) -> Result<Exit, CommandError> {
    if args.backtest {
        let client = args.service.client()?;
        let answer: Forecasts = client.get("/api/v1/forecasts", &[]).await?;
        args.format.print(&answer, table::forecasts)?;
        return Ok(Exit::Done);
    }
    if let Some(since) = &args.since {
        return look_back(&args, since).await;
    }
    let config = args.config_file.as_deref().map(read_policy).transpose()?;
    let question =
        WhatIfQuestion { days: Some(args.days), channels: args.channels.clone(), config };
    let client = args.service.client()?;
    note_simulating();
    let answer: WhatIf = client.post_within("/api/v1/what-if", &question, WORK).await?;
    args.format.print(&answer, table::what_if)?;
    Ok(Exit::Done)
}

/// Prints on a terminal that the answer takes a while.
pub(super) fn note_simulating() {
    if std::io::stderr().is_terminal() {
        print_note("simulating…");
    }
}

/// Prints what recliner would have done while it only advised.
async fn look_back(args: &WhatIfArgs, since: &str) -> Result<Exit, CommandError> {
    let client = args.service.client()?;
    let answer: Scorecard = client.get("/api/v1/scorecard", &[("since", since)]).await?;
    args.format.print(&answer, table::scorecard)?;
    Ok(Exit::Done)
}

/// The policy part of a configuration file; the rest of the file is not sent.
fn read_policy(path: &Path) -> Result<String, CommandError> {
    let read = || {
        let bytes = config::read_file(path, "--config.file")?;
        config::load_policy(File { name: path, bytes: &bytes })
    };
    let settings = read().map_err(|problems| CommandError::usage(problems.to_string()))?;
    Ok(config::policy_to_yaml(&settings))
}
