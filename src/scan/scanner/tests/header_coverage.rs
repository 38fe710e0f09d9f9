//! Shards that CouchDB is not asked for, because their headers cover what it would report.

use super::*;
use crate::{
    datadir::OtherFileSums,
    model::facts::FactKind,
    sources::inventory::{DbFile, DiskWalk, FoundFile},
};
use couchdb_files::ReportMatch;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

const SHARDS: usize = 128;

/// One node with many shards, whose files this process or a sidecar reads.
#[derive(Clone, Debug)]
struct Node {
    /// The content of the headers; `None` if nobody reads them.
    disk: Option<DbFile>,
    /// Whether a sidecar reads them.
    by_peer: bool,
    active: u64,
    compact_running: bool,
}

#[derive(Debug)]
struct Answers {
    node: watch::Receiver<Node>,
    /// Number of shards requested from CouchDB.
    asked: Arc<AtomicUsize>,
}

fn name(at: usize) -> String {
    format!("shards/00000000-ffffffff/db{at}.1")
}

fn numbers(by: MeasuredBy, active: u64, now: u64) -> Facts {
    let facts = Facts {
        update_seq: OptionalU64::new(9),
        compacted_seq: OptionalU64::new(4),
        measured_at: Some(Measurement { at: Moment::from_unix(now), source: by }),
        ..facts(100, active)
    };
    if by == MeasuredBy::Files { facts.marked_from_files() } else { facts }
}

impl Source for Answers {
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation> {
        let node = self.node.borrow().clone();
        let answers = match stage {
            Stage::Map { .. } => {
                let copies = BTreeSet::from([CopyAt { range: RANGE, node: NODES[0].into() }]);
                let entry = |at| MapEntry {
                    db: format!("db{at}"),
                    suffix: ".1".into(),
                    copies: copies.clone(),
                    ..MapEntry::default()
                };
                let entries = (0..SHARDS).map(entry).collect();
                vec![Observation::MapPage(entries), Observation::MapEnd(Ok(MapRead::Whole))]
            }
            Stage::Files { .. } => {
                let names: Vec<String> = (0..SHARDS).map(name).collect();
                let names = Ok(names.iter().map(String::as_str).collect());
                vec![Observation::Files { node: NODES[0].into(), names }]
            }
            Stage::Disk => {
                let to: Arc<str> = NODES[0].into();
                let of = |file: &DbFile, at| DbFile { shard: name(at).into(), ..file.clone() };
                let dbs = node.disk.iter().flat_map(|file| (0..SHARDS).map(|at| of(file, at)));
                if node.by_peer {
                    let (dbs, nodes) = (dbs.collect(), BTreeSet::from([Arc::clone(&to)]));
                    let peer = "http://a:10984".into();
                    vec![
                        Observation::PeerFiles { node: to, dbs, parts: vec![] },
                        Observation::PeerEnd { peer, nodes: Ok(nodes) },
                    ]
                } else {
                    let files: Vec<FoundFile> = dbs.map(FoundFile::Db).collect();
                    let sums =
                        OtherFileSums { files: files.len() as u64, ..OtherFileSums::default() };
                    let disk =
                        DiskWalk { sums, whole: true, took: Duration::ZERO, volumes: vec![] };
                    vec![
                        Observation::Disk { node: Arc::clone(&to), files },
                        Observation::DiskEnd { node: to, disk: Ok(disk) },
                    ]
                }
            }
            Stage::Shards { node_reads, .. } => {
                let asked: Vec<TargetIx> =
                    node_reads.into_iter().flat_map(|reads| reads.targets).collect();
                self.asked.fetch_add(asked.len(), Ordering::Relaxed);
                let answer = |ix| {
                    let mut facts = numbers(MeasuredBy::Http, node.active, 0);
                    facts.flags.compact_running = node.compact_running;
                    Observation::Shard { ix, facts: Ok(Some(facts)), designs: None }
                };
                asked.into_iter().map(answer).collect()
            }
            Stage::Views { .. }
            | Stage::Strays { .. }
            | Stage::Splits
            | Stage::Poll { .. }
            | Stage::Away { .. } => {
                vec![]
            }
            Stage::Nodes => Cluster::default().answers(Stage::Nodes),
        };
        stream::iter(answers).chain(stream::once(async { Observation::StageEnded })).boxed()
    }
}

fn header(reported: ReportMatch, active: u64) -> Option<DbFile> {
    let facts = numbers(MeasuredBy::Files, active, 1_000);
    Some(DbFile { shard: Box::default(), facts, reported, same: true, problem: None })
}

/// The harness, the node behind it, and the number of shards requested in the last sweep.
struct Sidecar {
    harness: Harness,
    node: watch::Sender<Node>,
    asked: Arc<AtomicUsize>,
    sweeps: u64,
}

impl Sidecar {
    fn starting(disk: Option<DbFile>) -> Self {
        let node = Node { disk, by_peer: false, active: 10, compact_running: false };
        let (node, node_rx) = watch::channel(node);
        let asked = Arc::<AtomicUsize>::default();
        let source = Answers { node: node_rx, asked: Arc::clone(&asked) };
        let harness = Harness::starting(Cluster::default(), vec![], Some(Arc::new(source)));
        Self { harness, node, asked, sweeps: 0 }
    }

    /// Runs a sweep; returns the number of shards requested from CouchDB, and the snapshot after
    /// it.
    fn sweep(&mut self) -> (usize, Arc<Snapshot>) {
        self.sweeps += 1;
        self.asked.store(0, Ordering::Relaxed);
        let snapshot = self.harness.sweep(self.sweeps);
        let asked = self.asked.load(Ordering::Relaxed);
        let status = self.harness.status.clone();
        let of = status.shards;
        assert_eq!(of.asked, asked as u64);
        assert_eq!(of.asked + of.covered + of.followed, SHARDS as u64);
        (asked, snapshot)
    }
}

fn sources(snapshot: &Snapshot) -> BTreeMap<Option<MeasuredBy>, usize> {
    let mut sources = BTreeMap::new();
    for target in
        snapshot.targets().filter(|it| it.kind() == TargetKind::Db && it.range().is_some())
    {
        *sources.entry(target.facts().source_of(FactKind::Active)).or_default() += 1;
    }
    sources
}

#[test]
fn requests_a_rotating_sample_of_shards_covered_by_headers() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::Identical, 10));
    let mut asked = Vec::new();
    for _ in 0..64 {
        asked.push(sidecar.sweep().0);
    }
    assert_eq!(asked, [SHARDS / 64; 64]);
    let snapshot = sidecar.sweep().1;
    let expected = BTreeMap::from([(Some(MeasuredBy::Files), 126), (Some(MeasuredBy::Http), 2)]);
    assert_eq!(sources(&snapshot), expected);

    // A commanded sweep asks for everything.
    sidecar.harness.send(ScanCommand::Sweep);
    assert_eq!(sidecar.sweep().0, SHARDS);
    assert_eq!(sidecar.sweep().0, SHARDS / 64);
}

#[test]
fn requests_every_shard_if_nobody_reads_the_files() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::Identical, 10));
    assert_eq!(sidecar.sweep().0, 2);
    sidecar.node.send_modify(|node| node.disk = None);
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!(asked, SHARDS);
    assert_eq!(sources(&snapshot), BTreeMap::from([(Some(MeasuredBy::Http), SHARDS)]));
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::Identical, 10));
    assert_eq!(sidecar.sweep().0, 2);
    // The header may be older than CouchDB's last response.
    sidecar.node.send_modify(|node| {
        let mut file = header(ReportMatch::Identical, 10).unwrap();
        file.facts.measured_at =
            Some(Measurement { at: Moment::from_unix(5), source: MeasuredBy::Files });
        node.disk = Some(file);
    });
    let (asked, _) = sidecar.sweep();
    assert!(asked <= 4, "only shards that CouchDB answered last: {asked}");
}

#[test]
fn sidecar_headers_cover_shards_while_fresh() {
    let at = |at| {
        let mut file = header(ReportMatch::Identical, 10).unwrap();
        let measured = Measurement { at: Moment::from_unix(at), source: MeasuredBy::Files };
        file.facts.measured_at = Some(measured);
        Some(file)
    };
    // Sweeps begin at 1,000 and every 300 seconds from there.
    let mut sidecar = Sidecar::starting(at(1_000));
    sidecar.node.send_modify(|node| node.by_peer = true);
    assert_eq!(sidecar.sweep().0, 2);
    sidecar.node.send_modify(|node| node.disk = at(1_300));
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!(asked, 2);
    assert_eq!(
        snapshot.nodes()[1].disagreements,
        Some(0),
        "the two shards requested before are compared"
    );
    // The sidecar stops reading: two sweeps later, CouchDB is asked for everything.
    for _ in 0..2 {
        assert!(
            sidecar.sweep().0 <= 6,
            "this sweep's sample, and those that CouchDB answered last"
        );
    }
    assert_eq!(sidecar.sweep().0, SHARDS);
    sidecar.node.send_modify(|node| node.disk = None);
    assert_eq!(sidecar.sweep().0, SHARDS);
}

#[test]
fn requests_shard_whose_header_may_differ() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::Different, 10));
    for _ in 0..3 {
        assert_eq!(sidecar.sweep().0, SHARDS);
    }
    // CouchDB reported their last compactions, and their files are the same.
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::ExceptCompactedSeq, 10));
    assert_eq!(sidecar.sweep().0, 2);
    // Other files took their place.
    sidecar.node.send_modify(|node| {
        node.disk =
            header(ReportMatch::ExceptCompactedSeq, 10).map(|it| DbFile { same: false, ..it });
    });
    assert_eq!(sidecar.sweep().0, SHARDS);
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::ExceptCompactedSeq, 10));
    assert_eq!(sidecar.sweep().0, 2);
}

#[test]
fn requests_all_shards_after_a_disagreement_and_those_in_jobs() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::Identical, 11));
    // CouchDB reports 10 active bytes for the two shards that it is asked for.
    let differ = |snapshot: &Snapshot| snapshot.nodes()[1].disagreements;
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!((asked, differ(&snapshot)), (2, Some(2)));
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!((asked, differ(&snapshot)), (SHARDS, Some(SHARDS as u64)), "no header is trusted");
    sidecar.node.send_modify(|node| node.active = 11);
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!((asked, differ(&snapshot)), (SHARDS, Some(0)), "the sources agree again");
    assert_eq!(sidecar.sweep().0, 2);

    sidecar.node.send_modify(|node| node.compact_running = true);
    assert_eq!(sidecar.sweep().0, 2);
    assert_eq!(sidecar.sweep().0, 4, "and the two that were being compacted");
}

/// Makes feeds report every write from now on; none is reported yet.
fn followed(sidecar: &mut Sidecar) {
    let news =
        FeedUpdate { named: vec![], followed_since: Some(Moment::from_unix(1)), map_node: None };
    sidecar.harness.send(ScanCommand::FeedUpdate(news));
}

#[test]
fn requests_confirmed_shard_known_only_from_distrusted_header() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::Identical, 10));
    sidecar.sweep();
    followed(&mut sidecar);
    sidecar.sweep();
    let shards = |sidecar: &Sidecar| sidecar.harness.status.shards;
    sidecar.sweep();
    assert!(shards(&sidecar).followed >= 126, "feeds confirm all shards that are not due");

    // The headers come from another directory: the next due shard shows that.
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::Identical, 11));
    let differ = |snapshot: &Snapshot| snapshot.nodes()[1].disagreements;
    let mut sweeps = 0;
    while differ(&sidecar.sweep().1) != Some(2) {
        sweeps += 1;
        assert!(sweeps < 100, "each shard is due within 72 sweeps");
    }
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!((asked, differ(&snapshot)), (SHARDS, Some(SHARDS as u64)));
    assert_eq!(sources(&snapshot), BTreeMap::from([(Some(MeasuredBy::Http), SHARDS)]));

    // The headers are no longer read; then the right ones are.
    sidecar.node.send_modify(|node| node.disk = None);
    sidecar.sweep();
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::Identical, 10));
    let (_, snapshot) = sidecar.sweep();
    assert_eq!(differ(&snapshot), Some(0));
}

#[test]
fn requests_shard_with_replaced_file_despite_feeds() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::ExceptCompactedSeq, 10));
    assert_eq!(sidecar.sweep().0, SHARDS, "its last compaction is not known");
    followed(&mut sidecar);
    sidecar.sweep();
    assert!(sidecar.sweep().0 <= 2);
    sidecar.node.send_modify(|node| {
        node.disk =
            header(ReportMatch::ExceptCompactedSeq, 8).map(|it| DbFile { same: false, ..it });
        node.active = 8;
    });
    assert_eq!(sidecar.sweep().0, SHARDS);
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::ExceptCompactedSeq, 8));
    assert!(sidecar.sweep().0 <= 2);
}
