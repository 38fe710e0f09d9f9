//! X-rays of a node's files while recliner runs.
//!
//! Decides which files are read and when: those of a database that someone asked for, and now and
//! then the file whose prediction matters most. One reading runs at a time, at a limited rate and
//! for a limited time. Results about a database are kept in memory; the result about a target goes
//! to the scanner.

use super::{ScanCommand, ScanHandle};
use crate::{
    datadir::{NodeDirectories, ReadPace, target_file, xray_file},
    model::{
        facts::{Confidence, FactSource, Inside, OptionalU64},
        target::{TargetKind, TargetState},
    },
    sources::{
        inventory::PeersSource,
        xray::{DatabaseXray, NodeXray, XrayAnswer},
    },
    table::{Snapshot, TargetIx, TargetRef},
    tasks::unwrap_join,
    text::{counted, listed},
};
use couchdb_files::{Part, Sample, Xray};
use futures::{
    FutureExt as _,
    future::{BoxFuture, OptionFuture},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Files up to this total size are read completely.
const WHOLE_BYTES: u64 = 256 << 20;
/// Of larger files, this share of each tree is read, and about this many bytes in total.
const SAMPLED_SHARE: f64 = 0.01;
const SAMPLED_BYTES: f64 = (1_u64 << 30) as f64;

/// The longest time for the files of a database.
const MAX_TIME: Duration = Duration::from_secs(10 * 60);

/// A result is not replaced before it is this old.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Maximum number of waiting databases, and of stored results.
const MAX_WAITING: usize = 8;
const MAX_KEPT: usize = 100;

/// When the first target is X-rayed, and how long until the next.
const FIRST_TARGET: Duration = Duration::from_secs(120);
const BETWEEN_TARGETS: Duration = Duration::from_secs(15 * 60);
/// How long until the same target is X-rayed again, whatever the last result was.
const BETWEEN_LOOKS: Duration = Duration::from_secs(24 * 3600);

/// Only files of at least this size are X-rayed without an order, if a compaction would free at least
/// one part in `MIN_GAIN_DIVISOR` of them.
const MIN_FILE_BYTES: u64 = 16 << 20;
const MIN_GAIN_DIVISOR: u64 = 10;

/// Where files are read, and how fast.
#[derive(Clone, Debug, Default)]
pub struct XraySettings {
    /// The directories of the node whose files this process reads.
    pub local: Option<(Arc<str>, NodeDirectories)>,
    /// Sidecars, which read the files of other nodes.
    pub peers: Option<Arc<PeersSource>>,
    /// Bytes to read in a second; with 0, nothing is read.
    pub bytes_per_second: u64,
}

/// The databases that were X-rayed or wait for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptXrays {
    by_db: BTreeMap<String, (Moment, DatabaseXray)>,
    running: BTreeSet<String>,
}

impl KeptXrays {
    /// What is known of a database's files.
    #[must_use]
    pub fn of(&self, db: &str) -> DatabaseXray {
        let none = || DatabaseXray {
            db: db.to_owned(),
            is_running: false,
            at: None,
            nodes: Vec::new(),
            unknown: Vec::new(),
            sum: None,
        };
        let kept = self.by_db.get(db).map_or_else(none, |(_, kept)| kept.clone());
        DatabaseXray { is_running: self.running.contains(db), ..kept }
    }

    fn keep(&mut self, now: Moment, found: DatabaseXray) {
        self.running.remove(&found.db);
        self.by_db.insert(found.db.clone(), (now, found));
        if self.by_db.len() > MAX_KEPT {
            let oldest = self.by_db.iter().min_by_key(|(_, (at, _))| *at);
            if let Some(oldest) = oldest.map(|(db, _)| db.clone()) {
                self.by_db.remove(&oldest);
            }
        }
    }
}

/// An order to look into a database's files, answered once it is accepted.
type XrayOrder = (String, oneshot::Sender<()>);

/// The handle of the task.
#[derive(Clone, Debug)]
pub struct XrayHandle {
    orders: mpsc::Sender<XrayOrder>,
    settings: watch::Receiver<Arc<XraySettings>>,
    /// The results so far, and the running reading.
    pub kept: watch::Receiver<Arc<KeptXrays>>,
}

impl XrayHandle {
    /// A handle without a task, which accepts nothing.
    #[must_use]
    pub fn none() -> Self {
        let settings = watch::channel(Arc::default()).1;
        Self { orders: mpsc::channel(1).0, settings, kept: watch::channel(Arc::default()).1 }
    }

    /// Whether this process or a sidecar reads any of a database's files.
    #[must_use]
    pub fn can_read(&self, snapshot: &Snapshot, db: &str) -> bool {
        let settings = self.settings.borrow();
        // Only its answer shows which nodes' files a sidecar has.
        settings.peers.is_some()
            || (settings.local.is_some() && !files_of(&settings, snapshot, db).0.is_empty())
    }

    /// Has a database's files read, unless that was done in the last minute.
    ///
    /// # Errors
    /// If too many wait, or the task has ended.
    pub async fn begin(&self, db: &str) -> Result<(), String> {
        let (accepted, answer) = oneshot::channel();
        let busy = || "too many databases are waiting for their X-rays; try again later".to_owned();
        self.orders.try_send((db.to_owned(), accepted)).map_err(|_| busy())?;
        answer.await.map_err(|_| busy())
    }
}

/// What a reading found: about a database if one was asked for, and about targets.
struct Reading {
    database: Option<DatabaseXray>,
    targets: Vec<(TargetIx, Inside)>,
}

/// Reads files, one after another.
#[derive(Debug)]
pub struct XrayTask {
    clock: Clock,
    settings: watch::Receiver<Arc<XraySettings>>,
    scanner: ScanHandle,
    orders: mpsc::Receiver<XrayOrder>,
    waiting: VecDeque<String>,
    kept: KeptXrays,
    published: watch::Sender<Arc<KeptXrays>>,
    /// When targets were X-rayed without a request.
    looked: BTreeMap<TargetIx, Moment>,
}

impl XrayTask {
    /// Creates the task and its handle.
    pub fn new(
        clock: Clock,
        settings: watch::Receiver<Arc<XraySettings>>,
        scanner: ScanHandle,
    ) -> (Self, XrayHandle) {
        let (orders_tx, orders) = mpsc::channel(MAX_WAITING);
        let (published, kept) = watch::channel(Arc::default());
        let (waiting, kept_now, looked) = Default::default();
        let handle = XrayHandle { orders: orders_tx, settings: settings.clone(), kept };
        let task =
            Self { clock, settings, scanner, orders, waiting, kept: kept_now, published, looked };
        (task, handle)
    }

    /// Reads until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut next_target = Instant::now() + FIRST_TARGET;
        let mut reading: Option<BoxFuture<'static, Reading>> = None;
        loop {
            if reading.is_none() {
                reading = self.waiting.pop_front().map(|db| self.read_database(db, &stop));
            }
            let is_idle = reading.is_none();
            // Every branch is cancel-safe: a reading that has not ended is polled again.
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some((db, accepted)) = self.orders.recv() => {
                    self.accept(db);
                    // The requester may be gone.
                    let _gone = accepted.send(());
                }
                Some(found) = OptionFuture::from(reading.as_mut()) => {
                    reading = None;
                    self.apply(found);
                }
                () = time::sleep_until(next_target), if is_idle => {
                    next_target = Instant::now() + BETWEEN_TARGETS;
                    reading = self.read_target(&stop);
                }
            }
        }
    }

    fn accept(&mut self, db: String) {
        let now = self.clock.now();
        let is_fresh = self.kept.by_db.get(&db).is_some_and(|(at, _)| at.age(now) < MIN_AGE);
        if !is_fresh && self.waiting.len() < MAX_WAITING && self.kept.running.insert(db.clone()) {
            self.waiting.push_back(db);
            self.publish();
        }
    }

    fn apply(&mut self, found: Reading) {
        for (ix, inside) in found.targets {
            // If the scanner is busy, the next X-ray reports it.
            let _full = self.scanner.send(ScanCommand::Xray(ix, inside));
        }
        if let Some(database) = found.database {
            self.kept.keep(self.clock.now(), database);
            self.publish();
        }
    }

    fn publish(&self) {
        self.published.send_replace(Arc::new(self.kept.clone()));
    }

    fn pace(settings: &XraySettings, stop: &CancellationToken) -> ReadPace {
        ReadPace {
            bytes_per_second: settings.bytes_per_second,
            deadline: Some(Instant::now() + MAX_TIME),
            stop: stop.clone(),
        }
    }

    /// Reads all files of a database here, while sidecars read theirs.
    fn read_database(&self, db: String, stop: &CancellationToken) -> BoxFuture<'static, Reading> {
        let settings = Arc::clone(&self.settings.borrow());
        let snapshot = Arc::clone(&self.scanner.snapshots.borrow());
        let (pace, clock) = (Self::pace(&settings, stop), self.clock);
        let (files, holders) = files_of(&settings, &snapshot, &db);
        async move {
            let node = settings.local.as_ref().map(|(node, _)| node.to_string());
            let reads = !files.is_empty() && settings.bytes_per_second > 0;
            let here = spawn_blocking(move || read_files(files, &pace, clock));
            let asked = OptionFuture::from(settings.peers.as_ref().map(|peers| peers.xrays(&db)));
            let (here, answers) = tokio::join!(here, asked);
            let here = unwrap_join(here).unwrap_or_default();
            let mut nodes = Vec::new();
            let mut unknown = here.problems;
            if let Some((node, sum)) = node.filter(|_| reads).zip(XrayAnswer::sum(&db, &here.files))
            {
                nodes.push(NodeXray { node, files: here.files.len() as u64, sum });
            }
            let mut failed = Vec::new();
            for (peer, answer) in answers.unwrap_or_default() {
                match answer {
                    Ok(found) => {
                        unknown.extend(found.unknown);
                        nodes.extend(found.nodes);
                    }
                    Err(why) => failed.push(format!("The sidecar {peer} gave no answer: {why}.")),
                }
            }
            unknown.extend(unread_nodes(holders, &nodes, failed));
            let sums: Vec<XrayAnswer> = nodes.iter().map(|node| node.sum.clone()).collect();
            let sum = XrayAnswer::sum(&db, &sums);
            let at = Some(clock.now().rfc3339());
            let database = DatabaseXray { db, is_running: false, at, nodes, unknown, sum };
            Reading { database: Some(database), targets: here.targets }
        }
        .boxed()
    }

    /// Reads the file of the target whose prediction matters most, if any.
    fn read_target(&mut self, stop: &CancellationToken) -> Option<BoxFuture<'static, Reading>> {
        let settings = Arc::clone(&self.settings.borrow());
        let snapshot = Arc::clone(&self.scanner.snapshots.borrow());
        let (node, directories) = settings.local.as_ref()?;
        let (now, clock) = (self.clock.now(), self.clock);
        self.looked.retain(|_, at| at.age(now) < BETWEEN_LOOKS);
        let target = most_important(&snapshot, node, |ix| self.looked.contains_key(&ix))?;
        if settings.bytes_per_second == 0 || !are_files_read(&snapshot, node) {
            return None;
        }
        self.looked.insert(target.ix(), now);
        let files = vec![(target.ix(), path_of(directories, target)?)];
        let pace = Self::pace(&settings, stop);
        let read = spawn_blocking(move || read_files(files, &pace, clock));
        let read = read.map(|read| {
            let targets = unwrap_join(read).unwrap_or_default().targets;
            Reading { database: None, targets }
        });
        Some(read.boxed())
    }
}

/// Whether the files of a node were found in its directories, and are its own.
fn are_files_read(snapshot: &Snapshot, node: &str) -> bool {
    let by_files = |target: TargetRef<'_>| {
        target.facts().measured_at.is_some_and(|it| it.source == FactSource::Files)
    };
    snapshot.targets().filter(|target| target.node() == node).any(by_files)
}

/// The target of a node whose prediction matters most and is least certain: the one with most to
/// free, or the largest one whose active bytes mislead.
fn most_important<'s>(
    snapshot: &'s Snapshot,
    node: &str,
    was_looked_into: impl Fn(TargetIx) -> bool,
) -> Option<TargetRef<'s>> {
    let gain = |target: &TargetRef<'_>| {
        let facts = target.facts();
        let file = facts.file_bytes.get().filter(|bytes| *bytes >= MIN_FILE_BYTES)?;
        let gain = match target.confidence() {
            Confidence::Low => file,
            Confidence::Learned | Confidence::High => target.reclaimable_bytes()?,
            Confidence::Xray => return None,
        };
        Some(gain).filter(|gain| *gain >= file / MIN_GAIN_DIVISOR)
    };
    let own = snapshot.targets().filter(|target| target.node() == node && has_file(*target));
    let own = own.filter(|target| target.state() == TargetState::Ok);
    let ranked = own.filter_map(|target| Some((gain(&target)?, target)));
    let best = ranked.filter(|(_, target)| !was_looked_into(target.ix()));
    best.max_by_key(|(gain, _)| *gain).map(|(_, target)| target)
}

fn has_file(target: TargetRef<'_>) -> bool {
    target.kind() == TargetKind::Db || target.is_part()
}

fn path_of(directories: &NodeDirectories, target: TargetRef<'_>) -> Option<PathBuf> {
    let signature = target.view().map(|view| view.signature);
    Some(target_file(directories, &target.shard_name()?, signature))
}

/// The files of a database in the directories that this process reads, if they are the node's own; and the nodes that
/// have copies of it.
fn files_of(
    settings: &XraySettings,
    snapshot: &Snapshot,
    db: &str,
) -> (Vec<(TargetIx, PathBuf)>, BTreeSet<String>) {
    let of_db: Vec<TargetRef<'_>> =
        snapshot.targets().filter(|it| it.db_name().db == db && has_file(*it)).collect();
    let is_copy =
        |it: &&TargetRef<'_>| it.kind() == TargetKind::Db && it.state() != TargetState::Missing;
    let holders = of_db.iter().filter(is_copy).map(|it| it.node().to_owned()).collect();
    let local = settings
        .local
        .as_ref()
        .filter(|(node, _)| settings.bytes_per_second > 0 && are_files_read(snapshot, node));
    let Some((node, directories)) = local else { return (Vec::new(), holders) };
    let own =
        of_db.iter().filter(|it| it.node() == &**node && it.facts().file_bytes.get() > Some(0));
    let files = own.filter_map(|it| Some((it.ix(), path_of(directories, *it)?))).collect();
    (files, holders)
}

/// Why files of a database on other nodes are unknown; `failed` says which sidecars did not answer.
fn unread_nodes(holders: BTreeSet<String>, read: &[NodeXray], failed: Vec<String>) -> Vec<String> {
    let is_read = |node: &String| read.iter().any(|it| it.node == *node);
    let nodes: Vec<String> = holders.into_iter().filter(|node| !is_read(node)).collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let nodes = listed(&nodes);
    let why = format!("Neither this recliner nor a sidecar has read its files on {nodes}.");
    [vec![why], failed].concat()
}

/// What was read of some files.
#[derive(Debug, Default)]
struct FilesRead {
    files: Vec<XrayAnswer>,
    targets: Vec<(TargetIx, Inside)>,
    problems: Vec<String>,
}

/// Reads files until the deadline.
fn read_files(paths: Vec<(TargetIx, PathBuf)>, pace: &ReadPace, clock: Clock) -> FilesRead {
    let size = |path: &PathBuf| path.metadata().map_or(0, |it| it.len());
    let bytes: u64 = paths.iter().map(|(_, path)| size(path)).sum();
    let share = SAMPLED_SHARE.min(SAMPLED_BYTES / bytes.max(1) as f64);
    let sample = (bytes > WHOLE_BYTES).then(|| Sample { share, seed: clock.now().unix() });
    let (mut read, mut failed) = (FilesRead::default(), Vec::new());
    for (ix, path) in paths {
        let at = clock.now();
        match xray_file(&path, sample, pace) {
            Ok(xray) => {
                read.targets.extend(inside(&xray, at).map(|inside| (ix, inside)));
                read.files.push(XrayAnswer::of(&path, &xray, sample.is_some()));
            }
            Err(why) => failed.push(format!("{} {why}.", path.display())),
        }
    }
    // One is enough: the others are alike.
    let more = failed.len().saturating_sub(1);
    read.problems.extend(failed.into_iter().next());
    if more > 0 {
        read.problems
            .push(format!("{} more could not be read.", counted(more as u64, "file", "files")));
    }
    read
}

/// What an X-ray says about a target.
fn inside(xray: &Xray, at: Moment) -> Option<Inside> {
    let long = [Part::Revisions101To1000, Part::RevisionsOver1000];
    let trees = xray.parts.iter().filter(|it| long.contains(&it.part));
    let bytes: u64 = trees.map(|it| it.bytes).sum();
    Some(Inside {
        at,
        file_bytes: xray.file_bytes,
        active_bytes: xray.active.into(),
        update_seq: xray.update_seq.into(),
        left_bytes: xray.after_compaction?,
        error_bytes: xray.error,
        revision_bytes: xray.revs_limit.map_or(OptionalU64::UNKNOWN, |_| OptionalU64::new(bytes)),
        revs_limit: xray.revs_limit.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::{Facts, Measurement},
        scan::{ScanSettings, ScanTask},
        sources::inventory::{SilentSource, Source},
        table::{DbName, Draft},
    };
    use couchdb_names::Range;

    const MIB: u64 = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn database_is_xrayed_again_after_a_minute_at_the_earliest() {
        let clock = Clock::anchored(Moment::from_unix(1_000_000));
        let (_source, source) = watch::channel(Arc::new(SilentSource) as Arc<dyn Source>);
        let (_scan, scan) = watch::channel(Arc::new(ScanSettings::example()));
        let (_, scanner) = ScanTask::new(clock, source, scan);
        let (_settings, settings) = watch::channel(Arc::default());
        let (task, mut handle) = XrayTask::new(clock, settings, scanner);
        let stop = CancellationToken::new();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(task.run(stop.clone()));
        let mut times = Vec::new();
        for pause in [0, 30, 61] {
            time::sleep(Duration::from_secs(pause)).await;
            handle.begin("orders").await.unwrap();
            let ended = |kept: &Arc<KeptXrays>| !kept.of("orders").is_running;
            let kept = handle.kept.wait_for(ended).await.unwrap().of("orders");
            times.push(Moment::parse(&kept.at.unwrap()).unwrap().unix() - 1_000_000);
        }
        assert_eq!(times, [0, 0, 91]);
        assert_eq!(handle.kept.borrow().of("clients").at, None);
        stop.cancel();
    }

    #[test]
    fn files_can_be_read_here_or_by_any_sidecar() {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
        let ix = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
        let measured = |source| Facts {
            measured_at: Some(Measurement { at: Moment::from_unix(1_000), source }),
            ..Facts::sized(MIB, MIB)
        };
        draft.set_facts(ix, measured(FactSource::Http));
        let over_http = draft.publish(Moment::from_unix(1_000));
        draft.set_facts(ix, measured(FactSource::Files));
        let from_files = draft.publish(Moment::from_unix(1_000));
        let can_read = |settings: XraySettings, snapshot| {
            let settings = watch::channel(Arc::new(settings)).1;
            XrayHandle { settings, ..XrayHandle::none() }.can_read(snapshot, "orders")
        };
        let directories = NodeDirectories { data: "/data".into(), views: None };
        let here = |bytes_per_second| XraySettings {
            local: Some(("couchdb@a".into(), directories.clone())),
            bytes_per_second,
            ..XraySettings::default()
        };
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let addresses = ["http://couch-a:10984".parse().unwrap()];
        let peers = PeersSource::new(&addresses, None, Clock::System).unwrap().map(Arc::new);
        let sidecar = XraySettings { peers, ..XraySettings::default() };
        assert!(can_read(sidecar, &over_http), "CouchDB's numbers may be newer than the sidecar's");
        assert!(can_read(here(1), &from_files) && !can_read(here(0), &from_files));
        assert!(!can_read(here(1), &over_http), "the files are not the node's own");
        assert!(!can_read(XraySettings::default(), &from_files));
    }

    #[test]
    fn xrays_each_target_once_in_order_of_possible_gain() {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let mut add = |name, file, active, confidence| {
            let db = draft.get_or_add_db(DbName { db: name, suffix: ".1" });
            let ix = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
            draft.set_facts(ix, Facts { confidence, ..Facts::sized(file * MIB, active * MIB) });
            ix
        };
        let half = add("half", 400, 200, Confidence::High);
        let lean = add("lean", 900, 890, Confidence::High);
        let misled = add("misled", 300, 299, Confidence::Low);
        add("small", 15, 1, Confidence::High);
        let seen = add("seen", 800, 100, Confidence::High);
        let inside = Inside { file_bytes: 800 * MIB, left_bytes: 99 * MIB, ..Inside::default() };
        assert!(draft.set_inside(seen, inside));
        let mut looked = Vec::new();
        let snapshot = draft.publish(Moment::from_unix(1_000));
        while let Some(next) = most_important(&snapshot, "couchdb@a", |ix| looked.contains(&ix)) {
            looked.push(next.ix());
        }
        assert_eq!(looked, [misled, half], "{lean:?} has nothing to free");
        assert!(most_important(&snapshot, "couchdb@b", |_| false).is_none());
    }
}
