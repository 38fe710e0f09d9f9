//! Tests the task on paused time, with a scripted meter.

use super::*;
use crate::{
    jobs::{JobKey, JobKind, JobPhase},
    model::{records::JobOwner, target::TargetKind},
    table::Draft,
};
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};
use tokio::task::JoinSet;

const START: u64 = 1_000_000;

type Script = dyn Fn(&SpaceSource, Moment) -> BoxFuture<'static, Result<VolumeMeasurement, String>>
    + Send
    + Sync;

struct Scripted {
    script: Box<Script>,
    queries: AtomicUsize,
    /// The unfinished files of the last query.
    unfinished: Mutex<Option<Vec<PathBuf>>>,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Scripted")
    }
}

impl SpaceMeter for Scripted {
    fn measure(
        &self,
        source: &SpaceSource,
        unfinished: Option<Vec<PathBuf>>,
        now: Moment,
    ) -> BoxFuture<'static, Result<VolumeMeasurement, String>> {
        self.queries.fetch_add(1, Ordering::SeqCst);
        *self.unfinished.lock().unwrap() = unfinished;
        (self.script)(source, now)
    }
}

fn free(available: u64, at: Moment) -> VolumeMeasurement {
    VolumeMeasurement {
        space: VolumeSpace { available, size: None, held: None, measured_at: at },
        device: None,
    }
}

fn ready(
    measured: Result<VolumeMeasurement, String>,
) -> BoxFuture<'static, Result<VolumeMeasurement, String>> {
    std::future::ready(measured).boxed()
}

fn prometheus_volume(nodes: &[&str]) -> limits::VolumeSettings {
    limits::VolumeSettings {
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        free: Free::Prometheus {
            url: "http://prom:9090".parse().unwrap(),
            query: "free".to_owned(),
            size_query: None,
            max_age: Duration::from_secs(300),
        },
        size: None,
    }
}

fn settings(volumes: Vec<limits::VolumeSettings>) -> DiskSettings {
    DiskSettings { volumes, local: None, poll: Duration::from_secs(5) }
}

struct Running {
    meter: Arc<Scripted>,
    disks: watch::Receiver<Arc<Disks>>,
    settings: watch::Sender<Arc<DiskSettings>>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    jobs: watch::Sender<Arc<Jobs>>,
    _tasks: JoinSet<()>,
}

impl Running {
    fn start(
        settings: DiskSettings,
        script: impl Fn(&SpaceSource, Moment) -> BoxFuture<'static, Result<VolumeMeasurement, String>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let clock = Clock::anchored(Moment::from_unix(START));
        let meter = Arc::new(Scripted {
            script: Box::new(script),
            queries: AtomicUsize::new(0),
            unfinished: Mutex::default(),
        });
        let (settings, settings_rx) = watch::channel(Arc::new(settings));
        let (snapshots, snapshots_rx) = watch::channel(Arc::default());
        let (jobs, jobs_rx) = watch::channel(Arc::default());
        let dyn_meter: Arc<dyn SpaceMeter> = Arc::<Scripted>::clone(&meter);
        let (task, disks) = DiskTask::new(clock, dyn_meter, settings_rx, snapshots_rx, jobs_rx);
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(CancellationToken::new()));
        Self { meter, disks, settings, snapshots, jobs, _tasks: tasks }
    }

    /// The published volumes `seconds` later.
    async fn at(&self, seconds: u64) -> Arc<Disks> {
        let clock = self.disks.clone();
        let until = Instant::now() + Duration::from_secs(seconds);
        time::sleep_until(until + Duration::from_millis(1)).await;
        Arc::clone(&clock.borrow())
    }

    fn queries(&self) -> usize {
        self.meter.queries.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn free_space_is_unknown_if_the_directory_is_another_nodes() {
    let directories = vec!["/srv/data".into()];
    let local = Some(LocalDirectories { node: "couchdb@a".to_owned(), directories });
    let running = Running::start(DiskSettings { local, ..settings(vec![]) }, |_, now| {
        ready(Ok(free(7, now)))
    });
    let space =
        |disks: Arc<Disks>| disks.volumes.first().unwrap().space.map(|space| space.available);
    assert_eq!(space(running.at(1).await), Some(7));
    let found = |problem: Option<&str>| {
        let mut draft = Draft::new(5);
        let at = draft.get_or_add_node("couchdb@a");
        draft.update_node(at, |node| node.foreign_directory = problem.map(Into::into));
        draft.publish(Moment::from_unix(START))
    };
    running.snapshots.send_replace(found(Some("has 0 of the 35 files")));
    // Before the next measurement.
    let disks = running.at(1).await;
    assert_eq!(space(Arc::clone(&disks)), None);
    let problem = disks.volumes.first().unwrap().problem.as_deref();
    assert!(problem.is_some_and(|problem| problem.contains("0 of the 35")), "{problem:?}");
    running.snapshots.send_replace(found(None));
    assert_eq!(space(running.at(6).await), Some(7));
}

#[tokio::test(start_paused = true)]
async fn keeps_the_last_free_space_after_failures_until_it_is_too_old() {
    let failing_from = Moment::from_unix(START + 20);
    let running = Running::start(
        settings(vec![prometheus_volume(&["couchdb@a", "couchdb@b"])]),
        move |_, now| {
            let answers = now < failing_from || now >= Moment::from_unix(START + 600);
            ready(if answers { Ok(free(7, now)) } else { Err("HTTP 503".to_owned()) })
        },
    );
    let disks = running.at(1).await;
    let [volume] = disks.volumes.as_slice() else { panic!("{disks:?}") };
    assert_eq!((&*volume.name, volume.nodes.len()), ("couchdb@a", 2));
    assert_eq!(
        volume.space.map(|space| (space.available, space.measured_at.unix())),
        Some((7, START))
    );
    assert_eq!(volume.problem, None);
    assert_eq!(disks.of_node("couchdb@b").count(), 1);

    let disks = running.at(60).await;
    assert!(disks.volumes[0].space.is_some());
    assert_eq!(disks.volumes[0].problem.as_deref(), Some("HTTP 503"));
    let disks = running.at(260).await;
    assert_eq!(disks.volumes[0].space, None, "301 seconds and more are too old");
    assert_eq!(running.queries(), 11, "a query each 30 s");
    let disks = running.at(310).await;
    assert_eq!(disks.volumes[0].space.map(|space| space.available), Some(7));
    assert_eq!(disks.volumes[0].problem, None);
}

#[tokio::test(start_paused = true)]
async fn volume_is_not_measured_again_while_a_measurement_is_pending() {
    let volumes =
        settings(vec![prometheus_volume(&["couchdb@a"]), prometheus_volume(&["couchdb@b"])]);
    let running = Running::start(volumes, |_, _| std::future::pending().boxed());
    running.at(3_600).await;
    assert_eq!(running.queries(), 2);
    let late = running.disks.borrow().volumes[0].problem.clone();
    assert_eq!(late.as_deref(), Some("no answer within 10s"));
    let other = prometheus_volume(&["couchdb@c"]);
    running.settings.send_modify(|settings| Arc::make_mut(settings).volumes.push(other));
    let disks = running.at(60).await;
    assert_eq!(running.queries(), 3);
    let [a, .., c] = disks.volumes.as_slice() else { panic!("{disks:?}") };
    assert_eq!((a.space, c.space, &*c.name), (None, None, "couchdb@c"));
}

#[tokio::test(start_paused = true)]
async fn directories_on_one_file_system_form_one_volume() {
    let local = |paths: &[&str]| LocalDirectories {
        node: "couchdb@a".to_owned(),
        directories: paths.iter().map(Into::into).collect(),
    };
    let all = DiskSettings {
        local: Some(local(&["/data", "/views", "/other"])),
        ..settings(vec![limits::VolumeSettings {
            nodes: vec!["couchdb@b".to_owned()],
            free: Free::Available(9),
            size: Some(20),
        }])
    };
    let running = Running::start(all, |source, now| {
        ready(Ok(match source {
            SpaceSource::Local(path) => {
                let device = if path.ends_with("other") { 2 } else { 1 };
                VolumeMeasurement { device: Some(device), ..free(5, now) }
            }
            SpaceSource::Configured(Free::Available(bytes)) => free(*bytes, now),
            SpaceSource::Configured(Free::Prometheus { .. }) => panic!("none is configured"),
        }))
    });
    let disks = running.at(11).await;
    let shown: Vec<_> = disks
        .volumes
        .iter()
        .map(|volume| (&*volume.name, volume.space.map(|space| space.available)))
        .collect();
    assert_eq!(shown, [("couchdb@a", Some(5)), ("couchdb@a-3", Some(5)), ("couchdb@b", Some(9))]);
    let sizes: Vec<_> = disks.volumes.iter().map(|volume| volume.space?.size).collect();
    assert_eq!(sizes, [None, None, Some(20)], "the configuration states one size");
    let stated = disks.volumes[2].space.map(|space| space.measured_at.unix());
    assert_eq!(stated, Some(START + 10), "a fixed number is refreshed at each measurement");
}

#[tokio::test(start_paused = true)]
async fn space_that_falls_without_jobs_marks_the_volume() {
    let mut draft = Draft::new(5);
    let node = draft.get_or_add_node("couchdb@a");
    let gib = 1_u64 << 30;
    let running =
        Running::start(settings(vec![prometheus_volume(&["couchdb@a"])]), move |_, now| {
            let since = now.unix().saturating_sub(START);
            ready(Ok(free((1_000 - since.min(600)) * gib, now)))
        });
    running.snapshots.send_replace(draft.publish(Moment::from_unix(START)));
    let job = |left: u64| Job {
        key: JobKey { node, shard: "shards/a".into(), kind: JobKind::CompactDb },
        target: None,
        target_kind: TargetKind::Db,
        owner: JobOwner::Other,
        channel: None,
        started_at: Moment::from_unix(START),
        phase: JobPhase::Running,
        progress: None,
        last_progress_at: Moment::from_unix(START),
        reserved_bytes: left * gib,
        file_bytes: None,
        predicted_bytes: None,
    };
    // A job explains the loss for five minutes and then disappears.
    for at in 0..10 {
        let list = vec![job(300 - 30 * at)];
        running.jobs.send_replace(Arc::new(Jobs { list, ..Jobs::default() }));
        let disks = running.at(30).await;
        assert_eq!(disks.volumes[0].falling_since, None, "at {at}");
    }
    running.jobs.send_replace(Arc::default());
    let disks = running.at(180).await;
    assert!(disks.volumes[0].falling_since.is_some());
    // After ten minutes the space no longer falls.
    let disks = running.at(400).await;
    assert_eq!(disks.volumes[0].falling_since, None);
}

#[tokio::test(start_paused = true)]
async fn unfinished_bytes_are_measured_together_with_free_space() {
    const GIB: u64 = 1 << 30;
    const LASTS: u64 = 400;
    // A file of 600 GiB on a volume of 1,000 is compacted to 400, a GiB a second.
    let local = LocalDirectories {
        node: "couchdb@a".to_owned(),
        directories: vec!["/data".into(), "/views".into()],
    };
    let settings =
        DiskSettings { volumes: Vec::new(), local: Some(local), poll: Duration::from_secs(5) };
    let running = Running::start(settings, |_, now| {
        let written = now.unix() - START;
        let (available, held) = if written < LASTS { (400 - written, written) } else { (600, 0) };
        let space = VolumeSpace { held: Some(held * GIB), ..free(available * GIB, now).space };
        ready(Ok(VolumeMeasurement { space, device: Some(7) }))
    });
    let mut draft = Draft::new(1);
    let node = draft.get_or_add_node("couchdb@a");
    let snapshot = draft.publish(Moment::from_unix(START));
    running.snapshots.send_replace(Arc::clone(&snapshot));
    running.at(5).await;
    assert_eq!(*running.meter.unfinished.lock().unwrap(), None, "no node has shown its tasks");
    // The job as the last poll showed it; nothing newer comes.
    let job = Job {
        key: JobKey {
            node,
            shard: "shards/00000000-ffffffff/a.1".into(),
            kind: JobKind::CompactDb,
        },
        target: None,
        target_kind: TargetKind::Db,
        owner: JobOwner::Other,
        channel: None,
        started_at: Moment::from_unix(START),
        phase: JobPhase::Running,
        progress: Some(0.1),
        last_progress_at: Moment::from_unix(START),
        reserved_bytes: 400 * GIB,
        file_bytes: Some(600 * GIB),
        predicted_bytes: Some(400 * GIB),
    };
    let polled_nodes = vec![(node, Moment::from_unix(START))];
    let jobs = Jobs { list: vec![job], polled_nodes, starts_accepted: 0 };
    running.jobs.send_replace(Arc::new(jobs.clone()));
    for _ in 0..100 {
        let disks = running.at(5).await;
        let [volume] = &*disks.volumes else { panic!("{disks:?}") };
        let space = volume.space.unwrap();
        let held = volume.held_bytes(&jobs, &snapshot);
        let over = space.measured_at.unix() - START >= LASTS;
        let expected = if over { (600, 0) } else { (400, 400 * GIB - space.available) };
        assert_eq!(((space.available + held) / GIB, held), expected, "{volume:?}");
    }
    let unfinished = running.meter.unfinished.lock().unwrap().clone().unwrap();
    let shard = "shards/00000000-ffffffff/a.1.couch.compact";
    let expected = ["data", "meta"].map(|part| {
        ["/data", "/views"].map(|directory| PathBuf::from(format!("{directory}/{shard}.{part}")))
    });
    assert_eq!(unfinished, expected.concat());
}
