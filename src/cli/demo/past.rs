//! The week before the demo begins, simulated ahead within seconds.
//!
//! A service like the demo's own runs through that week, on a clock that jumps from one simulated event to the next;
//! the demo continues with its journal and cluster. Nothing is made up: every outcome comes from the simulator.

use super::super::{CommandError, serve};
use crate::{
    model::{channel::Mode, settings::Settings},
    scan::ScanCommand,
    serve::{http::ProcessInfo, report::SimulatedWeek},
    service::{HostAccess, Service},
    simulated::{SimulatedDirectories, SimulatedDisks},
    store::journal::InMemory,
};
use couchdb_client::Transport;
use couchdb_sim::{Cluster, Config, Tally, World};
use std::{net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::{runtime, time};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// How long the cluster has existed when the demo begins.
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// The week ends this much before the demo begins, so that no entry is later than the demo's first reading.
const MARGIN: Duration = Duration::from_secs(20);

/// The longest time between two reads of the cluster.
const STEP: Duration = Duration::from_secs(2 * 3_600);

/// The same in advise mode, in which the scorecard decides again at each read.
const STEP_ADVISING: Duration = Duration::from_secs(1_800);

/// Time allowed for one read: a poll, the readings that follow from it, a plan, and its starts.
const LOOK: Duration = Duration::from_millis(2_500);

/// Time allowed for the last sweep and for storing its results.
const LAST_SWEEP: Duration = Duration::from_secs(8);

/// A week under recliner, and the same week under smoosh.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) cluster: Cluster,
    pub(super) weeks: Vec<SimulatedWeek>,
}

impl Past {
    /// Simulates the week before `now`, or until `stop`, and writes its journal to `storage`.
    pub(super) fn live(
        world: &Config,
        seed: u64,
        settings: Settings,
        storage: InMemory,
        now: Moment,
        stop: &CancellationToken,
    ) -> Result<Self, CommandError> {
        let mut runtime = runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build();
        let runtime = runtime.map_err(CommandError::failed)?;
        let enforces = settings.mode == Mode::Enforce;
        let begin = Moment::from_unix(now.unix().saturating_sub(WEEK.as_secs()));
        let lived = live(world.clone(), seed, quickened(settings), storage, begin, stop);
        let cluster = runtime.block_on(lived)?;
        let mut weeks = Vec::new();
        // In advise mode, the scorecard makes this comparison.
        if enforces {
            let mut other = World::new(world.clone(), seed).map_err(CommandError::failed)?;
            other.advance(WEEK - MARGIN);
            weeks.push(week("recliner", cluster.world(|world| world.tally())));
            weeks.push(week("smoosh", other.tally()));
        }
        Ok(Self { cluster, weeks })
    }
}

fn week(by: &str, tally: Tally) -> SimulatedWeek {
    SimulatedWeek {
        by: by.to_owned(),
        compactions: tally.compactions,
        futile: tally.futile,
        rewritten_bytes: tally.rewritten_bytes,
        freed_bytes: tally.freed_bytes,
        reclaimable_bytes: tally.waste_bytes,
        peak_disk_bytes: tally.peak_disk_bytes,
    }
}

/// The demo's settings, but with readings so rare that a week can be simulated quickly. No other
/// process reaches the service.
fn quickened(mut settings: Settings) -> Settings {
    settings.web.listen_address = (Ipv4Addr::LOCALHOST, 0).into();
    settings.scan.interval = Duration::from_secs(6 * 3_600);
    settings.scan.interval_followed = settings.scan.interval;
    settings.scan.fresh_for = Duration::from_secs(86_400);
    settings.poll = Duration::from_secs(2);
    settings.follow.enabled = false;
    settings.warmer.enabled = false;
    settings
}

async fn live(
    world: Config,
    seed: u64,
    settings: Settings,
    storage: InMemory,
    begin: Moment,
    stop: &CancellationToken,
) -> Result<Cluster, CommandError> {
    let clock = Clock::anchored(begin);
    let longest = if settings.mode == Mode::Advise { STEP_ADVISING } else { STEP };
    let cluster = Cluster::new(world, seed, clock).map_err(CommandError::failed)?;
    let transport = Transport::in_process(cluster.by_host());
    let about = ProcessInfo::of_this_build(true);
    let machine = machine(&cluster);
    let service = Service::start(settings, transport, about, clock, storage, machine)
        .await
        .map_err(serve::start_error)?;
    time::sleep(LOOK).await;
    let end = WEEK - MARGIN - LOOK - LAST_SWEEP;
    let jobs = service.monitor().job_state.jobs.clone();
    while cluster.elapsed() < end && !stop.is_cancelled() {
        let now = cluster.elapsed();
        let running = cluster.world(|world| world.tasks().len());
        // A short job may have ended unseen.
        let longest = if jobs.borrow().list.len() > running { LOOK } else { longest };
        let next = cluster.world(|world| next_job(world, end.min(now + longest)));
        time::advance(next.saturating_sub(now)).await;
        time::sleep(LOOK).await;
    }
    // The demo's own process continues the disk ledger from the last sweep.
    service.monitor().scanner.send(ScanCommand::Sweep);
    time::sleep(LAST_SWEEP).await;
    // The service ends as if it were killed: it must not restore smoosh, because the demo's own process continues.
    drop(service);
    Ok(cluster)
}

/// Lets the world continue until a job starts or ends, or until `horizon`; returns when that was.
fn next_job(world: &mut World, horizon: Duration) -> Duration {
    let before = world.tasks().len();
    while let Some(at) = world.next_event().filter(|at| *at < horizon) {
        world.advance(at);
        if world.tasks().len() != before {
            return at;
        }
    }
    horizon
}

pub(super) fn machine(cluster: &Cluster) -> HostAccess {
    HostAccess {
        meter: Arc::new(SimulatedDisks(cluster.clone())),
        directories: Some(Arc::new(SimulatedDirectories(cluster.clone()))),
    }
}
