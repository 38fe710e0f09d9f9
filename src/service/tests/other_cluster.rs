//! A journal that belongs to another cluster.

use super::*;
use crate::{
    model::{channel::Mode, records::JournalFailure},
    store::journal::{ClusterIdentity, DirectoryStorage, EventDetails, JournalTask},
    text::Label,
};
use serde_json::Value;

/// A directory with the journal of another cluster, in which one event is recorded.
async fn journal_of_another_cluster() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (_settings, settings) = latest::channel(journal::JournalSettings::default());
    let storage = DirectoryStorage::new(dir.path());
    let (task, journal) = JournalTask::open(storage, Clock::System, settings).unwrap();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(task.run(stop.clone()));
    let nodes = ["couchdb@elsewhere".to_owned()].into();
    let identity = ClusterIdentity { uuids: ["another".to_owned()].into(), nodes };
    journal.claim(identity).await.unwrap();
    journal.record_batch(vec![EventDetails::Updated { db: "theirs".to_owned() }]);
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    dir
}

#[tokio::test]
async fn reports_and_ignores_foreign_journal_in_enforce_mode() {
    check_foreign_journal_is_reported_and_ignored(Mode::Enforce).await;
}

#[tokio::test]
async fn reports_and_ignores_foreign_journal_in_advise_mode() {
    check_foreign_journal_is_reported_and_ignored(Mode::Advise).await;
}

async fn check_foreign_journal_is_reported_and_ignored(mode: Mode) {
    let dir = journal_of_another_cluster().await;
    let file = dir.path().join("journal.redb");
    let flags = Flags { web_enable_admin_api: true, ..flags() };
    let settings = loaded(&flags, &format!("mode: {}\n{FILE}", mode.label())).unwrap().settings;
    let storage = DirectoryStorage::new(dir.path());
    let mut running = RunningService::start_with(settings, storage, []).await;
    let is_refused = |plan: &Arc<crate::plan::Plan>| {
        let failure = plan.conditions.constraints.journal_failure.as_ref();
        matches!(failure, Some((_, JournalFailure::OtherCluster(_))))
    };
    let refused = running.watch.1.plan.wait_for(is_refused);
    drop(time::timeout(PATIENCE, refused).await.expect("the other cluster is noticed").unwrap());
    let ready = running.watch.0.status.wait_for(|status| status.ready);
    drop(time::timeout(PATIENCE, ready).await.expect("the simulation answers").unwrap());

    let whose = "journal.redb belongs to the cluster of couchdb@elsewhere (uuid another), but CouchDB is the cluster of couchdb@sim-1.local";
    let status: Value = serde_json::from_str(&running.get("/api/v1/status").await).unwrap();
    let problem = status["data"]["journal_problem"].as_str().unwrap();
    assert!(problem.contains(whose), "{problem}");
    assert_eq!(status["data"]["ready"], false);
    let ready = running.client.get(format!("{}/-/ready", running.url)).send().await.unwrap();
    assert_eq!(ready.status().as_u16(), 503);
    assert!(ready.text().await.unwrap().contains(whose));
    let page = running.get("/").await;
    assert!(
        page.contains("The journal cannot be used, so nothing is recorded and nothing starts: "),
        "{page}"
    );
    assert!(page.contains(whose), "{page}");
    assert!(running.has("recliner_journal_usable 0").await);
    let gate = "recliner_gate_open{node=\"couchdb@sim-1.local\",gate=\"journal\"} 0";
    let closed = running.watch.1.plan.wait_for(|plan| plan.snapshot.nodes().len() > 1);
    drop(time::timeout(PATIENCE, closed).await.expect("nodes are known").unwrap());
    assert!(running.has(gate).await);

    // The other cluster's records are not shown as this cluster's.
    for path in ["/api/v1/history", "/api/v1/events", "/_db_updates"] {
        let answer = running.get(path).await;
        assert!(answer.contains(whose) && !answer.contains("theirs"), "{path}: {answer}");
    }
    let order = running.client.post(format!("{}/api/v1/suspend", running.url));
    let order = order.header("content-type", "application/json").body("{}");
    let answer = order.send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().get("retry-after")), (503, None));
    assert!(answer.text().await.unwrap().contains(whose));

    running.stop.cancel();
    assert_eq!(running.ended().await, ServiceEnd::Stopped);
    assert!(file.exists());
    let (_settings, settings) = latest::channel(journal::JournalSettings::default());
    let storage = DirectoryStorage::new(dir.path());
    let (_task, journal) = JournalTask::open(storage, Clock::System, settings).unwrap();
    assert_eq!(journal.health().borrow().last_seq, 1, "something was written");
}
