//! The task that measures volumes and publishes the results.
//!
//! Owns the state of each volume and the schedule of measurements. A volume that has not answered
//! yet is not asked again; after a failure the old value stays, with its age.

use super::{Disks, Local, Place, Source, Space, Volume, layout, local, prometheus, slope::Slope};
use crate::{
    datadir,
    jobs::{Job, Jobs},
    model::settings::{self, limits},
    sources::fetch,
    table::Snapshot,
};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Interval between queries to a Prometheus: as often as most targets are scraped.
const QUERIES: Duration = Duration::from_secs(30);
/// Maximum wait for an answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Maximum time for which a value stays published after it became too old.
const LONGEST_POLL: Duration = Duration::from_secs(30);

/// The task's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The configured volumes.
    pub volumes: Vec<limits::Volume>,
    /// The local directories, and the node they belong to.
    pub local: Option<Local>,
    /// Interval between measurements of a local file system.
    pub poll: Duration,
}

impl Settings {
    /// Directories belong to the only node that this process serves. If it serves several, they
    /// belong to the `owner`, the node that the files name.
    #[must_use]
    pub fn of(settings: &settings::Settings, owner: fn(&Path) -> Option<String>) -> Self {
        let settings::Files { data_dir, view_index_dir } = &settings.files;
        let directories = || data_dir.iter().chain(view_index_dir).cloned().collect();
        let local = data_dir
            .as_deref()
            .and_then(|data| settings.nodes.only().map(str::to_owned).or_else(|| owner(data)));
        Self {
            volumes: settings.headroom.volumes.clone(),
            local: local.map(|node| Local { node, directories: directories() }),
            poll: settings.poll.min(LONGEST_POLL),
        }
    }
}

/// One measurement of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Its space.
    pub space: Space,
    /// The device number, which identifies the file system on this machine.
    pub device: Option<u64>,
}

/// Measures volumes.
pub trait Meter: Send + Sync + std::fmt::Debug {
    /// Measures one volume. Errors are sentences.
    fn measure(&self, source: &Source, now: Moment)
    -> BoxFuture<'static, Result<Measured, String>>;
}

/// The real meter: the file system, and Prometheus over the network.
#[derive(Debug)]
pub struct Instruments {
    http: reqwest::Client,
}

impl Instruments {
    /// A meter for any settings.
    ///
    /// # Errors
    ///
    /// If the HTTP library cannot be set up.
    pub fn new() -> Result<Self, reqwest::Error> {
        Ok(Self { http: fetch::client(WITHIN)? })
    }
}

impl Meter for Instruments {
    fn measure(
        &self,
        source: &Source,
        now: Moment,
    ) -> BoxFuture<'static, Result<Measured, String>> {
        match source.clone() {
            Source::Local(directory) => async move {
                let datadir::Space { available, size, device } = local::ask(directory).await?;
                let space = Space { available, size: Some(size), at: now };
                Ok(Measured { space, device: Some(device) })
            }
            .boxed(),
            Source::Prometheus { url, query, max_age } => {
                let http = self.http.clone();
                async move {
                    let asking = prometheus::ask(&http, &url, &query, max_age, now);
                    let answer = time::timeout(WITHIN, asking).await.map_err(|_| {
                        format!("the query {query:?} to {url} got no answer within {WITHIN:?}")
                    })??;
                    let prometheus::Answer { available, at } = answer;
                    Ok(Measured { space: Space { available, size: None, at }, device: None })
                }
                .boxed()
            }
            Source::Fixed(available) => {
                let space = Space { available, size: None, at: now };
                std::future::ready(Ok(Measured { space, device: None })).boxed()
            }
        }
    }
}

/// Access to the published volumes.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The volumes as last published.
    pub disks: watch::Receiver<Arc<Disks>>,
}

/// The state of one volume.
#[derive(Debug)]
struct Known {
    place: Place,
    measured: Option<Measured>,
    problem: Option<String>,
    slope: Slope,
    /// The time of the next measurement.
    due: Instant,
    /// The start of the pending measurement.
    asked: Option<Instant>,
}

impl Known {
    fn new(place: Place) -> Self {
        let due = Instant::now();
        Self { place, measured: None, problem: None, slope: Slope::default(), due, asked: None }
    }
}

type Answered = (Place, Result<Measured, String>);

/// Owns the state of the volumes.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    meter: Arc<dyn Meter>,
    settings: watch::Receiver<Arc<Settings>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    jobs: watch::Receiver<Arc<Jobs>>,
    disks: watch::Sender<Arc<Disks>>,
    volumes: Vec<Known>,
}

enum Event {
    Stop,
    Settings,
    Tick,
    Answered(Box<Answered>),
}

impl Task {
    /// Makes the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        meter: Arc<dyn Meter>,
        settings: watch::Receiver<Arc<Settings>>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        jobs: watch::Receiver<Arc<Jobs>>,
    ) -> (Self, Handle) {
        let (disks, reader) = watch::channel(Arc::default());
        let task = Self { clock, meter, settings, snapshots, jobs, disks, volumes: Vec::new() };
        (task, Handle { disks: reader })
    }

    /// Measures until `stop`, or until the sender of settings is dropped.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut answers: FuturesUnordered<BoxFuture<'static, Answered>> = FuturesUnordered::new();
        let mut next = Instant::now();
        self.lay_out();
        loop {
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => Event::Stop,
                news = self.settings.changed() => if news.is_ok() { Event::Settings } else { Event::Stop },
                Some(answered) = answers.next() => Event::Answered(Box::new(answered)),
                () = time::sleep_until(next) => Event::Tick,
            };
            match event {
                Event::Stop => return,
                Event::Settings => {
                    self.lay_out();
                    next = Instant::now();
                }
                Event::Answered(answered) => self.take(*answered),
                Event::Tick => {
                    next = Instant::now() + self.settings.borrow().poll;
                    self.ask(&answers);
                }
            }
            self.publish();
        }
    }

    /// Applies the settings; the state of volumes that stay is kept.
    fn lay_out(&mut self) {
        let settings = Arc::clone(&self.settings.borrow_and_update());
        let mut old = std::mem::take(&mut self.volumes);
        for place in layout::places(&settings.volumes, settings.local.as_ref()) {
            let known = old.iter().position(|known| known.place == place);
            let known = known.map(|at| old.swap_remove(at));
            self.volumes.push(known.unwrap_or_else(|| Known::new(place)));
        }
    }

    /// Measures every volume that is due and has no pending measurement.
    fn ask(&mut self, answers: &FuturesUnordered<BoxFuture<'static, Answered>>) {
        let (now, poll) = (Instant::now(), self.settings.borrow().poll);
        for known in
            self.volumes.iter_mut().filter(|known| known.asked.is_none() && known.due <= now)
        {
            let period = match known.place.source {
                Source::Prometheus { .. } => QUERIES,
                Source::Local(_) | Source::Fixed(_) => poll,
            };
            known.due = now + period;
            known.asked = Some(now);
            let place = known.place.clone();
            let measuring = self.meter.measure(&place.source, self.clock.now());
            answers.push(measuring.map(|measured| (place, measured)).boxed());
        }
    }

    fn take(&mut self, (place, measured): Answered) {
        let Some(known) = self.volumes.iter_mut().find(|known| known.place == place) else {
            return;
        };
        known.asked = None;
        match measured {
            Ok(measured) => {
                if let Some(problem) = known.problem.take() {
                    tracing::info!(volume = %place.name, after = problem, "free space is known again");
                }
                known.measured = Some(measured);
                if !matches!(place.source, Source::Fixed(_)) {
                    let snapshot = Arc::clone(&self.snapshots.borrow());
                    let jobs = Arc::clone(&self.jobs.borrow());
                    let volume = published(known, self.clock.now());
                    let was = known.slope.falling_since();
                    let Space { available, at, .. } = measured.space;
                    let jobs: Vec<&Job> = volume.jobs(&jobs, &snapshot).collect();
                    known.slope.see(at, available, &jobs);
                    told(&place, was, known.slope.falling_since(), available);
                }
            }
            Err(problem) => {
                if known.problem.as_ref() != Some(&problem) {
                    tracing::warn!(volume = %place.name, problem, "free space could not be read");
                }
                known.problem = Some(problem);
            }
        }
    }

    fn publish(&self) {
        let now = self.clock.now();
        let mut devices = BTreeMap::new();
        let volumes = self.volumes.iter().filter(|known| {
            // Two directories on one file system are one volume, named after the first.
            let device = known.measured.and_then(|measured| measured.device);
            let first = device.map(|device| {
                *devices.entry(device).or_insert_with(|| Arc::clone(&known.place.name))
                    == known.place.name
            });
            first.unwrap_or(true)
        });
        let disks = Disks { volumes: volumes.map(|known| published(known, now)).collect() };
        self.disks.send_if_modified(|last| {
            let news = **last != disks;
            if news {
                *last = Arc::new(disks);
            }
            news
        });
    }
}

fn told(place: &Place, was: Option<Moment>, is: Option<Moment>, available: u64) {
    match (was, is) {
        (None, Some(since)) => {
            tracing::warn!(volume = %place.name, available, since = since.rfc3339(), "free space falls faster than running jobs explain; no compaction starts on this volume until that stops");
        }
        (Some(_), None) => {
            tracing::info!(volume = %place.name, available, "free space has stopped falling")
        }
        (None, None) | (Some(_), Some(_)) => {}
    }
}

/// The state of a volume as other tasks may rely on it.
fn published(known: &Known, now: Moment) -> Volume {
    let place = &known.place;
    let space = known.measured.map(|measured| measured.space);
    let fresh = space.filter(|space| space.at.age(now) <= place.source.max_age());
    let old = || {
        let at = space?.at.rfc3339();
        Some(format!("the measurement of {at} is too old to rely on"))
    };
    let late = known.asked.is_some_and(|asked| asked.elapsed() > WITHIN);
    let late = late.then(|| format!("no answer within {WITHIN:?}"));
    let problem =
        late.or_else(|| known.problem.clone()).or_else(|| fresh.is_none().then(old).flatten());
    Volume {
        name: Arc::clone(&place.name),
        nodes: place.nodes.clone(),
        space: fresh,
        falling_since: known.slope.falling_since().filter(|_| fresh.is_some()),
        problem,
    }
}

#[cfg(test)]
mod tests;
