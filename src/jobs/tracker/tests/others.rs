//! Jobs that others started: when they began, and what is known of their files from then.

use super::*;

/// What a node shows of a job that it began at a second.
fn began(seconds: u64) -> TaskSeen {
    TaskSeen { started_on: Some(at(seconds).unix()), ..shown(100, 200) }
}

/// The file while it is compacted.
fn running(facts: Facts) -> Facts {
    Facts { flags: Flags { compact_running: true, ..facts.flags }, ..facts }
}

/// What was known for long, then a job that is seen for the first time at 1,005.
fn line(started: u64) -> (Line, Step) {
    let mut line = Line::new();
    let step = line.poll(1_005, [Some(&[began(started)]), Some(&[])]);
    (line, step)
}

#[test]
fn the_size_before_is_read_while_it_runs_where_it_was_not_known_near_its_start() {
    // 900 bytes were measured a quarter of an hour before.
    let (mut line, step) = line(1_001);
    assert_eq!(line.tracker.jobs().list[0].file_bytes, None, "not that of another day");
    assert!(step.reread.contains(&line.dbs[0]));
    line.read(line.dbs[0], running(facts(1_006, 5_000, 400, 90, 10)));
    assert_eq!(line.tracker.jobs().list[0].file_bytes, Some(5_000));
    let step = line.poll(1_010, [Some(&[began(1_001)]), Some(&[])]);
    assert_eq!(step.reread.len(), 0, "once is enough");
    line.poll(1_015, IDLE);
    let step = line.read(line.dbs[0], facts(1_015, 420, 400, 95, 95));
    assert_eq!(ends(&step), [(Ending::Freed, Owner::Other, Some(5_000), Some(420), 14)]);
}

#[test]
fn one_that_is_over_before_its_file_is_read_has_an_unknown_size_before_and_did_not_grow() {
    let (mut line, _) = line(1_001);
    // The new file took the old one's place in between.
    line.read(line.dbs[0], facts(1_006, 20_000, 19_000, 90, 90));
    line.poll(1_010, IDLE);
    let step = line.read(line.dbs[0], facts(1_010, 20_000, 19_000, 90, 90));
    assert_eq!(ends(&step), [(Ending::Unmeasured, Owner::Other, None, Some(20_000), 9)]);
    let outcome = &step.ended[0].outcome;
    assert_eq!((outcome.freed_bytes(), outcome.predicted_bytes), (None, None));
    assert_eq!(outcome.why.as_deref(), Some("its size before is not known"));
}

#[test]
fn what_was_measured_a_moment_before_it_began_is_what_it_was() {
    let mut line = Line::new();
    line.read(line.dbs[0], facts(960, 4_000, 400, 90, 10));
    let step = line.poll(1_005, [Some(&[began(1_001)]), Some(&[])]);
    assert_eq!(step.reread.len(), 0);
    line.poll(1_010, IDLE);
    let step = line.read(line.dbs[0], facts(1_010, 420, 400, 90, 90));
    assert_eq!(ends(&step), [(Ending::Freed, Owner::Other, Some(4_000), Some(420), 9)]);
}

#[test]
fn it_began_when_its_node_says_unless_that_is_still_to_come() {
    for (says, since) in [(700, 700), (1_005, 1_005), (9_000, 1_005)] {
        let (line, _) = line(says);
        assert_eq!(line.tracker.jobs().list[0].since, at(since));
    }
    // A later pass is another process.
    let (mut line, _) = line(1_001);
    line.poll(1_010, [Some(&[began(1_008)]), Some(&[])]);
    assert_eq!(line.tracker.jobs().list[0].since, at(1_001));
}

#[test]
fn a_file_that_cannot_be_read_is_asked_for_until_it_was() {
    let (mut line, _) = line(1_001);
    let again = line.poll(1_010, [Some(&[began(1_001)]), Some(&[])]);
    assert!(again.reread.contains(&line.dbs[0]));
    // A header does not say that a compaction runs: it is read, and does not tell.
    line.read(line.dbs[0], facts(1_012, 5_000, 400, 90, 10));
    let again = line.poll(1_015, [Some(&[began(1_001)]), Some(&[])]);
    assert_eq!(again.reread.len(), 0);
    assert_eq!(line.tracker.jobs().list[0].file_bytes, None);
}
