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

/// Facts known for a long time, then a job that first appears at second 1,005.
fn line(started: u64) -> (Scenario, TrackerChanges) {
    let mut line = Scenario::new();
    let step = line.poll(1_005, [Some(&[began(started)]), Some(&[])]);
    (line, step)
}

#[test]
fn the_size_before_is_read_while_the_job_runs_if_unknown_near_its_start() {
    // 900 bytes were measured 15 minutes earlier.
    let (mut line, step) = line(1_001);
    assert_eq!(line.tracker.jobs().list[0].file_bytes, None, "the old measurement does not count");
    assert!(step.reread.contains(&line.dbs[0]));
    line.read(line.dbs[0], running(facts(1_006, 5_000, 400, 90, 10)));
    assert_eq!(line.tracker.jobs().list[0].file_bytes, Some(5_000));
    let step = line.poll(1_010, [Some(&[began(1_001)]), Some(&[])]);
    assert_eq!(step.reread.len(), 0, "once is enough");
    line.poll(1_015, IDLE);
    let step = line.read(line.dbs[0], facts(1_015, 420, 400, 95, 95));
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Other, Some(5_000), Some(420), 14)]);
}

#[test]
fn a_job_that_ends_before_its_file_is_read_has_an_unknown_size_before_and_did_not_grow() {
    let (mut line, _) = line(1_001);
    // The new file replaced the old one in between.
    line.read(line.dbs[0], facts(1_006, 20_000, 19_000, 90, 90));
    line.poll(1_010, IDLE);
    let step = line.read(line.dbs[0], facts(1_010, 20_000, 19_000, 90, 90));
    assert_eq!(ends(&step), [(JobResult::Unmeasured, JobOwner::Other, None, Some(20_000), 9)]);
    let outcome = &step.ended[0].outcome;
    assert_eq!((outcome.freed_bytes(), outcome.predicted_bytes), (None, None));
    assert_eq!(outcome.why.as_deref(), Some("its size before is unknown"));
}

#[test]
fn a_measurement_just_before_the_start_gives_the_size_before() {
    let mut line = Scenario::new();
    line.read(line.dbs[0], facts(960, 4_000, 400, 90, 10));
    let step = line.poll(1_005, [Some(&[began(1_001)]), Some(&[])]);
    assert_eq!(step.reread.len(), 0);
    line.poll(1_010, IDLE);
    let step = line.read(line.dbs[0], facts(1_010, 420, 400, 90, 90));
    assert_eq!(ends(&step), [(JobResult::Freed, JobOwner::Other, Some(4_000), Some(420), 9)]);
}

#[test]
fn the_node_gives_the_start_time_unless_it_is_in_the_future() {
    for (says, since) in [(700, 700), (1_005, 1_005), (9_000, 1_005)] {
        let (line, _) = line(says);
        assert_eq!(line.tracker.jobs().list[0].started_at, at(since));
    }
    // A later pass has another process id.
    let (mut line, _) = line(1_001);
    line.poll(1_010, [Some(&[began(1_008)]), Some(&[])]);
    assert_eq!(line.tracker.jobs().list[0].started_at, at(1_001));
}

#[test]
fn an_unread_file_is_requested_until_it_was_read() {
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
fn a_compaction_that_no_poll_showed_is_known_by_the_file_that_it_left() {
    let mut line = Scenario::new();
    line.poll(1, IDLE);
    let quiet = line.read(line.dbs[0], facts(20, 100, 100, 50, 50));
    assert_eq!(ends(&quiet), [(JobResult::Freed, JobOwner::Other, Some(900), Some(100), 0)]);
    assert_eq!(quiet.ended[0].outcome.took(), None);
    assert_eq!(line.read(line.dbs[0], facts(30, 100, 100, 50, 50)).ended, []);
    // How large it had become by then is not known.
    let busy = line.read(line.dbs[1], facts(20, 120, 110, 60, 55));
    assert_eq!(ends(&busy), [(JobResult::Unmeasured, JobOwner::Other, None, Some(120), 0)]);
    // Nothing was written since the last one, so the sequence stays where it is.
    line.read(line.dbs[0], facts(40, 900_000, 100, 90, 50));
    line.read(line.dbs[0], facts(50, 900_000, 100, 90, 90));
    let again = line.read(line.dbs[0], facts(60, 100, 100, 90, 90));
    assert_eq!(ends(&again), [(JobResult::Freed, JobOwner::Other, Some(900_000), Some(100), 0)]);
}

#[test]
fn a_file_that_another_fact_explains_is_no_further_compaction() {
    let mut line = Scenario::new();
    line.poll(1, [Some(&[began(1)]), Some(&[])]);
    line.poll(5, IDLE);
    assert_eq!(line.read(line.dbs[0], facts(6, 100, 100, 50, 50)).ended.len(), 1);
    // A header of the same second is older than CouchDB's answer.
    line.read(line.dbs[1], facts(20, 900_000, 100, 60, 10));
    assert_eq!(line.read(line.dbs[1], facts(20, 100_000, 100, 59, 10)).ended, []);
    // What was read before this process began was perhaps recorded by the one before.
    let mut line = Scenario::new();
    line.tracker.adopt([], at(10));
    assert_eq!(line.read(line.dbs[0], facts(20, 100, 100, 50, 50)).ended, []);
}
