use super::*;
use crate::{
    model::settings::work::JournalRetention,
    store::journal::{ClusterIdentity, InMemory, JournalTask},
};
use access_log::{Class, How, UseKey};
use couchdb_client::Address;
use rustix::fs::{CWD, FileType, mknodat};
use serde_json::{Value, json};
use std::{fs, io::Write as _, path::Path};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;
use wall_clock::Moment;

const NOW: &str = "2026-11-27T06:00:00Z";

/// Runs a task with this journal and log until it has published this many reads of the view.
struct Rig {
    journal: Journal,
    tasks: JoinSet<()>,
    stop: CancellationToken,
    reads: watch::Receiver<Arc<Reads>>,
    _settings: watch::Sender<TaskSettings>,
    _snapshots: watch::Sender<Arc<Snapshot>>,
}

async fn journal(tasks: &mut JoinSet<()>) -> Journal {
    let journal = unclaimed_journal(tasks);
    claim(&journal).await;
    journal
}

fn unclaimed_journal(tasks: &mut JoinSet<()>) -> Journal {
    let (_settings, settings) = watch::channel(JournalRetention::default());
    let (task, journal) = JournalTask::open(InMemory::default(), clock(), settings).unwrap();
    tasks.spawn(async move {
        let _kept = _settings;
        task.run(CancellationToken::new()).await;
    });
    journal
}

async fn claim(journal: &Journal) {
    let cluster =
        ClusterIdentity { uuids: ["u".to_owned()].into(), nodes: ["a".to_owned()].into() };
    journal.claim(cluster).await.unwrap();
}

fn clock() -> Clock {
    Clock::anchored(Moment::parse(NOW).unwrap())
}

impl Rig {
    fn start(journal: Journal, log: &Path) -> Self {
        let reads = ReadsSettings { logs: vec![log.to_owned()], proxies_see_all: false };
        Self::start_with(journal, TaskSettings { reads, peers: None })
    }

    fn start_with(journal: Journal, settings: TaskSettings) -> Self {
        let (settings_tx, settings) = watch::channel(settings);
        let (snapshots_tx, snapshots) = watch::channel(Arc::default());
        let inputs = ReadsInputs { journal: journal.clone(), snapshots, settings };
        let (task, reads) = ReadsTask::new(clock(), inputs);
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        tasks.spawn(task.run(stop.clone()));
        Self { journal, tasks, stop, reads, _settings: settings_tx, _snapshots: snapshots_tx }
    }

    async fn wait_for(&mut self, count: u64) {
        let of_view = |reads: &Arc<Reads>| -> u64 {
            let uses = reads.sources.values().flat_map(|source| &source.uses);
            let read = uses.filter(|(key, _)| key.how == How::Read);
            read.flat_map(|(_, sum)| sum.recent.values()).sum()
        };
        self.reads.wait_for(|reads| of_view(reads) == count).await.unwrap();
    }

    async fn end(mut self) -> Journal {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.journal
    }
}

fn lines(count: usize) -> String {
    "[notice] 2026-11-26T05:00:00.8Z a <0.1.0> b5 h 127.0.0.1 admin GET /db/_design/d/_view/v 200 ok 36\n"
        .repeat(count)
}

#[tokio::test(start_paused = true)]
async fn each_log_line_counts_once_across_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("couch.log");
    fs::write(&log, lines(3)).unwrap();
    let mut tasks = JoinSet::new();
    let mut rig = Rig::start(journal(&mut tasks).await, &log);
    rig.wait_for(3).await;
    fs::write(&log, lines(5)).unwrap();
    rig.wait_for(5).await;
    let kept = rig.end().await;
    fs::write(&log, lines(6)).unwrap();
    let mut rig = Rig::start(kept, &log);
    rig.wait_for(6).await;
    let kept = rig.end().await;
    fs::remove_file(&log).unwrap();
    let mut rig = Rig::start(kept, &log);
    let published = rig.reads.wait_for(|reads| !reads.problems.is_empty()).await.unwrap().clone();
    rig.wait_for(6).await;
    assert_eq!(published.problems.len(), 1, "{:?}", published.problems);
    let broken: Vec<u32> =
        published.sources.values().flat_map(|it| it.days.values()).map(|it| it.broken).collect();
    assert_eq!(broken, [1 << 5], "what came before the first line is not known");
}

#[tokio::test(start_paused = true)]
async fn stored_days_beyond_the_retention_are_removed() {
    let mut tasks = JoinSet::new();
    let journal = journal(&mut tasks).await;
    let today = Day::of(Moment::parse(NOW).unwrap().unix());
    let name = |ago| name_of(&Source::Node("a".to_owned()), today.ago(ago));
    let names = vec![name(KEPT_DAYS + 1), name(KEPT_DAYS)];
    let day = Some(postcard::to_stdvec(&DayReads::default()).unwrap());
    let days = names.iter().map(|name| (name.clone(), day.clone())).collect();
    journal.save_reads(Vec::new(), days).await.unwrap();
    let mut rig = Rig::start_with(journal, TaskSettings::default());
    rig.reads.changed().await.unwrap();
    let journal = rig.end().await;
    assert_eq!(journal.days_of_reads(names).await.unwrap(), [None, day]);
}

#[expect(clippy::disallowed_methods, reason = "a test is its own supervisor")]
async fn sidecar(answer: Value) -> (Address, AbortOnDropHandle<()>) {
    let answer = axum::routing::get(move || std::future::ready(axum::Json(answer)));
    let router = axum::Router::new().route("/api/v1/reads", answer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, AbortOnDropHandle::new(server))
}

#[tokio::test]
async fn reads_logged_by_sidecars_are_included() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let mut logs = LogReads::default();
    crate::reads::read_stream(lines(2).as_bytes(), "", &mut logs).unwrap();
    let proxy = r#"192.0.2.1 - - [26/Nov/2026:05:00:00 +0000] "GET /_up HTTP/1.1" 200 12"#;
    crate::reads::read_stream(format!("{proxy}\n").as_bytes(), "/var/log/x.log", &mut logs)
        .unwrap();
    let answer = ReadsAnswer::of(&Reads::of_logs(&logs));
    let (here, _server) = sidecar(json!({ "data": answer })).await;
    let (odd, _other) = sidecar(json!({ "data": { "sources": 7 } })).await;
    let mut tasks = JoinSet::new();
    let peers = PeersSource::new(&[here.clone(), odd], None, clock()).unwrap();
    let settings = TaskSettings { reads: ReadsSettings::default(), peers };
    let mut rig = Rig::start_with(journal(&mut tasks).await, settings);
    rig.wait_for(2).await;
    let reads = rig.reads.borrow().clone();
    let names: Vec<Source> = reads.sources.keys().cloned().collect();
    let log = Source::Proxy(format!("{here}: /var/log/x.log"));
    assert_eq!(names, [Source::Node("a".to_owned()), log], "logs of two machines differ");
    assert!(
        reads.problems.len() == 1 && reads.problems[0].contains("It is unknown which logs"),
        "{reads:?}"
    );
    rig.end().await;
}

#[test]
fn stored_names_of_days_are_parsed_back() {
    for source in [Source::Node("couchdb@a:b".to_owned()), Source::Proxy("/var/log/a:b".to_owned())]
    {
        let name = name_of(&source, Day(20_784));
        assert_eq!(parse_name(&name), Some((Day(20_784), source)));
    }
    assert!(
        name_of(&Source::Node("z".to_owned()), Day(9))
            < name_of(&Source::Node("a".to_owned()), Day(10))
    );
    assert_eq!(parse_name("x:node:a"), None);
}

#[tokio::test(start_paused = true)]
async fn reads_are_published_soon_after_the_journal_is_claimed() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("couch.log");
    fs::write(&log, lines(3)).unwrap();
    let mut tasks = JoinSet::new();
    let journal = unclaimed_journal(&mut tasks);
    let mut rig = Rig::start(journal, &log);
    time::sleep(Duration::from_secs(5)).await;
    assert!(rig.reads.borrow().sources.is_empty());
    claim(&rig.journal).await;
    let claimed = Instant::now();
    rig.wait_for(3).await;
    assert!(claimed.elapsed() <= CLAIM_INTERVAL, "{:?}", claimed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn restart_leaves_a_gap_in_a_log_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("couchdb.pipe");
    mknodat(CWD, &log, FileType::Fifo, 0o600.into(), 0).unwrap();
    let mut tasks = JoinSet::new();
    let mut kept = journal(&mut tasks).await;
    let mut covered = 0;
    for (hours, count) in [([6, 7, 8], 3), ([8, 9, 10], 6)] {
        let mut rig = Rig::start(kept, &log);
        // Opened for reading too, so that it does not wait for the task.
        let mut writer = fs::File::options().read(true).write(true).open(&log).unwrap();
        for hour in hours {
            let line = lines(1).replace("26T05", &format!("27T{hour:02}"));
            writer.write_all(line.as_bytes()).unwrap();
        }
        rig.wait_for(count).await;
        covered = rig.reads.borrow().sources.values().next().unwrap().days[&Day(20_784)].covered();
        kept = rig.end().await;
    }
    assert_eq!(covered, 1 << 7 | 1 << 9);
}

/// Values that an earlier release stored can be read.
#[test]
fn stored_values_keep_their_encoding() {
    let key = UseKey {
        db: "orders".to_owned(),
        design: "_design/app".to_owned(),
        view: "by_day".to_owned(),
        how: How::Read,
        class: Class::Unknown,
    };
    let day = DayReads { hours: 1 << 5 | 1, broken: 1 << 5, uses: BTreeMap::from([(key, 300)]) };
    let bytes = postcard::to_stdvec(&day).unwrap();
    assert_eq!(bytes, b"! \x01\x06orders\x0b_design/app\x06by_day\x00\x00\xac\x02");
    assert_eq!(postcard::from_bytes::<DayReads>(&bytes).unwrap(), day);
    let ways = [How::Read, How::Find, How::Function, How::Seen, How::Written, How::Refused];
    let classes = [Class::Unknown, Class::Browser, Class::Replicator, Class::Library];
    assert_eq!(postcard::to_stdvec(&ways).unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(postcard::to_stdvec(&classes).unwrap(), [0, 1, 2, 3]);
    for source in [Source::Node("a@b".to_owned()), Source::Proxy("/var/log/a:b".to_owned())] {
        assert_eq!(parse_name(&name_of(&source, Day(20_784))), Some((Day(20_784), source)));
    }
    assert_eq!(name_of(&Source::Node("a@b".to_owned()), Day(20_784)), "0000020784:node:a@b");
}

/// Since when design documents are known is stored after the positions in the logs. An earlier release's value can be
/// read; otherwise no index would count as unread for as long again.
#[test]
fn stored_designs_keep_their_encoding() {
    let known = BTreeMap::from([(("orders".to_owned(), "_design/app".to_owned()), Day(20_784))]);
    let bytes = encode_progress(&[7, 8], &known);
    assert_eq!(bytes, b"\x02\x07\x08\x01\x06orders\x0b_design/app\xb0\xa2\x01");
    assert_eq!(decode_progress(&bytes), (vec![7, 8], known));
}
