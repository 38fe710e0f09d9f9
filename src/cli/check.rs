//! `recliner check-config`: prints every error, or the effective configuration, or the schema.

use super::{
    CommandError, Exit,
    args::{CheckArgs, Format},
    next_step::{AFTER_CHECK_CONFIG, print_next_step},
    print, read_once,
};
use crate::{
    config::{self, Flags},
    serve::http::WebAccess,
    text::quote::comment,
};

pub(super) fn run(args: &CheckArgs) -> Result<Exit, CommandError> {
    if args.schema {
        print(&format!("{:#}\n", config::schema()))?;
        return Ok(Exit::Done);
    }
    let flags = Flags { mode: args.mode.clone(), ..args.web.apply_to(args.source.flags()) };
    let loaded = read_once::load(&flags, args.source.config_file.as_deref());
    let web = WebAccess::open(flags.web_config_file.as_deref()).map_err(CommandError::usage);
    // All errors of both files are reported at once.
    let (loaded, web) = match (loaded, web) {
        (Ok(loaded), Ok(web)) => (loaded, web),
        (Err(one), Err(other)) => return Err(CommandError::usage([one.why, other.why].join("\n"))),
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => return Err(failure),
    };
    if let Some(problem) = config::admin_api_exposed(&loaded.settings, web.has_users()) {
        return Err(CommandError::usage(problem));
    }
    let mut text = String::new();
    for finding in &loaded.findings {
        text.push_str(&comment(&finding.to_string()));
    }
    text.push_str(&config::to_yaml(&loaded.settings));
    print(&text)?;
    print_next_step(Format::Table, AFTER_CHECK_CONFIG);
    Ok(Exit::Done)
}
