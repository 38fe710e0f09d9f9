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
fn seen(measured: u64, indexed: u64, pending: u64) -> IndexLag {
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
fn jobs(asked: u64, last_progress: Option<u64>) -> Jobs {
    let polled = vec![(node(1), at(asked)), (node(2), at(asked))];
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
    fn see(&mut self, now: u64, seen: &IndexLag, jobs: &Jobs) -> HistoryChanges {
        self.0.update(std::slice::from_ref(seen), jobs, &Warmer::default(), at(now))
    }

    fn since(&self) -> Option<Moment> {
        self.0.get(view())?.lag.map(|lag| lag.since)
    }
}

fn ended(class: BuildClass, ending: BuildResult) -> HistoryChanges {
    HistoryChanges { ended: vec![(view(), class, ending)], reread: vec![] }
}

fn asks() -> HistoryChanges {
    HistoryChanges { ended: vec![], reread: vec![view()] }
}

#[test]
fn lag_counts_from_when_no_indexer_works() {
    let mut told = Fixture::default();
    let idle = jobs(0, None);
    told.see(10, &seen(10, 500, 0), &idle);
    assert_eq!(told.since(), None);
    told.see(20, &seen(20, 500, 30), &idle);
    assert_eq!(told.since(), Some(at(20)));
    told.see(30, &seen(20, 500, 30), &idle);
    assert_eq!(told.since(), Some(at(20)));
    // An indexer is seen; then one ran between two polls.
    told.see(40, &seen(20, 500, 30), &jobs(40, Some(40)));
    assert_eq!(told.since(), Some(at(40)));
    told.see(60, &seen(60, 520, 10), &idle);
    assert_eq!(told.since(), Some(at(60)));
    told.see(70, &seen(70, 530, 0), &idle);
    assert_eq!(told.since(), None);
}

#[test]
fn a_build_ends_when_its_index_reaches_the_target_sequence() {
    let mut told = Fixture::default();
    let lags = seen(10, 500, 30);
    told.see(10, &lags, &jobs(10, None));
    told.0.record_start(&lags, BuildClass::Incremental, at(200));
    // Its nodes were not polled since; then they show the build; then they do not.
    assert_eq!(told.see(201, &lags, &jobs(199, None)), HistoryChanges::default());
    assert_eq!(told.see(206, &lags, &jobs(206, Some(206))), HistoryChanges::default());
    assert_eq!(told.see(300, &lags, &jobs(300, None)), asks());
    assert_eq!(told.see(305, &lags, &jobs(305, None)), HistoryChanges::default());
    // More was written in the meantime, but the build was for the earlier sequence.
    let done = seen(306, 530, 4);
    assert_eq!(
        told.see(310, &done, &jobs(310, None)),
        ended(BuildClass::Incremental, BuildResult::Built)
    );
    let entry = told.0.get(view()).unwrap();
    assert_eq!((entry.failures, entry.backoff_until, entry.stalled_since), (0, None, None));
    assert_eq!(entry.last_build, Some(LastBuild { ended_at: at(310), target_seq: 530 }));
}

#[test]
fn an_answer_within_the_same_second_counts() {
    let mut told = Fixture::default();
    told.0.record_start(&seen(10, 500, 30), BuildClass::Batch, at(100));
    assert_eq!(told.see(110, &seen(10, 500, 30), &jobs(110, None)), asks());
    let done = seen(110, 530, 0);
    assert_eq!(
        told.see(115, &done, &jobs(115, None)),
        ended(BuildClass::Batch, BuildResult::Built)
    );
}

#[test]
fn a_missing_measurement_is_requested_again() {
    let mut told = Fixture::default();
    let lags = seen(10, 500, 30);
    told.0.record_start(&lags, BuildClass::Batch, at(100));
    assert_eq!(told.see(110, &lags, &jobs(110, None)), asks());
    assert_eq!(told.see(120, &lags, &jobs(120, None)), HistoryChanges::default());
    assert_eq!(told.see(141, &lags, &jobs(141, None)), asks());
}

#[test]
fn lag_despite_builds_is_stalled_and_rests_longer_each_time() {
    let mut told = Fixture::default();
    let mut now = 1_000;
    for rest in [5, 10, 20] {
        let lags = seen(now, 500, 3_000);
        told.see(now, &lags, &jobs(now, None));
        told.0.record_start(&lags, BuildClass::Batch, at(now));
        let mut last = HistoryChanges::default();
        // An indexer comes and goes without progress.
        told.see(now + 6, &lags, &jobs(now + 6, Some(now + 6)));
        for step in 2..60 {
            now += 6;
            let measured = seen(now - 1, 500, 3_000);
            last = told.see(now + step, &measured, &jobs(now + step, None));
            if !last.ended.is_empty() {
                now += step;
                break;
            }
        }
        assert_eq!(last, ended(BuildClass::Batch, BuildResult::Failed));
        let entry = told.0.get(view()).unwrap();
        assert_eq!(entry.backoff_until, Some(at(now + rest)), "after {}", entry.failures);
        assert!(entry.stalled_since.is_some());
    }
    told.see(now + 9, &seen(now + 9, 3_500, 0), &jobs(now + 9, None));
    let entry = told.0.get(view()).unwrap();
    assert_eq!((entry.failures, entry.backoff_until, entry.stalled_since), (0, None, None));
}

#[test]
fn a_refusal_is_an_immediate_failure() {
    let mut told = Fixture::default();
    let lags = seen(10, 500, 30);
    told.0.record_start(&lags, BuildClass::Batch, at(100));
    assert_eq!(told.0.record_refusal(view(), &Warmer::default(), at(101)), Some(BuildClass::Batch));
    assert_eq!(told.0.record_refusal(view(), &Warmer::default(), at(102)), None);
    assert_eq!(told.0.get(view()).unwrap().backoff_until, Some(at(106)));
}

#[test]
fn sequences_without_documents_are_phantom_lag() {
    let mut told = Fixture::default();
    let idle = jobs(0, None);
    told.see(10, &seen(10, 500, 0), &idle);
    // A measurement of the database from before the lag proves nothing.
    let mut lags = seen(20, 500, 1);
    lags.database.oldest_measurement = Some(at(10));
    told.see(20, &lags, &idle);
    assert!(!told.0.is_phantom(&lags));
    lags.database.oldest_measurement = Some(at(25));
    told.see(25, &lags, &idle);
    assert!(told.0.is_phantom(&lags));
    // A document was written, whether or not the copies were measured since.
    let mut more = seen(30, 500, 2);
    more.database.oldest_measurement = Some(at(25));
    told.see(30, &more, &idle);
    assert!(!told.0.is_phantom(&more));
    (more.database.oldest_measurement, more.database.content_hash) = (Some(at(40)), 2);
    told.see(40, &more, &idle);
    assert!(!told.0.is_phantom(&more));
}

#[test]
fn a_build_that_finds_nothing_to_do_shows_phantom_lag() {
    let mut told = Fixture::default();
    told.0.record_start(&seen(10, 500, 1), BuildClass::Incremental, at(100));
    let mut now = 110;
    let last = loop {
        let measured = seen(now - 1, 500, 1);
        let step = told.see(now, &measured, &jobs(now, None));
        if !step.ended.is_empty() || now > 110 + 2 * GRACE {
            break step;
        }
        now += 6;
    };
    assert_eq!(last, ended(BuildClass::Incremental, BuildResult::Failed));
    assert!(told.0.is_phantom(&seen(now, 500, 1)));
    assert!(!told.0.is_phantom(&seen(now, 500, 2)));
}

#[test]
fn a_removed_index_is_forgotten_with_its_build() {
    let mut told = Fixture::default();
    let lags = seen(10, 500, 30);
    told.0.record_start(&lags, BuildClass::Batch, at(100));
    let another = IndexLag { signature: Signature([2; 16]), ..seen(10, 0, 0) };
    assert_eq!(
        told.see(110, &another, &jobs(110, None)),
        ended(BuildClass::Batch, BuildResult::Failed)
    );
    assert!(told.0.get(view()).is_none());
}

#[test]
fn a_finished_build_is_forgotten_after_a_while() {
    let mut told = Fixture::default();
    let lags = seen(10, 500, 30);
    told.0.record_start(&lags, BuildClass::Batch, at(100));
    let done = seen(112, 530, 0);
    told.see(111, &done, &jobs(110, None));
    told.see(112, &seen(113, 530, 0), &jobs(112, None));
    assert!(told.0.get(view()).unwrap().last_build.is_some());
    told.see(112 + 61, &seen(113, 530, 0), &jobs(112, None));
    assert!(told.0.get(view()).is_none());
}

#[test]
fn an_index_that_may_be_current_is_built_once_per_change_of_its_database() {
    let mut told = Fixture::default();
    let perhaps = |measured, most: u64| IndexLag {
        is_search: true,
        may_be_current: true,
        ..seen(measured, 500, most - 500)
    };
    let lags = perhaps(10, 540);
    told.see(10, &lags, &jobs(10, None));
    assert!(!told.0.is_phantom(&lags), "nothing is known about the time before");
    told.0.record_start(&lags, BuildClass::Batch, at(100));
    assert_eq!(told.see(110, &lags, &jobs(110, None)), asks());
    // The query found nothing to do, and nothing shows that there was any lag.
    let same = perhaps(112, 540);
    assert_eq!(
        told.see(115, &same, &jobs(115, None)),
        ended(BuildClass::Batch, BuildResult::Built)
    );
    assert_eq!(told.0.get(view()).unwrap().failures, 0);
    assert!(told.0.is_phantom(&perhaps(500, 540)));
    assert!(!told.0.is_phantom(&perhaps(500, 541)), "a copy has changed");
}
