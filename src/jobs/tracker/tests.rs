//! Sequences of task lists, file facts and requests, and the conclusions of the tracker.

mod foreign_jobs;
mod unconfirmed;

use super::*;
use crate::{
    model::{
        facts::{FactFlags, Facts, OptionalU64},
        records::{Intent, JobResult},
    },
    sources::inventory::{ActiveTask, TaskKind},
    table::{DbName, Draft, ShardMapEntry, View, ViewCopies},
};
use couchdb_names::{Range, Signature};

const SHARD: &str = "shards/00000000-ffffffff/orders.1";
const DESIGN: &str = "_design/x";
const NODES: [&str; 2] = ["couchdb@a", "couchdb@b"];

fn at(seconds: u64) -> Moment {
    Moment::from_unix(1_000 + seconds)
}

/// Two nodes, each with a copy of one database and its view.
struct Scenario {
    draft: Draft,
    tracker: JobTracker,
    nodes: [NodeIx; 2],
    dbs: [TargetIx; 2],
    view: TargetIx,
    running: Running,
}

fn facts(seconds: u64, file: u64, active: u64, seq: u64, compacted: u64) -> Facts {
    Facts {
        update_seq: OptionalU64::new(seq),
        compacted_seq: OptionalU64::new(compacted),
        ..Facts::read(file, active, at(seconds))
    }
}

fn shown(done: u64, total: u64) -> ActiveTask {
    ActiveTask {
        phase: Some("document_copy".into()),
        changes_done: Some(done),
        total_changes: Some(total),
        pid: Some("<0.1.0>".into()),
        ..ActiveTask::bare(TaskKind::Compacts, SHARD.into())
    }
}

fn view_shown(done: u64) -> ActiveTask {
    ActiveTask {
        changes_done: Some(done),
        total_changes: Some(100),
        pid: Some("<0.2.0>".into()),
        ..ActiveTask::bare(TaskKind::CompactsView(DESIGN.into()), SHARD.into())
    }
}

impl Scenario {
    fn new() -> Self {
        let mut draft = Draft::new(5);
        let nodes = NODES.map(|name| draft.get_or_add_node(name));
        for node in nodes {
            draft.update_node(node, |node| (node.is_up, node.is_member) = (Some(true), true));
        }
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
        draft.set_shard_map(db, ShardMapEntry { copies: 2, ranges: 1 }, &[]);
        let range = Range { from: 0, to: u32::MAX };
        let dbs = nodes.map(|node| draft.get_or_add_shard(node, db, Some(range)));
        for ix in dbs {
            draft.set_facts(ix, facts(0, 900, 100, 50, 10));
        }
        let view = draft.add_view(
            db,
            View {
                signature: Signature([1; 16]),
                designs: [Arc::from(DESIGN)].into(),
                language: "javascript".into(),
                collators: [].into(),
                exact_range: true,
                ..View::default()
            },
        );
        draft.set_facts(view, facts(0, 600, 60, 50, 0));
        Self {
            draft,
            tracker: JobTracker::default(),
            nodes,
            dbs,
            view,
            running: Running::default(),
        }
    }

    /// Polls the nodes; each shows the given tasks, or does not answer.
    fn poll(&mut self, seconds: u64, shown: [Option<&[ActiveTask]>; 2]) -> TrackerChanges {
        for (at_node, tasks) in self.nodes.into_iter().zip(shown) {
            let tasks = tasks.map(|tasks| {
                let target = |task: &ActiveTask| match (&task.doing, at_node == self.nodes[0]) {
                    (TaskKind::Compacts, true) => self.dbs[0],
                    (TaskKind::Compacts, false) => self.dbs[1],
                    _ => self.view,
                };
                tasks
                    .iter()
                    .map(|task| RunningTask::new(at_node, Some(target(task)), task.clone()))
                    .collect()
            });
            self.running.nodes.insert(at_node, NodePoll { asked_at: at(seconds), tasks });
        }
        let rules =
            TrackerInputs { headroom_factor: 2.0, channel_of: &|_| Some("ratio_dbs".into()) };
        self.tracker.apply_poll(&self.running, self.draft.current(), &rules, at(seconds))
    }

    fn read(&mut self, ix: TargetIx, read: Facts) -> TrackerChanges {
        let now = read.measured_at.unwrap().at;
        self.draft.set_facts(ix, read);
        self.tracker.apply_facts(self.draft.current(), now)
    }

    fn intent(&self, seconds: u64) -> Intent {
        let target = self.draft.current().target(self.dbs[0]).unwrap();
        Intent {
            target: target.id(),
            node: NODES[0].into(),
            shard: Some(SHARD.into()),
            design: None,
            channel: "ratio_dbs".into(),
            ordered_by: None,
            run: None,
            at: at(seconds),
            file_bytes: Some(900),
            active_bytes: Some(100),
            update_seq: Some(50),
            compacted_seq: Some(10),
            predicted_bytes: Some(110),
            fitted_bytes: None,
            peak_bytes: 200,
        }
    }

    fn view_intent(&self, seconds: u64, node: &str, shard: Option<&str>) -> Intent {
        Intent {
            target: self.draft.current().target(self.view).unwrap().id(),
            node: node.into(),
            shard: shard.map(Into::into),
            design: Some(DESIGN.into()),
            file_bytes: Some(600),
            active_bytes: Some(60),
            predicted_bytes: Some(62),
            update_seq: None,
            compacted_seq: None,
            ..self.intent(seconds)
        }
    }

    fn start(&mut self, intent: Intent) -> Result<(), StartRejected> {
        let now = intent.at;
        self.tracker.accept_start(intent, self.draft.current(), now)
    }

    fn sent(&mut self, seconds: u64, intent: &Intent, sent: RequestResult) -> TrackerChanges {
        self.tracker.apply_request_result(&intent.key(), sent, self.draft.current(), at(seconds))
    }

    /// Phase, owner, progress in percent and reserved bytes of each job.
    fn jobs(&self) -> Vec<(JobPhase, JobOwner, Option<u64>, u64)> {
        let percent = |share: f64| scale_bytes(100, share + 0.005);
        let jobs = self.tracker.jobs();
        jobs.list
            .iter()
            .map(|job| (job.phase, job.owner, job.progress.map(percent), job.reserved_bytes))
            .collect()
    }
}

/// Ending, owner, sizes before and after, and duration in seconds.
type EndSummary = (JobResult, JobOwner, Option<u64>, Option<u64>, u64);

fn ends(step: &TrackerChanges) -> Vec<EndSummary> {
    let of = |ended: &EndedJob| {
        let it = &ended.outcome;
        let took = it.started_at.age(it.ended_at).as_secs();
        (it.ending, it.owner, it.before_bytes, it.after_bytes, took)
    };
    step.ended.iter().map(of).collect()
}

const IDLE: [Option<&[ActiveTask]>; 2] = [Some(&[]), Some(&[])];

#[test]
fn a_start_is_tracked_to_its_end() {
    let mut line = Scenario::new();
    let intent = line.intent(10);
    line.start(intent.clone()).unwrap();
    assert_eq!(
        line.start(intent.clone()),
        Err(StartRejected::AlreadyStarting),
        "a start is accepted only once"
    );
    assert_eq!(line.jobs(), [(JobPhase::Starting, JobOwner::Recliner, None, 200)]);
    assert_eq!(line.poll(10, IDLE), TrackerChanges::default(), "the request has no answer yet");
    line.sent(10, &intent, RequestResult::Accepted);
    assert_eq!(
        line.poll(11, IDLE),
        TrackerChanges::default(),
        "CouchDB takes a moment to show the task"
    );
    line.poll(15, [Some(&[shown(100, 200)]), Some(&[])]);
    assert_eq!(line.jobs(), [(JobPhase::Running, JobOwner::Recliner, Some(33), 135)]);
    let step = line.poll(20, IDLE);
    assert_eq!((ends(&step), step.reread.len()), (vec![], 1));
    assert_eq!(line.jobs()[0].0, JobPhase::Ending);
    let step = line.read(line.dbs[0], facts(20, 110, 100, 50, 50));
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Recliner, Some(900), Some(110), 10)]);
    assert_eq!(step.ended[0].closed_intent, Some(intent.key()));
    assert_eq!(line.jobs(), []);
    line.start(intent).unwrap();
}

#[test]
fn copied_bytes_include_data_written_during_the_job() {
    for (active, copied) in [(240, 240), (90, 100)] {
        let mut line = Scenario::new();
        let intent = line.intent(10);
        line.start(intent.clone()).unwrap();
        line.sent(10, &intent, RequestResult::Accepted);
        line.poll(15, IDLE);
        let step = line.read(line.dbs[0], facts(15, 300, active, 80, 80));
        assert_eq!(step.ended[0].copied_bytes, Some(copied));
    }
}

#[test]
fn job_between_two_polls_is_judged_by_whether_its_file_changed() {
    for (after, ending) in [
        (facts(15, 110, 100, 50, 50), JobResult::Freed),
        (facts(75, 900, 100, 55, 10), JobResult::Failed),
        (facts(15, 950, 100, 50, 50), JobResult::Grew),
    ] {
        let mut line = Scenario::new();
        let intent = line.intent(10);
        line.start(intent.clone()).unwrap();
        line.sent(10, &intent, RequestResult::Accepted);
        let step = line.poll(15, IDLE);
        assert!(step.reread.contains(&line.dbs[0]), "the tracker requests a read of its file");
        assert_eq!(ends(&line.read(line.dbs[0], after))[0].0, ending);
        assert_eq!(line.jobs(), []);
    }
}

#[test]
fn later_pass_belongs_to_the_same_job() {
    let mut line = Scenario::new();
    line.poll(5, [Some(&[shown(200, 200)]), Some(&[])]);
    let pass =
        |done| ActiveTask { pid: Some("<0.9.0>".into()), started_on: Some(9), ..shown(done, 10) };
    line.poll(10, [Some(&[pass(1)]), Some(&[])]);
    assert_eq!(line.jobs(), [(JobPhase::Running, JobOwner::Other, Some(65), 70)]);
    // Between two passes no task is shown, but the file shows that one is running.
    line.poll(15, IDLE);
    let flags = FactFlags { compact_running: true, ..FactFlags::default() };
    let step = line.read(line.dbs[0], Facts { flags, ..facts(16, 900, 100, 50, 10) });
    assert_eq!(ends(&step), []);
    line.poll(20, [Some(&[pass(9)]), Some(&[])]);
    assert_eq!(line.jobs()[0].0, JobPhase::Running);
    line.poll(25, IDLE);
    let step = line.read(line.dbs[0], facts(25, 120, 110, 60, 60));
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Other, Some(900), Some(120), 20)]);
}

#[test]
fn silent_node_keeps_its_jobs_for_an_hour() {
    let mut line = Scenario::new();
    line.poll(5, [Some(&[shown(1, 200)]), Some(&[])]);
    assert_eq!(line.poll(3_600, [None, Some(&[])]), TrackerChanges::default());
    assert_eq!(line.tracker.jobs().polled_nodes, [(line.nodes[1], at(3_600))]);
    assert_eq!(line.jobs()[0].0, JobPhase::Running);
    let step = line.poll(3_606, [None, Some(&[])]);
    assert_eq!(ends(&step)[0].0, JobResult::Lost);
}

#[test]
fn deleting_a_database_ends_its_job() {
    let mut line = Scenario::new();
    line.poll(5, [Some(&[shown(1, 200)]), Some(&[])]);
    line.poll(10, IDLE);
    line.draft.remove(line.dbs[0]);
    let step = line.tracker.apply_facts(line.draft.current(), at(12));
    assert_eq!(ends(&step)[0].0, JobResult::Lost);
    assert!(step.ended[0].outcome.why.as_deref().unwrap().contains("no longer exists"));
}

#[test]
fn refused_request_fails_and_unsent_request_has_no_outcome() {
    let mut line = Scenario::new();
    let intent = line.intent(10);
    line.start(intent.clone()).unwrap();
    let step = line.sent(11, &intent, RequestResult::Refused("HTTP 500, no".into()));
    assert_eq!(ends(&step)[0].0, JobResult::Failed);
    line.start(intent.clone()).unwrap();
    let step = line.sent(12, &intent, RequestResult::NotSent("no connection".into()));
    assert_eq!((ends(&step), step.withdrawn), (vec![], vec![intent.key()]));
    assert_eq!(line.jobs(), []);
}

#[test]
fn other_copy_waits_after_restart_until_a_plan_shows_the_job() {
    let other_copy = |line: &Scenario, seconds| {
        let target = line.draft.current().target(line.dbs[1]).unwrap().id();
        Intent { target, node: NODES[1].into(), ..line.intent(seconds) }
    };
    let mut line = Scenario::new();
    line.tracker.adopt([line.intent(0)], at(10));
    let rejected = Err(StartRejected::OtherCopyAdopted);
    assert_eq!(line.start(other_copy(&line, 10)), rejected, "its file is not known yet");
    line.poll(15, [Some(&[shown(5, 200)]), Some(&[])]);
    assert_eq!(line.start(other_copy(&line, 16)), rejected, "the plan may be older than the poll");
    // From now on the plan decides, because settings may allow it.
    assert_eq!(line.start(other_copy(&line, 27)), Ok(()));

    let mut line = Scenario::new();
    line.tracker.adopt([line.intent(0)], at(10));
    line.poll(15, [Some(&[]), Some(&[])]);
    line.poll(20, [Some(&[]), Some(&[])]);
    line.read(line.dbs[0], facts(21, 110, 100, 50, 50));
    assert_eq!(line.start(other_copy(&line, 22)), Ok(()), "the adopted job has ended");
}

#[test]
fn adopts_running_jobs_after_restart_and_judges_ended_ones() {
    // Columns: what the first poll shows, what the file shows, how the job ends.
    for (running, after, ending) in [
        (true, facts(50, 110, 100, 50, 50), JobResult::Freed),
        (false, facts(50, 110, 100, 50, 50), JobResult::Freed),
        (false, facts(50, 900, 100, 50, 10), JobResult::Lost),
    ] {
        let mut line = Scenario::new();
        let intent = line.intent(0);
        line.tracker.adopt([intent.clone()], at(10));
        let tasks = [shown(5, 200)];
        line.poll(15, [Some(if running { &tasks } else { &[] }), Some(&[])]);
        assert_eq!(
            line.start(intent.clone()),
            Err(StartRejected::AlreadyStarting),
            "nothing is started twice"
        );
        let (phase, owner, ..) = line.jobs()[0];
        let expected = if running { JobPhase::Running } else { JobPhase::Starting };
        assert_eq!((phase, owner), (expected, JobOwner::Recliner));
        line.poll(45, IDLE);
        let step = line.read(line.dbs[0], after);
        assert_eq!((ends(&step)[0].0, &step.ended[0].closed_intent), (ending, &Some(intent.key())));
    }
}

#[test]
fn restored_request_must_show_its_task_soon_after_restart() {
    for (since, settled) in [(0, 102), (90, 120), (1_000, 130)] {
        let mut line = Scenario::new();
        line.tracker.adopt([line.intent(since)], at(99));
        line.poll(100, IDLE);
        line.poll(settled - 1, IDLE);
        assert_eq!(line.jobs()[0].0, JobPhase::Starting, "requested at {since}");
        line.poll(settled, IDLE);
        assert_eq!(line.jobs()[0].0, JobPhase::Ending, "requested at {since}");
    }
}

#[test]
fn after_a_restart_a_swapped_file_proves_completion() {
    let mut line = Scenario::new();
    let intent = line.intent(0);
    line.tracker.adopt([intent.clone()], at(10));
    line.poll(12, IDLE);
    assert_eq!(
        ends(&line.read(line.dbs[0], facts(11, 110, 100, 50, 50))),
        [],
        "read before the poll"
    );
    assert_eq!(
        ends(&line.read(line.dbs[0], facts(13, 900, 100, 50, 10))),
        [],
        "the task may still appear"
    );
    let step = line.read(line.dbs[0], facts(14, 110, 100, 50, 50));
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Recliner, Some(900), Some(110), 14)]);
    assert_eq!(line.jobs(), []);
}

#[test]
fn clock_change_neither_ends_nor_delays_jobs() {
    const DAY: u64 = 86_400;
    for (before, after) in [(2 * DAY, DAY), (DAY, 2 * DAY)] {
        // A running job is not lost while its node seems silent.
        let mut line = Scenario::new();
        let intent = line.intent(before);
        line.start(intent.clone()).unwrap();
        line.sent(before, &intent, RequestResult::Accepted);
        line.poll(before + 5, [Some(&[shown(100, 200)]), Some(&[])]);
        line.tracker.restart_waits(at(after));
        assert_eq!(
            line.tracker.apply_facts(line.draft.current(), at(after)),
            TrackerChanges::default()
        );
        // Facts read before the clock was set back prove nothing.
        line.draft.set_facts(line.dbs[0], facts(before + 6, 900, 100, 50, 10));
        line.poll(after + 5, IDLE);
        let step = line.poll(after + 10, IDLE);
        assert_eq!(ends(&step), []);
        let step = line.read(line.dbs[0], facts(after + 11, 110, 100, 50, 50));
        assert_eq!(ends(&step).iter().map(|end| end.0).collect::<Vec<_>>(), [JobResult::Freed]);

        // A job that disappeared just before is judged a minute later.
        line.draft.set_facts(line.dbs[0], facts(0, 900, 100, 50, 10));
        let intent = line.intent(before);
        line.start(intent.clone()).unwrap();
        line.sent(before, &intent, RequestResult::Accepted);
        line.poll(before + 5, IDLE);
        line.tracker.restart_waits(at(after));
        let step = line.read(line.dbs[0], facts(after + 60, 900, 100, 50, 10));
        assert_eq!(ends(&step).iter().map(|end| end.0).collect::<Vec<_>>(), [JobResult::Failed]);
    }
}

#[test]
fn task_seen_before_its_file_is_known_is_still_judged() {
    for target in [true, false] {
        let mut line = Scenario::new();
        line.tracker.adopt([line.intent(0)], at(10));
        let target = target.then_some(line.dbs[0]);
        let tasks = Some(vec![RunningTask::new(line.nodes[0], target, shown(5, 200))]);
        line.running.nodes.insert(line.nodes[0], NodePoll { asked_at: at(15), tasks });
        let rules = TrackerInputs { headroom_factor: 2.0, channel_of: &|_| None };
        line.tracker.apply_poll(&line.running, &Snapshot::default(), &rules, at(15));
        assert_eq!(line.poll(20, IDLE).reread, BTreeSet::from([line.dbs[0]]));
        let step = line.read(line.dbs[0], facts(20, 110, 100, 50, 50));
        assert_eq!(ends(&step)[0].0, JobResult::Freed);
        assert_eq!(line.jobs(), []);
    }
}

#[test]
fn intent_is_lost_if_its_target_never_returns() {
    let mut line = Scenario::new();
    let intent = Intent { shard: Some("shards/x/gone.1".into()), ..line.intent(0) };
    let intent =
        Intent { target: TargetId::Db { node: NODES[0].into(), shard: "gone".into() }, ..intent };
    line.tracker.adopt([intent], at(10));
    assert_eq!(ends(&line.poll(900, IDLE)), []);
    assert_eq!(ends(&line.poll(911, IDLE))[0].0, JobResult::Lost);
}

#[test]
fn job_on_an_unmeasured_view_copy_has_no_sizes() {
    for (node, sizes) in [(0, (Some(600), Some(61))), (1, (None, None))] {
        let mut line = Scenario::new();
        let intent = line.view_intent(10, NODES[node], Some(SHARD));
        line.start(intent.clone()).unwrap();
        line.sent(10, &intent, RequestResult::Accepted);
        let tasks = [view_shown(50)];
        let mut polled = IDLE;
        polled[node] = Some(&tasks);
        line.poll(15, polled);
        line.poll(20, IDLE);
        let step = line.read(line.view, facts(20, 61, 60, 50, 0));
        let mut over = line.poll(25, IDLE);
        over.ended.extend(step.ended);
        // The other copy ends without a reading.
        if let Some(ended) = over.ended.first() {
            assert_eq!((ended.outcome.before_bytes, ended.outcome.after_bytes), sizes);
            assert_eq!(ended.copies, 2);
        } else {
            assert_eq!(node, 1, "it already ended with the previous poll");
        }
    }
}

/// Only the second copy has waste; its job is judged by its own file and needs no other job.
#[test]
fn job_on_the_only_copy_with_waste_is_judged_by_that_copy() {
    let mut line = Scenario::new();
    let copies_at = |line: &mut Scenario, seconds, file_of_second| {
        let copies = [(line.nodes[1], facts(seconds, file_of_second, 60, 50, 0))];
        let lean = (line.nodes[0], facts(seconds, 61, 60, 50, 0));
        let view = line.draft.current().target(line.view).unwrap().view().unwrap().clone();
        let copies = ViewCopies::Differ(copies.into_iter().chain([lean]).collect());
        line.draft.set_view(line.view, View { copies, ..view });
        line.read(line.view, facts(seconds, file_of_second, 60, 50, 0))
    };
    copies_at(&mut line, 5, 600);
    let intent = line.view_intent(10, NODES[1], Some(SHARD));
    line.start(intent.clone()).unwrap();
    line.sent(10, &intent, RequestResult::Accepted);
    line.poll(15, [Some(&[]), Some(&[view_shown(50)])]);
    line.poll(20, IDLE);
    let step = copies_at(&mut line, 22, 61);
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Recliner, Some(600), Some(61), 10)]);
    assert_eq!(step.ended[0].copies, 1, "the other copy is lean");
}

/// Until the swap, writes during a job grow the old file.
#[test]
fn a_job_is_judged_by_the_size_of_its_file_just_before_the_swap() {
    for (left, ending) in [(1_100, JobResult::Freed), (1_150, JobResult::NothingFreed)] {
        let mut line = Scenario::new();
        let intent = line.intent(10);
        line.start(intent.clone()).unwrap();
        line.sent(10, &intent, RequestResult::Accepted);
        let shown_now = [shown(100, 200)];
        let step = line.poll(25, [Some(&shown_now), Some(&[])]);
        assert!(!step.reread.contains(&line.dbs[0]), "it was read shortly before");
        let step = line.poll(45, [Some(&shown_now), Some(&[])]);
        assert!(step.reread.contains(&line.dbs[0]), "its size may have changed");
        line.read(line.dbs[0], facts(46, 1_200, 100, 90, 10));
        assert_eq!(line.poll(47, [Some(&shown_now), Some(&[])]).reread.len(), 0);
        line.poll(50, IDLE);
        let step = line.read(line.dbs[0], facts(50, left, 100, 90, 90));
        assert_eq!(ends(&step), [(ending, JobOwner::Recliner, Some(1_200), Some(left), 40)]);
    }
}

#[test]
fn result_is_unmeasured_if_many_writes_hide_what_was_freed() {
    for (seq, ending) in [(90, JobResult::Unmeasured), (51, JobResult::NothingFreed)] {
        let mut line = Scenario::new();
        let intent = line.intent(10);
        line.start(intent.clone()).unwrap();
        line.sent(10, &intent, RequestResult::Accepted);
        line.poll(15, [Some(&[shown(100, 200)]), Some(&[])]);
        line.poll(20, IDLE);
        let step = line.read(line.dbs[0], facts(20, 890, 100, seq, seq));
        assert_eq!(ends(&step)[0].0, ending, "{seq}");
    }
}

/// A view in bulk load: its compaction catches up with everything that is written.
#[test]
fn file_that_outgrew_its_compaction_is_unmeasured_and_not_learned() {
    let mut line = Scenario::new();
    let intent = line.view_intent(10, NODES[0], Some(SHARD));
    line.start(intent.clone()).unwrap();
    line.sent(10, &intent, RequestResult::Accepted);
    line.poll(15, [Some(&[view_shown(50)]), Some(&[])]);
    line.poll(20, IDLE);
    let step = line.read(line.view, facts(22, 909_534, 900_000, 9_000, 0));
    assert_eq!(ends(&step), [(JobResult::Unmeasured, JobOwner::Recliner, None, Some(909_534), 10)]);
    let ended = &step.ended[0];
    assert_eq!(ended.outcome.why.as_deref(), Some(intents::OUTGROWN));
    assert_eq!((ended.outcome.predicted_bytes, ended.evidence.is_none()), (None, true));
}

#[test]
fn design_compaction_counts_on_all_nodes_until_last_copy_ends() {
    let mut line = Scenario::new();
    let intent = Intent { peak_bytes: 120, ..line.view_intent(10, "_cluster", None) };
    let intent = Intent { file_bytes: Some(1_200), predicted_bytes: Some(124), ..intent };
    line.start(intent.clone()).unwrap();
    line.sent(10, &intent, RequestResult::Accepted);
    assert_eq!(line.jobs(), [(JobPhase::Starting, JobOwner::Recliner, None, 60); 2]);
    let tasks = [view_shown(50)];
    line.poll(15, [Some(&tasks), Some(&tasks)]);
    assert_eq!(line.jobs(), [(JobPhase::Running, JobOwner::Recliner, Some(50), 30); 2]);
    assert_eq!(ends(&line.poll(20, [Some(&[]), Some(&tasks)])), []);
    assert_eq!(ends(&line.read(line.view, facts(21, 61, 60, 50, 0))), []);
    let step = line.poll(30, IDLE);
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Recliner, Some(1_200), Some(122), 20)]);
}

#[test]
fn indexer_of_rebuilding_compaction_is_not_a_job() {
    let mut line = Scenario::new();
    let indexer = |pid: &str, done| ActiveTask {
        indexer_pid: Some(pid.into()),
        changes_done: Some(done),
        ..ActiveTask::bare(TaskKind::Builds(DESIGN.into()), SHARD.into())
    };
    line.poll(5, [Some(&[view_shown(50), indexer("<0.2.0>", 1)]), Some(&[])]);
    line.poll(65, [Some(&[view_shown(50), indexer("<0.2.0>", 2)]), Some(&[])]);
    assert_eq!(line.jobs().len(), 1);
    assert_eq!(
        line.tracker.jobs().list[0].last_progress_at,
        at(65),
        "the indexer's progress counts"
    );
    line.poll(70, [Some(&[view_shown(50), indexer("<0.7.0>", 2)]), Some(&[])]);
    assert_eq!(line.tracker.jobs().builds_on(line.nodes[0]), 1);
    line.poll(75, [Some(&[view_shown(50)]), Some(&[])]);
    assert_eq!(line.tracker.jobs().builds_on(line.nodes[0]), 0, "a build ends without an outcome");
}

#[test]
fn cleanup_ends_when_couchdb_answers() {
    let mut line = Scenario::new();
    let intent = Intent {
        target: TargetId::Cleanup { db: "orders".into() },
        node: "_cluster".into(),
        shard: None,
        ..line.intent(10)
    };
    line.start(intent.clone()).unwrap();
    let step = line.sent(11, &intent, RequestResult::Accepted);
    assert_eq!((ends(&step)[0].0, line.jobs()), (JobResult::Unmeasured, vec![]));
}

#[test]
fn a_suspended_job_is_shown_as_suspended() {
    let mut line = Scenario::new();
    let status = Some("suspended".to_owned());
    line.poll(5, [Some(&[ActiveTask { process_status: status, ..shown(1, 2) }]), Some(&[])]);
    assert_eq!(line.jobs()[0].0, JobPhase::Suspended);
}

#[test]
fn applies_ten_thousand_tasks_within_seconds() {
    let mut scenario = Scenario::new();
    let shard = |number: u32| format!("shards/00000000-ffffffff/db-{number}.1");
    let tasks: Vec<ActiveTask> = (0..10_000)
        .flat_map(|number| {
            let compaction = ActiveTask {
                pid: Some(format!("<0.{number}.0>")),
                ..ActiveTask::bare(TaskKind::CompactsView(DESIGN.into()), shard(number))
            };
            let indexer = ActiveTask {
                indexer_pid: compaction.pid.clone(),
                ..ActiveTask::bare(TaskKind::Builds(DESIGN.into()), shard(number))
            };
            [indexer, compaction]
        })
        .collect();
    let begun = tokio::time::Instant::now();
    scenario.poll(1, [Some(&tasks), Some(&[])]);
    assert_eq!(scenario.tracker.jobs().list.len(), 10_000, "indexers of compactions are not jobs");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
}
