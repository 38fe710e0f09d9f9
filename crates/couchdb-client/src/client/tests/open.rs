use super::fake::{Cluster, settings};
use crate::{Client, Login, Observer, OpenError, Transport};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const A: &str = "http://a:5984";

#[tokio::test(start_paused = true)]
async fn the_task_of_an_opened_client_ends_with_its_last_clone() {
    let (cluster, _seen) = Cluster::new(|_| None);
    let transport = Transport::in_process(cluster.router());
    let client = Client::builder(settings(&[A])).transport(transport).open().unwrap();
    let shared = Arc::downgrade(&client.shared);
    let clone = client.clone();
    drop(client);
    clone.membership().await.unwrap();
    drop(clone);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(shared.upgrade().is_none(), "the task still holds the client");
}

#[test]
fn a_client_cannot_be_opened_outside_a_runtime() {
    let error = Client::open(A.parse().unwrap(), Login::None).unwrap_err();
    assert!(matches!(error, OpenError::NoRuntime), "{error}");
}

/// An observer that keeps routes and codes.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<(&'static str, &'static str)>>);

impl Observer for Log {
    fn request_ended(&self, route: &'static str, code: &'static str, _: Duration) {
        self.0.lock().unwrap().push((route, code));
    }
}

#[tokio::test(start_paused = true)]
async fn observer_gets_every_request() {
    let (cluster, _seen) = Cluster::new(|_| None);
    let log = Arc::new(Log::default());
    let client = Client::builder(settings(&[A]))
        .transport(Transport::in_process(cluster.router()))
        .observer(Arc::<Log>::clone(&log))
        .open()
        .unwrap();
    client.membership().await.unwrap();
    client.database("none/such").await.unwrap();
    client.view_info("db", "_design/d").await.unwrap_err();
    let seen = log.0.lock().unwrap().clone();
    let ends = [("membership", "200"), ("database", "200"), ("view_info", "404")];
    assert_eq!(seen.last_chunk(), Some(&ends), "{seen:?}");
    assert!(seen.starts_with(&[("login", "200"), ("session", "200")]), "{seen:?}");
}
