//! `recliner what-if`: what would happen under several rules, as a running recliner works it out.

use super::{
    CommandError, Exit,
    args::{Format, WhatIfArgs},
    journal::present_params,
    print, print_json,
    service_client::WORK,
    table,
};
use crate::{
    config::{self, File},
    serve::report::WhatIf,
};
use std::path::Path;

pub(super) async fn run(args: WhatIfArgs) -> Result<Exit, CommandError> {
    let config = args.config_file.as_deref().map(read_policy).transpose()?;
    let days = args.days.to_string();
    let query = [
        ("days", Some(days.as_str())),
        ("channels", args.channels.as_deref()),
        ("config", config.as_deref()),
    ];
    let client = args.service.client()?;
    let answer: WhatIf = client.get_within("/api/v1/what-if", &present_params(query), WORK).await?;
    match args.format {
        Format::Json => print_json(&answer)?,
        Format::Table => print(&table::what_if(&answer, table::width()))?,
    }
    Ok(Exit::Done)
}

/// The rules of a configuration file; the rest of it stays here.
fn read_policy(path: &Path) -> Result<String, CommandError> {
    let read = || {
        let bytes = config::read_file(path, "--config.file")?;
        config::load_policy(File { name: path, bytes: &bytes })
    };
    let settings = read().map_err(|problems| CommandError::usage(problems.to_string()))?;
    Ok(config::policy_to_yaml(&settings))
}
