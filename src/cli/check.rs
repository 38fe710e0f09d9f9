//! `recliner check-config`: everything that is wrong, and what is in force.

use super::{Exit, Failure, args::SourceArgs, once, print};
use crate::config;

pub(super) fn run(args: &SourceArgs) -> Result<Exit, Failure> {
    let loaded = once::load(&args.flags(), args.config_file.as_deref())?;
    let mut text = String::new();
    for finding in &loaded.findings {
        text.push_str(&format!("# {finding}\n"));
    }
    text.push_str(&config::to_yaml(&loaded.settings));
    print(&text)?;
    Ok(Exit::Done)
}
