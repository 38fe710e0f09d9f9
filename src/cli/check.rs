//! `recliner check-config`: everything that is wrong, and what is in force; or the schema.

use super::{Exit, Failure, args::CheckArgs, once, print};
use crate::{
    config::{self, Flags},
    serve::http::Web,
};

pub(super) fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    if args.schema {
        print(&format!("{:#}\n", config::schema()))?;
        return Ok(Exit::Done);
    }
    let flags = Flags { mode: args.mode.clone(), ..args.web.over(args.source.flags()) };
    let loaded = once::load(&flags, args.source.config_file.as_deref());
    let web = Web::open(flags.web_config_file.as_deref()).map_err(Failure::usage);
    // Whoever repairs one file wants to know of the other.
    let (loaded, web) = match (loaded, web) {
        (Ok(loaded), Ok(web)) => (loaded, web),
        (Err(one), Err(other)) => return Err(Failure::usage([one.why, other.why].join("\n"))),
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => return Err(failure),
    };
    if let Some(problem) = config::open_to_strangers(&loaded.settings, web.has_users()) {
        return Err(Failure::usage(problem));
    }
    let mut text = String::new();
    for finding in &loaded.findings {
        text.push_str(&format!("# {finding}\n"));
    }
    text.push_str(&config::to_yaml(&loaded.settings));
    print(&text)?;
    Ok(Exit::Done)
}
