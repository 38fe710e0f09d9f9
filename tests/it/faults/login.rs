//! Logins: too few rights, wrong passwords, locked accounts, passwords that rotate.

use super::{facts_of, world};
use crate::support::{
    A, B, C, Db, ON_DEMAND, Rig, db_id, dbs_seen, dbs_there, node, nodes, target, targets, urls_of,
    views_seen,
};
use couchdb_sim::{Config, Database, Design, Role, User};
use recliner::{
    config::Flags,
    model::target::{TargetKind, TargetState},
    text::Label,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::sleep;
use tower::ServiceExt as _;

const NOT_LISTED: &str = "the list of databases (/_all_dbs) requires a server admin";
const NO_MAP: &str = "the shard map (/_node/_local/_dbs) requires a server admin";
const NO_NODES: &str = "the list of nodes (/_membership) requires a server admin";
const NO_MEMBER: &str = "some databases cannot be read, because the login is not a member of them";
const NO_SPLITS: &str = "the list of splits (/_reshard/jobs) requires a server admin";

/// A cluster in which `reader` is a member of one database; lists are open or not.
fn with_reader(lists: bool) -> Config {
    let mut config = nodes()
        .with(Database { q: 2, designs: vec![Design::new("v")], ..Database::new("mine/a+b") })
        .with(Database::new("theirs"));
    let role = Role::Member(vec!["mine/a+b".to_owned()]);
    config.users.push(User { name: "reader".to_owned(), password: "p".to_owned(), role });
    let role = Role::Metrics;
    config.users.push(User { name: "metrics".to_owned(), password: "p".to_owned(), role });
    for node in config.nodes.iter_mut().filter(|_| lists) {
        let setting = ("chttpd", "admin_only_all_dbs", "false");
        node.settings.push((setting.0.to_owned(), setting.1.to_owned(), setting.2.to_owned()));
    }
    config
}

/// The rights said to be missing, by how their sentences begin.
fn missing(rig: &Rig, sentences: &[&str]) {
    let status = rig.status();
    let said: Vec<&String> = status.missing_rights.iter().collect();
    for wanted in sentences {
        assert!(said.iter().any(|right| right.starts_with(wanted)), "{wanted}: {said:?}");
    }
    assert_eq!(said.len(), sentences.len(), "{said:?}");
}

/// What a member sees of its database: places and the index's sum, no shard's size.
fn readable(rig: &Rig) -> BTreeMap<String, Db> {
    dbs_there(&rig.cluster, |_, _| TargetState::Ok)
        .into_keys()
        .filter(|id| id.contains("mine"))
        .map(|id| (id, Db::unmeasured(TargetState::Ok)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_member_sees_the_places_of_its_databases_and_no_unknown_size() {
    let mut rig = Rig::with_login(with_reader(true), ON_DEMAND, "reader", "p");
    let plan = rig.sweep().await;
    let dbs = readable(&rig);
    assert_eq!(dbs.len(), 6);
    assert_eq!(dbs_seen(&plan), dbs);
    for shard in targets(&plan, TargetKind::Db) {
        assert_eq!((shard.facts().measured_at, shard.reclaimable_bytes()), (None, None));
        let misses: Vec<&str> = plan.misses(shard).map(|(_, miss)| miss.reason.label()).collect();
        assert!(misses.contains(&"unknown_size"), "{misses:?}");
    }
    let views = views_seen(&plan);
    let view = &views[&("mine/a+b".to_owned(), "_design/v".to_owned())];
    assert_eq!((view.state, view.exact, view.copies, views.len()), (TargetState::Ok, false, 6, 1));
    assert!(view.sizes.unwrap()[0] > 0);
    missing(&rig, &[NO_MAP, NO_NODES, NO_MEMBER, NO_SPLITS]);
    let status = rig.status();
    assert_eq!((status.problem.clone(), status.ready, status.last_success), (None, true, None));
    for name in [A, B, C] {
        let seen = node(&plan, name);
        assert_eq!((seen.is_up, seen.is_member), (None, true), "{name}");
    }
    let bad: Vec<_> = rig.cluster.exchanges().into_iter().filter(|it| it.status >= 500).collect();
    assert_eq!(bad, []);

    rig.cluster.world(|world| world.delete("mine/a+b", false));
    let plan = rig.sweep().await;
    assert_eq!((dbs_seen(&plan), views_seen(&plan)), (BTreeMap::new(), BTreeMap::new()));
}

#[tokio::test(start_paused = true)]
async fn databases_named_in_settings_are_found_where_no_list_may_be_read() {
    let names = "channels:\n  - {name: mine, kind: db, priority: ratio, databases: {include: [mine/a+b, 'x*']}}\n";
    let yaml = format!("{ON_DEMAND}{names}");
    let mut rig = Rig::with_login(with_reader(false), &yaml, "reader", "p");
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), readable(&rig));
    missing(&rig, &[NO_MAP, NO_NODES, NOT_LISTED, NO_SPLITS]);
    assert_eq!(rig.asked("theirs"), []);
    assert_eq!(rig.asked("x*"), []);
    assert_eq!(rig.status().problem, None);
}

#[tokio::test(start_paused = true)]
async fn a_login_that_may_read_no_database_is_told_which_rights_it_lacks() {
    for user in ["metrics", "reader"] {
        let mut rig = Rig::with_login(with_reader(false), ON_DEMAND, user, "p");
        let plan = rig.sweep().await;
        assert_eq!(dbs_seen(&plan), BTreeMap::new());
        missing(&rig, &[NO_MAP, NO_NODES, NOT_LISTED, NO_SPLITS]);
        let problem = rig.status().problem.clone().unwrap();
        assert!(problem.starts_with("the login may read no database: "), "{problem}");
        assert!(rig.errors().iter().all(|(_, reason)| *reason == "forbidden"), "{user}");
        assert!(rig.cluster.requests() < 40, "{}", rig.cluster.requests());
    }
}

#[tokio::test(start_paused = true)]
async fn rights_that_are_given_later_are_no_longer_missing() {
    let mut rig = Rig::with_login(with_reader(true), ON_DEMAND, "reader", "p");
    rig.sweep().await;
    let all = "channels:\n  - {name: all, kind: db, priority: ratio}\n";
    rig.reconfigure(&format!("{ON_DEMAND}{all}"));
    rig.cluster.world(|world| world.delete("theirs", false));
    rig.sweep().await;
    missing(&rig, &[NO_MAP, NO_NODES, NO_SPLITS]);
}

/// Answers that say a login was bad.
fn refused(rig: &Rig) -> usize {
    rig.cluster.exchanges().iter().filter(|it| matches!(it.status, 401 | 403)).count()
}

/// The most failed logins that any node counts: at five it locks the account.
fn most_failed(rig: &Rig) -> u32 {
    [A, B, C].into_iter().map(|node| rig.cluster.failed_logins(node, "admin")).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_sent_once_and_never_locks_the_account() {
    let mut rig = Rig::with_login(world(), ON_DEMAND, "admin", "wrong");
    rig.sweep().await;
    rig.sweep().await;
    assert_eq!(refused(&rig), 1, "{:?}", rig.cluster.exchanges());
    assert_eq!(rig.cluster.requests(), 1);
    let problem = rig.status().problem.clone().unwrap();
    assert!(problem.contains("rejected the login of \"admin\""), "{problem}");
    assert!(!problem.contains("wrong"), "{problem}");
    assert!(rig.errors().iter().all(|(_, reason)| *reason == "login"), "{:?}", rig.errors());

    // The account's password becomes what was given all along.
    rig.cluster.faults().password("admin", "wrong");
    sleep(Duration::from_secs(400)).await;
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    assert_eq!((rig.status().problem.clone(), refused(&rig)), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn a_password_that_no_longer_works_is_tried_a_few_times_at_most() {
    let mut rig = Rig::new(world(), ON_DEMAND);
    let first = rig.sweep().await;
    rig.cluster.faults().password("admin", "other");
    rig.cluster.clear_exchanges();
    let second = rig.sweep().await;
    assert_eq!(facts_of(&second, A), facts_of(&first, A), "old facts with their age");
    assert_eq!(most_failed(&rig), 1, "{:?}", rig.cluster.exchanges());
    let before = refused(&rig);
    sleep(Duration::from_secs(200)).await;
    rig.sweep().await;
    assert_eq!(refused(&rig), before, "nothing more is sent");
    rig.cluster.faults().password("admin", "secret");
    sleep(Duration::from_secs(400)).await;
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    assert_eq!(rig.status().problem, None);
}

/// Lets someone else fail with the administrator's name until it is locked out.
async fn lock_out(rig: &Rig, node: &str) {
    for _ in 0..5 {
        let bad = http::Request::get("/_session")
            .header(http::header::AUTHORIZATION, "Basic YWRtaW46Z3Vlc3M=")
            .body(axum::body::Body::empty())
            .expect("it is a request");
        let answer = rig.cluster.router(node).oneshot(bad).await.expect("it answers");
        assert_eq!(answer.status(), 401);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_on_which_others_locked_the_account_is_asked_by_session_or_through_another() {
    let mut rig = Rig::new(world(), ON_DEMAND);
    rig.sweep().await;
    lock_out(&rig, B).await;
    rig.cluster.clear_exchanges();
    rig.cluster.world(|world| world.write("app", 500));
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    assert_eq!(refused(&rig), 0, "the session goes on");

    // B no longer knows the session, and lets nobody in.
    rig.cluster.clear_exchanges();
    rig.cluster.world(|world| {
        world.set(B, "chttpd_auth", "secret", "another");
        world.write("app", 500);
    });
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    let at_b: Vec<_> = rig.cluster.exchanges().into_iter().filter(|it| it.node == B).collect();
    let logins = at_b.iter().filter(|it| it.method == http::Method::POST);
    assert_eq!(logins.map(|it| it.status).collect::<Vec<_>>(), [403], "{at_b:?}");
}

#[tokio::test(start_paused = true)]
async fn a_password_that_rotates_in_a_sweep_is_taken_up_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, "secret\n").unwrap();
    let world = world().with(Database { q: 8, ..Database::new("many") });
    let flags = Flags {
        couchdb_username: Some("admin".to_owned()),
        couchdb_password_file: Some(path.clone()),
        ..urls_of(&world)
    };
    // A pace that makes the sweep last, so that the password changes within it.
    let yaml = format!("{ON_DEMAND}couchdb: {{cold_reads_per_second: 1}}\n");
    let mut rig = Rig::with_flags(world, &yaml, flags);
    sleep(Duration::from_secs(5)).await;
    assert!(!rig.asked("shards%2F").is_empty() && rig.status().sweeps == 0, "it is under way");
    rig.cluster.faults().password("admin", "rotated");
    sleep(Duration::from_secs(3)).await;
    std::fs::write(&path, "rotated\n").unwrap();
    rig.until(|status| status.sweeps > 0).await;
    assert_eq!(most_failed(&rig), 1, "{:?}", rig.cluster.exchanges());
    sleep(Duration::from_secs(60)).await;
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    let id = db_id(A, "_dbs");
    assert!(target(&plan, &id).is_some());
}
