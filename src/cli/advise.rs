//! `recliner advise`: what to do about the cluster, and orders to mute some of it.

use super::{
    CommandError, Exit,
    args::{AdviseArgs, Format},
    orders::until_carried_out,
    print, print_error, print_json, printable,
    read_once::{self, AnswerSource, ClusterReading},
    service_client::ServiceClient,
    table,
};
use crate::{
    advice::{AdviceInputs, AdviceView, AttributeBy, Severity, Waste, check},
    model::settings::Settings,
    serve::report::{
        Advice, Usage,
        orders::{MuteOrder, Muted, UnmuteOrder},
    },
};
use serde::Serialize;
use std::sync::Arc;
use wall_clock::Clock;

/// The advice, as JSON.
#[derive(Serialize)]
struct AdviceAnswer<'a> {
    #[serde(flatten)]
    advice: &'a Advice,
    /// Whether a running recliner answered, which remembers.
    memory: bool,
}

pub(super) async fn run(args: AdviseArgs) -> Result<Exit, CommandError> {
    if args.mute.is_some() || args.unmute.is_some() {
        return mute(&args).await;
    }
    if let Some(by) = &args.by {
        return usage(&args, by).await;
    }
    let (advice, unseen) = match args.source.answer_source(args.recliner.as_deref(), &args.login)? {
        AnswerSource::Service(client) => (ask_service(&client).await?, None),
        AnswerSource::Default(client) => {
            (ask_service(&client).await.map_err(read_once::missing_source_error)?, None)
        }
        AnswerSource::Cluster => {
            let (reading, settings, unseen) = read_cluster(&args, true).await?;
            for why in reading.node_settings.problems.values() {
                print_error(&printable(&format!("how a node is set could not be read: {why}")));
            }
            (advice_of(reading, &settings), Some(unseen))
        }
    };
    let memory = unseen.is_none();
    match args.format {
        Format::Json => print_json(&AdviceAnswer { advice: &advice, memory })?,
        Format::Table => {
            let mut text = table::advice(&advice, table::width());
            if !memory {
                text.push_str(
                    "\nRead directly, without a running recliner: growth, since when, and what was muted\nare unknown.\n",
                );
            }
            print(&text)?;
        }
    }
    Ok(match &args.fail_on {
        Some(severity) if has_severity(&advice, severity) => Exit::Found,
        _ => unseen.unwrap_or(Exit::Done),
    })
}

/// Databases or design documents that a table names.
const NAMED: usize = 20;

/// Whose bytes fill the disks.
async fn usage(args: &AdviseArgs, by: &str) -> Result<Exit, CommandError> {
    let query = [("by", by)];
    let ask = async |client: &ServiceClient| -> Result<Usage, CommandError> {
        client.get("/api/v1/usage", &query).await
    };
    let (usage, exit) = match args.source.answer_source(args.recliner.as_deref(), &args.login)? {
        AnswerSource::Service(client) => (ask(&client).await?, Exit::Done),
        AnswerSource::Default(client) => {
            let asked = ask(&client).await;
            (asked.map_err(read_once::missing_source_error)?, Exit::Done)
        }
        AnswerSource::Cluster => {
            let (reading, _, exit) = read_cluster(args, false).await?;
            let by = AttributeBy::ALL.into_iter().find(|it| it.label() == by);
            let by = by.unwrap_or(AttributeBy::Database);
            (Usage::of(&reading.plan.snapshot, by, NAMED), exit)
        }
    };
    match args.format {
        Format::Json => print_json(&usage)?,
        Format::Table => print(&table::usage(&usage, table::width()))?,
    }
    Ok(exit)
}

/// Whether there is advice of this severity or worse that nobody muted.
fn has_severity(advice: &Advice, least: &str) -> bool {
    let worse = Severity::ALL.map(Severity::label).into_iter().skip_while(|label| *label != least);
    worse.into_iter().any(|label| advice.open().any(|line| line.severity == label))
}

/// Asks a running recliner.
async fn ask_service(client: &ServiceClient) -> Result<Advice, CommandError> {
    client.get("/api/v1/advice", &[]).await
}

/// Reads the cluster; also returns the settings, and whether part of it could not be read.
async fn read_cluster(
    args: &AdviseArgs,
    and_node_settings: bool,
) -> Result<(ClusterReading, Settings, Exit), CommandError> {
    let loaded = read_once::load(&args.source.flags(), args.source.config_file.as_deref())?;
    read_once::start_log_if_asked(&args.source.log, &loaded.settings)?;
    let reading = match and_node_settings {
        true => read_once::read_cluster_and_settings(&loaded.settings).await?,
        false => read_once::read_cluster(&loaded.settings).await?,
    };
    read_once::print_read_errors(&reading.status);
    let unseen = !reading.status.errors.is_empty();
    let exit = if unseen { Exit::Incomplete } else { Exit::Done };
    Ok((reading, loaded.settings, exit))
}

/// The advice of what was read once.
fn advice_of(reading: ClusterReading, settings: &Settings) -> Advice {
    let now = Clock::System.now();
    let waste = Waste::of(&reading.plan.snapshot);
    let inputs = AdviceInputs {
        plan: reading.plan,
        status: reading.status,
        node_settings: reading.node_settings,
        volume_dates: None,
        lags: Arc::default(),
        settings: settings.advice,
    };
    let view = AdviceView::found(check(&inputs, now), now);
    Advice::of(&view, waste, now)
}

/// Mutes advice, or ends that.
async fn mute(args: &AdviseArgs) -> Result<Exit, CommandError> {
    let client = match args.source.answer_source(args.recliner.as_deref(), &args.login)? {
        AnswerSource::Service(client) | AnswerSource::Default(client) => client,
        AnswerSource::Cluster => {
            return Err(CommandError::usage(
                "only a running recliner mutes advice; name it with --recliner.url",
            ));
        }
    };
    let words = args.mute.as_ref().or(args.unmute.as_ref()).cloned().unwrap_or_default();
    let mut words = words.into_iter();
    let (code, subject) = (words.next().unwrap_or_default(), words.next());
    let about = subject.as_deref().map(|subject| format!(" about {}", printable(subject)));
    let name = format!("{}{}", printable(&code), about.unwrap_or_default());
    let done: Muted = if args.mute.is_some() {
        let (span, why) = (args.mute_for.clone(), args.why.clone());
        let body = MuteOrder { code, subject, span, why };
        until_carried_out(async || client.post("/api/v1/advice/mute", &body).await).await?
    } else {
        let body = UnmuteOrder { code, subject };
        until_carried_out(async || client.post("/api/v1/advice/unmute", &body).await).await?
    };
    match (args.format, &done.muted) {
        (Format::Json, _) => print_json(&done)?,
        (Format::Table, Some(mute)) => {
            print(&format!("Muted {name} until {}.\n", printable(&mute.until)))?;
        }
        (Format::Table, None) => print(&format!("{name} counts again.\n"))?,
    }
    Ok(Exit::Done)
}
