//! Logins: missing rights, wrong passwords, locked accounts, rotated passwords.

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

/// A cluster in which `reader` is a member of one database; `lists` lets everyone list databases.
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

/// Asserts which rights are reported as missing, by the beginnings of the sentences.
fn assert_missing_rights(rig: &Rig, sentences: &[&str]) {
    let status = rig.status();
    let reported: Vec<&String> = status.missing_rights.iter().collect();
    for wanted in sentences {
        assert!(reported.iter().any(|right| right.starts_with(wanted)), "{wanted}: {reported:?}");
    }
    assert_eq!(reported.len(), sentences.len(), "{reported:?}");
}

/// The targets that a member sees of its database: their places, but no shard's size.
fn visible_to_member(rig: &Rig) -> BTreeMap<String, Db> {
    dbs_there(&rig.cluster, |_, _| TargetState::Ok)
        .into_keys()
        .filter(|id| id.contains("mine"))
        .map(|id| (id, Db::unmeasured(TargetState::Ok)))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn database_member_sees_shard_places_but_unknown_sizes() {
    let mut rig = Rig::with_login(with_reader(true), ON_DEMAND, "reader", "p");
    let plan = rig.sweep().await;
    let dbs = visible_to_member(&rig);
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
    assert_missing_rights(&rig, &[NO_MAP, NO_NODES, NO_MEMBER, NO_SPLITS]);
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
async fn configured_databases_are_read_without_the_right_to_list() {
    let names = "channels:\n  - {name: mine, kind: db, priority: ratio, databases: {include: [mine/a+b, 'x*']}}\n";
    let yaml = format!("{ON_DEMAND}{names}");
    let mut rig = Rig::with_login(with_reader(false), &yaml, "reader", "p");
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), visible_to_member(&rig));
    assert_missing_rights(&rig, &[NO_MAP, NO_NODES, NOT_LISTED, NO_SPLITS]);
    assert_eq!(rig.asked("theirs"), []);
    assert_eq!(rig.asked("x*"), []);
    assert_eq!(rig.status().problem, None);
}

#[tokio::test(start_paused = true)]
async fn login_without_databases_is_told_which_rights_are_missing() {
    for user in ["metrics", "reader"] {
        let mut rig = Rig::with_login(with_reader(false), ON_DEMAND, user, "p");
        let plan = rig.sweep().await;
        assert_eq!(dbs_seen(&plan), BTreeMap::new());
        assert_missing_rights(&rig, &[NO_MAP, NO_NODES, NOT_LISTED, NO_SPLITS]);
        let problem = rig.status().problem.clone().unwrap();
        assert!(problem.starts_with("the login may not read any database: "), "{problem}");
        assert!(rig.errors().iter().all(|(_, reason)| *reason == "forbidden"), "{user}");
        assert!(rig.cluster.requests() < 40, "{}", rig.cluster.requests());
    }
}

#[tokio::test(start_paused = true)]
async fn rights_no_longer_needed_are_not_reported_missing() {
    let mut rig = Rig::with_login(with_reader(true), ON_DEMAND, "reader", "p");
    rig.sweep().await;
    let all = "channels:\n  - {name: all, kind: db, priority: ratio}\n";
    rig.reconfigure(&format!("{ON_DEMAND}{all}"));
    rig.cluster.world(|world| world.delete("theirs", false));
    rig.sweep().await;
    assert_missing_rights(&rig, &[NO_MAP, NO_NODES, NO_SPLITS]);
}

/// The number of responses that reject a login.
fn rejected_logins(rig: &Rig) -> usize {
    rig.cluster.exchanges().iter().filter(|it| matches!(it.status, 401 | 403)).count()
}

/// The highest count of failed logins on any node: at five, a node locks the account.
fn most_failed_logins(rig: &Rig) -> u32 {
    [A, B, C].into_iter().map(|node| rig.cluster.failed_logins(node, "admin")).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn wrong_password_is_sent_once_and_locks_no_account() {
    let mut rig = Rig::with_login(world(), ON_DEMAND, "admin", "wrong");
    rig.sweep().await;
    rig.sweep().await;
    assert_eq!(rejected_logins(&rig), 1, "{:?}", rig.cluster.exchanges());
    assert_eq!(rig.cluster.requests(), 1);
    let problem = rig.status().problem.clone().unwrap();
    assert!(problem.contains("rejected the login of \"admin\""), "{problem}");
    assert!(!problem.contains("wrong"), "{problem}");
    assert!(rig.errors().iter().all(|(_, reason)| *reason == "login"), "{:?}", rig.errors());

    // The account's password becomes the one that was configured from the start.
    rig.cluster.faults().password("admin", "wrong");
    sleep(Duration::from_secs(400)).await;
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    assert_eq!((rig.status().problem.clone(), rejected_logins(&rig)), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn changed_password_is_tried_at_most_a_few_times() {
    let mut rig = Rig::new(world(), ON_DEMAND);
    let first = rig.sweep().await;
    rig.cluster.faults().password("admin", "other");
    rig.cluster.clear_exchanges();
    let second = rig.sweep().await;
    assert_eq!(facts_of(&second, A), facts_of(&first, A), "old facts with their age");
    assert_eq!(most_failed_logins(&rig), 1, "{:?}", rig.cluster.exchanges());
    let before = rejected_logins(&rig);
    sleep(Duration::from_secs(200)).await;
    rig.sweep().await;
    assert_eq!(rejected_logins(&rig), before, "nothing more is sent");
    rig.cluster.faults().password("admin", "secret");
    sleep(Duration::from_secs(400)).await;
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    assert_eq!(rig.status().problem, None);
}

/// Lets another client fail with the administrator's name until the account is locked.
async fn lock_out(rig: &Rig, node: &str) {
    for _ in 0..5 {
        let bad = http::Request::get("/_session")
            .header(http::header::AUTHORIZATION, "Basic YWRtaW46Z3Vlc3M=")
            .body(axum::body::Body::empty())
            .expect("the request is valid");
        let answer = rig.cluster.router(node).oneshot(bad).await.expect("a response arrives");
        assert_eq!(answer.status(), 401);
    }
}

#[tokio::test(start_paused = true)]
async fn locked_account_is_bypassed_by_session_or_another_node() {
    let mut rig = Rig::new(world(), ON_DEMAND);
    rig.sweep().await;
    lock_out(&rig, B).await;
    rig.cluster.clear_exchanges();
    rig.cluster.world(|world| world.write("app", 500));
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    assert_eq!(rejected_logins(&rig), 0, "the session stays valid");

    // B no longer accepts the session, and its account is locked.
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
async fn password_rotated_during_a_sweep_is_reread_from_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, "secret\n").unwrap();
    let world = world().with(Database { q: 8, ..Database::new("many") });
    let flags = Flags {
        couchdb_username: Some("admin".to_owned()),
        couchdb_password_file: Some(path.clone()),
        ..urls_of(&world)
    };
    // A slow pace keeps the sweep running, so that the password changes within it.
    let yaml = format!("{ON_DEMAND}couchdb: {{cold_reads_per_second: 1}}\n");
    let mut rig = Rig::with_flags(world, &yaml, flags);
    sleep(Duration::from_secs(5)).await;
    assert!(!rig.asked("shards%2F").is_empty() && rig.status().sweeps == 0, "the sweep is running");
    rig.cluster.faults().password("admin", "rotated");
    sleep(Duration::from_secs(3)).await;
    std::fs::write(&path, "rotated\n").unwrap();
    rig.until(|status| status.sweeps > 0).await;
    assert_eq!(most_failed_logins(&rig), 1, "{:?}", rig.cluster.exchanges());
    sleep(Duration::from_secs(60)).await;
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    let id = db_id(A, "_dbs");
    assert!(target(&plan, &id).is_some());
}
