//! `recliner import`: prints a recliner.yml equivalent to CouchDB's own settings, or one with
//! channels by rent.

mod rent;

use super::{
    CommandError, Exit,
    args::{Daemon, Format, ImportArgs, ImportAs},
    next_step::{AFTER_IMPORT, print_next_step},
    print, print_note, printable, read_once,
};
use crate::{
    config,
    import::{self, Imported},
    model::{channel::Channel, target::TargetKind, window},
    sources::couchdb::describe,
    text::quote::comment,
};
use compaction_settings::NodeConfig;
use futures::future::try_join_all;
use std::path::Path;

/// Note on what CouchDB's own compaction does by default and recliner does only if configured.
const VIEWS_OF_SEVERAL_RANGES: &str = "views of databases with several ranges are left out, because over HTTP all their copies are compacted at once; remove the # from the next line to include them, as CouchDB does";

/// Maximum size of an ini file.
const MAX_INI_BYTES: u64 = 4 << 20;

pub(super) async fn run(args: ImportArgs) -> Result<Exit, CommandError> {
    match args.rule {
        Some(ImportAs::Rent) => rent::run(&args).await,
        None => equal(args).await,
    }
}

/// Prints the configuration with the same effect.
async fn equal(args: ImportArgs) -> Result<Exit, CommandError> {
    if args.service.url.is_some() {
        return Err(CommandError::usage(
            "--recliner.url needs --as rent; without --as, name a CouchDB with --couchdb.url",
        ));
    }
    let nodes =
        if args.ini.is_empty() { node_configs(&args).await? } else { vec![from_files(&args)?] };
    let imported = match args.daemon {
        Daemon::Smoosh => import::import_smoosh(&nodes),
        Daemon::CompactionDaemon => {
            let zone = window::parse_zone(&args.zone).map_err(CommandError::usage)?;
            import::import_daemon(&nodes, &zone)
        }
    }
    .map_err(CommandError::failed)?;
    let has_rules = !imported.channels.list.is_empty() || args.daemon == Daemon::Smoosh;
    if has_rules {
        print(&checked_yaml(&imported)?)?;
    }
    imported.findings.iter().for_each(|finding| print_note(&printable(&finding.to_string())));
    if !has_rules {
        return Err(CommandError::failed(
            "found no rules of a compaction daemon: they are in the section [compactions] of CouchDB 2's ini files; name those files with --ini",
        ));
    }
    print_next_step(Format::Table, AFTER_IMPORT);
    Ok(if imported.is_equal() { Exit::Done } else { Exit::Failed })
}

/// The configuration as YAML, after `check-config` has accepted it.
fn checked_yaml(imported: &Imported) -> Result<String, CommandError> {
    let text = yaml(imported);
    let file = config::File { name: Path::new("recliner.yml"), bytes: text.as_bytes() };
    config::load_policy(file).map_err(|why| {
        CommandError::failed(format!("these settings cannot be written as a recliner.yml:\n{why}"))
    })?;
    Ok(text)
}

fn yaml(imported: &Imported) -> String {
    let mut text = String::new();
    for line in imported.summary() {
        text.push_str(&comment(&line));
    }
    text.push_str(&config::write::channels_yaml(&imported.channels));
    if imported.channels.list.iter().any(|channel| channel.kind == TargetKind::View) {
        text.push_str(&comment(VIEWS_OF_SEVERAL_RANGES));
        text.push_str("# views: {enforce: all}\n");
    }
    text.push_str(&format!(
        "limits: {{per_node: {}}}\n",
        imported.per_node.clamp(1, Channel::MAX_CONCURRENCY)
    ));
    text
}

fn from_files(args: &ImportArgs) -> Result<NodeConfig, CommandError> {
    let mut files = Vec::new();
    for path in &args.ini {
        let bytes = named_file::read_at_most(path, MAX_INI_BYTES)
            .map_err(|why| CommandError::usage(format!("cannot read {}: {why}", path.display())))?;
        files.push((path.display().to_string(), bytes));
    }
    let version = args.version.as_deref().unwrap_or(match args.daemon {
        Daemon::Smoosh => "3.5.0",
        Daemon::CompactionDaemon => "2.3.1",
    });
    let files = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    Ok(NodeConfig::from_ini(args.source.node.as_deref().unwrap_or("the files"), version, files))
}

/// Asks all nodes at once for their settings, so that those that do not answer are waited for together.
async fn node_configs(args: &ImportArgs) -> Result<Vec<NodeConfig>, CommandError> {
    let read_once::Connected { client, .. } = &read_once::connect(&args.source)?;
    let members = client.membership().await.map_err(unanswered)?;
    let asked = members.cluster_nodes.unwrap_or_default().into_iter().map(async |node| {
        let welcome = async {
            match args.daemon {
                Daemon::Smoosh => client.node_welcome(&node).await,
                // CouchDB 2 reports its version only at `/`, not for a single node.
                Daemon::CompactionDaemon => client.welcome().await,
            }
        };
        let (welcome, sections) = tokio::try_join!(welcome, client.config(&node))?;
        let version = welcome.version.unwrap_or_default();
        let problems = Vec::new();
        Ok::<_, couchdb_client::Error>(NodeConfig { node, version, sections, problems })
    });
    try_join_all(asked).await.map_err(unanswered)
}

fn unanswered(error: couchdb_client::Error) -> CommandError {
    CommandError::failed(describe(&error))
}

#[cfg(test)]
mod tests;
