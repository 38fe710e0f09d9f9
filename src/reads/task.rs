//! The task that follows logs and asks other recliners about theirs.
//!
//! Owns the [`Reads`] and publishes them. Nothing waits for it: it has its own thread. Each line counts once, even
//! across a restart, because the position in a file is stored together with the reads before it.

use super::{
    answer::ReadsAnswer,
    follower::{Follower, Step},
    pipes::{MAX_WAITING, Pipes},
};
use crate::{
    model::{
        reads::{KEPT_DAYS, KnownDesigns, Reads, SourceReads},
        settings::work::ReadsSettings,
        target::TargetKind,
    },
    sources::inventory::PeersSource,
    store::journal::Journal,
    table::Snapshot,
};
use access_log::{Day, DayReads, LogReads, Source};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{self, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Interval between checks of the logs.
const INTERVAL: Duration = Duration::from_secs(30);

/// Interval between checks whether the journal is claimed, which happens some seconds after a start.
const CLAIM_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between saves, and between requests to other recliners.
const SAVE_INTERVAL: Duration = Duration::from_secs(300);

/// Number of bytes of logs after which other tasks may run.
const STEP_BYTES: u64 = 16 << 20;

/// Maximum size of another recliner's answer.
const MAX_PEER_BYTES: usize = 64 << 20;

/// The task's settings.
#[derive(Clone, Debug, Default)]
pub struct TaskSettings {
    /// The logs.
    pub reads: ReadsSettings,
    /// The sidecars.
    pub peers: Option<PeersSource>,
}

/// The inputs of the task.
#[derive(Debug)]
pub struct ReadsInputs {
    /// Stores the reads.
    pub journal: Journal,
    /// The targets, which show which design documents exist.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// Its settings.
    pub settings: watch::Receiver<TaskSettings>,
}

/// The task.
#[derive(Debug)]
pub struct ReadsTask {
    clock: Clock,
    inputs: ReadsInputs,
    published: watch::Sender<Arc<Reads>>,
    follower: Follower,
    /// The reads of this process and of earlier ones.
    own: Reads,
    /// The reads of other recliners, by address.
    peers: BTreeMap<String, BTreeMap<Source, SourceReads>>,
    peer_problems: Vec<String>,
    /// Reads that are not stored yet.
    waiting: LogReads,
    /// Whether something is not published yet.
    is_new: bool,
    /// The positions in the logs, in their stored form.
    stored: Vec<u8>,
    save_at: Instant,
}

impl ReadsTask {
    /// The task and what it publishes.
    pub fn new(clock: Clock, inputs: ReadsInputs) -> (Self, watch::Receiver<Arc<Reads>>) {
        let (published, reads) = watch::channel(Arc::default());
        let task = Self {
            clock,
            inputs,
            published,
            follower: Follower::default(),
            own: Reads::default(),
            peers: BTreeMap::new(),
            peer_problems: Vec::new(),
            waiting: LogReads::default(),
            is_new: false,
            stored: Vec::new(),
            save_at: Instant::now(),
        };
        (task, reads)
    }

    /// Continues from the previous process, and follows the logs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        if stop.run_until_cancelled(self.resume()).await.is_none() {
            return;
        }
        let mut pipes = Pipes::default();
        let mut tick = time::interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = tick.tick() => {
                    let logs = self.inputs.settings.borrow().reads.logs.clone();
                    let (files, problems) = pipes.open(&logs);
                    let clock = self.clock;
                    let work = pipes.read_during(self.tick(files, problems), &clock);
                    let Some(reads) = stop.run_until_cancelled(work).await else { break };
                    self.add(reads);
                }
                () = pipes.readable(), if self.waiting.len() < MAX_WAITING => {
                    self.add(pipes.read(self.clock.now()));
                }
            }
        }
        self.save().await;
    }

    async fn resume(&mut self) {
        while let Err(why) = self.load().await {
            tracing::debug!(%why, "the recorded reads of indexes are waiting for the journal");
            time::sleep(CLAIM_INTERVAL).await;
        }
    }

    async fn load(&mut self) -> Result<(), crate::model::records::StoreError> {
        let progress = self.inputs.journal.reads_progress().await?;
        let loaded = Arc::new(Mutex::new(Reads::default()));
        let seen = Arc::clone(&loaded);
        let see = move |name: &str, bytes: &[u8]| {
            let mut reads = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((day, source)) = parse_name(name)
                && let Ok(stored) = postcard::from_bytes::<DayReads>(bytes)
            {
                reads.sources.entry(source).or_default().add(day, &stored);
            }
        };
        self.inputs.journal.for_each_day_of_reads(see).await?;
        self.own = std::mem::take(&mut *loaded.lock().unwrap_or_else(PoisonError::into_inner));
        self.stored = progress.unwrap_or_default();
        let (files, known) = decode_progress(&self.stored);
        self.follower = Follower::resume(&files);
        self.own.known = known;
        Ok(())
    }

    /// Continues to read these files; `problems` are those of the other logs.
    async fn tick(&mut self, files: Vec<PathBuf>, mut problems: Vec<String>) {
        let settings = self.inputs.settings.borrow_and_update().clone();
        let today = Day::of(self.clock.now().unix());
        let of_pipes = problems.len();
        while self.waiting.len() < MAX_WAITING {
            let Step { reads, more, problems: found } =
                self.follower.read(&files, today, STEP_BYTES);
            self.add(reads);
            problems.truncate(of_pipes);
            problems.extend(found);
            if !more {
                break;
            }
            tokio::task::yield_now().await;
        }
        if self.save_at <= Instant::now() || self.waiting.len() >= MAX_WAITING {
            self.save_at = Instant::now() + SAVE_INTERVAL;
            self.is_new = true;
            self.see_designs(today);
            self.save().await;
            self.ask_peers(settings.peers.as_ref()).await;
        }
        problems.extend(self.peer_problems.iter().cloned());
        let proxies_see_all = settings.reads.proxies_see_all;
        self.is_new |= problems != self.own.problems || proxies_see_all != self.own.proxies_see_all;
        (self.own.problems, self.own.proxies_see_all) = (problems, proxies_see_all);
        if std::mem::take(&mut self.is_new) {
            self.publish();
        }
    }

    fn add(&mut self, reads: LogReads) {
        self.is_new |= !reads.is_empty();
        self.own.add(&reads);
        self.waiting.merge(reads);
    }

    /// Records since when each design document has been known.
    fn see_designs(&mut self, today: Day) {
        let snapshot = Arc::clone(&self.inputs.snapshots.borrow());
        let indexes = snapshot
            .targets()
            .filter(|it| matches!(it.kind(), TargetKind::View | TargetKind::Search));
        let present: BTreeSet<(String, String)> = indexes
            .flat_map(|index| {
                let db = index.db_name().db;
                let designs = index.view().map_or(&[][..], |view| &view.designs);
                designs.iter().map(move |design| (db.to_owned(), design.to_string()))
            })
            .collect();
        if present.is_empty() {
            // No design document was read yet.
            return;
        }
        self.own.known.retain(|name, _| present.contains(name));
        for name in present {
            self.own.known.entry(name).or_insert(today);
        }
    }

    async fn ask_peers(&mut self, peers: Option<&PeersSource>) {
        self.peer_problems.clear();
        let addresses = peers.map_or(&[][..], PeersSource::addresses);
        let names: BTreeSet<String> = addresses.iter().map(ToString::to_string).collect();
        self.peers.retain(|name, _| names.contains(name));
        for address in addresses {
            let Some(peers) = peers else { return };
            match peers.get::<ReadsAnswer>(address, "reads", MAX_PEER_BYTES).await {
                Ok((answer, ..)) => {
                    let problems = answer.problems.iter().map(|why| format!("{address}: {why}"));
                    self.peer_problems.extend(problems);
                    self.peers.insert(address.to_string(), answer.into_sources());
                }
                Err(why) => {
                    // Its earlier answer remains valid.
                    let says = format!("It is unknown which logs {address} reads: {why}.");
                    self.peer_problems.push(says);
                }
            }
        }
    }

    fn publish(&self) {
        let mut reads = self.own.clone();
        for (peer, sources) in &self.peers {
            for (source, found) in sources {
                let source = match source {
                    Source::Node(_) => source.clone(),
                    // Proxies on two machines may have logs with the same path.
                    Source::Proxy(log) => Source::Proxy(format!("{peer}: {log}")),
                };
                reads.sources.entry(source).or_insert_with(|| found.clone());
            }
        }
        self.published.send_replace(Arc::new(reads));
    }

    /// Stores the waiting reads together with the positions in the files.
    async fn save(&mut self) {
        if let Err(why) = self.try_save().await {
            tracing::debug!(%why, "cannot store the recorded reads of indexes");
        }
    }

    async fn try_save(&mut self) -> Result<(), crate::model::records::StoreError> {
        let keys = || self.waiting.days.keys();
        let names: Vec<String> = keys().map(|(source, day)| name_of(source, *day)).collect();
        let stored = self.inputs.journal.days_of_reads(names.clone()).await?;
        let mut days = Vec::with_capacity(names.len());
        for ((name, stored), waiting) in
            names.into_iter().zip(stored).zip(self.waiting.days.values())
        {
            let mut day: DayReads =
                stored.and_then(|bytes| postcard::from_bytes(&bytes).ok()).unwrap_or_default();
            day.add(waiting.clone());
            days.push((name, postcard::to_stdvec(&day).ok()));
        }
        let today = Day::of(self.clock.now().unix());
        for (source, reads) in &self.own.sources {
            let expired = reads.days.keys().filter(|day| today.since(**day) > KEPT_DAYS);
            days.extend(expired.map(|day| (name_of(source, *day), None)));
        }
        let progress = encode_progress(&self.follower.encode(), &self.own.known);
        if days.is_empty() && progress == self.stored {
            return Ok(());
        }
        self.inputs.journal.save_reads(progress.clone(), days).await?;
        self.stored = progress;
        self.waiting = LogReads::default();
        self.own.sources.values_mut().for_each(|source| source.forget(today));
        Ok(())
    }
}

/// The positions in the logs, and since when design documents are known, in their stored form.
fn encode_progress(files: &[u8], known: &KnownDesigns) -> Vec<u8> {
    let mut stored = postcard::to_stdvec(files).unwrap_or_default();
    stored.extend(postcard::to_stdvec(known).unwrap_or_default());
    stored
}

/// The inverse of [`encode_progress`]; unreadable parts count as empty.
fn decode_progress(stored: &[u8]) -> (Vec<u8>, KnownDesigns) {
    let (files, known) = postcard::take_from_bytes::<Vec<u8>>(stored).unwrap_or_default();
    (files, postcard::from_bytes(known).unwrap_or_default())
}

/// The name of a day of a source; names sort as days do.
fn name_of(source: &Source, day: Day) -> String {
    match source {
        Source::Node(name) => format!("{:010}:node:{name}", day.0),
        Source::Proxy(name) => format!("{:010}:log:{name}", day.0),
    }
}

fn parse_name(name: &str) -> Option<(Day, Source)> {
    let mut parts = name.splitn(3, ':');
    let day = Day(parts.next()?.parse().ok()?);
    match (parts.next()?, parts.next()?) {
        ("node", name) => Some((day, Source::Node(name.to_owned()))),
        ("log", name) => Some((day, Source::Proxy(name.to_owned()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
