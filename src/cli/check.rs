//! `recliner check-config`: prints every error, or the effective configuration, or the schema.

use super::{
    CommandError, Exit,
    args::{CheckArgs, Format},
    next_step::{AFTER_CHECK_CONFIG, print_next_step},
    print, read_once,
};
use crate::{
    act::takeover,
    config::{self, Flags},
    model::settings::{Settings, fleet::FleetSettings, work::SmooshMode},
    serve::http::WebAccess,
    text::quote::comment,
};
use couchdb_client::ClientSettings;
use futures::future::join_all;
use std::time::Duration;
use tokio::time;

/// Maximum wait for the cluster's answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &CheckArgs) -> Result<Exit, CommandError> {
    if args.schema {
        print(&format!("{:#}\n", config::schema()))?;
        return Ok(Exit::Done);
    }
    if let Some(fleet) = fleet_alone(args)? {
        let settings = Settings { fleet, ..Settings::new(ClientSettings::new(Vec::new())) };
        let note =
            "The file has only the section fleet: it is valid for `recliner fleet --config.file`.";
        print(&(comment(note) + &config::fleet_to_yaml(&settings)))?;
        return Ok(Exit::Done);
    }
    let flags = Flags { mode: args.mode.clone(), ..args.web.apply_to(args.source.flags()) };
    let loaded = read_once::load(&flags, args.source.config_file.as_deref());
    let web = WebAccess::open(flags.web_config_file.as_deref()).map_err(CommandError::usage);
    // Errors of both files are reported together.
    let (loaded, web) = match (loaded, web) {
        (Ok(loaded), Ok(web)) => (loaded, web),
        (Err(one), Err(other)) => return Err(CommandError::usage([one.why, other.why].join("\n"))),
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => return Err(failure),
    };
    if let Some(problem) = config::admin_api_exposed(&loaded.settings, web.has_users()) {
        return Err(CommandError::usage(problem));
    }
    if let Ok(problem) = time::timeout(ASK_TIMEOUT, nothing_to_take_over(&loaded.settings)).await {
        problem.map_or(Ok(()), |problem| Err(CommandError::usage(problem)))?;
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

/// The recliners that the file names, if it says nothing else and no flag names a CouchDB.
fn fleet_alone(args: &CheckArgs) -> Result<Option<FleetSettings>, CommandError> {
    let Some(name) = args.source.config_file.as_deref() else { return Ok(None) };
    if !args.source.flags().couchdb_urls.is_empty() {
        return Ok(None);
    }
    let bytes = config::read_file(name, "--config.file").map_err(CommandError::usage)?;
    config::load_fleet_alone(config::File { name, bytes: &bytes }).map_err(CommandError::usage)
}

/// Reports channels to take over that no node's smoosh has. `None` if there are none, or if no node
/// answers.
async fn nothing_to_take_over(settings: &Settings) -> Option<String> {
    if settings.smoosh.mode != SmooshMode::Takeover {
        return None;
    }
    let connected = read_once::connect_with(settings.clone()).ok()?;
    let members = connected.client.membership().await.ok()?.cluster_nodes?;
    let nodes = members.iter().filter(|node| settings.nodes.has(node));
    let answers = join_all(nodes.map(|node| takeover::smoosh_channels(&connected.client, node)));
    let channels = answers.await.into_iter().filter_map(|answer| answer.ok()?);
    let existing = channels.reduce(|all, more| &all | &more)?;
    let missing = settings.smoosh.takeover.iter().filter(|channel| !existing.contains(*channel));
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    (!missing.is_empty()).then(|| {
        let has = takeover::its_channels(&existing);
        format!("smoosh.takeover: no node's smoosh has a channel {}; {has}", missing.join(" or "))
    })
}
