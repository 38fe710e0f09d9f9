//! One cause, one notification: the alerts that the shipped Alertmanager configuration lets through
//! when a cause and all its consequences fire together.

use super::{
    rules::alerts,
    servers::Server,
    tools::{self, ALERTMANAGER, AMTOOL},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const CONFIGURATION: &str = include_str!("../../../deploy/alertmanager/alertmanager.yml");

/// An alert by name, with its labels except the cluster.
type Fired = (&'static str, &'static [(&'static str, &'static str)]);

const A: (&str, &str) = ("node", "couchdb@a");
const B: (&str, &str) = ("node", "couchdb@b");
const CLUSTER: (&str, &str) = ("node", "_cluster");
const DATA: (&str, &str) = ("volume", "/data");
const ONE: (&str, &str) = ("instance", "one:10984");

/// Alerts that fire together, and the subset that Alertmanager sends.
const STORMS: &[(&str, &[Fired], &[Fired])] = &[
    (
        "a node is down for two hours",
        &[
            ("ReclinerNodeUnseen", &[B]),
            ("ReclinerScanStale", &[B, ("source", "http")]),
            ("ReclinerScanStale", &[CLUSTER, ("source", "http")]),
            ("ReclinerSourceFailing", &[B, ("reason", "node_down")]),
            ("ReclinerSourceFailing", &[CLUSTER, ("reason", "node_down")]),
            ("ReclinerJobStalled", &[B, ("kind", "db")]),
            ("ReclinerJobsFail", &[B, ("channel", "ratio_dbs")]),
            ("ReclinerSmooshUnreadable", &[B]),
            ("ReclinerQueueGrowing", &[B, ("channel", "ratio_dbs")]),
            ("ReclinerCopiesMissing", &[B]),
            ("ReclinerTargetsUnmeasured", &[B]),
            ("ReclinerIndexBuildsFail", &[("class", "batch")]),
            ("ReclinerIndexBuildsStalled", &[]),
            ("ReclinerFeedLost", &[("feed", "_db_updates")]),
            ("ReclinerQueueGrowing", &[A, ("channel", "ratio_dbs")]),
        ],
        &[("ReclinerNodeUnseen", &[B]), ("ReclinerQueueGrowing", &[A, ("channel", "ratio_dbs")])],
    ),
    (
        "no URL of CouchDB can be used",
        &[
            ("ReclinerCouchDbUnreachable", &[]),
            ("ReclinerNodeUnseen", &[A]),
            ("ReclinerNodeUnseen", &[B]),
        ],
        &[("ReclinerCouchDbUnreachable", &[])],
    ),
    (
        "one recliner of two reaches no URL, and the other sees that a node is lost",
        &[
            ("ReclinerCouchDbUnreachable", &[ONE]),
            ("ReclinerNodeUnseen", &[B]),
            ("ReclinerScanStale", &[B, ("source", "http")]),
        ],
        &[("ReclinerCouchDbUnreachable", &[ONE]), ("ReclinerNodeUnseen", &[B])],
    ),
    (
        "a node is in maintenance, and its disk fills all the same",
        &[
            ("ReclinerNodeInMaintenance", &[B]),
            ("ReclinerQueueGrowing", &[B, ("channel", "ratio_dbs")]),
            ("ReclinerQueueWaitsLong", &[B, ("channel", "ratio_dbs")]),
            ("ReclinerPressureHolds", &[B]),
            ("ReclinerViewLags", &[("db", "orders"), ("ddoc", "_design/x")]),
            ("ReclinerDiskFillsFast", &[B, DATA]),
        ],
        &[("ReclinerNodeInMaintenance", &[B]), ("ReclinerDiskFillsFast", &[B, DATA])],
    ),
    (
        "a volume is full",
        &[
            ("ReclinerDiskAlmostFull", &[A, DATA]),
            ("ReclinerDiskFillsFast", &[A, DATA]),
            ("ReclinerDiskFills", &[A, DATA]),
            ("ReclinerDiskFillsInDays", &[A, DATA]),
            ("ReclinerHeadroomRefusesAll", &[A]),
            ("ReclinerDiskFills", &[B, DATA]),
        ],
        &[("ReclinerDiskAlmostFull", &[A, DATA]), ("ReclinerDiskFills", &[B, DATA])],
    ),
    (
        "a cluster was never compacted",
        &[
            ("ReclinerReclaimableHigh", &[]),
            ("ReclinerQueueWaitsLong", &[A, ("channel", "ratio_dbs")]),
            ("ReclinerQueueWaitsLong", &[B, ("channel", "ratio_dbs")]),
            ("ReclinerQueueOverflows", &[A, ("channel", "ratio_dbs")]),
            ("ReclinerSmooshIdle", &[A]),
            ("ReclinerSmooshIdle", &[B]),
        ],
        &[("ReclinerReclaimableHigh", &[])],
    ),
    (
        "one node of a cluster holds much waste, another does not keep up",
        &[
            ("ReclinerReclaimableHigh", &[A]),
            ("ReclinerQueueGrowing", &[B, ("channel", "ratio_dbs")]),
        ],
        &[
            ("ReclinerReclaimableHigh", &[A]),
            ("ReclinerQueueGrowing", &[B, ("channel", "ratio_dbs")]),
        ],
    ),
    (
        "everything is suspended",
        &[
            ("ReclinerSuspendedLong", &[("scope", "all")]),
            ("ReclinerQueueGrowing", &[A, ("channel", "ratio_dbs")]),
            ("ReclinerQueueWaitsLong", &[A, ("channel", "ratio_dbs")]),
        ],
        &[("ReclinerSuspendedLong", &[("scope", "all")])],
    ),
    (
        "the recliner that stopped smoosh is gone, and its certificate has ended",
        &[
            ("ReclinerTakenOverAndGone", &[A]),
            ("ReclinerDown", &[ONE]),
            ("ReclinerCertificateEnds", &[ONE, ("use", "web")]),
            ("ReclinerCertificateEndsSoon", &[ONE, ("use", "web")]),
            ("ReclinerCertificateEndsSoon", &[ONE, ("use", "couchdb")]),
        ],
        &[
            ("ReclinerTakenOverAndGone", &[A]),
            ("ReclinerCertificateEnds", &[ONE, ("use", "web")]),
            ("ReclinerCertificateEndsSoon", &[ONE, ("use", "couchdb")]),
        ],
    ),
];

/// The labels of an alert in a cluster, as Prometheus would send them.
fn labels((name, beside): &Fired, cluster: &str) -> Value {
    let rule = &alerts()[*name];
    let mut labels = json!({
        "alertname": name, "cluster": cluster, "severity": rule.labels["severity"],
    });
    for (label, value) in *beside {
        labels[*label] = (*value).into();
    }
    labels
}

#[tokio::test]
async fn alert_storm_notifies_only_its_cause() {
    if !tools::installed(&[ALERTMANAGER, AMTOOL]) {
        return;
    }
    let alertmanager = Server::alertmanager(CONFIGURATION).await;
    let url = format!("http://{}/api/v2/alerts", alertmanager.address);
    // Each storm has its own cluster, so that none inhibits another.
    for (at, (_, fired, _)) in STORMS.iter().enumerate() {
        let cluster = format!("storm-{at}");
        let fired: Vec<Value> =
            fired.iter().map(|it| json!({ "labels": labels(it, &cluster) })).collect();
        let body = serde_json::to_string(&fired).expect("valid JSON");
        let sent = tools::http().post(&url).header("content-type", "application/json").body(body);
        let answer = sent.send().await.expect("a response arrives");
        assert!(answer.status().is_success(), "{answer:?}: {}", alertmanager.said());
    }
    let answer = alertmanager.get("/api/v2/alerts?inhibited=false&silenced=false").await;
    let let_through = answer.as_array().expect("a list of alerts");
    for (at, (story, _, expected)) in STORMS.iter().enumerate() {
        let cluster = format!("storm-{at}");
        let found: BTreeSet<String> = let_through
            .iter()
            .map(|alert| &alert["labels"])
            .filter(|labels| labels["cluster"] == *cluster)
            .map(ToString::to_string)
            .collect();
        let expected: BTreeSet<String> =
            expected.iter().map(|it| labels(it, &cluster).to_string()).collect();
        assert_eq!(found, expected, "{story}");
    }
}
