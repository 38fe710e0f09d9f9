//! `recliner tidy`: compacts once everything worth compacting, and exits.
//!
//! Adapts the settings to one pass over the cluster, and lets the service's own planner and
//! enforcer carry the pass out.

pub(super) mod answer;

use super::{
    CommandError, Exit,
    args::{Format, TidyArgs},
    output::{print, print_json, print_note},
    read_once::{self, await_first_sweep, progress_bar},
    table,
};
use crate::{
    model::{
        channel::{Channel, Mode},
        records::InMemoryStore,
        settings::{
            ServedNodes, Settings,
            limits::{Free, VolumeSettings},
            work::EnforceViews,
        },
        target::TargetKind,
    },
    plan::{Plan, TidyOutlook, disk::SystemMeter},
    serve::report,
    service::{ClusterMonitor, Dependencies, TaskSet, TidyEnd, TidyScope},
    sources::couchdb::{SetupError, USER_AGENT},
    text::pattern::{self, NameFilter},
};
use answer::TidyAnswer;
use couchdb_client::Transport;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{
    signal::unix::{SignalKind, signal},
    time,
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Time limit for the first measurement of all volumes.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(10);

/// Poll interval on a single node, where polls are cheap; longer intervals would waste time after short compactions.
const POLL: Duration = Duration::from_secs(1);

pub(super) async fn run(args: TidyArgs) -> Result<Exit, CommandError> {
    let began = time::Instant::now();
    let file = args.source.config_file.as_deref();
    let mut settings = args.source.load()?;
    if settings.couchdb.urls.is_empty() {
        return Err(CommandError::usage("tidy needs a CouchDB: name it with --couchdb.url"));
    }
    if args.yes && settings.shared_limits.url.is_some() {
        return Err(CommandError::usage(
            "tidy --yes cannot honour limits that clusters share (shared_limits.url): start a run with recliner compact, or remove shared_limits from this file while the other clusters compact nothing",
        ));
    }
    settings.mode = Mode::Advise;
    settings.channels = settings.channels.map(|channel| only_databases(channel, &args.databases));
    let transport = Transport::http(&settings.couchdb, USER_AGENT)
        .map_err(|why| CommandError::usage(SetupError(why)))?;
    let meter = SystemMeter::new().map_err(CommandError::failed)?;
    let (store, registry) = (InMemoryStore::default(), prometheus::Registry::new());
    let (mut tasks, stop) = (TaskSet::new(), CancellationToken::new());
    let around = |_| Dependencies {
        state_store: Arc::new(store.clone()),
        meter: Some(Arc::new(meter)),
        acts: true,
        ..Dependencies::none()
    };
    let (clock, bar) = (Clock::System, progress_bar());
    let mut monitor =
        ClusterMonitor::start(&settings, transport, clock, &registry, &mut tasks, &stop, around)
            .map_err(CommandError::usage)?;
    let seen = await_first_sweep(&mut monitor, &bar).await;
    bar.finish_and_clear();
    let seen = seen?;
    read_once::print_read_errors(&seen.status);
    check_names(&args.databases, &seen.plan)?;

    let mut adapted = adapted(&settings, &args, &seen.plan);
    monitor.reconfigure(&settings, &adapted, &mut tasks).map_err(CommandError::usage)?;
    let mut plan = await_plan(&mut monitor, &adapted).await?;
    if file.is_none() {
        adapted.headroom.keep_free_percent = keep_free_percent(&plan);
        monitor.reconfigure(&settings, &adapted, &mut tasks).map_err(CommandError::usage)?;
        plan = await_plan(&mut monitor, &adapted).await?;
    }
    if args.until_free.is_some() && plan.least_free_bytes().is_none() {
        let why = "--until-free needs to know the free space: name CouchDB's data directory with --data-dir";
        return Err(CommandError::usage(why));
    }
    let outlook = plan.tidy_outlook(args.until_free);
    let mut answer = TidyAnswer::new(&plan, &outlook, &args.databases, args.until_free);
    let is_text = args.format == Format::Table;
    if is_text {
        print(&table::tidy::begin(&answer, args.yes, table::width()))?;
    }
    let is_unread = seen.exit() != Exit::Done;
    let until = args.max_duration.map(|most| began + most);
    let scope = TidyScope { until, ..scope(&plan, &outlook, &answer) };
    if !args.yes || scope.targets.is_empty() || answer.has_enough() {
        if !is_text {
            print_json(&answer)?;
        }
        let is_idle = outlook.starts.is_empty() || args.yes;
        let leaves = answer.leaves_something() || is_unread;
        return Ok(exit(leaves, is_idle && args.fail_if_idle));
    }
    let enforcing = Settings { mode: Mode::Enforce, ..adapted.clone() };
    monitor.reconfigure(&adapted, &enforcing, &mut tasks).map_err(CommandError::usage)?;
    await_plan(&mut monitor, &enforcing).await?;
    monitor.start_enforcer(&mut tasks);
    let interrupted = interrupted()?;
    let observe = |plan: &Plan, event: crate::service::TidyEvent<'_>| {
        print_note(&table::tidy::event(plan, &event));
    };
    let report = monitor.run_to_end(|| store.kept(), &scope, interrupted, observe).await;
    let report = report.map_err(CommandError::failed)?;
    answer.ended(&report, &scope, began.elapsed());
    match args.format {
        Format::Table => print(&table::tidy::end(&answer, table::width()))?,
        Format::Json => print_json(&answer)?,
    }
    let is_idle = report.end == TidyEnd::Finished && outlook.starts.is_empty();
    Ok(exit(answer.leaves_something() || is_unread, is_idle && args.fail_if_idle))
}

const fn exit(leaves: bool, fails_idle: bool) -> Exit {
    match (leaves, fails_idle) {
        (true, _) => Exit::Incomplete,
        (false, true) => Exit::Found,
        (false, false) => Exit::Done,
    }
}

/// The channel limited to these databases; unchanged if none are named.
fn only_databases(channel: &Channel, names: &[String]) -> Channel {
    if names.is_empty() {
        return channel.clone();
    }
    let accepted = names.iter().filter(|name| channel.databases.accepts(name));
    let included: Vec<String> = accepted.map(|name| pattern::escaped(name)).collect();
    // An empty list includes everything.
    let excluded: &[&str] = if included.is_empty() { &["*"] } else { &[] };
    let excluded: Vec<String> = excluded.iter().map(|all| (*all).to_owned()).collect();
    let databases = NameFilter::new(&included, &excluded).unwrap_or_default();
    Channel { databases, ..channel.clone() }
}

fn check_names(names: &[String], plan: &Plan) -> Result<(), CommandError> {
    let known: BTreeSet<&str> = plan.snapshot.databases().map(|(_, name)| name.db).collect();
    match names.iter().find(|name| !known.contains(name.as_str())) {
        Some(name) => Err(CommandError::usage(report::no_database(plan, name))),
        None => Ok(()),
    }
}

/// The settings for one pass. What a configuration file sets stays; without a file, a single node is compacted without
/// pauses, and its views even if they have several shards, because all of them are on that node anyway.
fn adapted(settings: &Settings, args: &TidyArgs, plan: &Plan) -> Settings {
    let mut settings = settings.clone();
    let nodes: Vec<String> =
        plan.snapshot.members().map(|(_, node)| node.name.to_string()).collect();
    if let Some(available) = args.assume_free {
        let volume = |node: &String| VolumeSettings {
            nodes: vec![node.clone()],
            free: Free::Available(available),
            size: None,
        };
        settings.headroom.volumes = nodes.iter().map(volume).collect();
    }
    if let [node] = &*nodes {
        // The directory belongs to this node, even if its files do not name it.
        settings.nodes = ServedNodes::Named(BTreeSet::from([node.clone()]));
        if args.source.config_file.is_none() {
            let views = plan.snapshot.targets().filter(|it| it.kind() == TargetKind::View);
            let copies = views.map(|view| view.file_count() as usize).max().unwrap_or(1);
            settings.poll = POLL;
            settings.views.enforce = EnforceViews::All;
            settings.limits.duty_percent = 100.0;
            settings.limits.per_node = settings.limits.per_node.max(copies);
            settings.limits.cluster = settings.limits.cluster.max(copies);
        }
    }
    settings
}

/// Waits until the plan follows these settings and every volume was measured or cannot be.
async fn await_plan(
    monitor: &mut ClusterMonitor,
    settings: &Settings,
) -> Result<Arc<Plan>, CommandError> {
    let measures = settings.files.data_dir.is_some() || !settings.headroom.volumes.is_empty();
    let follows = |plan: &Plan| {
        let rules = &plan.rules;
        rules.mode == settings.mode
            && rules.limits == settings.limits
            && rules.headroom == settings.headroom
            && rules.views == settings.views.enforce
    };
    let is_ready =
        |plan: &Arc<Plan>| follows(plan) && (!measures || plan.conditions.disks.are_measured());
    let plans = &mut monitor.planner.plan;
    // On timeout, free space counts as unknown.
    let _in_time = time::timeout(MEASURE_TIMEOUT, plans.wait_for(is_ready)).await.is_ok();
    let plan = plans.wait_for(|plan| follows(plan)).await;
    plan.map(|plan| Arc::clone(&plan)).map_err(|_| CommandError::failed("the planner ended"))
}

/// The share of each volume that must stay free: the configured one, but on a nearly full volume
/// half of the current free space, because a larger share would allow no compaction at all there.
fn keep_free_percent(plan: &Plan) -> f64 {
    let volumes = plan.conditions.disks.volumes.iter();
    let spaces = volumes.filter_map(|volume| volume.space).filter_map(|it| Some((it, it.size?)));
    let halves = spaces.map(|(space, size)| space.available as f64 / size.max(1) as f64 * 50.0);
    halves.fold(plan.rules.headroom.keep_free_percent, f64::min)
}

/// What the pass works on: every waiting target, and a cleanup of each database with indexes.
fn scope(plan: &Plan, outlook: &TidyOutlook, answer: &TidyAnswer) -> TidyScope {
    let starts = outlook.starts.iter().map(|it| it.ix);
    let queued = plan.queued_targets().map(|(_, ix, ..)| ix).chain(starts);
    let cleanups = answer.unproven_cleanups.clone();
    let targets = queued.filter_map(|ix| Some(plan.snapshot.target(ix)?.id()));
    TidyScope {
        targets: targets.chain(cleanups.iter().cloned()).collect(),
        cleanups,
        until_free: answer.until_free,
        until: None,
    }
}

/// Completes at the first SIGINT or SIGTERM.
pub(super) fn interrupted() -> Result<impl Future<Output = ()>, CommandError> {
    let mut term = signal(SignalKind::terminate()).map_err(CommandError::failed)?;
    let mut int = signal(SignalKind::interrupt()).map_err(CommandError::failed)?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}
