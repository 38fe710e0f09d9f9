//! Requests for which it is unknown whether they arrived.

use super::*;

#[test]
fn unconfirmed_request_is_lost_if_its_file_is_unchanged() {
    let mut line = Scenario::new();
    let intent = line.intent(10);
    line.start(intent.clone()).unwrap();
    line.sent(40, &intent, RequestResult::MayHaveArrived("no answer within 30s".into()));
    assert_eq!(line.poll(60, IDLE), TrackerChanges::default());
    line.poll(70, IDLE);
    let step = line.read(line.dbs[0], facts(71, 900, 100, 50, 10));
    assert_eq!(ends(&step)[0].0, JobResult::Lost);
    assert!(step.ended[0].outcome.why.as_deref().unwrap().contains("no answer"));
    assert!(!step.ended[0].may_have_run, "the old file is still in place");
}

#[test]
fn unconfirmed_view_job_may_have_run_unless_its_copy_was_read() {
    for (node, may_have_run, why) in [
        (0, false, "its size was read afterwards"),
        (1, true, "the other copy's size is never read"),
    ] {
        let mut line = Scenario::new();
        let intent = line.view_intent(10, NODES[node], Some(SHARD));
        line.start(intent.clone()).unwrap();
        line.sent(10, &intent, RequestResult::MayHaveArrived("the answer broke off".into()));
        let mut ended = line.poll(45, IDLE).ended;
        ended.extend(line.read(line.view, facts(46, 600, 60, 50, 0)).ended);
        let [ended] = ended.as_slice() else { panic!("{why}: {ended:?}") };
        assert_eq!(
            (ended.outcome.ending, ended.may_have_run),
            (JobResult::Lost, may_have_run),
            "{why}"
        );
    }
}
