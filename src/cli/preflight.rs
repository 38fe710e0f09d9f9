//! `recliner preflight`: what a design document, or a deployment of several, will cost before it is
//! deployed.

mod deployment;

use super::{
    CommandError, Exit,
    address::{UNKNOWN_URL, address},
    args::{PreflightArgs, SourceArgs},
    deploy_indexes::{self, DeploymentPlan},
    output::print_note,
    printable,
    read_once::{self, ClusterReading, Connected},
    service_client::{ServiceArgs, ServiceClient},
    table,
};
use crate::{
    advice::preflight::{
        DesignDocument, LiveDesigns, PresentDesign, compile_problem, sample_error,
    },
    serve::report::{MeasuredBuilds, Preflight, PreflightQuestion, Rehearsal, RehearsalQuestion},
    sources::{
        doc_sample::{DocSample, SampleSize, read_docs},
        present_design::{read_design, read_designs},
    },
    text::capital,
};
use couchdb_client::Client;
use serde_json::value::RawValue;
use std::{path::Path, sync::Arc};
use wall_clock::{Clock, Moment};

/// Maximum size of the file: CouchDB accepts documents of up to 8 MB, and a service accepts
/// questions of up to 2 MiB.
const MAX_FILE: u64 = 8 << 20;

pub(super) async fn run(args: PreflightArgs) -> Result<Exit, CommandError> {
    if let Some(path) = &args.deploy {
        return rehearse(&args, path).await;
    }
    let (question, design) = question(&args)?;
    let ask = async |client: &ServiceClient| client.post("/api/v1/preflight", &question).await;
    let read = async |source: &SourceArgs, recliner: Option<&ServiceClient>| {
        ask_cluster((source, recliner), &question, args.sample_size()).await
    };
    let mut answered = args.from.answer_beside(ask, read).await?;
    note_missing_sample(answered.recliner.is_some() && answered.answer.builds());
    let url = answered.recliner.as_deref().or(args.from.recliner.as_deref()).unwrap_or(UNKNOWN_URL);
    address(&mut answered.answer.remedy, url);
    add_compile_problem(&mut answered.answer, &design);
    let is_broken = !answered.answer.problems.is_empty();
    let exit = answered.print_plain(args.from.format, table::preflight)?;
    Ok(if is_broken { Exit::Failed } else { exit })
}

async fn rehearse(args: &PreflightArgs, path: &Path) -> Result<Exit, CommandError> {
    let designs = deployment::documents_at(path).map_err(CommandError::usage)?;
    let db = args.against.clone().or_else(|| args.db.clone()).unwrap_or_default();
    let question = RehearsalQuestion { db, designs };
    let designs = question.parse().map_err(|why| {
        CommandError::usage(format!("{} {why}", printable(&path.display().to_string())))
    })?;
    let ask = async |client: &ServiceClient| client.post("/api/v1/rehearsal", &question).await;
    let read = async |source: &SourceArgs, recliner: Option<&ServiceClient>| {
        rehearse_on_cluster((source, recliner), &question, args.sample_size()).await
    };
    let mut answered = args.from.answer_beside(ask, read).await?;
    note_missing_sample(answered.recliner.is_some() && !answered.answer.steps.is_empty());
    for document in &mut answered.answer.documents {
        let design = designs.iter().find(|design| design.id == document.cost.design);
        design.into_iter().for_each(|design| add_compile_problem(&mut document.cost, design));
    }
    let is_broken = !answered.answer.problems().is_empty();
    if is_broken && args.write_plan.is_some() {
        print_note("No plan is written.");
    }
    if let Some(file) = args.write_plan.as_ref().filter(|_| !is_broken) {
        let plan = DeploymentPlan::of(&answered.answer, &question.designs)
            .map_err(CommandError::failed)?;
        plan.write(file).map_err(CommandError::failed)?;
        plan.warnings().iter().for_each(|says| print_note(says));
        let (login, url) = (args.from.login.clone(), args.from.recliner.clone());
        let next = deploy_indexes::command(file, &args.from.source, &ServiceArgs { url, login });
        let is_named = args.from.source.names_couchdb();
        let next = if is_named { next } else { next + " --couchdb.url URL" };
        print_note(&format!(
            "Wrote {}. Next, with a recliner in enforce mode: {next}",
            file.display()
        ));
    }
    let exit = answered.print_plain(args.from.format, table::rehearsal)?;
    Ok(if is_broken { Exit::Failed } else { exit })
}

/// Adds that CouchDB cannot compile the map functions of a document. A service does not compile them.
fn add_compile_problem(cost: &mut Preflight, design: &DesignDocument) {
    cost.problems.extend(compile_problem(design).map(|why| {
        format!("{}. CouchDB refuses such a document.", capital(why.trim_end_matches('.')))
    }));
}

/// Prints how to get narrower ranges, if a running recliner predicted them.
fn note_missing_sample(is_missing: bool) {
    if is_missing {
        print_note(
            "a running recliner reads no documents, so the ranges are wide; with --couchdb.url or --config.file as well, the map functions are run on a sample",
        );
    }
}

/// Reads the cluster, and the design documents of the database.
async fn rehearse_on_cluster(
    from: (&SourceArgs, Option<&ServiceClient>),
    question: &RehearsalQuestion,
    size: SampleSize,
) -> Result<(Rehearsal, Exit), CommandError> {
    let read = ClusterRead::of(from).await?;
    let ClusterRead { reading, now, .. } = &read;
    let resolved = question.resolve(&reading.plan, *now).map_err(CommandError::failed)?;
    let live = read.ask(async |client| read_designs(client, &question.db).await).await;
    let live = LiveDesigns::of(live);
    let with = |sample| resolved.answer(&reading.plan, &live, sample, *now);
    let answer = match with(None) {
        unsampled if unsampled.steps.is_empty() => unsampled,
        unsampled => {
            let built = resolved.built(&unsampled);
            let docs = unsampled.documents.iter().find_map(|document| document.cost.docs);
            with(read.sample(&question.db, docs, size, &built).await.as_ref())
        }
    };
    Ok((answer, reading.exit()))
}

impl PreflightArgs {
    const fn sample_size(&self) -> SampleSize {
        SampleSize { docs: self.sample, error: self.sample_error, per_second: self.sample_rate }
    }
}

/// A cluster that was read once, and the connection to its CouchDB.
struct ClusterRead {
    reading: ClusterReading,
    now: Moment,
    /// None if only files were read.
    couchdb: Option<Connected>,
}

impl ClusterRead {
    /// Reads the cluster, and asks a recliner how fast indexes were built, which a single read cannot show.
    async fn of(
        (source, recliner): (&SourceArgs, Option<&ServiceClient>),
    ) -> Result<Self, CommandError> {
        let settings = source.load()?;
        let mut reading = read_once::read_with_free_space(&settings).await?;
        if let Some(recliner) = recliner {
            let builds: MeasuredBuilds = recliner.get("/api/v1/builds", &[]).await?;
            let plan = Arc::make_mut(&mut reading.plan);
            let constraints = Arc::make_mut(&mut plan.conditions.constraints);
            constraints.build_speeds = builds.into_speeds().into();
        }
        read_once::print_read_errors(&reading.status);
        let couchdb = match settings.couchdb.urls.is_empty() {
            true => None,
            false => Some(read_once::connect_with(settings)?),
        };
        Ok(Self { reading, now: Clock::System.now(), couchdb })
    }

    async fn ask<T>(
        &self,
        read: impl AsyncFnOnce(&Client) -> Result<T, String>,
    ) -> Result<T, String> {
        match &self.couchdb {
            Some(connected) => read(&connected.client).await,
            None => Err("only files were read; name a CouchDB with --couchdb.url".to_owned()),
        }
    }

    /// Samples documents of the database for the indexes to build; prints a note if there are fewer than wanted.
    async fn sample(
        &self,
        db: &str,
        docs: Option<u64>,
        size: SampleSize,
        built: &[&DesignDocument],
    ) -> Option<DocSample> {
        let connected = self.couchdb.as_ref().filter(|_| size.docs > 0)?;
        // Places are drawn at random, so a larger sample would only read the same documents again.
        let docs = docs.and_then(|docs| usize::try_from(docs).ok());
        let size = SampleSize { docs: docs.map_or(size.docs, |docs| docs.min(size.docs)), ..size };
        let error = |sample: &DocSample| sample_error(built, sample);
        let read = read_docs(&connected.client, db, size, self.now.unix(), error).await;
        match &read {
            Ok(DocSample { problem: None, .. }) => {}
            Ok(DocSample { problem: Some(why), .. }) => {
                print_note(&format!("only part of the sample of documents was read: {why}"));
            }
            Err(why) => print_note(&format!("no document was read, so the ranges are wide: {why}")),
        }
        read.ok()
    }
}

/// The document in the file, checked before any request is sent.
fn question(args: &PreflightArgs) -> Result<(PreflightQuestion, DesignDocument), CommandError> {
    // clap requires both unless there is a deployment.
    let (db, file) = (args.db.clone().unwrap_or_default(), args.file.clone().unwrap_or_default());
    let name = printable(&file.display().to_string());
    let text =
        read(&file).map_err(|why| CommandError::usage(format!("{name} cannot be read: {why}")))?;
    let id = id_of_file(&file);
    let wrong = |why: &dyn std::fmt::Display| CommandError::usage(format!("{name} {why}"));
    let parsed = DesignDocument::parse(&text, id.as_deref()).map_err(|why| wrong(&why))?;
    let design =
        RawValue::from_string(text).map_err(|why| wrong(&format!("is not JSON: {why}")))?;
    Ok((PreflightQuestion { db, design, id }, parsed))
}

fn read(file: &Path) -> Result<String, String> {
    let bytes = named_file::read_at_most(file, MAX_FILE).map_err(|why| why.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// The id of a document that has none: `by_day.json` becomes `_design/by_day`.
fn id_of_file(file: &Path) -> Option<String> {
    let stem = file.file_stem()?.to_str().filter(|stem| !stem.is_empty())?;
    Some(format!("_design/{stem}"))
}

/// Reads the cluster, and the current version of the document.
async fn ask_cluster(
    from: (&SourceArgs, Option<&ServiceClient>),
    question: &PreflightQuestion,
    size: SampleSize,
) -> Result<(Preflight, Exit), CommandError> {
    let read = ClusterRead::of(from).await?;
    let ClusterRead { reading, now, .. } = &read;
    let resolved = question.resolve(&reading.plan, *now).map_err(CommandError::failed)?;
    let id = &resolved.design.id;
    let present = read.ask(async |client| read_design(client, &question.db, id).await).await;
    let present = PresentDesign::of(present);
    let with = |sample| resolved.answer(&reading.plan, &present, sample, *now);
    let answer = match with(None) {
        unsampled if !unsampled.builds() => unsampled,
        unsampled => {
            let built = [&resolved.design];
            with(read.sample(&question.db, unsampled.docs, size, &built).await.as_ref())
        }
    };
    Ok((answer, reading.exit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_id_defaults_to_file_name() {
        for (file, id) in [
            ("by_day.json", Some("_design/by_day")),
            ("/tmp/views/orders.by.day.json", Some("_design/orders.by.day")),
            ("..", None),
        ] {
            assert_eq!(id_of_file(Path::new(file)).as_deref(), id, "{file}");
        }
    }
}
