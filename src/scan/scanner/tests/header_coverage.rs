//! Shards that CouchDB is not asked for, because their headers cover what it would say.

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

/// One node with many shards, whose files somebody reads.
#[derive(Clone, Debug)]
struct Node {
    /// What the headers say; none where nobody reads them.
    disk: Option<DbFile>,
    /// Whether another process reads them.
    by_peer: bool,
    active: u64,
    compact_running: bool,
}

#[derive(Debug)]
struct Answers {
    node: watch::Receiver<Node>,
    /// Shards that CouchDB was asked for.
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
            Stage::Map => {
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
                    Observation::Shard { ix, facts: Ok(Some(facts)) }
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

/// The harness, the node behind it, and what was asked of it in each sweep so far.
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

    /// How many shards CouchDB is asked for in the next sweep, and what is known after it.
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
fn of_covered_shards_couchdb_is_asked_for_a_sample_and_for_each_in_its_turn() {
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
fn everything_is_asked_for_again_where_nobody_reads_the_files() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::Identical, 10));
    assert_eq!(sidecar.sweep().0, 2);
    sidecar.node.send_modify(|node| node.disk = None);
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!(asked, SHARDS);
    assert_eq!(sources(&snapshot), BTreeMap::from([(Some(MeasuredBy::Http), SHARDS)]));
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::Identical, 10));
    assert_eq!(sidecar.sweep().0, 2);
    // What the header says may be older than what CouchDB said since.
    sidecar.node.send_modify(|node| {
        let mut file = header(ReportMatch::Identical, 10).unwrap();
        file.facts.measured_at =
            Some(Measurement { at: Moment::from_unix(5), source: MeasuredBy::Files });
        node.disk = Some(file);
    });
    let (asked, _) = sidecar.sweep();
    assert!(asked <= 4, "only those that CouchDB was asked for last: {asked}");
}

#[test]
fn a_sidecars_headers_cover_shards_as_long_as_they_are_fresh() {
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
    assert_eq!(snapshot.nodes()[1].disagreements, Some(0), "the two of before are compared");
    // It stops reading: once that is two sweeps ago, CouchDB is asked for everything.
    for _ in 0..2 {
        assert!(sidecar.sweep().0 <= 6, "new ones, and those that CouchDB answered last");
    }
    assert_eq!(sidecar.sweep().0, SHARDS);
    sidecar.node.send_modify(|node| node.disk = None);
    assert_eq!(sidecar.sweep().0, SHARDS);
}

#[test]
fn a_shard_whose_header_may_differ_from_couchdb_is_asked_for() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::Different, 10));
    for _ in 0..3 {
        assert_eq!(sidecar.sweep().0, SHARDS);
    }
    // CouchDB has said their last compactions, and their files are the same.
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::ExceptCompactedSeq, 10));
    assert_eq!(sidecar.sweep().0, 2);
    // Others took their place.
    sidecar.node.send_modify(|node| {
        node.disk =
            header(ReportMatch::ExceptCompactedSeq, 10).map(|it| DbFile { same: false, ..it });
    });
    assert_eq!(sidecar.sweep().0, SHARDS);
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::ExceptCompactedSeq, 10));
    assert_eq!(sidecar.sweep().0, 2);
}

#[test]
fn shards_in_a_job_are_asked_for_and_all_of_a_node_with_a_disputed_header() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::Identical, 11));
    // CouchDB says 10 active bytes of the two it is asked for.
    let differ = |snapshot: &Snapshot| snapshot.nodes()[1].disagreements;
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!((asked, differ(&snapshot)), (2, Some(2)));
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!((asked, differ(&snapshot)), (SHARDS, Some(SHARDS as u64)), "no header is trusted");
    sidecar.node.send_modify(|node| node.active = 11);
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!((asked, differ(&snapshot)), (SHARDS, Some(0)), "they have come to agree");
    assert_eq!(sidecar.sweep().0, 2);

    sidecar.node.send_modify(|node| node.compact_running = true);
    assert_eq!(sidecar.sweep().0, 2);
    assert_eq!(sidecar.sweep().0, 4, "and the two that were being compacted");
}

/// Feeds name every write from now on, and have named none.
fn followed(sidecar: &mut Sidecar) {
    let news = FeedUpdate { named: vec![], followed_since: Some(Moment::from_unix(1)) };
    sidecar.harness.send(ScanCommand::FeedUpdate(news));
}

#[test]
fn a_confirmed_shard_is_asked_for_where_only_a_distrusted_header_described_it() {
    let mut sidecar = Sidecar::starting(header(ReportMatch::Identical, 10));
    sidecar.sweep();
    followed(&mut sidecar);
    sidecar.sweep();
    let shards = |sidecar: &Sidecar| sidecar.harness.status.shards;
    sidecar.sweep();
    assert!(shards(&sidecar).followed >= 126, "feeds confirm all that has no turn");

    // The headers are another directory's: one shard that has its turn shows it.
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::Identical, 11));
    let differ = |snapshot: &Snapshot| snapshot.nodes()[1].disagreements;
    let mut sweeps = 0;
    while differ(&sidecar.sweep().1) != Some(2) {
        sweeps += 1;
        assert!(sweeps < 100, "each has its turn within 72 sweeps");
    }
    let (asked, snapshot) = sidecar.sweep();
    assert_eq!((asked, differ(&snapshot)), (SHARDS, Some(SHARDS as u64)));
    assert_eq!(sources(&snapshot), BTreeMap::from([(Some(MeasuredBy::Http), SHARDS)]));

    // Nobody reads them any more; then somebody reads the right ones.
    sidecar.node.send_modify(|node| node.disk = None);
    sidecar.sweep();
    sidecar.node.send_modify(|node| node.disk = header(ReportMatch::Identical, 10));
    let (_, snapshot) = sidecar.sweep();
    assert_eq!(differ(&snapshot), Some(0));
}

#[test]
fn a_shard_whose_file_was_replaced_is_asked_for_though_feeds_confirm_it() {
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
