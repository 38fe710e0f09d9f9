//! Jobs that other programs started: when they began, and which file sizes are known.

use super::*;

/// A task list entry of a job that began at the given second.
fn began(seconds: u64) -> ActiveTask {
    ActiveTask { started_on: Some(at(seconds).unix()), ..shown(100, 200) }
}

/// The facts of the file while it is compacted.
fn running(facts: Facts) -> Facts {
    Facts { flags: FactFlags { compact_running: true, ..facts.flags }, ..facts }
}

/// A scenario with old facts, in which a job first appears at second 1,005.
fn line(started: u64) -> (Scenario, TrackerChanges) {
    let mut line = Scenario::new();
    let step = line.poll(1_005, [Some(&[began(started)]), Some(&[])]);
    (line, step)
}

#[test]
fn rereads_a_file_of_unknown_initial_size_while_its_job_runs() {
    // 900 bytes were measured 15 minutes earlier.
    let (mut line, step) = line(1_001);
    assert_eq!(line.tracker.jobs().list[0].file_bytes, None, "the old measurement does not count");
    assert!(step.reread.contains(&line.dbs[0]));
    line.read(line.dbs[0], running(facts(1_006, 5_000, 400, 90, 10)));
    assert_eq!(line.tracker.jobs().list[0].file_bytes, Some(5_000));
    let step = line.poll(1_010, [Some(&[began(1_001)]), Some(&[])]);
    assert_eq!(step.reread.len(), 0, "one reading is enough");
    line.poll(1_015, IDLE);
    let step = line.read(line.dbs[0], facts(1_015, 420, 400, 95, 95));
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Other, Some(5_000), Some(420), 14)]);
}

#[test]
fn job_whose_file_was_first_read_while_it_ran_is_not_learned() {
    // The file that was read contains all writes, but the compaction still has to catch up with most of them;
    // judged by that file, nothing more could be freed.
    let (mut line, _) = line(1_001);
    line.read(line.dbs[0], running(facts(1_006, 5_000, 1_200, 90, 10)));
    line.poll(1_015, IDLE);
    let step = line.read(line.dbs[0], facts(1_015, 2_400, 1_200, 90, 90));
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Other, Some(5_000), Some(2_400), 14)]);
    assert_eq!(step.ended[0].after.file_bytes, None);

    let mut line = Scenario::new();
    line.read(line.dbs[0], facts(960, 5_000, 1_200, 90, 10));
    line.poll(1_005, [Some(&[began(1_001)]), Some(&[])]);
    line.poll(1_010, IDLE);
    let step = line.read(line.dbs[0], facts(1_010, 2_400, 1_200, 90, 90));
    assert_eq!(step.ended[0].after.file_bytes, Some(2_400), "nothing was written to it");
}

#[test]
fn initial_size_stays_unknown_if_read_after_the_swap() {
    let (mut line, _) = line(1_001);
    // The new file replaced the old one in between.
    line.read(line.dbs[0], facts(1_006, 20_000, 19_000, 90, 90));
    line.poll(1_010, IDLE);
    let step = line.read(line.dbs[0], facts(1_010, 20_000, 19_000, 90, 90));
    assert_eq!(ends(&step), [(JobResult::Unmeasured, JobOwner::Other, None, Some(20_000), 9)]);
    let outcome = &step.ended[0].outcome;
    assert_eq!((outcome.freed_bytes(), outcome.predicted_bytes), (None, None));
    assert_eq!(outcome.why.as_deref(), Some("its size before the job is unknown"));
}

#[test]
fn recent_measurement_counts_as_the_initial_size() {
    let mut line = Scenario::new();
    line.read(line.dbs[0], facts(960, 4_000, 400, 90, 10));
    let step = line.poll(1_005, [Some(&[began(1_001)]), Some(&[])]);
    assert_eq!(step.reread.len(), 0);
    line.poll(1_010, IDLE);
    let step = line.read(line.dbs[0], facts(1_010, 420, 400, 90, 90));
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Other, Some(4_000), Some(420), 9)]);
}

#[test]
fn uses_start_time_from_node_unless_in_the_future() {
    for (reported, since) in [(700, 700), (1_005, 1_005), (9_000, 1_005)] {
        let (line, _) = line(reported);
        assert_eq!(line.tracker.jobs().list[0].started_at, at(since));
    }
    // A later pass has another process id.
    let (mut line, _) = line(1_001);
    line.poll(1_010, [Some(&[began(1_008)]), Some(&[])]);
    assert_eq!(line.tracker.jobs().list[0].started_at, at(1_001));
}

#[test]
fn requests_a_reading_of_the_file_until_it_arrives() {
    let (mut line, _) = line(1_001);
    let again = line.poll(1_010, [Some(&[began(1_001)]), Some(&[])]);
    assert!(again.reread.contains(&line.dbs[0]));
    // A file header does not show whether a compaction runs, so this reading gives no size.
    line.read(line.dbs[0], facts(1_012, 5_000, 400, 90, 10));
    let again = line.poll(1_015, [Some(&[began(1_001)]), Some(&[])]);
    assert_eq!(again.reread.len(), 0);
    assert_eq!(line.tracker.jobs().list[0].file_bytes, None);
}

#[test]
fn detects_an_unseen_compaction_by_the_replaced_file() {
    let mut line = Scenario::new();
    line.poll(1, IDLE);
    let quiet = line.read(line.dbs[0], facts(20, 100, 100, 50, 50));
    assert_eq!(ends(&quiet), [(JobResult::Freed, JobOwner::Other, Some(900), Some(100), 0)]);
    let outcome = &quiet.ended[0].outcome;
    assert_eq!((outcome.took(), outcome.ended_at), (None, at(20)));
    assert_eq!(outcome.ended_after, Some(at(0)), "it ended between two readings");
    assert_eq!(line.read(line.dbs[0], facts(30, 100, 100, 50, 50)).ended, []);
    // The file's size just before the compaction is unknown.
    let busy = line.read(line.dbs[1], facts(20, 120, 110, 60, 55));
    assert_eq!(ends(&busy), [(JobResult::Unmeasured, JobOwner::Other, None, Some(120), 0)]);
    // Nothing was written since the last compaction, so the compacted sequence does not change.
    line.read(line.dbs[0], facts(40, 900_000, 100, 90, 50));
    line.read(line.dbs[0], facts(50, 900_000, 100, 90, 90));
    let again = line.read(line.dbs[0], facts(60, 100, 100, 90, 90));
    assert_eq!(ends(&again), [(JobResult::Freed, JobOwner::Other, Some(900_000), Some(100), 0)]);
}

#[test]
fn file_change_with_known_cause_is_not_another_compaction() {
    let mut line = Scenario::new();
    line.poll(1, [Some(&[began(1)]), Some(&[])]);
    line.poll(5, IDLE);
    assert_eq!(line.read(line.dbs[0], facts(6, 100, 100, 50, 50)).ended.len(), 1);
    // This header of the same second is older than CouchDB's answer.
    line.read(line.dbs[1], facts(20, 900_000, 100, 60, 10));
    assert_eq!(line.read(line.dbs[1], facts(20, 100_000, 100, 59, 10)).ended, []);
    // An earlier process may already have recorded a change of a file read before this process
    // began.
    let mut line = Scenario::new();
    line.tracker.adopt([], at(10));
    assert_eq!(line.read(line.dbs[0], facts(20, 100, 100, 50, 50)).ended, []);
}

#[test]
fn end_of_a_job_is_bounded_by_the_polls_around_it() {
    let (mut line, _) = line(1_001);
    line.poll(1_010, [Some(&[began(1_001)]), Some(&[])]);
    // Its node did not answer in the meantime.
    line.poll(1_400, [None, Some(&[])]);
    line.poll(1_800, IDLE);
    let step = line.read(line.dbs[0], facts(1_801, 420, 400, 95, 90));
    let outcome = &step.ended[0].outcome;
    assert_eq!((outcome.ended_after, outcome.ended_at), (Some(at(1_010)), at(1_800)));
    assert_eq!((outcome.ended_since(), outcome.took()), (Some(at(1_010)), None));
    assert_eq!(outcome.after_bytes, None, "writes of an hour are not what it left");
}

#[test]
fn job_that_ended_before_its_file_was_known_has_an_outcome() {
    let mut line = Scenario::new();
    let known = std::mem::replace(&mut line.draft, Draft::new(1));
    for node in NODES {
        line.draft.get_or_add_node(node);
    }
    line.poll(1_005, [Some(&[began(1_001)]), Some(&[])]);
    line.poll(1_010, IDLE);
    line.draft = known;
    let step = line.poll(1_015, IDLE);
    assert!(step.reread.contains(&line.dbs[0]), "its file shows how it ended");
    let step = line.read(line.dbs[0], facts(1_016, 420, 400, 90, 90));
    assert_eq!(ends(&step), [(JobResult::Unmeasured, JobOwner::Other, None, Some(420), 9)]);
    let again = line.read(line.dbs[0], facts(1_020, 420, 400, 90, 90));
    assert_eq!(ends(&again), [], "once");
}

#[test]
fn size_measured_before_a_bulk_load_is_not_the_initial_size() {
    let mut line = Scenario::new();
    line.read(line.dbs[0], facts(960, 8_348, 4_000, 90, 10));
    line.poll(1_005, [Some(&[began(1_001)]), Some(&[])]);
    line.poll(1_010, IDLE);
    let step = line.read(line.dbs[0], facts(1_010, 909_534, 880_000, 9_000, 9_000));
    assert_eq!(ends(&step), [(JobResult::Unmeasured, JobOwner::Other, None, Some(909_534), 9)]);
    assert_eq!(step.ended[0].evidence, None);
}
