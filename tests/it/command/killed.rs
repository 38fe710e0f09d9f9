//! The whole process, enforcing and with smoosh taken over, killed at any moment and restarted:
//! judged by the wire log, the cluster's true state and the journal.

use super::{NODES, PASSWORD, PATIENCE, Site, bloated_world, data_of, enforcing, seed};
use crate::seeded::random_numbers;
use couchdb_sim::{Config, StartedBy};
use recliner::{
    act::takeover::MARK_SECTION,
    model::records::{
        JobOwner, JobResult, Outcome, ScorecardHour, ScorecardRecords, ScorecardSide,
    },
    serve::report::{Outcomes, Planned, Scorecard},
    store::journal::{
        ClusterIdentity, DirectoryStorage, EventDetails, EventsQuery, HistoryQuery,
        JournalSettings, JournalTask,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::Path,
    process::Stdio,
    time::Duration,
};
use tokio::{
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// How often it is killed.
const LIVES: usize = 30;

/// Databases of one range and three copies: enough targets for every life to have work.
const DATABASES: usize = 40;

const TARGETS: usize = DATABASES * NODES.len();

/// Every file is bloated and nothing is written, so one compaction of each suffices.
fn world() -> Config {
    let mut config = bloated_world(DATABASES);
    // Two megabytes per file: a compaction takes about a second.
    config.compaction_rate = 2_000_000;
    config
}

/// Only the limits delay a start, however slow this machine is.
fn yaml() -> String {
    enforcing() + "smoosh: {mode: takeover, takeover: [ratio_dbs]}\n"
}

/// The log of all lives, printed if the test fails.
struct Log<'a>(&'a Path);

impl Log<'_> {
    fn read(&self) -> String {
        fs::read_to_string(self.0.join("log")).unwrap_or_default()
    }
}

impl Drop for Log<'_> {
    #[expect(clippy::print_stdout, reason = "a test that fails says why")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.read();
            let end: Vec<&str> = log.lines().rev().take(60).collect();
            println!("{}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
    }
}

/// One life of the process.
struct Life(Child);

impl Life {
    fn begin(site: &Site, dir: &Path) -> Self {
        let log = File::options().create(true).append(true).open(dir.join("log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_recliner"));
        command.args(["serve", "--web.listen-address", "127.0.0.1:0"]);
        command.args(["--config.file", "recliner.yml", "--storage.path", "data"]);
        command.args(site.urls.iter().flat_map(|url| ["--couchdb.url", url]));
        command.env_clear().env("COUCHDB_USER", "adm").env("COUCHDB_PASSWORD", PASSWORD);
        command.current_dir(dir).stdin(Stdio::null()).kill_on_drop(true);
        command.stderr(log.expect("the file is writable"));
        Self(command.spawn().expect("the process starts"))
    }

    /// Sends SIGKILL.
    async fn kill(mut self) {
        assert_eq!(
            self.0.try_wait().expect("the status is known"),
            None,
            "it did not end by itself"
        );
        time::timeout(PATIENCE, self.0.kill()).await.expect("in time").expect("it is killed");
    }

    /// Sends SIGTERM and asserts a clean exit.
    async fn stop(mut self) {
        let pid = self.0.id().expect("the process is running").to_string();
        let kill = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        assert!(kill.expect("kill runs").success());
        let ended = time::timeout(PATIENCE, self.0.wait()).await.expect("it ends in time");
        assert_eq!(ended.expect("it ends").code(), Some(0));
    }
}

/// Waits for a condition, with a generous timeout.
async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waits = async {
        while !done().await {
            time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = time::timeout(2 * PATIENCE, waits).await;
    assert!(waited.is_ok(), "never {what}");
}

/// The content of a journal.
#[derive(Debug, Default)]
struct Kept {
    /// The starts and ends of each target on each node, in order; `None` is an end.
    starts_and_ends: BTreeMap<(String, String), Vec<Option<Moment>>>,
    outcomes: Vec<Outcome>,
    /// How many compactions predictions have learned from, by database.
    learned: BTreeMap<String, f64>,
    scorecard: ScorecardRecords,
}

/// Reads a copy of the journal as the killed process left it; `None` if there is none yet.
async fn read_journal(dir: &Path) -> Option<Kept> {
    let file = dir.join("data/journal.redb");
    if !file.exists() {
        return None;
    }
    let copy = tempfile::tempdir().expect("a temporary directory");
    fs::copy(file, copy.path().join("journal.redb")).expect("it can be copied");
    let (_settings, settings) = watch::channel(JournalSettings::default());
    let opened = JournalTask::open(DirectoryStorage::new(copy.path()), Clock::System, settings);
    let (task, journal) = opened.unwrap_or_else(|why| panic!("the journal opens: {why}"));
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(task.run(stop.clone()));
    let events = EventsQuery { after_seq: Some(0), limit: usize::MAX, ..EventsQuery::default() };
    let events = journal.events(events).await.expect("it can be read").entries;
    let history = HistoryQuery { limit: usize::MAX, ..HistoryQuery::default() };
    let history = journal.history(history).await.expect("it can be read").entries;
    let mut kept = Kept::default();
    for (_, event) in events {
        let (key, start) = match event.details {
            EventDetails::Started { target, node, .. } => ((target, node), Some(event.at)),
            EventDetails::Finished { target, node, .. }
            | EventDetails::NotStarted { target, node, .. } => ((target, node), None),
            EventDetails::Queued { .. }
            | EventDetails::Refused { .. }
            | EventDetails::Omitted { .. }
            | EventDetails::Suspended { .. }
            | EventDetails::Resumed { .. }
            | EventDetails::RunBegan { .. }
            | EventDetails::RunEnded { .. }
            | EventDetails::Quarantined { .. }
            | EventDetails::Released { .. }
            | EventDetails::TakenOver(_)
            | EventDetails::Restored(_)
            | EventDetails::Ordered { .. }
            | EventDetails::Lapsed { .. }
            | EventDetails::IndexBuildStarted { .. }
            | EventDetails::IndexBuildFinished { .. }
            | EventDetails::AdviceGiven { .. }
            | EventDetails::AdviceGone { .. }
            | EventDetails::AdviceMuted { .. }
            | EventDetails::AdviceUnmuted { .. }
            | EventDetails::Created { .. }
            | EventDetails::Updated { .. }
            | EventDetails::Deleted { .. } => continue,
        };
        kept.starts_and_ends.entry((key.0.to_string(), key.1)).or_default().push(start);
    }
    kept.outcomes = history.into_iter().map(|(_, outcome)| outcome).collect();
    let nodes = NODES.iter().map(|node| (*node).to_owned()).collect();
    let cluster = ClusterIdentity { uuids: BTreeSet::new(), nodes };
    let state = journal.claim(cluster).await.expect("it is this cluster's");
    kept.scorecard = state.scorecard;
    kept.learned =
        state.corrections.into_iter().map(|(key, it)| (key.db.into(), it.outcomes)).collect();
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    Some(kept)
}

impl Site {
    /// The requested compactions, as target ids with their nodes, and the times of the requests.
    fn sent(&self) -> Vec<((String, String), Moment)> {
        let start = self.cluster.wall().unix() - self.cluster.elapsed().as_secs();
        let orders = self.cluster.write_requests().into_iter();
        let posts = orders.filter(|order| order.method == http::Method::POST);
        posts
            .map(|order| {
                let parts: Vec<&str> = order.path.trim_start_matches('/').split('/').collect();
                let ["_node", node, shard, "_compact"] = *parts else {
                    panic!("{} was sent", order.path);
                };
                let id = format!("db:{node}/{shard}");
                let id: recliner::model::target::TargetId = id.parse().expect("it is a shard's");
                let at = start + order.at.as_secs() + 1;
                let node = percent_encoding::percent_decode_str(node).decode_utf8_lossy();
                ((id.to_string(), node.into_owned()), Moment::from_unix(at))
            })
            .collect()
    }

    /// The concurrency of the taken-over channel and whether it is marked, by node.
    fn settings(&self) -> Vec<(Option<String>, bool)> {
        self.cluster.world(|world| {
            let each = NODES.iter().map(|node| {
                let value = world.setting(node, "smoosh.ratio_dbs", "concurrency");
                (value.map(str::to_owned), world.section(node, MARK_SECTION).is_some())
            });
            each.collect()
        })
    }

    /// Checks the invariants that hold whenever the process was just killed.
    fn check(&self, kept: Option<&Kept>) {
        let sent = self.sent();
        let once: BTreeSet<_> = sent.iter().map(|(key, _)| key).collect();
        assert_eq!(once.len(), sent.len(), "no request is sent twice: {sent:#?}");
        let compactions = self.cluster.world(|world| world.compactions());
        let wrong = compactions.iter().filter(|one| one.by != StartedBy::Request || one.other_copy);
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty(), "{wrong:#?} of {compactions:#?}");
        assert_eq!(compactions.len(), sent.len(), "each request started one compaction");
        for (key, at) in &sent {
            let journal = kept.and_then(|kept| kept.starts_and_ends.get(key));
            let before = journal.is_some_and(|it| it.iter().flatten().any(|start| start <= at));
            assert!(before, "{key:?} was sent at {at:?} and not kept before: {journal:?}");
        }
        for (key, journal) in kept.iter().flat_map(|kept| &kept.starts_and_ends) {
            let turns =
                journal.iter().enumerate().all(|(at, it)| it.is_some() == at.is_multiple_of(2));
            assert!(turns, "{key:?} begins and ends in turn: {journal:?}");
        }
        for (value, marked) in self.settings() {
            assert!(value.as_deref() != Some("0") || marked, "a stopped channel is marked");
        }
    }
}

/// Sets smoosh before any takeover: one node in its files, one until a restart, one not at all.
fn set_smoosh(site: &Site) -> Vec<(Option<String>, bool)> {
    site.cluster.world(|world| {
        world.set(NODES[0], "smoosh.ratio_dbs", "concurrency", "2");
        world.set_until_restart(NODES[1], "smoosh.ratio_dbs", "concurrency", "7");
    });
    site.settings()
}

#[tokio::test]
async fn killed_at_any_moment_starts_nothing_twice_and_loses_nothing() {
    let mut random = random_numbers(seed());
    let mut below = |most: u8| random().to_le_bytes()[7] % most;
    let site = Site::open(world()).await;
    let before = set_smoosh(&site);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let log = Log(dir);
    fs::write(dir.join("recliner.yml"), yaml()).unwrap();

    let (mut lives, mut taken) = (0, false);
    while lives < LIVES && site.sent().len() < TARGETS {
        let life = Life::begin(&site, dir);
        if below(5) == 0 {
            time::sleep(Duration::from_millis(u64::from(below(250)) * 2)).await;
        } else {
            let wanted = site.cluster.write_requests().len() + 1 + usize::from(below(6));
            until("sent anything", async || {
                site.cluster.write_requests().len() >= wanted || site.sent().len() == TARGETS
            })
            .await;
            let while_it_goes_on = [0, below(5), below(50)][usize::from(below(3))];
            time::sleep(Duration::from_millis(u64::from(while_it_goes_on))).await;
        }
        life.kill().await;
        lives += 1;
        site.check(read_journal(dir).await.as_ref());
        let stopped = site.settings().iter().all(|(value, _)| value.as_deref() == Some("0"));
        assert!(stopped || !taken, "what is taken over stays so: {:?}", site.settings());
        taken |= stopped;
    }
    println!("killed {lives} times, {} of {TARGETS} compactions were begun", site.sent().len());

    let life = Life::begin(&site, dir);
    wait_until_done(&log).await;
    life.stop().await;
    assert_eq!(site.settings(), before, "smoosh is restored and no mark is left");
    let kept = read_journal(dir).await.expect("there is a journal");
    site.check(Some(&kept));
    assert_eq!(site.sent().len(), TARGETS);
    assert!(
        kept.starts_and_ends.values().all(|it| it.len().is_multiple_of(2)),
        "every start has an end"
    );
    let mut freed = BTreeMap::new();
    for outcome in &kept.outcomes {
        assert_eq!(outcome.owner, JobOwner::Recliner, "it recognises its own jobs: {outcome:?}");
        match outcome.ending {
            JobResult::Freed => *freed.entry(outcome.target.to_string()).or_insert(0) += 1,
            // Recorded, but killed before the request was sent.
            JobResult::Lost => {}
            JobResult::NothingFreed
            | JobResult::Grew
            | JobResult::Unmeasured
            | JobResult::Failed => {
                panic!("{outcome:?}")
            }
        }
    }
    assert_eq!(freed.len(), TARGETS, "each has its outcome");
    assert!(freed.values().all(|times| *times == 1), "one outcome for each target: {freed:?}");
    let copies = NODES.len() as f64;
    assert_eq!(kept.learned.len(), DATABASES);
    let once_each = kept.learned.values().all(|count| (count - copies).abs() < 0.01);
    assert!(once_each, "each compaction taught once: {:?}", kept.learned);

    // Takes smoosh over once more, so that only the command restores it.
    let life = Life::begin(&site, dir);
    until("taken over", async || {
        site.settings().iter().all(|(value, marked)| *marked && value.as_deref() == Some("0"))
    })
    .await;
    life.kill().await;
    let ran = site.run(&["restore-smoosh"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert_eq!(site.settings(), before);
    let log = log.read();
    assert!(!log.contains("panicked") && !log.contains(PASSWORD), "{log}");
}

/// The API of the life that logged last.
struct Api<'a> {
    log: &'a Log<'a>,
    http: reqwest::Client,
}

impl<'a> Api<'a> {
    fn new(log: &'a Log<'a>) -> Self {
        let _again = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().expect("the HTTP client is valid");
        Self { log, http }
    }

    /// A response; `None` while the process does not serve yet.
    async fn get(&self, path: &str) -> Option<String> {
        let log = self.log.read();
        let last = log.lines().rev().find_map(|line| line.split_once("address=")).map(|it| it.1);
        let address = last.and_then(|rest| rest.split_whitespace().next())?;
        let answer = self.http.get(format!("http://{address}/api/v1/{path}")).send().await.ok()?;
        if answer.status().is_success() { answer.text().await.ok() } else { None }
    }
}

/// Waits until every target has its outcome, and checks the plan meanwhile.
async fn wait_until_done(log: &Log<'_>) {
    let api = Api::new(log);
    until("over", async || {
        time::sleep(Duration::from_millis(50)).await;
        let Some(plan) = api.get("plan?limit=1000").await else { return false };
        let plan: Planned = data_of(&plan);
        let starts = plan.starts.iter().map(|line| &line.id);
        let decided: Vec<&String> =
            starts.chain(plan.refused.iter().map(|line| &line.id)).collect();
        let once: BTreeSet<&String> = decided.iter().copied().collect();
        assert_eq!(once.len(), decided.len(), "decided once each: {plan:?}");
        assert_eq!(plan.refused.len(), plan.total, "each of them");
        let history = api.get("history?result=freed&limit=1000").await;
        let Some(history) = history else { return false };
        data_of::<Outcomes>(&history).outcomes.len() >= TARGETS
    })
    .await;
}

#[tokio::test]
async fn killed_process_still_waits_between_starts() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let log = Log(dir);
    let api = Api::new(&log);
    fs::write(dir.join("recliner.yml"), enforcing().replace("wait: 0s", "wait: 1h")).unwrap();
    for _ in 0..2 {
        let life = Life::begin(&site, dir);
        until("decided, one started on each node", async || {
            time::sleep(Duration::from_millis(50)).await;
            let Some(plan) = api.get("plan?limit=1000").await else { return false };
            let plan: Planned = data_of(&plan);
            plan.starts.is_empty() && plan.total > 0 && site.sent().len() >= NODES.len()
        })
        .await;
        time::sleep(Duration::from_secs(3)).await;
        life.kill().await;
        assert_eq!(site.sent().len(), NODES.len());
    }
}

/// How often a process in advise mode is killed.
const ADVISING_LIVES: usize = 12;

/// Checks the scorecard in a world without writes, where each file is compacted once.
fn check_scorecard(kept: &ScorecardRecords, before: &ScorecardRecords) -> ScorecardSide {
    let sum = |records: &ScorecardRecords| {
        let mut sum = ScorecardHour::default();
        records.hours.values().for_each(|hour| sum.add(hour));
        sum.advised
    };
    let (now, earlier) = (sum(kept), sum(before));
    assert_eq!(now.compactions, kept.targets.len() as u64, "each compaction counts once: {kept:?}");
    let freed: u64 = kept.targets.values().map(|it| it.file_bytes - it.left_bytes).sum();
    assert_eq!(now.freed_bytes, freed, "its bytes count once as well");
    assert!(before.targets.iter().all(|(id, it)| kept.targets.get(id) == Some(it)), "none is lost");
    assert!(earlier.compactions <= now.compactions && earlier.freed_bytes <= now.freed_bytes);
    let running: BTreeSet<_> = kept.jobs.iter().map(|job| &job.target).collect();
    assert_eq!(running.len(), kept.jobs.len(), "none runs twice: {:?}", kept.jobs);
    assert!(running.iter().all(|id| !kept.targets.contains_key(id)), "none runs again: {kept:?}");
    // Every earlier job either ended and was counted, or still runs.
    let goes_on = |id| kept.targets.contains_key(id) || running.contains(id);
    assert!(before.jobs.iter().all(|job| goes_on(&job.target)), "{before:?} and then {kept:?}");
    now
}

#[tokio::test]
async fn killed_at_any_moment_keeps_the_advice_scorecard() {
    let mut random = random_numbers(seed());
    let mut below = |most: u8| random().to_le_bytes()[7] % most;
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let log = Log(dir);
    let api = Api::new(&log);
    fs::write(dir.join("recliner.yml"), enforcing().replace("mode: enforce", "mode: advise"))
        .unwrap();

    let mut before = ScorecardRecords::default();
    for life in 0..ADVISING_LIVES {
        let advising = Life::begin(&site, dir);
        let lived = log.read().matches("address=").count();
        if life % 4 == 3 {
            // Some lives are killed before their first step.
            time::sleep(Duration::from_millis(u64::from(below(250)) * 2)).await;
        } else {
            until("advised anything", async || {
                time::sleep(Duration::from_millis(5)).await;
                if log.read().matches("address=").count() == lived {
                    return false;
                }
                let card = api.get("scorecard").await.map(|body| data_of::<Scorecard>(&body));
                card.is_some_and(|card| card.state == "advising")
            })
            .await;
            time::sleep(Duration::from_millis(u64::from(below(100)))).await;
        }
        advising.kill().await;
        // Jobs take a second, so that the next life finds them ended.
        time::sleep(Duration::from_millis(700)).await;
        if let Some(kept) = read_journal(dir).await {
            check_scorecard(&kept.scorecard, &before);
            before = kept.scorecard;
        }
    }
    let advised = check_scorecard(&before, &before);
    println!("{} of {TARGETS} compactions were advised", advised.compactions);
    let advised_compactions = usize::try_from(advised.compactions).expect("a small number");
    assert!(advised_compactions >= TARGETS / 10, "{advised:?}");
    assert_eq!(site.cluster.write_requests().len(), 0, "nothing was sent");
    let log = log.read();
    assert!(!log.contains("panicked") && !log.contains(PASSWORD), "{log}");
}
