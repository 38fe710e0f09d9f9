use super::*;
use crate::{
    jobs::{JobKey, JobKind, JobPhase},
    model::{records::JobOwner, target::TargetKind},
};
use std::sync::Arc;

const GRACE: u64 = 120;

fn at(seconds: u64) -> Moment {
    Moment::from_unix(1_000_000 + seconds)
}

fn view() -> TargetIx {
    TargetIx::from_usize(7).unwrap()
}

fn node(at: usize) -> NodeIx {
    NodeIx::from_usize(at).unwrap()
}

/// The lag of a view whose database has a copy on each of two nodes.
fn lag(measured: u64, indexed: u64, pending: u64) -> IndexLag {
    IndexLag {
        ix: view(),
        signature: Signature([1; 16]),
        measured_at: at(measured),
        pending,
        indexed_seq: indexed,
        may_be_current: false,
        is_search: false,
        ranges: 1,
        database: DatabaseCopies {
            copies_by_node: [(node(1), 1), (node(2), 1)].into(),
            content_hash: 1,
            oldest_measurement: Some(at(measured)),
            newest_measurement: Some(at(measured)),
            ..DatabaseCopies::default()
        },
    }
}

/// Both nodes were polled; an indexer of the view runs on the first, or none.
fn jobs(polled_at: u64, last_progress: Option<u64>) -> Jobs {
    let polled = vec![(node(1), at(polled_at)), (node(2), at(polled_at))];
    let job = |progress: u64| Job {
        key: JobKey {
            node: node(1),
            shard: Arc::from("shards/00000000-ffffffff/a.1"),
            kind: JobKind::BuildView(Arc::from("_design/x")),
        },
        target: Some(view()),
        target_kind: TargetKind::View,
        owner: JobOwner::Other,
        channel: None,
        started_at: at(0),
        phase: JobPhase::Running,
        progress: None,
        last_progress_at: at(progress),
        reserved_bytes: 0,
        file_bytes: None,
        predicted_bytes: None,
    };
    Jobs {
        list: last_progress.map(job).into_iter().collect(),
        polled_nodes: polled,
        starts_accepted: 0,
    }
}

#[derive(Default)]
struct Fixture(BuildHistory);

impl Fixture {
    fn update(&mut self, now: u64, lag: &IndexLag, jobs: &Jobs) -> HistoryChanges {
        self.0.update(std::slice::from_ref(lag), jobs, &Warmer::default(), at(now))
    }

    /// Since when the index lags, and what the grace period counts from.
    fn since(&self) -> Option<(Moment, Moment)> {
        self.0.get(view())?.lag.map(|lag| (lag.since, lag.grace_from))
    }
}

fn ended(class: BuildClass, ending: BuildResult) -> HistoryChanges {
    HistoryChanges { ended: vec![(view(), class, ending)], reread: vec![] }
}

fn needs_reread() -> HistoryChanges {
    HistoryChanges { ended: vec![], reread: vec![view()] }
}

#[test]
fn lag_and_grace_are_timed_apart() {
    let mut fixture = Fixture::default();
    let idle = jobs(0, None);
    fixture.update(10, &lag(10, 500, 0), &idle);
    assert_eq!(fixture.since(), None);
    fixture.update(20, &lag(20, 500, 30), &idle);
    assert_eq!(fixture.since(), Some((at(20), at(20))));
    fixture.update(30, &lag(20, 500, 30), &idle);
    assert_eq!(fixture.since(), Some((at(20), at(20))));
    // An indexer is seen that brings nothing forward; then one ran between two polls.
    fixture.update(40, &lag(20, 500, 30), &jobs(40, Some(40)));
    assert_eq!(fixture.since(), Some((at(20), at(40))));
    fixture.update(60, &lag(60, 520, 10), &idle);
    assert_eq!(fixture.since(), Some((at(60), at(60))));
    fixture.update(70, &lag(70, 530, 0), &idle);
    assert_eq!(fixture.since(), None);
}

#[test]
fn a_build_ends_when_its_index_reaches_the_target_sequence() {
    let mut fixture = Fixture::default();
    let lags = lag(10, 500, 30);
    fixture.update(10, &lags, &jobs(10, None));
    fixture.0.record_start(&lags, BuildClass::Incremental, at(200));
    // Its nodes have not been polled since; then they show the build; then they no longer do.
    assert_eq!(fixture.update(201, &lags, &jobs(199, None)), HistoryChanges::default());
    assert_eq!(fixture.update(206, &lags, &jobs(206, Some(206))), HistoryChanges::default());
    assert_eq!(fixture.update(300, &lags, &jobs(300, None)), needs_reread());
    assert_eq!(fixture.update(305, &lags, &jobs(305, None)), HistoryChanges::default());
    // More was written in the meantime, but the build was for the earlier sequence.
    let done = lag(306, 530, 4);
    assert_eq!(
        fixture.update(310, &done, &jobs(310, None)),
        ended(BuildClass::Incremental, BuildResult::Built)
    );
    let entry = fixture.0.get(view()).unwrap();
    assert_eq!((&entry.failed, entry.backoff_until), (&None, None));
    assert_eq!(entry.last_build, Some(LastBuild { ended_at: at(310), target_seq: 530 }));
}

#[test]
fn measurement_from_the_second_of_its_request_counts() {
    let mut fixture = Fixture::default();
    fixture.0.record_start(&lag(10, 500, 30), BuildClass::Batch, at(100));
    assert_eq!(fixture.update(110, &lag(10, 500, 30), &jobs(110, None)), needs_reread());
    let done = lag(110, 530, 0);
    assert_eq!(
        fixture.update(115, &done, &jobs(115, None)),
        ended(BuildClass::Batch, BuildResult::Built)
    );
}

#[test]
fn a_missing_measurement_is_requested_again() {
    let mut fixture = Fixture::default();
    let lags = lag(10, 500, 30);
    fixture.0.record_start(&lags, BuildClass::Batch, at(100));
    assert_eq!(fixture.update(110, &lags, &jobs(110, None)), needs_reread());
    assert_eq!(fixture.update(120, &lags, &jobs(120, None)), HistoryChanges::default());
    assert_eq!(fixture.update(141, &lags, &jobs(141, None)), needs_reread());
}

#[test]
fn build_without_effect_is_stalled_and_backs_off_longer_each_time() {
    let mut fixture = Fixture::default();
    let mut now = 1_000;
    for rest in [5, 10, 20] {
        let lags = lag(now, 500, 3_000);
        fixture.update(now, &lags, &jobs(now, None));
        fixture.0.record_start(&lags, BuildClass::Batch, at(now));
        let mut last = HistoryChanges::default();
        // An indexer comes and goes without progress.
        fixture.update(now + 6, &lags, &jobs(now + 6, Some(now + 6)));
        for step in 2..60 {
            now += 6;
            let measured = lag(now - 1, 500, 3_000);
            last = fixture.update(now + step, &measured, &jobs(now + step, None));
            if !last.ended.is_empty() {
                now += step;
                break;
            }
        }
        assert_eq!(last, ended(BuildClass::Batch, BuildResult::Failed));
        let entry = fixture.0.get(view()).unwrap();
        assert_eq!(entry.backoff_until, Some(at(now + rest)), "after {:?}", entry.failed);
        assert!(entry.failed.is_some());
        // A failed build does not make the lag younger, although the next one waits for the grace period.
        assert_eq!(fixture.since(), Some((at(1_000), at(now))));
    }
    fixture.update(now + 9, &lag(now + 9, 3_500, 0), &jobs(now + 9, None));
    let entry = fixture.0.get(view()).unwrap();
    assert_eq!((&entry.failed, entry.backoff_until), (&None, None));
}

#[test]
fn a_refusal_is_an_immediate_failure() {
    let mut fixture = Fixture::default();
    let lags = lag(10, 500, 30);
    fixture.0.record_start(&lags, BuildClass::Batch, at(100));
    assert_eq!(
        fixture.0.record_refusal(view(), "403", &Warmer::default(), at(101)),
        Some(BuildClass::Batch)
    );
    assert_eq!(fixture.0.record_refusal(view(), "403", &Warmer::default(), at(102)), None);
    assert_eq!(fixture.0.get(view()).unwrap().backoff_until, Some(at(106)));
}

#[test]
fn sequences_without_documents_are_phantom_lag() {
    let mut fixture = Fixture::default();
    let idle = jobs(0, None);
    fixture.update(10, &lag(10, 500, 0), &idle);
    // A measurement of the database from before the lag proves nothing.
    let mut lags = lag(20, 500, 1);
    lags.database.oldest_measurement = Some(at(10));
    fixture.update(20, &lags, &idle);
    assert!(!fixture.0.is_phantom(&lags));
    lags.database.oldest_measurement = Some(at(25));
    fixture.update(25, &lags, &idle);
    assert!(fixture.0.is_phantom(&lags));
    // A document was written, whether or not the copies were measured since.
    let mut more = lag(30, 500, 2);
    more.database.oldest_measurement = Some(at(25));
    fixture.update(30, &more, &idle);
    assert!(!fixture.0.is_phantom(&more));
    (more.database.oldest_measurement, more.database.content_hash) = (Some(at(40)), 2);
    fixture.update(40, &more, &idle);
    assert!(!fixture.0.is_phantom(&more));
}

#[test]
fn build_without_effect_marks_an_unchanged_lag_as_phantom() {
    let mut fixture = Fixture::default();
    fixture.0.record_start(&lag(10, 500, 1), BuildClass::Incremental, at(100));
    let mut now = 110;
    let last = loop {
        let measured = lag(now - 1, 500, 1);
        let step = fixture.update(now, &measured, &jobs(now, None));
        if !step.ended.is_empty() || now > 110 + 2 * GRACE {
            break step;
        }
        now += 6;
    };
    assert_eq!(last, ended(BuildClass::Incremental, BuildResult::Failed));
    assert!(fixture.0.is_phantom(&lag(now, 500, 1)));
    assert!(!fixture.0.is_phantom(&lag(now, 500, 2)));
}

#[test]
fn a_removed_index_is_forgotten_with_its_build() {
    let mut fixture = Fixture::default();
    let lags = lag(10, 500, 30);
    fixture.0.record_start(&lags, BuildClass::Batch, at(100));
    let another = IndexLag { signature: Signature([2; 16]), ..lag(10, 0, 0) };
    assert_eq!(
        fixture.update(110, &another, &jobs(110, None)),
        ended(BuildClass::Batch, BuildResult::Failed)
    );
    assert!(fixture.0.get(view()).is_none());
}

#[test]
fn a_finished_build_is_forgotten_after_a_while() {
    let mut fixture = Fixture::default();
    let lags = lag(10, 500, 30);
    fixture.0.record_start(&lags, BuildClass::Batch, at(100));
    let done = lag(112, 530, 0);
    fixture.update(111, &done, &jobs(110, None));
    fixture.update(112, &lag(113, 530, 0), &jobs(112, None));
    assert!(fixture.0.get(view()).unwrap().last_build.is_some());
    fixture.update(112 + 61, &lag(113, 530, 0), &jobs(112, None));
    assert!(fixture.0.get(view()).is_none());
}

#[test]
fn possibly_current_index_is_built_once_per_database_change() {
    let mut fixture = Fixture::default();
    let perhaps = |measured, most: u64| IndexLag {
        is_search: true,
        may_be_current: true,
        ..lag(measured, 500, most - 500)
    };
    let lags = perhaps(10, 540);
    fixture.update(10, &lags, &jobs(10, None));
    assert!(!fixture.0.is_phantom(&lags), "nothing is known about the time before");
    fixture.0.record_start(&lags, BuildClass::Batch, at(100));
    assert_eq!(fixture.update(110, &lags, &jobs(110, None)), needs_reread());
    // The query found nothing to do, and nothing shows that there was any lag.
    let same = perhaps(112, 540);
    assert_eq!(
        fixture.update(115, &same, &jobs(115, None)),
        ended(BuildClass::Batch, BuildResult::Built)
    );
    assert_eq!(fixture.0.get(view()).unwrap().failed, None);
    assert!(fixture.0.is_phantom(&perhaps(500, 540)));
    assert!(!fixture.0.is_phantom(&perhaps(500, 541)), "a copy has changed");
}
