//! The task that measures volumes and publishes the results.
//!
//! Owns the state of each volume and the schedule of measurements. A volume with a pending
//! measurement is not measured again; after a failure the old value is kept, with its age.

use super::{
    Disks, LocalDirectories, SpaceSource, Volume, VolumeSpace, VolumeSpec, local_fs,
    prometheus::{self, BytesSample},
    space_trend::SpaceTrend,
    volume_specs,
};
use crate::{
    datadir,
    jobs::{Job, Jobs},
    model::settings::{self, limits, limits::Free},
    sources::fetch,
    table::Snapshot,
    tasks::publish_if_changed,
};
use couchdb_client::Address;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Interval between queries to Prometheus, similar to the usual scrape interval.
const QUERY_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum wait for an answer.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(10);
/// Upper limit of the poll interval, and so the longest that an expired value stays published.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The task's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSettings {
    /// The configured volumes.
    pub volumes: Vec<limits::VolumeSettings>,
    /// The local directories, and the node they belong to.
    pub local: Option<LocalDirectories>,
    /// Interval between measurements of a local file system.
    pub poll: Duration,
}

impl DiskSettings {
    /// Directories belong to the only node that this process serves. If it serves several, they
    /// belong to the node that `owner` finds named in the files.
    #[must_use]
    pub fn of(settings: &settings::Settings, owner: fn(&Path) -> Option<String>) -> Self {
        let settings::Files { data_dir, view_index_dir, xray_rate: _ } = &settings.files;
        let directories = || data_dir.iter().chain(view_index_dir).cloned().collect();
        let local = data_dir
            .as_deref()
            .and_then(|data| settings.nodes.only().map(str::to_owned).or_else(|| owner(data)));
        Self {
            volumes: settings.headroom.volumes.clone(),
            local: local.map(|node| LocalDirectories { node, directories: directories() }),
            poll: settings.poll.min(MAX_POLL_INTERVAL),
        }
    }
}

/// One measurement of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeMeasurement {
    /// Its space.
    pub space: VolumeSpace,
    /// The device number, which identifies the file system on this machine.
    pub device: Option<u64>,
}

/// Measures volumes.
pub trait SpaceMeter: Send + Sync + std::fmt::Debug {
    /// Measures one volume, and, if it is local, the `unfinished` files of compactions on it at the same
    /// moment. Errors are sentences.
    fn measure(
        &self,
        source: &SpaceSource,
        unfinished: Option<Vec<PathBuf>>,
        now: Moment,
    ) -> BoxFuture<'static, Result<VolumeMeasurement, String>>;
}

/// The real meter: the file system, and Prometheus over the network.
#[derive(Debug)]
pub struct SystemMeter {
    http: reqwest::Client,
}

impl SystemMeter {
    /// A meter that works with any settings.
    ///
    /// # Errors
    ///
    /// If the HTTP library cannot be set up.
    pub fn new() -> Result<Self, reqwest::Error> {
        Ok(Self { http: fetch::client(MEASURE_TIMEOUT)? })
    }
}

impl SpaceMeter for SystemMeter {
    fn measure(
        &self,
        source: &SpaceSource,
        unfinished: Option<Vec<PathBuf>>,
        now: Moment,
    ) -> BoxFuture<'static, Result<VolumeMeasurement, String>> {
        match source.clone() {
            SpaceSource::Local(directory) => async move {
                let (space, held) = local_fs::measure(directory, unfinished).await?;
                let datadir::FileSystemSpace { available, size, device } = space;
                let space = VolumeSpace { available, size: Some(size), held, measured_at: now };
                Ok(VolumeMeasurement { space, device: Some(device) })
            }
            .boxed(),
            SpaceSource::Configured(Free::Prometheus { url, query, size_query, max_age }) => {
                let http = self.http.clone();
                async move {
                    let free = query_in_time(&http, &url, &query, max_age, now);
                    let size = async {
                        let query = size_query.as_deref()?;
                        Some(query_in_time(&http, &url, query, max_age, now).await)
                    };
                    let (free, size) = tokio::join!(free, size);
                    let BytesSample { bytes: available, measured_at: at } = free?;
                    // Without the size, keep_free could not be enforced and too much could start.
                    let size = size.transpose()?.map(|sample| sample.bytes);
                    let space = VolumeSpace { available, size, held: None, measured_at: at };
                    Ok(VolumeMeasurement { space, device: None })
                }
                .boxed()
            }
            SpaceSource::Configured(Free::Available(available)) => {
                let space = VolumeSpace { available, size: None, held: None, measured_at: now };
                std::future::ready(Ok(VolumeMeasurement { space, device: None })).boxed()
            }
        }
    }
}

/// The only sample of a query; an error if the answer takes too long.
async fn query_in_time(
    http: &reqwest::Client,
    url: &Address,
    query: &str,
    max_age: Duration,
    now: Moment,
) -> Result<BytesSample, String> {
    let pending = prometheus::query_bytes(http, url, query, max_age, now);
    let late = |_| format!("the query {query:?} to {url} got no answer within {MEASURE_TIMEOUT:?}");
    time::timeout(MEASURE_TIMEOUT, pending).await.map_err(late)?
}

/// The state of one volume.
#[derive(Debug)]
struct VolumeState {
    spec: VolumeSpec,
    measured: Option<VolumeMeasurement>,
    problem: Option<String>,
    trend: SpaceTrend,
    /// The time of the next measurement.
    due_at: Instant,
    /// The start of the pending measurement.
    asked_at: Option<Instant>,
}

impl VolumeState {
    fn new(spec: VolumeSpec) -> Self {
        let due_at = Instant::now();
        Self {
            spec,
            measured: None,
            problem: None,
            trend: SpaceTrend::default(),
            due_at,
            asked_at: None,
        }
    }

    fn record_problem(&mut self, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(volume = %self.spec.name, problem, "cannot read free space");
        }
        self.problem = Some(problem);
    }
}

type MeasureResult = (VolumeSpec, Result<VolumeMeasurement, String>);

/// Owns the state of the volumes.
#[derive(Debug)]
pub struct DiskTask {
    clock: Clock,
    meter: Arc<dyn SpaceMeter>,
    settings: watch::Receiver<Arc<DiskSettings>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    jobs: watch::Receiver<Arc<Jobs>>,
    disks: watch::Sender<Arc<Disks>>,
    volumes: Vec<VolumeState>,
    /// Pending measurements.
    measurements: FuturesUnordered<BoxFuture<'static, MeasureResult>>,
    /// The next check for volumes that are due.
    next_check: Instant,
}

enum Event {
    Settings,
    Snapshot,
    Tick,
    Answered(Box<MeasureResult>),
}

impl DiskTask {
    /// Creates the task and a receiver of the volumes.
    #[must_use]
    pub fn new(
        clock: Clock,
        meter: Arc<dyn SpaceMeter>,
        settings: watch::Receiver<Arc<DiskSettings>>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        jobs: watch::Receiver<Arc<Jobs>>,
    ) -> (Self, watch::Receiver<Arc<Disks>>) {
        let (disks, reader) = watch::channel(Arc::default());
        let task = Self {
            clock,
            meter,
            settings,
            snapshots,
            jobs,
            disks,
            volumes: Vec::new(),
            measurements: FuturesUnordered::new(),
            next_check: Instant::now(),
        };
        (task, reader)
    }

    /// Measures until `stop`, or until the sender of settings is dropped.
    pub async fn run(mut self, stop: CancellationToken) {
        self.apply_settings();
        loop {
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.settings.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    Event::Settings
                }
                Ok(()) = self.snapshots.changed() => Event::Snapshot,
                Some(answer) = self.measurements.next() => Event::Answered(Box::new(answer)),
                () = time::sleep_until(self.next_check) => Event::Tick,
            };
            self.handle(event);
            self.publish();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Settings => {
                self.apply_settings();
                self.next_check = Instant::now();
            }
            Event::Snapshot => self.forget_foreign_directories(),
            Event::Answered(answer) => self.record_measurement(*answer),
            Event::Tick => {
                self.next_check = Instant::now() + self.settings.borrow().poll;
                self.measure_due_volumes();
            }
        }
    }

    /// Applies the settings; volumes that are still configured keep their state.
    fn apply_settings(&mut self) {
        let settings = Arc::clone(&self.settings.borrow_and_update());
        let mut old = std::mem::take(&mut self.volumes);
        for spec in volume_specs::volume_specs(&settings.volumes, settings.local.as_ref()) {
            let state = old.iter().position(|state| state.spec == spec);
            let state = state.map(|at| old.swap_remove(at));
            self.volumes.push(state.unwrap_or_else(|| VolumeState::new(spec)));
        }
    }

    /// Measures every volume that is due and has no pending measurement.
    fn measure_due_volumes(&mut self) {
        let (now, poll) = (Instant::now(), self.settings.borrow().poll);
        let local = self.settings.borrow().local.clone();
        let unfinished = local.and_then(|local| {
            local.unfinished_files(&self.jobs.borrow(), &self.snapshots.borrow())
        });
        for state in
            self.volumes.iter_mut().filter(|state| state.asked_at.is_none() && state.due_at <= now)
        {
            let period = match state.spec.source {
                SpaceSource::Configured(Free::Prometheus { .. }) => QUERY_INTERVAL,
                SpaceSource::Local(_) | SpaceSource::Configured(Free::Available(_)) => poll,
            };
            state.due_at = now + period;
            state.asked_at = Some(now);
            let spec = state.spec.clone();
            let measurement =
                self.meter.measure(&spec.source, unfinished.clone(), self.clock.now());
            self.measurements.push(measurement.map(|measured| (spec, measured)).boxed());
        }
    }

    /// Forgets what was measured in directories that turned out to be another node's.
    fn forget_foreign_directories(&mut self) {
        let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
        for state in &mut self.volumes {
            if let Some(problem) = foreign_directory(&state.spec, &snapshot) {
                state.measured = None;
                state.record_problem(problem);
            }
        }
    }

    fn record_measurement(&mut self, (spec, measured): MeasureResult) {
        let Some(state) = self.volumes.iter_mut().find(|state| state.spec == spec) else {
            return;
        };
        state.asked_at = None;
        let measured = match foreign_directory(&spec, &self.snapshots.borrow()) {
            Some(problem) => {
                state.measured = None;
                Err(problem)
            }
            None => measured,
        };
        match measured {
            Ok(measured) => {
                if let Some(problem) = state.problem.take() {
                    tracing::info!(volume = %spec.name, after = problem, "free space is known again");
                }
                let measured = with_stated_size(measured, spec.stated_size);
                state.measured = Some(measured);
                if !matches!(spec.source, SpaceSource::Configured(Free::Available(_))) {
                    let snapshot = Arc::clone(&self.snapshots.borrow());
                    let jobs = Arc::clone(&self.jobs.borrow());
                    let volume = published_volume(state, self.clock.now());
                    let was = state.trend.falling_since();
                    let VolumeSpace { available, measured_at: at, .. } = measured.space;
                    let jobs: Vec<&Job> = volume.jobs(&jobs, &snapshot).collect();
                    state.trend.record(at, available, &jobs);
                    log_trend(&spec, was, state.trend.falling_since(), available);
                }
            }
            Err(problem) => state.record_problem(problem),
        }
    }

    fn publish(&self) {
        let now = self.clock.now();
        let mut devices = BTreeMap::new();
        let volumes = self.volumes.iter().filter(|state| {
            // Two directories on one file system are one volume, named after the first.
            let device = state.measured.and_then(|measured| measured.device);
            let first = device.map(|device| {
                *devices.entry(device).or_insert_with(|| Arc::clone(&state.spec.name))
                    == state.spec.name
            });
            first.unwrap_or(true)
        });
        let disks = Disks { volumes: volumes.map(|state| published_volume(state, now)).collect() };
        publish_if_changed(&self.disks, disks);
    }
}

/// Why a local directory cannot belong to its node, so that its free space is not the node's.
fn foreign_directory(spec: &VolumeSpec, snapshot: &Snapshot) -> Option<String> {
    let SpaceSource::Local(_) = spec.source else { return None };
    let nodes = snapshot.nodes().iter().filter(|node| spec.nodes.contains(&node.name));
    nodes.filter_map(|node| node.foreign_directory.as_deref()).next().map(ToOwned::to_owned)
}

/// The same measurement; a size that was not measured is taken from the configuration.
fn with_stated_size(measured: VolumeMeasurement, stated: Option<u64>) -> VolumeMeasurement {
    let space = measured.space;
    let size = space.size.or(stated);
    VolumeMeasurement { space: VolumeSpace { size, ..space }, ..measured }
}

fn log_trend(spec: &VolumeSpec, was: Option<Moment>, is: Option<Moment>, available: u64) {
    match (was, is) {
        (None, Some(since)) => {
            tracing::warn!(volume = %spec.name, available, since = since.rfc3339(), "free space falls faster than running jobs explain; no compaction starts on this volume until that stops");
        }
        (Some(_), None) => {
            tracing::info!(volume = %spec.name, available, "free space has stopped falling")
        }
        (None, None) | (Some(_), Some(_)) => {}
    }
}

/// The state of a volume in the form that is published to other tasks.
fn published_volume(state: &VolumeState, now: Moment) -> Volume {
    let spec = &state.spec;
    let space = state.measured.map(|measured| measured.space);
    let fresh = space.filter(|space| space.measured_at.age(now) <= spec.source.max_age());
    let old = || {
        let at = space?.measured_at.rfc3339();
        Some(format!("the last measurement, of {at}, is too old"))
    };
    let late = state.asked_at.is_some_and(|asked| asked.elapsed() > MEASURE_TIMEOUT);
    let late = late.then(|| format!("no answer within {MEASURE_TIMEOUT:?}"));
    let problem =
        late.or_else(|| state.problem.clone()).or_else(|| fresh.is_none().then(old).flatten());
    Volume {
        name: Arc::clone(&spec.name),
        nodes: spec.nodes.clone(),
        space: fresh,
        is_stated: matches!(spec.source, SpaceSource::Configured(Free::Available(_))),
        falling_since: state.trend.falling_since().filter(|_| fresh.is_some()),
        problem,
    }
}

#[cfg(test)]
mod tests;
