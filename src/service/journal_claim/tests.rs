use super::*;
use crate::store::journal::{InMemory, JournalSettings, JournalTask};
use couchdb_client::{Address, ClientSettings, Login, Transport};
use couchdb_sim::{Cluster, Config};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Longer than any step takes on the paused clock.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of a cluster of one node on this host.
fn client(host: &str, seed: u64) -> Client {
    let clock = Clock::anchored(Moment::from_unix(1_800_000_000));
    let cluster = Cluster::new(Config::new(&[&format!("couchdb@{host}")]), seed, clock).unwrap();
    let url = format!("http://{host}:5984").parse::<Address>().unwrap();
    let mut settings = ClientSettings::new(vec![url]);
    settings.login = Login::password("admin", "secret").unwrap();
    Client::builder(settings).transport(Transport::in_process(cluster.by_host())).open().unwrap()
}

/// A journal in memory, and its task.
fn journal() -> (Journal, JoinSet<()>) {
    let (_settings, settings) = latest::channel(JournalSettings::default());
    let clock = Clock::anchored(Moment::from_unix(1_800_000_000));
    let (task, journal) = JournalTask::open(InMemory::default(), clock, settings).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(task.run(CancellationToken::new()));
    (journal, tasks)
}

#[tokio::test(start_paused = true)]
async fn journal_is_unusable_while_clients_reach_another_cluster() {
    let (journal, _tasks) = journal();
    let (first, second) = (client("sim-1.local", 1), client("sim-2.local", 2));
    journal.claim(cluster_identity(&first).await.unwrap()).await.unwrap();
    let (clients, current) = latest::channel(first.clone());
    let mut guard = JoinSet::new();
    guard.spawn(keep_claimed(journal.clone(), current));
    let mut health = journal.health();

    for _ in 0..2 {
        clients.send_replace(second.clone());
        let refused = health.wait_for(|health| health.failure.is_some());
        let (_, why) = time::timeout(PATIENCE, refused)
            .await
            .expect("the other cluster is noticed")
            .unwrap()
            .failure
            .clone()
            .unwrap();
        let JournalFailure::OtherCluster(why) = why else { panic!("{why}") };
        assert!(why.contains("belongs to the cluster of couchdb@sim-1.local"), "{why}");
        assert!(why.contains("use a separate --storage.path"), "{why}");
        assert_eq!(journal.marks().await.unwrap_err().0, why);

        clients.send_replace(first.clone());
        let well = health.wait_for(|health| health.failure.is_none());
        time::timeout(PATIENCE, well).await.expect("the return is noticed").unwrap();
        assert!(journal.marks().await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn claims_journal_after_address_is_corrected() {
    let (journal, _tasks) = journal();
    let (wrong, right) = (client("sim-1.local", 1), client("sim-2.local", 2));
    journal.claim(cluster_identity(&right).await.unwrap()).await.unwrap();

    let (clients, current) = latest::channel(wrong);
    let (before, _facts) = oneshot::channel();
    let just_started = JournalFailure::NotLoaded("recliner has just started".to_owned());
    let (obstacle, mut obstacles) = latest::channel(just_started);
    let claims =
        claim_and_recover(journal.clone(), JournalOwner::Cluster(current), before, obstacle);
    let mut claimed = JoinSet::new();
    claimed.spawn(claims);
    let is_refused = |why: &JournalFailure| matches!(why, JournalFailure::OtherCluster(_));
    let refused = obstacles.wait_for(is_refused).await.unwrap().to_string();
    assert!(refused.contains("belongs to the cluster of couchdb@sim-2.local"), "{refused}");
    assert!(refused.contains("but CouchDB is the cluster of couchdb@sim-1.local"), "{refused}");
    assert_eq!(journal.marks().await.unwrap_err().0, refused);

    clients.send_replace(right);
    claimed.join_next().await.unwrap().unwrap();
    assert!(journal.marks().await.is_ok());
}
