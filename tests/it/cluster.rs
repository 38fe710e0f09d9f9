//! Client, scanner and planner over a simulated cluster, compared with the cluster's true state.

use crate::support::{
    A, B, C, Db, NODES, ON_DEMAND, Rig, ViewLine, db_id, dbs_seen, dbs_there, node, nodes, queue,
    small, target, targets, view_there, views_seen,
};
use couchdb_names::{ShardName, Version};
use couchdb_sim::{Config, Database, Design, Fleet, Node, Orphan, faulty_demo_config};
use recliner::{
    model::target::{TargetKind, TargetState},
    table::NodeSmoosh,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::sleep;

/// A node keeps 500 files open: with 600 files, every sweep opens all; with 400, only the first.
#[tokio::test(start_paused = true)]
async fn requests_that_open_files_respect_the_pace() {
    let like = Database { q: 1, n: 1, ..Database::new("db-") };
    let world = |count| Config::new(&[A]).with_fleet(Fleet::named(like.clone(), count, 10));
    let opens_all = |seconds: f64| seconds - 1.0..seconds + 1.0;
    for (count, sweeps) in [(600, [12.0; 2].map(opens_all)), (400, [7.0..9.0, 0.0..1.0])] {
        let mut rig = Rig::new(world(count), ON_DEMAND);
        for within in sweeps {
            rig.sweep().await;
            let took = rig.status().last_duration.unwrap().as_secs_f64();
            assert!(within.contains(&took), "{count} files: {took} s, not {within:?}");
        }
        assert_eq!(rig.errors(), []);
    }
}

fn design(name: &str) -> Design {
    Design { views: vec![format!("of {name}")], ..Design::new(name) }
}

/// With one range, every node's file is read, and their sum differs from three times one file.
#[tokio::test(start_paused = true)]
async fn only_uncompacted_copy_of_an_index_is_counted() {
    let like = Database { q: 1, docs: 5_000, compacted: 0.4, ..Database::new("app") };
    let mut rig =
        Rig::new(nodes().with(Database { designs: vec![design("v")], ..like }), ON_DEMAND);
    rig.sweep().await;
    for node in [A, B] {
        let file = files_of(&rig, node, "app").into_iter().next().unwrap();
        rig.cluster.world(|world| world.compact_view(node, &file, "v")).unwrap();
    }
    sleep(Duration::from_secs(3_600)).await;
    let plan = rig.sweep().await;
    let there: Vec<u64> = [A, B, C]
        .iter()
        .map(|node| {
            let file = files_of(&rig, node, "app").into_iter().next().unwrap();
            rig.cluster.world(|world| world.view(node, &file, "v")).unwrap().sizes.file
        })
        .collect();
    assert!(there[2] > there[0], "{there:?}");
    let seen = targets(&plan, TargetKind::View).next().unwrap().file_bytes().unwrap();
    assert!(seen.abs_diff(there.iter().sum()) < 3, "{seen} of {there:?}");
}

fn of_database(file: &str, db: &str) -> bool {
    ShardName::split(file).is_some_and(|shard| shard.db == db)
}

#[tokio::test(start_paused = true)]
async fn one_sweep_sees_the_true_state_of_every_file() {
    let orphan = "shards/00000000-ffffffff/gone.1700000000";
    let world = nodes()
        .with(Database { q: 4, docs: 5_000, compacted: 0.5, ..Database::new("orders") })
        .with(Database { deleted_docs: 77, ..Database::new("sessions") })
        .with(Database { n: 1, ..small("single", 10) })
        .with(Database { missing: vec![(1, B.to_owned())], ..Database::new("torn") })
        .with(Database { splitting: true, q: 2, ..Database::new("splits") })
        .with(small("_users", 3));
    let orphans = vec![Orphan { node: C.to_owned(), file: orphan.to_owned(), bytes: 1 << 20 }];
    let mut rig = Rig::new(Config { orphans, ..world }, ON_DEMAND);
    let plan = rig.sweep().await;

    let mut there = dbs_there(&rig.cluster, |_, file| match ShardName::split(file) {
        _ if file == orphan => TargetState::Orphan,
        // Both targets of the split and the first of two ranges, on every node.
        Some(shard) if shard.db == "splits" && shard.range.to <= u32::MAX / 2 => {
            TargetState::Resharding
        }
        _ => TargetState::Ok,
    });
    assert!(
        there.values().any(|db| db.state == TargetState::Resharding),
        "a split shows its target files and its source"
    );
    let (_, torn) = files_of(&rig, A, "torn").into_iter().enumerate().nth(1).unwrap();
    there.insert(db_id(B, &torn), Db::unmeasured(TargetState::Missing));
    assert_eq!(dbs_seen(&plan), there);
    for local in ["_dbs", "_nodes"] {
        assert!(NODES.iter().all(|node| there.contains_key(&db_id(node, local))), "{local}");
    }
    assert_eq!(rig.errors(), []);
    let status = rig.status();
    assert_eq!((status.ready, status.problem.clone(), status.progress), (true, None, None));
    assert!(status.last_success.is_some() && status.last_success == status.last_end);
}

/// A node's files of a database, in order.
fn files_of(rig: &Rig, node: &str, db: &str) -> Vec<String> {
    let files = rig.cluster.world(|world| world.files(node)).expect("the node is known");
    files.into_iter().filter(|file| of_database(file, db)).collect()
}

const ODD_DESIGNS: [&str; 9] = [
    "per%cent",
    "%2e%2e",
    "quo\"te's",
    "new\nline",
    "d\u{e9}j\u{e0} \u{4e8c}\u{1f600}",
    "a/b",
    "_info",
    "x?y#z",
    " ",
];

#[tokio::test(start_paused = true)]
async fn odd_names_are_sent_exactly_or_never() {
    let long = format!("long/{}", "n+".repeat(100)).chars().take(200).collect::<String>();
    let mut world = nodes();
    for name in ["with/slash", "a+b", "app/_design/x", "odd_$()-+/", &long] {
        world = world.with(Database { designs: vec![design("x")], ..Database::new(name) });
    }
    let designs = ODD_DESIGNS.iter().chain(&["..", "."]).map(|name| design(name)).collect();
    let mut rig = Rig::new(world.with(Database { designs, ..Database::new("designs") }), ON_DEMAND);
    let plan = rig.sweep().await;

    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    let mut there = BTreeMap::new();
    for db in ["with/slash", "a+b", "app/_design/x", "odd_$()-+/", &long] {
        let key = (db.to_owned(), "_design/x".to_owned());
        there.insert(key, view_there(&rig.cluster, db, &["_design/x"]));
    }
    for name in ODD_DESIGNS {
        let id = format!("_design/{name}");
        let line = view_there(&rig.cluster, "designs", &[&id]);
        there.insert(("designs".to_owned(), id), line);
    }
    for name in ["_design/..", "_design/."] {
        let line = ViewLine {
            state: TargetState::Unaddressable,
            designs: vec![name.to_owned()],
            exact: false,
            copies: 6,
            sizes: None,
            pending: None,
        };
        there.insert(("designs".to_owned(), name.to_owned()), line);
    }
    assert_eq!(views_seen(&plan), there);

    for exchange in rig.cluster.exchanges() {
        let path = exchange.path.split('?').next().unwrap();
        let plain = path.to_ascii_lowercase().replace("%2e", ".");
        let dots = plain.split('/').any(|part| part == ".." || part == ".");
        // Only `%2e%2e`, whose own percent signs are encoded, is a valid name; dots never are.
        assert!(!dots, "{exchange:?}");
        assert_eq!(exchange.status, 200, "{exchange:?}");
    }
    let ids: Vec<String> = plan.snapshot.targets().map(|target| target.id().to_string()).collect();
    for id in &ids {
        let parsed: recliner::model::target::TargetId = id.parse().unwrap();
        assert_eq!(parsed.to_string(), *id);
        assert!(!id.contains([' ', '\n', '"']), "{id:?}");
    }
    assert_eq!(rig.errors(), []);
}

#[tokio::test(start_paused = true)]
async fn index_is_read_once_per_sweep_on_one_copy() {
    let twin = |name: &str| Design { views: vec!["same".to_owned()], ..Design::new(name) };
    let empty = Design { views: Vec::new(), ..Design::new("filters") };
    let coffee = Design { language: "coffeescript".to_owned(), ..design("coffee") };
    let mango = Design { language: "query".to_owned(), ..design("mango") };
    let designs = vec![twin("one"), twin("two"), empty, coffee, mango];
    let db = Database { q: 4, designs, docs: 900, ..Database::new("app") };
    let mut rig = Rig::new(nodes().with(db), ON_DEMAND);
    let plan = rig.sweep().await;

    let there = BTreeMap::from([
        (
            ("app".to_owned(), "_design/mango".to_owned()),
            view_there(&rig.cluster, "app", &["_design/mango"]),
        ),
        (
            ("app".to_owned(), "_design/one".to_owned()),
            view_there(&rig.cluster, "app", &["_design/one", "_design/two"]),
        ),
    ]);
    assert_eq!(views_seen(&plan), there);
    let asked: Vec<String> = rig.asked("_info").into_iter().map(|asked| asked.path).collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(
        asked.iter().all(|path| path.starts_with("/_node/")),
        "the request names one copy: {asked:?}"
    );
    assert_eq!(targets(&plan, TargetKind::Cleanup).count(), 1);
    rig.cluster.clear_exchanges();
    rig.sweep().await;
    assert_eq!(rig.asked("_info").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_design_documents_are_read_if_views_are_off() {
    let db = Database { designs: vec![design("x")], ..Database::new("app") };
    let mut rig = Rig::new(nodes().with(db), "scan: {interval: 24h, views: off}\n");
    let plan = rig.sweep().await;
    assert_eq!(views_seen(&plan), BTreeMap::new());
    assert_eq!(rig.asked("_design"), []);
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
}

#[tokio::test(start_paused = true)]
async fn nodes_get_only_requests_their_version_supports() {
    let mut world = nodes().with(Database::new("app"));
    world.nodes = vec![
        Node { smoosh: true, ..Node::new(A) },
        Node { version: Version::new(3, 3, 3), ..Node::new(B) },
        Node::new(C),
    ];
    let mut rig = Rig::new(world, ON_DEMAND);
    let plan = rig.sweep().await;
    let of = |name| {
        let seen = node(&plan, name);
        let smoosh = match &seen.smoosh {
            NodeSmoosh::Channels(channels) => Ok(channels.len()),
            NodeSmoosh::NotRead
            | NodeSmoosh::NoDirectAddress
            | NodeSmoosh::Unsupported
            | NodeSmoosh::Failed => Err(seen.smoosh.clone()),
        };
        (
            seen.is_up,
            seen.is_member,
            seen.build.as_ref().unwrap().to_string(),
            seen.own_address.found().is_some(),
            smoosh,
        )
    };
    assert_eq!(of(A), (Some(true), true, "3.5.0".to_owned(), true, Ok(7)));
    let none = Err(NodeSmoosh::Unsupported);
    assert_eq!(of(B), (Some(true), true, "3.3.3".to_owned(), true, none));
    assert_eq!(of(C), (Some(true), true, "3.5.0".to_owned(), true, Ok(7)));
    for asked in rig.asked("_smoosh") {
        assert_eq!(asked.path, "/_node/_local/_smoosh/status");
    }
    assert_eq!(rig.errors(), []);
}

#[tokio::test(start_paused = true)]
async fn smoosh_of_a_silent_node_is_not_read_and_its_address_stays_known() {
    let mut rig = Rig::new(nodes().with(small("app", 10)), ON_DEMAND);
    for down in [false, true] {
        if down {
            rig.cluster.faults().down(B);
        }
        let plan = rig.sweep().await;
        let seen = node(&plan, B);
        assert_eq!((seen.is_up, seen.own_address.found().is_some()), (Some(!down), true));
        assert_eq!(seen.smoosh == NodeSmoosh::NotRead, down, "{:?}", seen.smoosh);
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_compaction_is_shown_and_reread_at_its_end() {
    let mut world = nodes().with(Database { bloat: 5.0, docs: 100_000, ..small("big", 0) });
    world.databases[0].docs = 100_000;
    world.nodes[0].smoosh = true;
    world.compaction_rate = 1 << 20;
    let mut rig = Rig::new(world, ON_DEMAND);
    rig.cluster.world(|world| world.write("big", 10));
    let plan = rig.sweep().await;
    let file = files_of(&rig, A, "big").remove(0);
    let id = db_id(A, &file);
    assert_eq!(queue(&plan, "ratio_dbs"), (3, 0));
    let before = target(&plan, &id).unwrap().facts().file_bytes.get().unwrap();

    let plan = rig.plan_where(|plan| queue(plan, "ratio_dbs").1 == 1).await;
    let facts = target(&plan, &id).unwrap().facts();
    assert!(facts.flags.compact_running);
    assert_eq!(facts.file_bytes.get(), Some(before), "the measured sizes are shown");
    let sweeps = rig.status().sweeps;

    let shrunk = |plan: &recliner::plan::Plan| {
        target(plan, &id).is_some_and(|target| target.facts().file_bytes.get() < Some(before / 2))
    };
    let plan = rig.plan_where(shrunk).await;
    let seen = dbs_seen(&plan).remove(&id);
    assert_eq!(seen, dbs_there(&rig.cluster, |_, _| TargetState::Ok).remove(&id));
    assert_eq!(rig.status().sweeps, sweeps, "no sweep was needed");
    assert_eq!(queue(&plan, "ratio_dbs"), (2, 0), "the other copies wait");
}

#[tokio::test(start_paused = true)]
async fn view_compaction_shows_on_its_cluster_target() {
    let designs = vec![Design { bloat: 6.0, bytes_per_doc: 2_000, ..design("v") }];
    let mut world = nodes().with(Database { designs, ..small("app", 50_000) });
    world.compaction_rate = 1 << 20;
    let mut rig = Rig::new(world, ON_DEMAND);
    let plan = rig.sweep().await;
    assert_eq!(queue(&plan, "ratio_views"), (1, 0));
    for node in NODES {
        let file = files_of(&rig, node, "app").remove(0);
        rig.cluster.world(|world| world.compact_view(node, &file, "v")).unwrap();
    }
    rig.plan_where(|plan| queue(plan, "ratio_views").1 == 1).await;
    let plan = rig.plan_where(|plan| queue(plan, "ratio_views") == (0, 0)).await;
    let key = ("app".to_owned(), "_design/v".to_owned());
    let there = view_there(&rig.cluster, "app", &["_design/v"]);
    assert_eq!(views_seen(&plan), BTreeMap::from([(key, there)]));
}

#[tokio::test(start_paused = true)]
async fn recreated_database_is_a_new_target() {
    let designs = || vec![design("v")];
    let world = nodes().with(Database { designs: designs(), ..Database::new("app") });
    let mut rig = Rig::new(world, ON_DEMAND);
    let first = rig.sweep().await;
    sleep(Duration::from_secs(100)).await;
    rig.cluster
        .world(|world| {
            world.delete("app", false);
            world.create(Database { designs: designs(), q: 1, ..Database::new("app") })
        })
        .unwrap();
    let second = rig.sweep().await;
    assert_eq!(dbs_seen(&second), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    let ids = |plan| dbs_seen(plan).into_keys().filter(|id| id.contains("app")).collect::<Vec<_>>();
    assert!(ids(&first).iter().all(|id| !ids(&second).contains(id)));
    let key = ("app".to_owned(), "_design/v".to_owned());
    let there = view_there(&rig.cluster, "app", &["_design/v"]);
    assert_eq!(views_seen(&second), BTreeMap::from([(key, there)]));
    assert_eq!(targets(&second, TargetKind::Cleanup).count(), 1);

    rig.cluster.world(|world| world.delete("app", true));
    let third = rig.sweep().await;
    assert_eq!(
        dbs_seen(&third),
        dbs_there(&rig.cluster, |_, file| {
            if of_database(file, "app") { TargetState::Orphan } else { TargetState::Ok }
        })
    );
    assert_eq!(
        (views_seen(&third), targets(&third, TargetKind::Cleanup).count()),
        (BTreeMap::new(), 0)
    );
    assert_eq!(rig.errors(), []);
}

#[tokio::test(start_paused = true)]
async fn changed_signature_is_evidence_for_cleanup() {
    let world = nodes().with(Database { designs: vec![design("v")], ..Database::new("app") });
    let mut rig = Rig::new(world, ON_DEMAND);
    let evidence = |plan: &recliner::plan::Plan| {
        let all: Vec<bool> = targets(plan, TargetKind::Cleanup)
            .map(|target| target.facts().flags.evidence)
            .collect();
        all
    };
    let plan = rig.sweep().await;
    assert_eq!((evidence(&plan), queue(&plan, "index_cleanup")), (vec![false], (0, 0)));
    let other = Design { views: vec!["other".to_owned()], ..Design::new("v") };
    rig.cluster.world(|world| world.put_design("app", other));
    let plan = rig.sweep().await;
    assert_eq!((evidence(&plan), queue(&plan, "index_cleanup")), (vec![true], (1, 0)));
    assert_eq!(views_seen(&plan).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn growth_fills_the_queue_and_compaction_empties_it() {
    let busy = Database {
        bloat: 1.05,
        writes_per_second: 5.0,
        new_share: 0.02,
        delete_share: 0.01,
        ..small("busy", 4_000)
    };
    let world = nodes().with(busy).with(Database { bloat: 1.1, ..small("quiet", 4_000) });
    let mut rig = Rig::new(world, "scan: {interval: 5m}\npoll: 1m\n");
    let plan = rig.sweep().await;
    assert_eq!(queue(&plan, "ratio_dbs"), (0, 0));
    sleep(Duration::from_secs(3 * 3_600)).await;
    let plan = rig.planned().await;
    assert_eq!(queue(&plan, "ratio_dbs"), (3, 0));
    assert!(rig.status().sweeps >= 36, "{}", rig.status().sweeps);
    rig.cluster.world(|world| {
        for node in NODES {
            let files = world.files(node).unwrap();
            let file = files.iter().find(|file| of_database(file, "busy")).unwrap();
            world.compact(node, file).unwrap();
        }
    });
    // Its writes double the file again within ten minutes.
    sleep(Duration::from_secs(360)).await;
    let plan = rig.planned().await;
    assert_eq!(queue(&plan, "ratio_dbs"), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn changed_settings_take_effect_without_restart() {
    let world = nodes()
        .with(Database { bloat: 1.6, designs: vec![design("v")], ..small("app", 40_000) })
        .with(Database { bloat: 1.6, ..small("other", 40_000) });
    let mut rig = Rig::new(world, ON_DEMAND);
    let plan = rig.sweep().await;
    assert_eq!(queue(&plan, "ratio_dbs"), (0, 0));
    let all = dbs_seen(&plan);

    let channels = "channels:\n  - {name: eager, kind: db, priority: ratio, min_priority: 1.5, databases: {include: [app]}}\n";
    rig.reconfigure(&format!("{ON_DEMAND}{channels}"));
    let plan = rig.plan_where(|plan| plan.channels.list.len() == 1).await;
    assert_eq!(queue(&plan, "eager"), (3, 0), "without another sweep");

    rig.reconfigure(&format!("{ON_DEMAND}nodes: [{B}]\ncluster_targets: false\n"));
    let plan = rig.sweep().await;
    let own: BTreeMap<_, _> =
        all.into_iter().filter(|(id, _)| id.starts_with(&db_id(B, ""))).collect();
    assert!(!own.is_empty());
    assert_eq!(dbs_seen(&plan), own, "other nodes' targets belong to other processes");
    assert_eq!(views_seen(&plan), BTreeMap::new());
    assert_eq!(targets(&plan, TargetKind::Cleanup).count(), 0);

    rig.reconfigure(ON_DEMAND);
    let plan = rig.sweep().await;
    assert_eq!(dbs_seen(&plan), dbs_there(&rig.cluster, |_, _| TargetState::Ok));
    assert_eq!(views_seen(&plan).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn exported_top_databases_stay_stable_during_compactions() {
    const TOP: usize = 3;
    // CouchDB's own compactor is active.
    let yaml = "scan: {interval: 30s, top: 3}\npoll: 30s\ncouchdb: {cold_reads_per_second: off}\n";
    let mut rig = Rig::new(faulty_demo_config(), yaml);
    rig.until(|status| status.sweeps > 0).await;
    let (mut exported, mut best) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..60 {
        sleep(Duration::from_secs(60)).await;
        let plan = rig.planned().await;
        let snapshot = &plan.snapshot;
        let name = |db| snapshot.db_name(db).expect("it is there").db.to_owned();
        let top = snapshot.top();
        let whole: BTreeSet<_> =
            top.databases.iter().filter(|it| it.is_complete).map(|it| it.db).collect();
        assert_eq!(whole.len(), TOP);
        // Exactly the targets of those databases.
        let files = snapshot.targets().filter(|target| {
            let there = !matches!(target.state(), TargetState::Missing | TargetState::Orphan);
            matches!(target.kind(), TargetKind::Db | TargetKind::View)
                && there
                && whole.contains(&target.db())
        });
        assert_eq!(files.map(|target| target.ix()).collect::<Vec<_>>(), top.targets);
        exported.extend(whole.into_iter().map(name));
        let mut reclaimable = BTreeMap::new();
        for target in snapshot.targets().filter(|target| target.state() == TargetState::Ok) {
            *reclaimable.entry(name(target.db())).or_insert(0) +=
                target.reclaimable_bytes().unwrap_or_default();
        }
        let mut order: Vec<(u64, String)> =
            reclaimable.into_iter().map(|(db, bytes)| (bytes, db)).collect();
        order.sort_unstable();
        best.extend(order.into_iter().rev().take(TOP).map(|(_, db)| db));
    }
    assert!(best.len() > TOP, "the largest of each moment are {best:?}");
    assert!(exported.len() < best.len(), "{exported:?} beside {best:?}");
}
