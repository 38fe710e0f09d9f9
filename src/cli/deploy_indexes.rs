//! `recliner deploy-indexes`: carries a rehearsed deployment out.
//!
//! A command drives the deployment, not a task of the service: the command changes only design documents,
//! with the login of the person who deploys, and asks the service for compactions. So the service needs no
//! rights to change documents and starts nothing unasked. The command may be killed at any moment.

mod cluster;
mod next;
mod plan;

use super::{
    CommandError, Exit,
    args::{DeployIndexesArgs, Format, SourceArgs},
    next_step::program_name,
    output::{print_json_lines, print_note, print_part, printable},
    read_once,
    service_client::ServiceArgs,
};
use crate::{
    advice::preflight::DesignDocument,
    model::target::TargetId,
    plan::RefusalReason,
    serve::report::Conflict,
    text::{Label as _, listed, quote::shell_word},
};
use cluster::{Cluster, NotWritten};
use next::{Action, Next, Wanted};
pub(super) use plan::DeploymentPlan;
use plan::Memory;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::time::{self, Instant};
use wall_clock::Clock;

/// Interval between two reads of the cluster.
const POLL: Duration = Duration::from_secs(2);

/// Minimum interval between two prints of a reason to wait.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// An accepted request must be visible within this time, unless somebody changed the document since.
const VISIBLE: Duration = Duration::from_secs(60);

/// Maximum number of times that a failed request is sent.
const MAX_ATTEMPTS: u32 = 5;

pub(super) async fn run(args: DeployIndexesArgs) -> Result<Exit, CommandError> {
    if !args.source.names_couchdb() {
        let why = "deploy-indexes saves documents: name the CouchDB with --couchdb.url";
        return Err(CommandError::usage(why));
    }
    let lock = fs::File::open(&args.plan).map_err(CommandError::usage)?;
    lock.try_lock().map_err(|_| {
        CommandError::failed("another deploy-indexes is carrying out this plan; wait until it ends")
    })?;
    let path = plan::memory_path(&args.plan);
    let remembered = Memory::read(&path).map_err(CommandError::usage)?;
    let plan = plan_of(&args, &path, remembered.as_ref()).map_err(CommandError::usage)?;
    let connected = read_once::connect(&args.source)?;
    let cluster = Cluster {
        client: connected.client.clone(),
        service: args.service.client()?,
        plan,
        requested: None,
        ordered: None,
    };
    let is_new = remembered.is_none();
    let memory = remembered.unwrap_or_else(|| Memory::of(&cluster.plan));
    let mut deployment = Deployment {
        args: &args,
        cluster,
        memory,
        path,
        is_new,
        is_service_checked: false,
        waits: None,
        attempts: (String::new(), 0),
        written: None,
    };
    let ended = tokio::select! {
        ended = deployment.drive() => ended,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(CommandError::failed)?;
            Err(CommandError { exit: Exit::Incomplete, ..CommandError::failed("interrupted; CouchDB continues a running build or compaction") })
        }
    };
    if ended.is_err() && !deployment.is_new {
        deployment.print_ways();
    }
    drop(lock);
    ended
}

/// The plan to carry out. A way back uses the plan in the state file, because the plan's file may have changed since.
fn plan_of(
    args: &DeployIndexesArgs,
    path: &Path,
    remembered: Option<&Memory>,
) -> Result<DeploymentPlan, String> {
    let state = path.display();
    if args.back_out {
        let none =
            || format!("{state} does not exist: nothing was carried out, or it was undone already");
        let plan = remembered.ok_or_else(none)?.plan();
        return plan.map_err(|why| format!("{state} cannot be used: {why}"));
    }
    let plan = DeploymentPlan::read(&args.plan)?;
    if remembered.is_some_and(|memory| !memory.is_of(&plan)) {
        return Err(format!(
            "{} was changed after part of it was carried out. {state} has the earlier plan: undo it with --back-out, or move {state} away if it is finished",
            args.plan.display()
        ));
    }
    Ok(plan)
}

struct Deployment<'a> {
    args: &'a DeployIndexesArgs,
    cluster: Cluster,
    memory: Memory,
    path: PathBuf,
    /// Whether nothing has been changed so far.
    is_new: bool,
    /// Whether the service is known to follow the same cluster.
    is_service_checked: bool,
    /// The reason to wait that was printed last, and when.
    waits: Option<(String, Instant)>,
    /// The last request, and how often it was sent in a row.
    attempts: (String, u32),
    /// The last change that CouchDB accepted, and when.
    written: Option<(Action, Instant)>,
}

impl Deployment<'_> {
    async fn drive(&mut self) -> Result<Exit, CommandError> {
        if let Some(intent) = &self.memory.intent {
            let says = format!(
                "Continuing: the last request was {intent}; checking the cluster for whether it arrived."
            );
            self.say("resumed", &says)?;
            // Gives what an earlier command sent time to become visible on every copy.
            time::sleep(POLL).await;
        }
        for says in self.cluster.plan.warnings() {
            self.say("warning", &says)?;
        }
        loop {
            let next = match self.look().await {
                Ok(next) => next,
                Err(why) => Next::Wait(why),
            };
            match next {
                Next::Wait(why) => {
                    self.say_wait(&why)?;
                    time::sleep(POLL).await;
                }
                Next::Stop(why) => return Err(CommandError::failed(why)),
                Next::Ready => {
                    self.memory.intent = None;
                    self.remember()?;
                    self.print_swap()?;
                    return Ok(Exit::Done);
                }
                Next::Done => {
                    self.finish()?;
                    return Ok(Exit::Done);
                }
                Next::Act(action) => self.act(action).await?,
            }
        }
    }

    /// Reads the facts for the next step, and decides on it.
    async fn look(&mut self) -> Result<Next, String> {
        let mut facts = match self.cluster.read().await {
            Ok(facts) => facts,
            Err(next) => return Ok(next),
        };
        if let Some((written, at)) = &self.written
            && at.elapsed() < VISIBLE
            && !next::is_visible(written, &facts)
        {
            return Ok(Next::Wait(format!(
                "{} was accepted but cannot be read yet",
                self.says(written)
            )));
        }
        if let Some(stop) = next::check_database(&self.cluster.plan, &facts) {
            return Ok(stop);
        }
        if !self.is_service_checked && !self.args.back_out {
            if let Err(why) = self.cluster.check_service().await {
                return wait_or_stop(why);
            }
            self.is_service_checked = true;
        }
        next::remember_before(&self.cluster.plan, &mut self.memory, &facts);
        let (plan, memory, args) = (&self.cluster.plan, &self.memory, self.args);
        let wanted =
            Wanted { swap: args.swap, back_out: args.back_out, may_not_fit: args.may_not_fit };
        if let Some(step) = next::present_step(plan, memory, &facts).filter(|_| !args.back_out) {
            if facts.live.contains_key(&step.staging()) {
                facts.index = self.cluster.index(&step.staging(), memory).await;
            } else {
                match self.cluster.read_room(&mut facts, step).await {
                    Ok(None) => {}
                    Ok(Some(why)) => return Err(why),
                    Err(why) => return wait_or_stop(why),
                }
            }
        }
        let next = next::next(plan, memory, &facts, wanted);
        let Next::Act(action) = &next else { return Ok(next) };
        if let Action::Delete { id, .. } = action
            && !args.back_out
            && let Some(heir) = next::heir(plan, id)
            && !self.cluster.share_index(id, heir).await?
        {
            return Ok(Next::Stop(format!(
                "{id} stays: CouchDB uses another index for {heir}, so deleting {id} would delete the index just built. Compare the two documents."
            )));
        }
        if !next::may_build(action, &facts, wanted) {
            return Ok(next);
        }
        match self.cluster.held().await {
            // Ask whether the service takes orders before anything is changed.
            Ok(None) if self.is_new => match self.cluster.rescan().await {
                Ok(()) => Ok(next),
                Err(why) => wait_or_stop(why),
            },
            Ok(None) => Ok(next),
            Ok(Some(why)) => Ok(Next::Wait(format!("before it can {}: {why}", self.says(action)))),
            Err(why) => wait_or_stop(why),
        }
    }

    async fn act(&mut self, action: Action) -> Result<(), CommandError> {
        let says = self.says(&action);
        let sent = match &action {
            Action::Put { id, body } => {
                self.memory.begin(id);
                self.intend(&says)?;
                self.cluster.put(id, body).await
            }
            Action::Delete { id, rev } => {
                self.intend(&says)?;
                self.cluster.delete(id, rev).await
            }
            Action::Build { id } => {
                let view = self.view_of(id);
                let built = self.cluster.build(id, &view).await;
                time::sleep(POLL).await;
                return match built {
                    Ok(()) => self.say_wait(&format!("{id}: waiting for its indexers")),
                    Err(why) => self.say_wait(&format!("{id}: requesting the build again: {why}")),
                };
            }
            Action::Compact { id } => return self.compact(id, &says).await,
            Action::Compacted { id } => {
                self.memory.compacted.insert(id.clone(), None);
                self.remember()?;
                let says = match self.memory.ordered.contains_key(id) {
                    true => format!("{id} is built and compacted."),
                    false => format!("{id} is built, with too little waste to compact."),
                };
                return self.say("built", &says);
            }
        };
        match sent {
            Ok(()) => {
                self.written = Some((action, Instant::now()));
                self.say("changed", &format!("{says}: done."))
            }
            Err(failed) => self.refused(&says, failed).await,
        }
    }

    async fn compact(&mut self, id: &str, says: &str) -> Result<(), CommandError> {
        let now = Clock::System.now().rfc3339();
        self.memory.ordered.insert(id.to_owned(), now);
        self.intend(says)?;
        match self.cluster.compact(id).await {
            Ok(()) => self
                .say("ordered", &format!("{says}: the service starts it when its limits permit.")),
            // Waiting does not help against a setting.
            Err(CommandError { why, conflict: Some(conflict), .. }) if is_setting(&conflict) => {
                let says = format!("{id} is built but stays uncompacted: {why}");
                self.memory.compacted.insert(id.to_owned(), Some(why));
                self.remember()?;
                self.say("built", &says)
            }
            Err(why) => {
                self.cluster.rescan().await.ok();
                self.say_wait(&format!(
                    "{id} is built; the service does not compact it yet: {}",
                    why.why
                ))?;
                time::sleep(POLL).await;
                Ok(())
            }
        }
    }

    /// The name of one view of the index.
    fn view_of(&self, staging: &str) -> String {
        let plan = &self.cluster.plan;
        let document = next::heir(plan, staging).and_then(|design| plan.document(design));
        let parsed = document.and_then(|it| DesignDocument::parse(it.body.get(), None).ok());
        parsed.and_then(|it| it.views.into_keys().next()).unwrap_or_default()
    }

    async fn refused(&mut self, says: &str, failed: NotWritten) -> Result<(), CommandError> {
        let NotWritten { why, is_final } = failed;
        if is_final {
            return Err(CommandError::failed(format!("{says} failed: {why}")));
        }
        let count = if self.attempts.0 == says { self.attempts.1 + 1 } else { 1 };
        self.attempts = (says.to_owned(), count);
        if count >= MAX_ATTEMPTS {
            return Err(CommandError::failed(format!("{says} failed {count} times: {why}")));
        }
        self.say_wait(&format!("{says} failed and will be tried again: {why}"))?;
        time::sleep(POLL).await;
        Ok(())
    }

    fn says(&self, action: &Action) -> String {
        let db = &self.cluster.plan.db;
        match action {
            Action::Put { id, .. } => format!("save {db}/{id}"),
            Action::Delete { id, .. } => format!("delete {db}/{id}"),
            Action::Build { id } => format!("build {db}/{id}"),
            Action::Compact { id } => format!("compact {db}/{id}"),
            Action::Compacted { .. } => String::new(),
        }
    }

    /// Stores the request before it is sent.
    fn intend(&mut self, says: &str) -> Result<(), CommandError> {
        self.memory.intent = Some(says.to_owned());
        self.is_new = false;
        self.remember()
    }

    fn remember(&self) -> Result<(), CommandError> {
        self.memory.write(&self.path).map_err(CommandError::failed)
    }

    fn say(&mut self, event: &str, says: &str) -> Result<(), CommandError> {
        self.waits = None;
        self.line(event, says)
    }

    /// Prints why the command waits, at most once a minute, even if the reason changes.
    fn say_wait(&mut self, why: &str) -> Result<(), CommandError> {
        if self.waits.as_ref().is_some_and(|(_, at)| at.elapsed() < SAY_AGAIN) {
            return Ok(());
        }
        self.waits = Some((why.to_owned(), Instant::now()));
        self.line("waiting", &format!("Waits: {why}."))
    }

    fn line(&self, event: &str, says: &str) -> Result<(), CommandError> {
        let at = Clock::System.now().rfc3339();
        match self.args.format {
            Format::Json => {
                let line = serde_json::json!({ "at": at, "event": event, "says": says });
                print_json_lines([line]).map(drop)
            }
            Format::Table => print_part(&format!("{at}  {}\n", printable(says))).map(drop),
        }
    }

    /// This command with another flag, to paste.
    fn command(&self, flag: &str) -> String {
        let DeployIndexesArgs { plan, source, service, may_not_fit, .. } = self.args;
        let may_not_fit = if *may_not_fit { " --may-not-fit" } else { "" };
        format!("{}{may_not_fit} {flag}", command(plan, source, service)).trim_end().to_owned()
    }

    fn print_ways(&self) {
        print_note(&format!(
            "To continue: {}",
            self.command(if self.args.swap { "--swap" } else { "" })
        ));
        print_note(&format!("To go back: {}", self.command("--back-out")));
    }

    /// Prints the requests with which a person swaps the documents once all indexes are ready.
    fn print_swap(&mut self) -> Result<(), CommandError> {
        let left = self.memory.compacted.iter().filter(|(_, why)| why.is_some());
        let left: Vec<String> = left.map(|(id, _)| id.clone()).collect();
        let says = match &*left {
            [] => {
                "All indexes are built, and compacted where that frees space. Nothing is live yet."
                    .to_owned()
            }
            left => format!(
                "All indexes are built, and all except {} are compacted. Nothing is live yet.",
                listed(left)
            ),
        };
        self.say("ready", &says)?;
        let swap = self.command("--swap");
        let back = self.command("--back-out");
        if self.args.format == Format::Json {
            return Ok(());
        }
        print_part(&format!(
            "\nTo make the documents live:\n  {swap}\nIt saves each under its own name, replacing the revision of the rehearsal, and only then deletes those named -next:\nif those were deleted first, CouchDB 3.5.2 would delete the new indexes.\nTo go back:\n  {back}\n",
        ))
        .map(drop)
    }

    fn finish(&mut self) -> Result<(), CommandError> {
        if self.args.back_out {
            // The way back is complete.
            fs::remove_file(&self.path).map_err(CommandError::failed)?;
            return self.say("back", "The documents are as they were before.");
        }
        self.say("done", "All documents are deployed.")?;
        if self.args.format == Format::Json {
            return Ok(());
        }
        let mut words = vec![program_name(), "compact".to_owned()];
        let cleanup = TargetId::Cleanup { db: self.cluster.plan.db.clone() }.to_string();
        words.push(shell_word(&cleanup).into_owned());
        self.args.service.for_each_named(&mut |name, value| {
            words.extend([name.to_owned(), shell_word(value).into_owned()]);
        });
        print_part(&format!(
            "\nTo go back:\n  {}\nCouchDB 3.5.2 deletes the files of the old indexes within a minute; after that, going back rebuilds them.\nWith an older CouchDB, once you no longer need the old documents:\n  {}\n",
            self.command("--back-out"),
            words.join(" ")
        ))
        .map(drop)
    }
}

/// The command that carries a plan out, to paste.
pub(super) fn command(plan: &Path, source: &SourceArgs, service: &ServiceArgs) -> String {
    let mut words = vec![program_name(), "deploy-indexes".to_owned()];
    let mut add = |name: &str, value: &str| {
        words.extend([name.to_owned(), shell_word(value).into_owned()]);
    };
    add("--plan", &plan.display().to_string());
    source.for_each_named(&mut add);
    service.for_each_named(&mut add);
    words.join(" ")
}

/// Whether the service's settings forbid a compaction.
fn is_setting(conflict: &Conflict) -> bool {
    match conflict {
        Conflict::Refused { refusal, .. } => refusal.reason == RefusalReason::Excluded.label(),
        // The service may not have measured the new index yet.
        Conflict::NotTaken { .. }
        | Conflict::Run { .. }
        | Conflict::Ambiguous { .. }
        | Conflict::Plain {} => false,
    }
}

/// Whether to retry or to stop after an unusable answer of the service.
fn wait_or_stop(why: CommandError) -> Result<Next, String> {
    if why.is_transient { Err(why.why) } else { Ok(Next::Stop(why.why)) }
}
