use super::*;
use crate::{
    model::records::{BusyRecord, NodeWork, Run, RunEnd, RunEnding, RunScope},
    text::Label,
};
use std::os::unix::fs::PermissionsExt as _;

fn everything() -> Vec<StateChange> {
    let suspension =
        Suspension { since: moment(3), by: Some("ann".into()), why: Some("backup".into()) };
    let quarantined =
        TargetRecord { failures: 5, quarantined_since: Some(moment(4)), ..TargetRecord::default() };
    vec![
        StateChange::StartIntended(intent(1)),
        StateChange::StartIntended(intent(2)),
        StateChange::StartIntended(intent(3)),
        StateChange::StartWithdrawn(intent(2).key()),
        ended(1),
        StateChange::SetTargetRecord(target(7), Some(quarantined)),
        StateChange::Suspend(SuspensionScope::Node("couchdb@a".into()), suspension),
        StateChange::Calibrate(Calibration { rate: Some(1.5), ..Calibration::default() }),
        StateChange::SetCorrection(correction_key("db", "orders"), Some(correction(0.25))),
        StateChange::SetCorrection(correction_key("db", "gone"), Some(correction(0.5))),
        StateChange::SetCorrection(correction_key("view", "orders"), Some(correction(0.75))),
        StateChange::SetCorrection(correction_key("db", "gone"), None),
        StateChange::SetCorrection(correction_key("db", "orders"), Some(correction(1.25))),
        StateChange::SetRun(9, Some(run(RunScope::All))),
        StateChange::SetRun(10, Some(run(RunScope::Database("orders".into())))),
        StateChange::SetRun(9, None),
        StateChange::SetNodeWork("couchdb@a".into(), NodeWork::default()),
        StateChange::SetNodeWork("couchdb@a".into(), worked()),
    ]
    .into_iter()
    .chain(scorecard().into_iter().map(StateChange::Scorecard))
    .collect()
}

fn worked() -> NodeWork {
    let busy = BusyRecord {
        since: moment(1),
        first_shard: "orders.17".into(),
        first_design: Some("_design/a".into()),
        first_ended_at: Some(moment(2)),
        ended_at: None,
    };
    NodeWork { last_start: Some(moment(1)), busy: Some(busy) }
}

fn run(scope: RunScope) -> Run {
    let results = [(JobResult::Freed, 3), (JobResult::NothingFreed, 1)].into();
    Run { results, ..Run::beginning(scope, true, "ann".into(), moment(3)) }
}

fn scorecard() -> Vec<ScorecardChange> {
    let hour = |advised_seconds| ScorecardHour { advised_seconds, ..ScorecardHour::default() };
    let left = |left_bytes| AdvisedTarget {
        compacted_at: moment(4),
        file_bytes: 9,
        left_bytes,
        active_bytes: Some(3),
        left_active_bytes: None,
        update_seq: None,
        compacted_seq: Some(1),
    };
    let job = AdvisedJob {
        target: target(2),
        node: "couchdb@a".into(),
        shard: Some("orders.17".into()),
        design: None,
        channel: "ratio_dbs".into(),
        started_at: moment(5),
        ends_at: moment(6),
        rewrite_bytes: 7,
        peak_bytes: 8,
        is_in_conflict: true,
    };
    vec![
        ScorecardChange::Hour(498_600, Some(hour(60))),
        ScorecardChange::Hour(498_601, Some(hour(60))),
        ScorecardChange::Hour(498_601, Some(hour(120))),
        ScorecardChange::Hour(498_600, None),
        ScorecardChange::Target(target(1), Some(left(4))),
        ScorecardChange::Target(target(2), Some(left(5))),
        ScorecardChange::Target(target(1), None),
        ScorecardChange::Jobs(vec![job.clone(), job.clone()]),
        ScorecardChange::Jobs(vec![job]),
    ]
}

fn correction_key(kind: &str, db: &str) -> CorrectionKey {
    let kind = TargetKind::from_label(kind).unwrap();
    CorrectionKey { db: db.into(), suffix: ".17".into(), kind }
}

fn correction(missed: f64) -> CorrectionRecord {
    CorrectionRecord { at: moment(4), outcomes: 3.0, missed, ..CorrectionRecord::default() }
}

/// A job whose end was not measured, and whose start counted as many bytes as its number.
fn ended_at(number: u64, at: Moment) -> StateChange {
    let outcome = Outcome {
        started_at: at,
        ended_at: at,
        charged_bytes: Some(number),
        before_bytes: None,
        after_bytes: None,
        ending: JobResult::Lost,
        ..outcome(number)
    };
    StateChange::JobEnded { outcome, closes: Some(intent(number).key()) }
}

fn event_types(events: &[EventDetails]) -> Vec<&'static str> {
    events.iter().map(|event| event.event_type().label()).collect()
}

#[tokio::test]
async fn stored_state_is_loaded_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let running = RunningJournal::open(DirectoryStorage::new(&path)).unwrap();
    assert_eq!(running.recovered().await, RecoveredState::default());
    running.keep(everything()).await.unwrap();
    running.stop_and_wait().await;

    let mut expected = RecoveredState::default();
    everything().into_iter().for_each(|change| expected.apply(change));
    expected.recent_outcomes.clear();
    let running = RunningJournal::open(DirectoryStorage::new(&path)).unwrap();
    let found = running.recovered().await;
    // The clock of these tests is 1000 s after the jobs' start, i.e. within the hour.
    assert_eq!(found.recent_outcomes, [outcome(1)]);
    assert_eq!(RecoveredState { recent_outcomes: Vec::new(), ..found }, expected);
    assert_eq!(running.history().await, [outcome(1)]);
    let events = running.events().await;
    assert_eq!(
        event_types(&events),
        [
            "started",
            "started",
            "started",
            "not_started",
            "finished",
            "quarantined",
            "suspended",
            "run_began",
            "run_began"
        ]
    );
    assert_eq!(running.journal.health().borrow().last_seq, 10);
    running.stop_and_wait().await;
}

#[tokio::test]
async fn every_start_of_the_last_hour_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let short = work::JournalRetention {
        outcomes: Keep {
            keep: Duration::from_secs(1),
            ..work::JournalRetention::default().outcomes
        },
        ..work::JournalRetention::default()
    };
    let running = RunningJournal::with(DirectoryStorage::new(dir.path()), short).unwrap();
    running.recovered().await;
    // More outcomes than are recognised when repeated.
    let numbers = 0..5_000;
    running.keep(numbers.clone().map(|it| ended_at(it, moment(900))).collect()).await.unwrap();
    // A job that ended long ago is noticed last; then the journal is trimmed.
    running.keep(vec![ended_at(5_000, Moment::from_unix(1_799_990_000))]).await.unwrap();
    running.keep(vec![ended_at(5_001, moment(900))]).await.unwrap();
    running.stop_and_wait().await;

    let running = RunningJournal::open(DirectoryStorage::new(dir.path())).unwrap();
    let found = running.recovered().await;
    let charges: Vec<u64> = found.budget_charges().map(|(_, bytes)| bytes).collect();
    assert_eq!(charges.len(), 5_001, "all but the one that started before the hour");
    assert_eq!(charges.iter().sum::<u64>(), numbers.sum::<u64>() + 5_001);
    running.stop_and_wait().await;
}

#[tokio::test]
async fn a_repeated_batch_is_stored_once() {
    let running = RunningJournal::claimed(InMemory::default()).await;
    running.keep(everything()).await.unwrap();
    let (events, recovered) = (running.events().await, running.recovered().await);
    // Repeats everything; changes that were undone within the batch are applied and undone again.
    let again: Vec<StateChange> = everything()
        .into_iter()
        .filter(|change| !matches!(change, StateChange::StartWithdrawn(_)))
        .collect();
    let undone = [intent(1).key(), intent(2).key()];
    let settled = again.into_iter().filter(|change| {
        !matches!(change, StateChange::StartIntended(it) if undone.contains(&it.key()))
            && !matches!(change, StateChange::SetRun(9, _))
    });
    running.keep(settled.collect()).await.unwrap();
    assert_eq!(running.events().await, events);
    assert_eq!(running.recovered().await, recovered);
    assert_eq!(running.history().await, [outcome(1)]);
    // Another run of the same target is another outcome.
    let later = Outcome { started_at: moment(50), ended_at: moment(60), ..outcome(1) };
    let change = StateChange::JobEnded { outcome: later.clone(), closes: None };
    running.keep(vec![change]).await.unwrap();
    assert_eq!(running.history().await, [later, outcome(1)]);
    running.stop_and_wait().await;
}

#[tokio::test]
async fn end_of_quarantine_suspension_and_run_is_recorded() {
    let running = RunningJournal::claimed(InMemory::default()).await;
    running.keep(everything()).await.unwrap();
    let scope = SuspensionScope::Node("couchdb@a".into());
    let (at, how, by, left_out) = (moment(70), RunEnding::Done, None, Vec::new());
    let ended = Some(RunEnd { at, how, by, members: 3, left_out });
    let undo = vec![
        StateChange::SetTargetRecord(target(7), None),
        StateChange::Resume { scope, by: None },
        StateChange::SetRun(10, Some(Run { ended, ..run(RunScope::Database("orders".into())) })),
    ];
    running.keep(undo.clone()).await.unwrap();
    running.keep(undo).await.unwrap();
    assert_eq!(event_types(&running.events().await)[9..], ["released", "resumed", "run_ended"]);
    let found = running.recovered().await;
    assert!(found.remembered.is_empty() && found.suspensions.is_empty(), "{found:?}");
    running.stop_and_wait().await;
}

#[tokio::test]
async fn order_survives_restart_and_its_operator_is_recorded() {
    let running = RunningJournal::claimed(InMemory::default()).await;
    let order = |by: &str, until: u64| {
        let (at, until, by) = (moment(0), Moment::from_unix(until), by.to_owned());
        let ordered = Some(CompactionOrder { at, until, by, force: true, run: None });
        vec![StateChange::SetTargetRecord(
            target(1),
            Some(TargetRecord { ordered, ..TargetRecord::default() }),
        )]
    };
    let forgotten = || vec![StateChange::SetTargetRecord(target(1), None)];
    let later = moment(9_999).unix();
    running.keep(order("ann", later)).await.unwrap();
    running.keep(order("ann", later)).await.unwrap();
    let found = running.recovered().await.remembered;
    assert_eq!(found[&target(1)].ordered.as_ref().unwrap().by, "ann");
    // The target starts. Then another order is given, which never starts.
    let by_ann = Intent { ordered_by: Some("ann".into()), ..intent(1) };
    running.keep([vec![StateChange::StartIntended(by_ann)], forgotten()].concat()).await.unwrap();
    running.keep(order("bob", 1)).await.unwrap();
    running.keep(forgotten()).await.unwrap();
    let ordered =
        |by: &str| EventDetails::Ordered { target: target(1), by: by.into(), force: true };
    let started = EventDetails::Started {
        target: target(1),
        node: "couchdb@a".into(),
        channel: "ratio_dbs".into(),
        ordered_by: Some("ann".into()),
    };
    let lapsed = EventDetails::Lapsed { target: target(1), by: "bob".into() };
    assert_eq!(running.events().await, [ordered("ann"), started, ordered("bob"), lapsed]);
    running.stop_and_wait().await;
}

#[tokio::test]
async fn first_recorded_smoosh_value_is_kept_for_restoring() {
    let running = RunningJournal::claimed(InMemory::default()).await;
    let setting = |was: Option<&str>| OverriddenSetting {
        node: "couchdb@a".into(),
        section: "smoosh.ratio_dbs".into(),
        key: "concurrency".into(),
        was: was.map(str::to_owned),
    };
    running.journal.record_overrides(vec![setting(Some("2"))]).await.unwrap();
    running.journal.record_overrides(vec![setting(Some("0"))]).await.unwrap();
    assert_eq!(running.journal.overridden_settings().await.unwrap(), [setting(Some("2"))]);
    running.journal.record_restored(vec![setting(None)]).await.unwrap();
    running.journal.record_restored(vec![setting(None)]).await.unwrap();
    assert_eq!(running.journal.overridden_settings().await.unwrap(), []);
    assert_eq!(
        running.events().await,
        [EventDetails::TakenOver(setting(Some("2"))), EventDetails::Restored(setting(Some("2")))]
    );
    running.stop_and_wait().await;
}

#[tokio::test]
async fn the_time_of_the_last_backup_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    let last = |running: &RunningJournal| running.journal.health().borrow().last_backup;
    assert_eq!(last(&running), None);
    for at in [moment(7), moment(9)] {
        running.journal.record_backup(at);
        running.keep(vec![ended(1)]).await.unwrap();
        assert_eq!(last(&running), Some(at));
    }
    running.journal.record_backup(moment(11));
    running.stop_and_wait().await;

    let running = RunningJournal::open(DirectoryStorage::new(dir.path())).unwrap();
    assert_eq!(last(&running), Some(moment(11)));
    running.stop_and_wait().await;
}

#[tokio::test]
async fn refuses_another_cluster_but_accepts_a_changed_one() {
    let dir = tempfile::tempdir().unwrap();
    let identity = |uuid: &str, nodes: &[&str]| ClusterIdentity {
        uuids: [uuid.to_owned()].into(),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
    };
    let running = RunningJournal::open(DirectoryStorage::new(dir.path())).unwrap();
    let refused = running.keep(vec![ended(1)]).await.unwrap_err();
    assert!(refused.0.contains("does not belong to a cluster yet"), "{refused}");
    running.journal.claim(identity("u", &["a", "b"])).await.unwrap();
    running.keep(vec![ended(1)]).await.unwrap();
    running.stop_and_wait().await;

    let running = RunningJournal::open(DirectoryStorage::new(dir.path())).unwrap();
    let refused = running.journal.claim(identity("v", &["a", "x"])).await.unwrap_err();
    assert!(matches!(refused, ClaimError::OtherCluster { .. }));
    assert_eq!(
        refused.to_string(),
        format!(
            "{}/journal.redb belongs to the cluster of a, b (uuid u), but CouchDB is the \
                cluster of a, x (uuid v): use a separate --storage.path for this cluster, or move \
                the file away to start a new journal",
            dir.path().display()
        )
    );
    assert!(running.keep(vec![ended(2)]).await.is_err());
    // Settings of smoosh that were recorded for another cluster's nodes must not be restored here.
    for why in [
        running.journal.overridden_settings().await.unwrap_err(),
        running.journal.history(HistoryQuery::default()).await.unwrap_err(),
        running.journal.feed_position().await.unwrap_err(),
    ] {
        assert_eq!(why.0, refused.to_string());
    }
    running.journal.claim(identity("u", &["b", "c"])).await.unwrap();
    running.stop_and_wait().await;

    let running = RunningJournal::open(DirectoryStorage::new(dir.path())).unwrap();
    let refused = running.journal.claim(identity("w", &["c"])).await.unwrap_err();
    assert!(refused.to_string().contains("the cluster of b, c (uuid u)"), "{refused}");
    running.stop_and_wait().await;
}

#[tokio::test]
async fn only_one_process_can_open_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let running = RunningJournal::open(DirectoryStorage::new(dir.path())).unwrap();
    let refused = RunningJournal::open(DirectoryStorage::new(dir.path())).err().unwrap();
    assert!(matches!(refused, JournalOpenError::InUse { .. }));
    let text = refused.to_string();
    assert!(text.contains("journal.redb open: stop that process"), "{text}");
    running.stop_and_wait().await;
    RunningJournal::open(DirectoryStorage::new(dir.path())).unwrap().stop_and_wait().await;
}

#[tokio::test]
async fn requests_before_shutdown_are_served_and_later_ones_refused() {
    let dir = tempfile::tempdir().unwrap();
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    let journal = running.journal.clone();
    let writes: Vec<_> = (0..50).map(|at| journal.store(vec![ended(at)])).collect();
    let event = EventDetails::Released { target: target(1) };
    journal.record(event.clone());
    let writes = futures::future::join_all(writes);
    let (results, ()) = tokio::join!(writes, async { running.stop_and_wait().await });
    let good = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(
        within_patience(journal.store(vec![ended(99)])).await.unwrap_err().0,
        "the journal is closed: recliner is stopping"
    );
    let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
    assert_eq!(running.history().await.len(), good);
    assert!(running.events().await.contains(&event));
    running.stop_and_wait().await;
}

#[tokio::test]
async fn history_and_events_are_filtered_and_paged() {
    let running = RunningJournal::claimed(InMemory::default()).await;
    for number in 0..10 {
        let failed = Outcome { ending: JobResult::Failed, ..outcome(number) };
        let outcome = if number % 2 == 0 { failed } else { outcome(number) };
        running.keep(vec![StateChange::JobEnded { outcome, closes: None }]).await.unwrap();
    }
    let journal = &running.journal;
    let page = |page: Page<Outcome>| {
        let targets: Vec<_> = page.entries.iter().map(|(_, it)| it.target.clone()).collect();
        (targets, page.has_more, page.entries.last().map(|(seq, _)| *seq))
    };
    let of = |numbers: &[u64]| numbers.iter().map(|at| target(*at)).collect::<Vec<_>>();
    let query = HistoryQuery { limit: 3, ..HistoryQuery::default() };
    let (targets, more, last) = page(journal.history(query.clone()).await.unwrap());
    assert_eq!((targets, more), (of(&[9, 8, 7]), true));
    let next = HistoryQuery { before: last, limit: 7, ..query.clone() };
    assert_eq!(page(journal.history(next).await.unwrap()).0, of(&[6, 5, 4, 3, 2, 1, 0]));
    let named = |text: &str| Some(crate::model::target::TargetSelector::new(text, []));
    for (query, expected) in [
        (HistoryQuery { result: Some(JobResult::Failed), ..query.clone() }, &[8, 6, 4][..]),
        (HistoryQuery { target: named(&target(5).to_string()), ..query.clone() }, &[5]),
        (HistoryQuery { target: named("shards/00000000-7fffffff/d5"), ..query.clone() }, &[5]),
        (HistoryQuery { target: named("d5"), ..query.clone() }, &[]),
        (HistoryQuery { node: Some("couchdb@b".into()), ..query.clone() }, &[]),
        (HistoryQuery { since: Some(moment(9)), ..query.clone() }, &[9, 8]),
        (HistoryQuery { until: Some(moment(5)), ..query.clone() }, &[3, 2, 1]),
    ] {
        assert_eq!(page(journal.history(query).await.unwrap()).0, of(expected));
    }
    let all = EventsQuery { limit: 4, ..EventsQuery::default() };
    let seqs =
        |page: &Page<JournalEvent>| page.entries.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
    let newest = journal.events(all.clone()).await.unwrap();
    assert_eq!((seqs(&newest), newest.has_more), (vec![14, 16, 18, 20], false));
    let after = EventsQuery { after_seq: Some(16), limit: 1, ..all.clone() };
    let after = journal.events(after).await.unwrap();
    assert_eq!((seqs(&after), after.has_more), (vec![18], true));
    let older = EventsQuery { before_seq: Some(14), ..all.clone() };
    assert_eq!(seqs(&journal.events(older.clone()).await.unwrap()), [6, 8, 10, 12]);
    assert_eq!(journal.first_of_newest_events(older.clone()).await.unwrap(), Some(6));
    let between = EventsQuery { after_seq: Some(8), ..older };
    assert_eq!(seqs(&journal.events(between).await.unwrap()), [10, 12]);
    let written = newest.entries[0].1.at;
    for (from, expected) in
        [(written, &[2, 4, 6, 8][..]), (Moment::from_unix(written.unix() + 1), &[])]
    {
        let query = EventsQuery { from: Some(from), ..all.clone() };
        assert_eq!(seqs(&journal.events(query).await.unwrap()), expected);
    }
    let about = |text| EventsQuery { target: named(text), ..all.clone() };
    let about = journal.events(about("shards/00000000-7fffffff/d9")).await.unwrap();
    assert_eq!(about.entries.len(), 1, "{about:?}");
    let none = EventsQuery { types: vec![EventType::Started], ..all };
    assert_eq!(journal.events(none).await.unwrap().entries, []);
    running.stop_and_wait().await;
}

#[tokio::test]
async fn the_directory_is_created_but_not_its_parents() {
    let dir = tempfile::tempdir().unwrap();
    let far = dir.path().join("not/there");
    let refused = RunningJournal::open(DirectoryStorage::new(&far)).err().unwrap();
    assert!(matches!(refused, JournalOpenError::Directory { .. }));
    let text = refused.to_string();
    assert!(text.starts_with(&format!("cannot use the directory {}: ", far.display())), "{text}");
    assert!(text.ends_with("create it, or choose another one with --storage.path"), "{text}");

    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = RunningJournal::open(DirectoryStorage::new(&file)).err().unwrap();
    assert!(matches!(refused, JournalOpenError::Directory { .. }), "{refused}");
}

#[tokio::test]
async fn an_unfinished_file_of_an_interrupted_process_is_replaced() {
    for left in [&b""[..], &[0; 4096], &[7; 100_000]] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("journal.redb.new"), left).unwrap();
        let running = RunningJournal::claimed(DirectoryStorage::new(dir.path())).await;
        running.keep(vec![ended(1)]).await.unwrap();
        running.stop_and_wait().await;
        assert!(!dir.path().join("journal.redb.new").exists());
    }
}

/// Another user may have put a link in its place, to a file that must stay as it is.
#[tokio::test]
async fn journal_is_private_and_not_created_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (target, missing) = (dir.path().join("target"), dir.path().join("missing"));
    std::fs::write(&target, "of another user").unwrap();
    for leads_to in [&target, &missing] {
        let own = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(leads_to, own.path().join("journal.redb.new")).unwrap();
        RunningJournal::claimed(DirectoryStorage::new(own.path())).await.stop_and_wait().await;
        let mode = own.path().join("journal.redb").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "of another user");
    assert!(!missing.exists());
}
