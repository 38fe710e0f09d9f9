use super::*;
use percent_encoding::percent_decode_str;
use proptest::prelude::*;

/// One route of every kind, with these names.
fn routes<'a>(node: &'a str, db: &'a str, ddoc: &'a str) -> Vec<Route<'a>> {
    vec![
        Route::Welcome,
        Route::NodeWelcome { node },
        Route::Up,
        Route::Session,
        Route::Login,
        Route::NodeSession { node },
        Route::Membership,
        Route::LocalName { encoded: false },
        Route::LocalName { encoded: true },
        Route::NodeFiles { node },
        Route::ShardMap { node: None, from: Some(db), limit: 2 },
        Route::Shard { node, shard: db },
        Route::ShardViewInfo { node, shard: db, ddoc },
        Route::AllDbs { from: Some(db), limit: 4 },
        Route::DbShards { db },
        Route::Database { db },
        Route::DesignDocs { db, from: Some(ddoc), limit: 3 },
        Route::ViewInfo { db, ddoc },
        Route::SmooshStatus,
        Route::Config { node, section: Some(db) },
        Route::ActiveTasks { node },
        Route::System { node },
        Route::FlushCount { node },
        Route::ReshardJobs,
        Route::ShardDocuments { node, shard: db, read: ShardRead::Changes { since: 7, limit: 9 } },
        Route::ShardDocuments { node, shard: db, read: ShardRead::Docs { since: 7, limit: 9 } },
        Route::ShardDocuments {
            node,
            shard: db,
            read: ShardRead::Local { from: Some("_local/a"), limit: 2 },
        },
        Route::ShardDocuments {
            node,
            shard: db,
            read: ShardRead::Designs { from: Some(ddoc), limit: 3 },
        },
        Route::ShardDocuments { node, shard: db, read: ShardRead::Leaves { id: db } },
        Route::Replications { of_documents: true, limit: 5 },
        Route::Replications { of_documents: false, limit: 5 },
        Route::ChangesLeft { db, since: db },
        Route::LocalDoc { db, id: db },
        Route::PurgesLimit { db },
        Route::TimeSeq { db },
        Route::AutoPurge { db },
        Route::DbUpdates(DbUpdates::Now),
        Route::DbUpdates(DbUpdates::Feed { since: db, heartbeat: 10_000 }),
        Route::MapChanges { node, poll: None },
        Route::MapChanges { node, poll: Some(MapPoll { since: 7, limit: 500, timeout: 25_000 }) },
        Route::NodeCompact { node, shard: db },
        Route::NodeCompactView { node, shard: db, ddoc },
        Route::CompactView { db, ddoc },
        Route::ViewCleanup { db },
        Route::BuildView { db, ddoc, view: db },
        Route::SearchInfo { engine: Engine::Nouveau, db, ddoc, index: db },
        Route::BuildSearch { engine: Engine::Nouveau, db, ddoc, index: db },
        Route::SetConfig { node, section: db, key: "k", value: "v" },
        Route::ResetConfig { node, section: db, key: "k" },
        Route::PutDesign { db, ddoc, body: "{}" },
        Route::DeleteDesign { db, ddoc, rev: "1-a" },
        Route::Config { node, section: None },
    ]
}

#[test]
fn every_route_has_its_exact_request_path() {
    let shard = "shards/00000000-7fffffff/app/orders.1795222434";
    let paths: Vec<String> = routes("couchdb@a", shard, "_design/x/y")
        .iter()
        .map(|route| route.path().unwrap())
        .collect();
    let encoded = "shards%2F00000000-7fffffff%2Fapp%2Forders.1795222434";
    let quoted = format!("%22{encoded}%22");
    assert_eq!(
        paths,
        [
            "/",
            "/_node/couchdb@a",
            "/_up",
            "/_session",
            "/_session",
            "/_node/couchdb@a/_session",
            "/_membership",
            "/_node/_local",
            "/_node%2F_local",
            "/_node/couchdb@a/_all_dbs",
            &format!("/_node/_local/_dbs/_all_docs?include_docs=true&limit=2&startkey={quoted}"),
            &format!("/_node/couchdb@a/{encoded}"),
            &format!("/_node/couchdb@a/{encoded}/_design/x%2Fy/_info"),
            &format!("/_all_dbs?limit=4&startkey={quoted}"),
            &format!("/{encoded}/_shards"),
            &format!("/{encoded}"),
            &format!(
                "/{encoded}/_design_docs?include_docs=true&limit=3&startkey=%22_design%2Fx%2Fy%22"
            ),
            &format!("/{encoded}/_design/x%2Fy/_info"),
            "/_node/_local/_smoosh/status",
            &format!("/_node/couchdb@a/_config/{encoded}"),
            "/_node/couchdb@a/_active_tasks",
            "/_node/couchdb@a/_system",
            "/_node/couchdb@a/_stats/fsync/count",
            "/_reshard/jobs",
            &format!("/_node/couchdb@a/{encoded}/_changes?style=all_docs&since=7&limit=9"),
            &format!("/_node/couchdb@a/{encoded}/_changes?include_docs=true&since=7&limit=9"),
            &format!(
                "/_node/couchdb@a/{encoded}/_local_docs?include_docs=true&limit=2&startkey=%22_local%2Fa%22"
            ),
            &format!(
                "/_node/couchdb@a/{encoded}/_design_docs?include_docs=true&limit=3&startkey=%22_design%2Fx%2Fy%22"
            ),
            &format!("/_node/couchdb@a/{encoded}/{encoded}?open_revs=all&revs=true"),
            "/_scheduler/docs?limit=5",
            "/_scheduler/jobs?limit=5",
            &format!("/{encoded}/_changes?limit=1&since={encoded}"),
            &format!("/{encoded}/_local/{encoded}"),
            &format!("/{encoded}/_purged_infos_limit"),
            &format!("/{encoded}/_time_seq"),
            &format!("/{encoded}/_auto_purge"),
            "/_db_updates?since=now",
            &format!("/_db_updates?feed=continuous&heartbeat=10000&since={encoded}"),
            "/_node/couchdb@a/_dbs/_changes?since=now",
            "/_node/couchdb@a/_dbs/_changes?feed=longpoll&since=7&limit=500&timeout=25000",
            &format!("/_node/couchdb@a/{encoded}/_compact"),
            &format!("/_node/couchdb@a/{encoded}/_compact/x%2Fy"),
            &format!("/{encoded}/_compact/x%2Fy"),
            &format!("/{encoded}/_view_cleanup"),
            &format!("/{encoded}/_design/x%2Fy/_view/{encoded}?limit=0&update=lazy"),
            &format!("/{encoded}/_design/x%2Fy/_nouveau_info/{encoded}"),
            &format!("/{encoded}/_design/x%2Fy/_nouveau/{encoded}?q=*:*&limit=1"),
            &format!("/_node/couchdb@a/_config/{encoded}/k"),
            &format!("/_node/couchdb@a/_config/{encoded}/k"),
            &format!("/{encoded}/_design/x%2Fy"),
            &format!("/{encoded}/_design/x%2Fy?rev=1-a"),
            "/_node/couchdb@a/_config",
        ]
    );
}

#[test]
fn every_route_has_one_of_the_listed_labels() {
    let mut labels: Vec<_> = routes("n", "d", "_design/x").iter().map(Route::label).collect();
    labels.dedup();
    labels.pop();
    assert_eq!(labels, Route::LABELS);
}

#[test]
fn refuses_dots_and_empty_names() {
    let engine = Engine::Clouseau;
    let build = |index| Route::BuildSearch { engine, db: "app", ddoc: "_design/x", index };
    for name in ["", ".", ".."] {
        let ddoc = format!("_design/{name}");
        for (route, whole) in [
            (Route::Database { db: name }, name),
            (Route::Shard { node: "n", shard: name }, name),
            (Route::Shard { node: name, shard: "s" }, name),
            (Route::ViewInfo { db: "app", ddoc: &ddoc }, &ddoc),
            (Route::ShardViewInfo { node: "n", shard: "s", ddoc: &ddoc }, &ddoc),
            (Route::Config { node: "n", section: Some(name) }, name),
            // If dot segments were resolved, these routes would compact a whole database.
            (Route::NodeCompact { node: "n", shard: name }, name),
            (Route::NodeCompactView { node: "n", shard: "s", ddoc: &ddoc }, &ddoc),
            (Route::CompactView { db: "app", ddoc: &ddoc }, &ddoc),
            (Route::ViewCleanup { db: name }, name),
            // These routes would overwrite or delete a database.
            (Route::PutDesign { db: "app", ddoc: &ddoc, body: "{}" }, &ddoc),
            (Route::DeleteDesign { db: "app", ddoc: &ddoc, rev: "1-a" }, &ddoc),
            (Route::BuildView { db: "app", ddoc: "_design/x", view: name }, name),
            (build(name), name),
            (Route::SetConfig { node: "n", section: name, key: "k", value: "v" }, name),
            (Route::ResetConfig { node: "n", section: "s", key: name }, name),
        ] {
            let refused =
                Unaddressable::Segment { segment: name.to_owned(), whole: whole.to_owned() };
            assert_eq!(route.path(), Err(refused), "{route:?}");
        }
    }
    assert_eq!(
        Route::ViewInfo { db: "app", ddoc: "x" }.path(),
        Err(Unaddressable::NotADesignDocument("x".to_owned()))
    );
}

#[test]
fn a_database_that_looks_like_a_design_document_stays_a_database() {
    assert_eq!(Route::Database { db: "app/_design/x" }.path().unwrap(), "/app%2F_design%2Fx");
    assert_eq!(
        Route::ViewInfo { db: "a+b", ddoc: "_design/%2e%2e" }.path().unwrap(),
        "/a%2Bb/_design/%252e%252e/_info"
    );
}

proptest! {
    #[test]
    fn any_name_is_one_path_segment_that_url_parsers_keep(
        node in "[^.].*",
        db in "(\\PC|[./%+\\\\\n\t\"?#&=@:;~]){1,40}",
        name in "(\\PC|[./%+\\\\\n\t\"?#&=@:;~]){1,40}",
    ) {
        let ddoc = format!("_design/{name}");
        for route in routes(&node, &db, &ddoc) {
            let Ok(sent) = route.path() else {
                prop_assert!(
                    [&node, &db, &name].iter().any(|part| matches!(part.as_str(), "" | "." | ".."))
                );
                continue;
            };
            let url = url::Url::parse(&format!("http://couch:5984{sent}")).unwrap();
            let (path, query) = sent.split_once('?').unwrap_or((&sent, ""));
            prop_assert_eq!(url.path(), path);
            prop_assert_eq!(url.query().unwrap_or_default(), query);
            let uri: http::Uri = sent.parse().unwrap();
            prop_assert_eq!(uri.path(), path);
        }
        if let Ok(sent) = (Route::ShardViewInfo { node: &node, shard: &db, ddoc: &ddoc }).path() {
            let parts: Vec<String> = sent
                .split('/')
                .map(|part| percent_decode_str(part).decode_utf8().unwrap().into_owned())
                .collect();
            prop_assert_eq!(
                parts,
                vec![String::new(), "_node".into(), node, db, "_design".into(), name, "_info".into()]
            );
        }
    }
}
