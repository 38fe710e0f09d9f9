use super::*;
use crate::store::journal::{InMemory, JournalSettings, JournalTask};
use couchdb_client::{Address, ClientSettings, Login, Transport};
use couchdb_sim::{Cluster, Config};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// A client of a cluster of one node on this host.
fn client(host: &str, seed: u64) -> Client {
    let clock = Clock::anchored(Moment::from_unix(1_800_000_000));
    let cluster = Cluster::new(Config::new(&[&format!("couchdb@{host}")]), seed, clock).unwrap();
    let url = format!("http://{host}:5984").parse::<Address>().unwrap();
    let mut settings = ClientSettings::new(vec![url]);
    settings.login = Login::password("admin", "secret").unwrap();
    Client::builder(settings).transport(Transport::in_process(cluster.by_host())).open().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_corrected_later_is_noticed() {
    let (_settings, settings) = latest::channel(JournalSettings::default());
    let clock = Clock::anchored(Moment::from_unix(1_800_000_000));
    let (task, journal) = JournalTask::open(InMemory, clock, settings).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(task.run(CancellationToken::new()));
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
