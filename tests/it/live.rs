//! The contract: recliner sees what CouchDB answers to plain requests.
//!
//! The same checks always run against the simulator behind sockets, and against a real cluster if
//! the environment names one:
//!
//! ```sh
//! RECLINER_TEST_COUCHDB_URL=http://127.0.0.1:5984 RECLINER_TEST_COUCHDB_USER=admin \
//!   RECLINER_TEST_COUCHDB_PASSWORD=... cargo test --test it live -- --ignored
//! ```
//!
//! The URL may be a list separated by commas. Databases and users of a test have names that begin
//! with `recliner-test-` and are deleted at its end, even if it fails.

mod couch;
mod learning;

use crate::support::{Db, ViewLine, db_id, dbs_seen, node, queue, target, targets, views_seen};
use couch::{Couch, PATIENCE, agrees, encoded};
use couchdb_sim::{Cluster, Config, Database, Design};
use futures::FutureExt as _;
use recliner::{
    model::target::{TargetKind, TargetState},
    plan::Plan,
    table::NodeSmoosh,
};
use reqwest::Method;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, resume_unwind},
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinSet, time};
use wall_clock::Clock;

/// The views of the databases whose names begin with `prefix`.
fn views_of(plan: &Plan, prefix: &str) -> BTreeMap<(String, String), ViewLine> {
    let mut views = views_seen(plan);
    views.retain(|(db, _), _| db.starts_with(prefix));
    views
}

/// Runs a test and deletes its databases and user afterwards, even if it fails.
async fn and_clean_up(couch: &Couch, prefix: &str, test: impl Future<Output = ()>) {
    let ended = AssertUnwindSafe(test).catch_unwind().await;
    let all = couch.get("/_all_dbs").await;
    for db in all.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if db.starts_with(prefix) {
            couch.change(Method::DELETE, &format!("/{}", encoded(db)), None).await;
        }
    }
    let user = user_path(prefix);
    let (status, made) = couch.ask(Method::GET, &user, None).await;
    if let Some(rev) = made["_rev"].as_str().filter(|_| status == 200) {
        couch.change(Method::DELETE, &format!("{user}?rev={rev}"), None).await;
    }
    if let Err(panic) = ended {
        resume_unwind(panic);
    }
}

/// The path of this user's document.
fn user_path(name: &str) -> String {
    format!("/_users/org.couchdb.user%3A{name}")
}

/// A name prefix that no other run uses.
fn prefix(what: &str) -> String {
    format!("recliner-test-{}-{what}", std::process::id())
}

/// Creates a database and writes its documents `rounds` times.
async fn make(couch: &Couch, db: &str, rounds: u32, designs: &[(&str, Value)]) {
    let path = format!("/{}", encoded(db));
    couch.change(Method::PUT, &format!("{path}?q=2"), None).await;
    let designs = designs.iter().map(|(name, design)| {
        let mut design = design.clone();
        design["_id"] = format!("_design/{name}").into();
        design
    });
    let designs: Vec<Value> = designs.collect();
    couch
        .change(Method::POST, &format!("{path}/_bulk_docs"), Some(json!({ "docs": designs })))
        .await;
    let mut revisions: Vec<Value> = vec![Value::Null; 200];
    for round in 0..rounds {
        let docs: Vec<Value> = revisions
            .iter()
            .enumerate()
            .map(|(at, rev)| {
                let mut doc = json!({"_id": format!("doc-{at:04}"), "n": at, "round": round, "pad": "x".repeat(400)});
                if !rev.is_null() {
                    doc["_rev"] = rev.clone();
                }
                doc
            })
            .collect();
        let answer = couch
            .change(Method::POST, &format!("{path}/_bulk_docs"), Some(json!({ "docs": docs })))
            .await;
        revisions = answer
            .as_array()
            .expect("it lists revisions")
            .iter()
            .map(|row| row["rev"].clone())
            .collect();
    }
}

fn map(field: &str) -> Value {
    let code = format!("function (doc) {{ emit(doc.{field}, null); }}");
    json!({"language": "javascript", "views": {"v": {"map": code}}})
}

/// Waits until two looks at everything below `prefix` agree: builds, commits and smoosh have ended.
async fn quiet(couch: &Couch, prefix: &str) {
    let look = async || {
        let mut seen = Vec::new();
        for node in couch.nodes().await {
            for file in couch.files(&node, prefix).await {
                seen.push((node.clone(), file.clone(), couch.shard(&node, &file).await));
            }
        }
        let tasks = couch.get("/_active_tasks").await;
        (seen, tasks.to_string().contains(prefix))
    };
    let settled = async {
        let mut before = look().await;
        loop {
            time::sleep(Duration::from_secs(2)).await;
            let now = look().await;
            if now == before && !now.1 {
                return;
            }
            before = now;
        }
    };
    time::timeout(PATIENCE, settled).await.expect("the cluster becomes idle");
}

#[tokio::test]
async fn simulator_meets_the_same_expectations_as_couchdb() {
    let nodes = ["node1@127.0.0.1", "node2@127.0.0.1", "node3@127.0.0.1"];
    let twin = |name: &str| Design { views: vec!["same".to_owned()], ..Design::new(name) };
    let odd = Design { views: vec!["odd".to_owned()], ..Design::new("per%cent \"quote\"\nline") };
    let designs = vec![twin("one"), twin("two"), odd];
    let world = Config::new(&nodes)
        .with(Database { designs, q: 4, ..Database::new("recliner-test-sim/a+b") })
        .with(Database::new("recliner-test-sim/_design/x"));
    let cluster = Cluster::new(world, 1, Clock::System).unwrap();
    let (mut urls, mut servers) = (Vec::new(), JoinSet::new());
    for (_, router) in cluster.routers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        urls.push(format!("http://{}", listener.local_addr().unwrap()));
        servers.spawn(async move { axum::serve(listener, router).await });
    }
    let couch = Couch::new(urls, "admin", "secret");
    let (plan, status) = couch.sweep("").await;
    assert_eq!(status.errors, BTreeMap::new());
    agrees(&plan, "recliner-test-sim", &couch.there("recliner-test-sim").await);
    let mut there = BTreeMap::new();
    for designs in [&["_design/one", "_design/two"][..], &["_design/per%cent \"quote\"\nline"]] {
        let key = ("recliner-test-sim/a+b".to_owned(), designs[0].to_owned());
        there.insert(key, couch.view("recliner-test-sim/a+b", designs).await);
    }
    assert_eq!(views_of(&plan, "recliner-test-sim"), there);
}

#[tokio::test]
#[ignore = "needs RECLINER_TEST_COUCHDB_URL"]
async fn every_cluster_node_answers() {
    let couch = Couch::named();
    let (plan, status) = couch.sweep("").await;
    assert_eq!((status.errors.clone(), status.problem.clone()), (BTreeMap::new(), None));
    let version = couch.get("/").await["version"].as_str().unwrap().to_owned();
    for name in couch.nodes().await {
        let seen = node(&plan, &name);
        assert_eq!((seen.is_up, seen.is_member), (Some(true), true), "{name}");
        assert_eq!(seen.build.as_ref().map(ToString::to_string), Some(version.clone()), "{name}");
        if seen.own_address.found().is_some() {
            assert_ne!(seen.smoosh, NodeSmoosh::Failed, "{name}");
        } else {
            assert_eq!(seen.smoosh, NodeSmoosh::NoDirectAddress, "{name}");
        }
        for local in ["_dbs", "_nodes"] {
            assert!(target(&plan, &db_id(&name, local)).is_some(), "{name} {local}");
        }
    }
}

#[tokio::test]
#[ignore = "needs RECLINER_TEST_COUCHDB_URL"]
async fn odd_names_are_seen_as_couchdb_reports_them() {
    let couch = Couch::named();
    let prefix = prefix("odd");
    let (plain, odd, like_a_design, long) = (
        prefix.clone(),
        format!("{prefix}/a+b_$()-"),
        format!("{prefix}/_design/x"),
        format!("{prefix}/{}", "n".repeat(199 - prefix.len())),
    );
    and_clean_up(&couch, &prefix, async {
        let names = [
            "per%cent",
            "%2e%2e",
            "quo\"te's",
            "new\nline",
            "d\u{e9}j\u{e0} \u{1f600}",
            "a/b",
            "x?y#z",
        ];
        let mut designs: Vec<(&str, Value)> = Vec::new();
        let fields: Vec<String> = (0..names.len()).map(|at| format!("field_{at}")).collect();
        for (name, field) in names.iter().zip(&fields) {
            designs.push((name, map(field)));
        }
        designs.push(("..", map("dots")));
        designs.push(("twin_a", map("n")));
        designs.push(("twin_b", map("n")));
        designs.push(("filters", json!({"filters": {"f": "function () { return true; }"}})));
        designs.push((
            "coffee",
            json!({"language": "coffeescript", "views": {"v": {"map": "(doc) -> emit doc.n"}}}),
        ));
        make(&couch, &plain, 3, &designs).await;
        for db in [&odd, &like_a_design, &long] {
            make(&couch, db, 2, &[("x", map("n"))]).await;
            couch.get(&format!("/{}/_design/x/_view/v?limit=0", encoded(db))).await;
        }
        for name in names.iter().chain(&["twin_a"]) {
            couch
                .get(&format!("/{}/_design/{}/_view/v?limit=0", encoded(&plain), encoded(name)))
                .await;
        }
        quiet(&couch, &prefix).await;

        let twins = ["_design/twin_a", "_design/twin_b"];
        let look = async || {
            let mut views = BTreeMap::new();
            for db in [&odd, &like_a_design, &long] {
                let id = "_design/x".to_owned();
                views.insert((db.clone(), id), couch.view(db, &["_design/x"]).await);
            }
            for name in names {
                let id = format!("_design/{name}");
                views.insert((plain.clone(), id.clone()), couch.view(&plain, &[&id]).await);
            }
            let first = twins[0].to_owned();
            views.insert((plain.clone(), first), couch.view(&plain, &twins).await);
            (couch.there(&prefix).await, views)
        };
        let (plan, status, (files, mut views)) = couch.still_sweep("", look).await;
        assert_eq!(status.errors, BTreeMap::new());
        agrees(&plan, &prefix, &files);
        let copies = views[&(plain.clone(), twins[0].to_owned())].copies;
        let dots = ViewLine {
            state: TargetState::Unaddressable,
            designs: vec!["_design/..".to_owned()],
            exact: false,
            copies,
            sizes: None,
            pending: None,
        };
        views.insert((plain.clone(), "_design/..".to_owned()), dots);
        assert_eq!(views_of(&plan, &prefix), views);
    })
    .await;
}

#[tokio::test]
#[ignore = "needs RECLINER_TEST_COUCHDB_URL"]
async fn compaction_and_recreation_are_seen() {
    let couch = Couch::named();
    let prefix = prefix("life");
    and_clean_up(&couch, &prefix, async {
        let path = format!("/{}", encoded(&prefix));
        make(&couch, &prefix, 12, &[]).await;
        quiet(&couch, &prefix).await;
        let eager = format!("channels:\n  - {{name: eager, kind: db, priority: ratio, min_priority: 1.5, min_size: 1KiB, databases: {{include: ['{prefix}']}}}}\n");
        let look = async || couch.there(&prefix).await;
        let (before, _, files) = couch.still_sweep(&eager, look).await;
        agrees(&before, &prefix, &files);
        let waiting = queue(&before, "eager").0;
        assert!(waiting > 0, "files rewritten twelve times are queued");

        couch.change(Method::POST, &format!("{path}/_compact"), Some(json!({}))).await;
        quiet(&couch, &prefix).await;
        let (after, _, files) = couch.still_sweep(&eager, look).await;
        agrees(&after, &prefix, &files);
        assert!(queue(&after, "eager").0 < waiting, "compacted files leave the queue");

        couch.change(Method::DELETE, &path, None).await;
        time::sleep(Duration::from_secs(2)).await;
        make(&couch, &prefix, 1, &[]).await;
        quiet(&couch, &prefix).await;
        let (again, _, files) = couch.still_sweep("", look).await;
        agrees(&again, &prefix, &files);
        let ids = |plan: &Plan| -> BTreeSet<String> {
            targets(plan, TargetKind::Db)
                .filter(|target| target.db_name().db == prefix)
                .map(|target| target.id().to_string())
                .collect()
        };
        assert!(ids(&after).is_disjoint(&ids(&again)), "a new suffix means new targets");
    })
    .await;
}

#[tokio::test]
#[ignore = "needs RECLINER_TEST_COUCHDB_URL"]
async fn member_sees_its_database_and_its_missing_rights() {
    let couch = Couch::named();
    let prefix = prefix("member");
    and_clean_up(&couch, &prefix, async {
        let made = json!({"name": prefix, "password": "p", "roles": [], "type": "user"});
        couch.change(Method::PUT, &user_path(&prefix), Some(made)).await;
        make(&couch, &prefix, 1, &[("x", map("n"))]).await;
        let path = format!("/{}", encoded(&prefix));
        couch.get(&format!("{path}/_design/x/_view/v?limit=0")).await;
        let security = json!({"admins": {"roles": ["_admin"]}, "members": {"names": [prefix]}});
        couch.change(Method::PUT, &format!("{path}/_security"), Some(security)).await;
        quiet(&couch, &prefix).await;
        let member = Couch::new(couch.urls.clone(), &prefix, "p");
        let yaml = format!("channels:\n  - {{name: mine, kind: db, priority: ratio, databases: {{include: ['{prefix}']}}}}\n");
        let (plan, status) = member.sweep(&yaml).await;
        assert_eq!(status.problem, None);
        let mut there = BTreeMap::new();
        for node in couch.nodes().await {
            for file in couch.files(&node, &prefix).await {
                there.insert(db_id(&node, &file), Db::unmeasured(TargetState::Ok));
            }
        }
        assert_eq!(dbs_seen(&plan), there);
        let view = &views_of(&plan, &prefix)[&(prefix.clone(), "_design/x".to_owned())];
        assert_eq!((view.state, view.exact), (TargetState::Ok, false));
        assert!(view.sizes.is_some());
        let begins = |what: &str| status.missing_rights.iter().any(|right| right.starts_with(what));
        for right in ["the list of nodes", "the shard map", "the list of databases"] {
            assert!(begins(right), "{right}: {:?}", status.missing_rights);
        }
    })
    .await;
}
