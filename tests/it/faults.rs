//! A fault on one node, or of the login, affects nothing else.

mod copies;
mod frozen;
mod login;

use crate::support::{
    A, B, C, Db, ON_DEMAND, Rig, START, db_id, dbs_seen, dbs_there, node, nodes, small, targets,
    urls_of, view_there, views_seen,
};
use couchdb_sim::{Config, Database, Design, Effect, Fault};
use recliner::{
    model::{
        facts::Facts,
        target::{TargetKind, TargetState},
    },
    plan::Plan,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep};

/// Databases of every placement without writes, so that what is read stays true.
fn world() -> Config {
    nodes()
        .with(Database { q: 4, designs: vec![Design::new("v")], ..Database::new("app") })
        .with(Database { n: 1, placed_on: vec![B.to_owned()], ..small("only-there", 10) })
        .with(Database { n: 1, placed_on: vec![C.to_owned()], ..small("elsewhere", 10) })
}

/// The db targets of one node, and those of the others.
fn split(dbs: BTreeMap<String, Db>, of: &str) -> (BTreeMap<String, Db>, BTreeMap<String, Db>) {
    dbs.into_iter().partition(|(id, _)| id.starts_with(&db_id(of, "")))
}

fn facts_of(plan: &Plan, node: &str) -> BTreeMap<String, Facts> {
    targets(plan, TargetKind::Db)
        .filter(|target| target.node() == node)
        .map(|target| (target.id().to_string(), target.facts()))
        .collect()
}

/// Breaks B after the first sweep and checks the second sweep; then repairs B and checks the third.
async fn strikes(
    name: &str,
    strike: impl Fn(&Rig),
    heal: impl Fn(&Rig),
    reasons: &[&str],
    up: Option<bool>,
) {
    let mut rig = Rig::new(world(), ON_DEMAND);
    let first = rig.sweep().await;
    assert_eq!(rig.errors(), [], "{name}");
    sleep(Duration::from_secs(600)).await;
    rig.cluster.world(|world| world.write("app", 4_000));
    strike(&rig);

    let began = Instant::now();
    let second = rig.sweep().await;
    assert!(began.elapsed() < Duration::from_secs(300), "{name}: {:?}", began.elapsed());
    let (_, others) = split(dbs_seen(&second), B);
    let (_, there) = split(dbs_there(&rig.cluster, |_, _| TargetState::Ok), B);
    assert_eq!(others, there, "{name}: the other nodes are read as usual");
    assert_eq!(facts_of(&second, B), facts_of(&first, B), "{name}: old facts with their age");
    let key = ("app".to_owned(), "_design/v".to_owned());
    let view = view_there(&rig.cluster, "app", &["_design/v"]);
    assert_eq!(views_seen(&second), BTreeMap::from([(key, view)]), "{name}");
    let errors = rig.errors();
    assert!(!errors.is_empty(), "{name}");
    for (at, reason) in &errors {
        assert!(at == B && reasons.contains(reason), "{name}: {errors:?}");
    }
    assert_eq!(node(&second, B).is_up, up, "{name}");
    assert!(node(&second, B).last_success < node(&second, A).last_success, "{name}");
    assert_eq!(rig.status().problem, None, "{name}");
    assert!(rig.status().last_success < rig.status().last_end, "{name}");

    heal(&rig);
    sleep(Duration::from_secs(120)).await;
    let before = rig.status().errors.clone();
    let third = rig.sweep().await;
    assert_eq!(dbs_seen(&third), dbs_there(&rig.cluster, |_, _| TargetState::Ok), "{name}");
    assert_eq!(node(&third, B).is_up, Some(true), "{name}");
    assert_eq!(rig.status().errors, before, "{name}: no error is left");
    assert_eq!(rig.status().last_success, rig.status().last_end, "{name}");
}

async fn effect(name: &str, effect: Effect, reasons: &[&str], up: Option<bool>) {
    let strike = |rig: &Rig| rig.cluster.faults().plan(Fault::on(B, effect.clone()));
    strikes(name, strike, |rig| rig.cluster.faults().clear(), reasons, up).await;
}

#[tokio::test(start_paused = true)]
async fn malformed_answers_affect_only_their_node() {
    effect("malformed", Effect::Malformed, &["malformed"], None).await;
}

#[tokio::test(start_paused = true)]
async fn half_bodies_affect_only_their_node() {
    effect("half a body", Effect::HalfBody, &["connect", "malformed", "timeout"], Some(false))
        .await;
}

#[tokio::test(start_paused = true)]
async fn redirects_affect_only_their_node() {
    let to = "http://adm:pw@elsewhere.example/login".to_owned();
    effect("a redirect", Effect::Redirect(to), &["redirect"], None).await;
}

#[tokio::test(start_paused = true)]
async fn error_statuses_affect_only_their_node() {
    effect("500", Effect::Status(500), &["status"], None).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_requests_affect_only_their_node() {
    effect("a hang", Effect::Hang, &["timeout"], Some(false)).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_node_delays_only_the_first_sweep() {
    let mut rig = Rig::new(world(), ON_DEMAND);
    rig.sweep().await;
    rig.cluster.faults().plan(Fault::on(B, Effect::Hang));
    let mut took = Vec::new();
    for _ in 0..6 {
        rig.cluster.world(|world| world.write("app", 100));
        let began = Instant::now();
        let plan = rig.sweep().await;
        took.push(began.elapsed().as_secs());
        let (_, others) = split(dbs_seen(&plan), B);
        let (_, there) = split(dbs_there(&rig.cluster, |_, _| TargetState::Ok), B);
        assert_eq!(others, there, "the rest is read as ever");
        assert!(
            node(&plan, A).last_success.is_some_and(|at| node(&plan, B).last_success < Some(at))
        );
        sleep(Duration::from_secs(90)).await;
    }
    assert!(took[0] <= 31 && took[1..].iter().all(|took| *took <= 13), "{took:?}");
    rig.cluster.faults().clear();
    sleep(Duration::from_secs(120)).await;
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
}

/// The others are read before it is certain that a node hangs, which takes 29 s. If the hanging
/// node is an entry point, another one is asked as soon as it is silent.
#[tokio::test(start_paused = true)]
async fn other_nodes_are_read_while_one_hangs() {
    // On the first contact, requests to a silent entry point are repeated elsewhere only after some
    // seconds, and the fewer node addresses are known, the more often that happens.
    for (met_before, ways_in, within) in [(false, 1, 4), (true, 1, 4), (false, 3, 4), (true, 3, 4)]
    {
        let start = Instant::now();
        let mut flags = urls_of(&world());
        flags.couchdb_urls.truncate(ways_in);
        flags.couchdb_username = Some("admin".into());
        flags.env_password = Some("secret".into());
        let mut rig = Rig::with_flags(world(), ON_DEMAND, flags);
        if met_before {
            rig.sweep().await;
            sleep(Duration::from_secs(600)).await;
        }
        rig.cluster.faults().plan(Fault::on(B, Effect::Hang));
        let began = START.unix() + start.elapsed().as_secs();
        let plan = rig.sweep().await;
        let others = targets(&plan, TargetKind::Db).filter(|target| target.node() != B);
        let measured: Vec<_> = others.map(|it| it.facts().measured_at.map(|it| it.at)).collect();
        assert!(!measured.is_empty());
        let last =
            measured.into_iter().max().flatten().expect("the other nodes' targets were read");
        let after = last.unix() - began;
        assert!(after <= within, "{after} s, {ways_in} ways in, met before: {met_before}");
        assert_eq!(
            node(&plan, B).is_up,
            Some(false),
            "the sweep ends once the node counts as down"
        );
        // Only B can read the design documents of databases that exist on B alone.
        let of_cluster = ("_cluster".to_owned(), "node_down");
        let others: Vec<_> = rig.errors().into_iter().filter(|it| *it != of_cluster).collect();
        assert_eq!(others, [(B.to_owned(), "timeout")]);
    }
}

/// How long nine of ten nodes, and the views, are read while the tenth hangs on these requests.
async fn seconds_while_one_of_ten_hangs(path: &str) -> [u64; 2] {
    let names: Vec<String> = (1..=10).map(|at| format!("couchdb@sim-{at}.local")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let designs = vec![Design::new("v")];
    let world = Config::new(&names).with(Database {
        q: 10,
        n: 3,
        docs: 100,
        designs,
        ..Database::new("app")
    });
    let start = Instant::now();
    let mut rig = Rig::new(world, ON_DEMAND);
    rig.sweep().await;
    sleep(Duration::from_secs(600)).await;
    let hang = Fault::on(B, Effect::Hang).at(path);
    rig.cluster.faults().plan(hang);
    let began = START.unix() + start.elapsed().as_secs();
    rig.cluster.world(|world| world.write("app", 100));
    let plan = rig.sweep().await;
    [TargetKind::Db, TargetKind::View].map(|kind| {
        let others = targets(&plan, kind).filter(|target| target.node() != B);
        let read = others.filter_map(|target| target.facts().measured_at);
        read.map(|it| it.at.unix().saturating_sub(began)).max().expect("they are measured")
    })
}

#[tokio::test(start_paused = true)]
async fn one_hanging_node_of_ten_delays_others_within_bounds() {
    for (path, shards, views) in [
        ("", 4, 31),
        ("/_all_dbs", 11, 75),
        ("/_dbs", 4, 65),
        ("shards%2F", 4, 4),
        ("/_active_tasks", 4, 4),
        ("/_config", 4, 4),
        ("/_smoosh", 4, 65),
    ] {
        let [of_shards, of_views] = seconds_while_one_of_ten_hangs(path).await;
        assert!(of_shards <= shards && of_views <= views, "{path}: {of_shards} s, {of_views} s");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_node_is_read_after_the_others() {
    let designs = vec![Design::new("w")];
    let only = Database { n: 1, placed_on: vec![B.to_owned()], designs, ..small("its-own", 10) };
    let mut rig = Rig::new(world().with(only), ON_DEMAND);
    rig.cluster.faults().plan(Fault::on(B, Effect::Delay(Duration::from_secs(5))));
    let plan = rig.sweep().await;
    assert_eq!(rig.errors(), []);
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    let views: BTreeMap<_, _> = [("app", "_design/v"), ("its-own", "_design/w")]
        .map(|(db, design)| {
            ((db.to_owned(), design.to_owned()), view_there(&rig.cluster, db, &[design]))
        })
        .into();
    assert_eq!(views_seen(&plan), views);
    assert_eq!(rig.status().last_success, rig.status().last_end);
    for path in ["_all_dbs", "_design_docs"] {
        let asked = rig.asked(path).into_iter().map(|it| (it.node, it.path));
        let mut once: Vec<_> = asked.collect();
        let all = once.len();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), all, "{path} is asked once");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_but_alive_node_is_read_completely() {
    let mut rig = Rig::new(world(), ON_DEMAND);
    // Slower than the threshold for suspicion, on every expensive request.
    for path in ["shards%2F", "/_all_dbs", "/_active_tasks", "_design", "_all_docs"] {
        let slow = Fault::on(B, Effect::Delay(Duration::from_secs(25)));
        rig.cluster.faults().plan(slow.at(path));
    }
    let plan = rig.sweep().await;
    assert_eq!(rig.errors(), []);
    assert_eq!(node(&plan, B).is_up, Some(true));
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
}

#[tokio::test(start_paused = true)]
async fn dropped_connections_affect_only_their_node() {
    effect("a drop", Effect::Drop, &["connect", "malformed", "timeout"], Some(false)).await;
}

#[tokio::test(start_paused = true)]
async fn endless_answers_affect_only_their_node() {
    effect("no end", Effect::Endless, &["too_large", "malformed"], None).await;
}

#[tokio::test(start_paused = true)]
async fn down_node_affects_only_its_own_facts() {
    let strike = |rig: &Rig| rig.cluster.faults().down(B);
    strikes("down", strike, |rig| rig.cluster.faults().up(B), &["node_down"], Some(false)).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_cluster_is_reported_in_bounded_time() {
    let mut rig = Rig::new(world(), ON_DEMAND);
    rig.cluster.faults().plan(Fault::everywhere(Effect::Hang));
    let began = Instant::now();
    rig.sweep().await;
    assert_eq!(
        began.elapsed(),
        Duration::from_secs(39),
        "each address is tried once until its timeout"
    );
    let problem = rig.status().problem.clone().unwrap();
    assert!(problem.contains("no answer within 13s, nor to GET / meanwhile"), "{problem}");
    assert!(!rig.status().ready);
    // It is tried again long before the sweep interval is over.
    rig.cluster.faults().clear();
    let sweeps = rig.status().sweeps;
    rig.until(|status| status.sweeps > sweeps && status.ready).await;
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
    let plan = rig.planned().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
}

#[tokio::test(start_paused = true)]
async fn failing_shards_leave_their_node_up() {
    let strike =
        |rig: &Rig| rig.cluster.faults().plan(Fault::on(B, Effect::Status(500)).at("shards%2F"));
    let mut rig = Rig::new(world(), ON_DEMAND);
    rig.sweep().await;
    strike(&rig);
    let plan = rig.sweep().await;
    assert_eq!(node(&plan, B).is_up, Some(true));
    assert_eq!(rig.errors(), [(B.to_owned(), "status")]);
}

#[tokio::test(start_paused = true)]
async fn listed_shards_without_file_are_an_error_unless_deleted() {
    let mut rig = Rig::new(world(), ON_DEMAND);
    rig.cluster.faults().plan(Fault::on(B, Effect::Status(404)).at("shards%2F"));
    let plan = rig.sweep().await;
    assert_eq!(node(&plan, B).is_up, Some(true));
    assert_eq!(rig.errors(), [(B.to_owned(), "no_file")]);
    let says = rig.status().unread_shards.clone().unwrap();
    let expected = "listed shards have no file on their node (app, only-there), so sums are";
    assert!(says.contains(expected), "{says}");
    let facts = facts_of(&plan, B).into_iter().filter(|(id, _)| id.contains("shards/"));
    assert!(facts.into_iter().all(|(_, facts)| facts.measured_at.is_none()), "sizes are unknown");

    rig.cluster.faults().clear();
    rig.cluster.faults().plan(Fault::on(B, Effect::Delay(Duration::from_secs(9))).at("shards%2F"));
    let (cluster, before) = (rig.cluster.clone(), rig.status().errors.clone());
    let delete = async {
        sleep(Duration::from_secs(3)).await;
        cluster.world(|world| world.delete("app", false));
    };
    let (_, ()) = tokio::join!(rig.sweep(), delete);
    let status = rig.status();
    assert_eq!(status.errors, before, "it was deleted during the sweep");
    assert_eq!([&status.unread_shards, &status.absent_shards], [&None, &None]);
}
