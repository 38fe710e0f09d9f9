use super::*;
use couchdb_names::{Engine, NameList};
use proptest::prelude::*;
use serde::{Deserialize, de::DeserializeOwned};
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct Recorded {
    body: serde_json::Value,
    status: u16,
}

const VERSIONS: [&str; 2] = ["3.5.0", "3.3.3"];

fn recorded(version: &str, case: &str) -> Recorded {
    let root = env!("CARGO_MANIFEST_DIR");
    let path = format!("{root}/tests/data/http/{version}/{case}.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The recorded body as it came over the wire, read as `T`.
fn body<T: DeserializeOwned>(version: &str, case: &str) -> T {
    let recorded = recorded(version, case);
    assert_eq!(recorded.status, 200, "{version} {case}");
    let text = recorded.body.to_string();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{version} {case}: {error}"))
}

fn parse<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// The keys of a value with the kinds of their values, as paths.
fn shape(value: &serde_json::Value, at: &str, into: &mut BTreeSet<String>) {
    use serde_json::Value::{Array, Bool, Null, Number, Object, String};
    match value {
        Object(fields) => {
            fields.iter().for_each(|(key, it)| shape(it, &format!("{at}/{key}"), into))
        }
        Array(items) => items.iter().for_each(|item| shape(item, &format!("{at}/*"), into)),
        Null | Bool(_) | Number(_) | String(_) => {
            into.insert(format!("{at} {:?}", std::mem::discriminant(value)));
        }
    }
}

#[test]
fn couchdb_main_of_2026_has_the_response_fields_of_3_5_0() {
    let shape_of = |version, case| {
        let (mut found, recorded) = (BTreeSet::new(), recorded(version, case));
        assert_eq!(recorded.status, 200, "{version} {case}");
        shape(&recorded.body, "", &mut found);
        found
    };
    for case in ["root", "up", "membership", "db", "node_shard", "ddoc_info", "smoosh_status"] {
        assert_eq!(shape_of("main", case), shape_of("3.5.0", case), "{case}");
    }
    let system: System = body("main", "system");
    assert_eq!((system.run_queue, system.internal_replication_jobs), (Some(0), Some(0)));
}

#[test]
fn reads_all_fields_of_a_real_shard() {
    let expected = |file, active, time: &str, (db, uuid): (&str, &str)| ShardInfo {
        db_name: some(db),
        sizes: Sizes { file: Some(file), active: Some(active), external: Some(169_646) },
        doc_count: Some(113),
        doc_del_count: Some(0),
        update_seq: Some(673),
        compacted_seq: Some(0),
        purge_seq: Some(0),
        compact_running: Some(false),
        disk_format_version: Some(8),
        uuid: some(uuid),
        engine: some("couch_bt_engine"),
        instance_start_time: some(time),
    };
    assert_eq!(
        body::<ShardInfo>("3.5.0", "node_shard"),
        expected(
            266_450,
            48_424,
            "1795225160600085",
            ("shards/00000000-3fffffff/rec_app.1795225160", "e634547213053110e128747da706f24b"),
        )
    );
    assert_eq!(
        body::<ShardInfo>("3.3.3", "node_shard"),
        expected(
            250_066,
            46_929,
            "1795227144898698",
            ("shards/00000000-3fffffff/rec_app.1795227144", "229262c3c0291f3a58d8d8a340fd5af2"),
        )
    );
    for version in VERSIONS {
        let running: ShardInfo = body(version, "node_shard_right_after_compact");
        assert_eq!(running.compact_running, Some(true), "{version}");
    }
    let uuid = |file| body::<ShardInfo>("3.5.0", file).uuid;
    assert_eq!(uuid("node_shard"), uuid("node_shard_after_compact"));
    assert_ne!(uuid("node_shard"), uuid("node_shard_on_other_node"));
}

#[test]
fn reads_clustered_sequences_as_numbers() {
    let info: ShardInfo = body("3.5.0", "db");
    assert_eq!((info.update_seq, info.compacted_seq), (Some(2403), None));
    assert_eq!(info.instance_start_time, some("1795225160"));
}

#[test]
fn reads_all_fields_of_a_real_view_index() {
    let expected = ViewInfo {
        name: some("stats"),
        view_index: ViewIndex {
            signature: "0f045e3b41d71d93aaa32f23021ba536".parse().ok(),
            language: some("javascript"),
            sizes: Sizes { file: Some(57_976), active: Some(46_603), external: Some(604_590) },
            update_seq: Some(2402),
            purge_seq: Some(0),
            collator_versions: Some(vec!["153.120".to_owned()]),
            compact_running: Some(false),
            updater_running: Some(false),
            waiting_commit: Some(false),
            waiting_clients: Some(0),
            pending_updates: None,
            updates_pending: Some(UpdatesPending {
                minimum: Some(1),
                preferred: Some(0),
                total: Some(1),
            }),
        },
    };
    assert_eq!(body::<ViewInfo>("3.5.0", "ddoc_info"), expected);
    let one_copy: ViewInfo = body("3.5.0", "node_shard_ddoc_info_2");
    assert_eq!(
        (one_copy.view_index.pending_updates, one_copy.view_index.updates_pending),
        (Some(0), None)
    );
    for version in VERSIONS {
        for case in ["ddoc_info_mango", "ddoc_info_pending", "node_shard_ddoc_info_q1"] {
            let info: ViewInfo = body(version, case);
            assert!(info.view_index.signature.is_some(), "{version} {case}");
        }
    }
}

#[test]
fn reads_the_shard_map_of_a_real_server() {
    let doc: DbsDoc = body("3.5.0", "node_dbs_doc");
    assert_eq!(doc.id, some("rec_app"));
    assert_eq!(doc.suffix, some(".1795225160"));
    let nodes: Vec<_> = doc.by_node.keys().map(String::as_str).collect();
    assert_eq!(nodes, ["node4@127.0.0.1", "node5@127.0.0.1", "node6@127.0.0.1"]);
    assert_eq!(doc.by_range.len(), 4);
    assert_eq!(doc.by_range["00000000-3fffffff"], nodes);
    assert_eq!(doc.changelog.len(), 12);
    assert_eq!(
        doc.changelog[0],
        ChangelogEntry {
            what: "add".to_owned(),
            range: "00000000-3fffffff".to_owned(),
            node: "node4@127.0.0.1".to_owned(),
        }
    );
    assert_eq!(body::<DbsDoc>("3.3.3", "node_dbs_doc").suffix, some(".1795227144"));
}

/// A mango index's only view.
const MANGO: &str = r#"{"by-r":{"map":{"fields":{"r":"asc"},"partial_filter_selector":{}},"options":{"def":{"fields":["r"]}},"reduce":"_count"}}"#;

#[test]
fn reads_design_document_fields_that_affect_its_index() {
    for version in VERSIONS {
        let page: DesignRows = body(version, "design_docs");
        let docs: Vec<DesignDoc> = page.rows.into_iter().filter_map(|row| row.doc()).collect();
        assert!(docs.iter().all(|doc| doc.text.starts_with(r#"{"_id":"_design/"#)));
        let docs: Vec<DesignDoc> =
            docs.into_iter().map(|doc| DesignDoc { text: String::new(), ..doc }).collect();
        let doc = |id, rev, language, (first, text): (&str, &str), views| DesignDoc {
            id: some(id),
            rev: some(rev),
            language,
            views: Some(Views { text: text.to_owned(), first: some(first) }),
            autoupdate: Autoupdate { views, nouveau: views, indexes: views },
            nouveau: Vec::new(),
            indexes: Vec::new(),
            options: DesignOptions::default(),
            text: String::new(),
        };
        assert_eq!(
            docs,
            [
                doc(
                    "_design/mango",
                    "1-42e33f9d9275055b383c8424a42d0c30",
                    some("query"),
                    ("by-r", MANGO),
                    true
                ),
                doc(
                    "_design/noauto",
                    "1-ff62270361a6e2bff66f387533e54b4a",
                    None,
                    ("a", r#"{"a":{"map":"function(doc){emit(doc._id,null)}"}}"#),
                    false
                ),
                doc(
                    "_design/stats",
                    "1-53c105fa0a1b32e062981f39e31d4762",
                    None,
                    (
                        "by_r",
                        r#"{"by_r":{"map":"function(doc){emit(doc.r,doc.v)}","reduce":"_count"}}"#
                    ),
                    true
                ),
            ],
            "{version}"
        );
        assert!(docs.iter().all(DesignDoc::has_views));
        assert_eq!(docs[2].language(), "javascript");
    }
}

#[test]
fn design_document_without_views_has_none() {
    for text in [
        r#"{"_id":"_design/f","filters":{"a":"x"}}"#,
        r#"{"_id":"_design/f","views":{}}"#,
        r#"{"_id":"_design/f","views":null}"#,
        r#"{"_id":"_design/f","views":"lib"}"#,
    ] {
        let doc: DesignDoc = parse(text);
        assert_eq!((doc.has_views(), doc.views), (false, None), "{text}");
    }
}

#[test]
fn reads_welcome_versions_and_membership_of_real_servers() {
    for version in VERSIONS {
        let engine = (version == "3.5.0").then_some("quickjs").into_iter();
        let usual =
            ["access-ready", "partitioned", "pluggable-storage-engines", "reshard", "scheduler"];
        let features = engine.chain(usual).map(str::to_owned).collect();
        assert_eq!(
            body::<Welcome>(version, "root"),
            Welcome {
                couchdb: Some("Welcome".to_owned()),
                version: some(version),
                uuid: some("fake_uuid_for_dev"),
                features: Some(features),
                vendor: Vendor { name: some("The Apache Software Foundation") },
            }
        );
        let system: System = body(version, "system");
        assert_eq!((system.run_queue, system.internal_replication_jobs), (Some(0), Some(0)));
        assert!(system.uptime > Some(0), "{version}");
        let membership: Membership = body(version, "membership");
        assert_eq!(membership.all_nodes, membership.cluster_nodes);
    }
    let nodes = ["node4@127.0.0.1", "node5@127.0.0.1", "node6@127.0.0.1"].map(str::to_owned);
    let membership: Membership = body("3.5.0", "membership");
    assert_eq!(membership.all_nodes, Some(nodes.to_vec()));
    assert_eq!(body::<LocalName>("3.5.0", "node_local_name").name, some("node4@127.0.0.1"));
}

#[test]
fn file_list_of_a_node_is_parsed_in_order() {
    let files: NameList = body("3.3.3", "node_all_dbs");
    let all: Vec<&str> = files.iter().collect();
    assert_eq!((files.len(), files.is_empty()), (16, false));
    assert_eq!(all[..3], ["_dbs", "_nodes", "_users"]);
    assert_eq!(all[15], "shards/c0000000-ffffffff/rec_app.1795227144");
    let escaped: NameList = parse(r#"["a\u00e9\"", "", "b\/c"]"#);
    assert_eq!(escaped.iter().collect::<Vec<_>>(), ["aé\"", "", "b/c"]);
    assert_eq!(escaped, ["aé\"", "", "b/c"].into_iter().collect());
    for bad in ["{}", "[1]", "[null]", "null", "\"a\""] {
        assert!(serde_json::from_str::<NameList>(bad).is_err(), "{bad}");
    }
}

#[test]
fn reads_search_index_info_of_both_engines() {
    let info: SearchInfo = body("3.5.0", "nouveau_info");
    assert_eq!(info.name, some("_design/s/text"));
    let index = info.search_index;
    assert_eq!((index.built_to(), index.docs()), (Some(201), Some(200)));
    assert_eq!(index.disk_size, Some(20_138));
    // Written after clouseau's source: no such server was at hand.
    let clouseau = r#"{"name":"_design/s/c","search_index":{"pending_seq":9,"committed_seq":7,
        "doc_del_count":1,"doc_count":4,"disk_size":80,"signature":"ab"}}"#;
    let index = parse::<SearchInfo>(clouseau).search_index;
    assert_eq!((index.built_to(), index.docs(), index.disk_size), (Some(9), Some(4), Some(80)));
    let tasks: Vec<ActiveTask> = body("3.5.0", "nouveau_active_tasks");
    assert!(tasks.iter().all(|task| {
        (task.kind.as_deref(), task.index.as_deref()) == (Some("search_indexer"), Some("text"))
            && task.design_document.as_deref() == Some("_design/s")
    }));
    let root: Welcome = body("3.5.0", "nouveau_root");
    assert!(root.features.unwrap().contains(&"nouveau".to_owned()));
    // The welcome of another node has no features.
    assert_eq!(body::<Welcome>("3.5.0", "nouveau_node_root").features, None);
}

#[test]
fn design_documents_name_their_search_indexes() {
    let doc: DesignDoc = parse(
        r#"{"_id":"_design/s","nouveau":{"a":{"index":"f"},"b":{},"c":7},"indexes":{"d":{"index":"f"}},
            "autoupdate":{"nouveau":false}}"#,
    );
    assert_eq!(doc.searches(Engine::Nouveau), ["a"]);
    assert_eq!(doc.searches(Engine::Clouseau), ["d"]);
    assert_eq!(doc.autoupdate, Autoupdate { views: true, nouveau: false, indexes: true });
    for odd in [r#"{"nouveau":[]}"#, r#"{"nouveau":null}"#, r#"{"nouveau":"x","indexes":3}"#] {
        assert_eq!(parse::<DesignDoc>(odd).searches(Engine::Nouveau), [""; 0], "{odd}");
    }
}

#[test]
fn reads_running_tasks_and_smoosh_channels() {
    let tasks: Vec<ActiveTask> = body("3.5.0", "active_tasks_view_compaction");
    assert_eq!(
        tasks,
        [ActiveTask {
            kind: some("view_compaction"),
            node: some("node6@127.0.0.1"),
            database: some("shards/00000000-ffffffff/rec_big.1795227212"),
            design_document: some("_design/v"),
            index: None,
            phase: some("ids"),
            progress: Some(28.0),
            changes_done: Some(67_991),
            total_changes: Some(239_997),
            started_on: Some(1_795_227_262),
            updated_on: Some(1_795_227_262),
            pid: some("<0.29981.8>"),
            indexer_pid: None,
            process_status: some("waiting"),
        }]
    );
    for version in VERSIONS {
        let tasks: Vec<ActiveTask> = body(version, "active_tasks_database_compaction");
        assert_eq!(tasks[0].kind, some("database_compaction"), "{version}");
        assert!(body::<Vec<ActiveTask>>(version, "active_tasks_idle").is_empty());
    }
    let status: SmooshStatus = body("3.5.0", "smoosh_status");
    let idle = SmooshChannel {
        active: Some(0),
        starting: Some(0),
        waiting: SmooshWaiting { size: Some(0), min: Some(0.0), max: Some(0.0) },
    };
    assert_eq!(status.channels.len(), 7);
    assert!(status.channels.values().all(|channel| *channel == idle));
}

#[test]
fn smoosh_priority_may_be_infinite() {
    let status: SmooshStatus = parse(
        r#"{"channels":{"upgrade_dbs":{"active":1,"waiting":{"size":2,"min":1.5,"max":"infinity"}},"odd":7}}"#,
    );
    assert_eq!(
        status.channels["upgrade_dbs"],
        SmooshChannel {
            active: Some(1),
            starting: None,
            waiting: SmooshWaiting { size: Some(2), min: Some(1.5), max: Some(f64::INFINITY) },
        }
    );
    assert_eq!(status.channels["odd"], SmooshChannel::default());
}

#[test]
fn reads_error_and_reason_of_refusals() {
    for version in VERSIONS {
        for (case, status, error, reason) in [
            ("wrong_password", 401, "unauthorized", "Name or password is incorrect."),
            ("unauthorized_node", 401, "unauthorized", "You are not a server admin."),
            ("node_shard_missing", 404, "not_found", "no_db_file"),
            ("node_unknown", 404, "not_found", "no such node: nobody@nowhere"),
        ] {
            let found = recorded(version, case);
            assert_eq!(found.status, status, "{version} {case}");
            let refusal: ErrorBody = parse(&found.body.to_string());
            assert_eq!(refusal, ErrorBody { error: some(error), reason: some(reason) });
        }
    }
}

#[test]
fn session_response_shows_user_name_and_admin_role() {
    let session: Session = parse(
        r#"{"ok":true,"userCtx":{"name":"adm","roles":["_admin"]},"info":{"authenticated":"default"}}"#,
    );
    assert_eq!((session.name(), session.is_admin()), (Some("adm"), true));
    let anonymous: Session = parse(r#"{"ok":true,"userCtx":{"name":null,"roles":[]}}"#);
    assert_eq!((anonymous.name(), anonymous.is_admin()), (None, false));
    assert!(anonymous.user.is_some());
    assert_eq!(parse::<Session>("{}").user, None);
}

#[test]
fn wrong_numbers_and_types_are_unknown() {
    for odd in ["null", "-1", "1.5", "1e30", "\"12\"", "[1]", "{\"a\":1}", "true"] {
        let text = format!(
            r#"{{"sizes":{{"file":4096,"active":{odd},"new":{odd}}},"doc_count":{odd},"props":{odd}}}"#
        );
        let info: ShardInfo = parse(&text);
        assert_eq!(info.sizes, Sizes { file: Some(4096), active: None, external: None }, "{odd}");
        assert_eq!(info.doc_count, None, "{odd}");
    }
    for odd in ["null", "7", "[]", "\"x\""] {
        let info: ShardInfo = parse(&format!(r#"{{"sizes":{odd}}}"#));
        assert_eq!(info, ShardInfo::default(), "{odd}");
    }
    assert_eq!(parse::<ShardInfo>(r#"{"update_seq":"x-1"}"#).update_seq, None);
}

#[test]
fn malformed_entry_does_not_affect_its_neighbours() {
    let page: MapRows = parse(
        r#"{"rows":[7,{"id":"a","doc":{"_id":"a","shard_suffix":[46,"x"],"by_node":{"n":["r",null],"m":5},
            "changelog":[["add","r"],[1],"no",["add","r","n"]]}},{"id":"b","doc":null}]}"#,
    );
    let docs: Vec<_> = page.rows.into_iter().map(|row| (row.id, row.doc)).collect();
    let change = |node: &str| ChangelogEntry {
        what: "add".to_owned(),
        range: "r".to_owned(),
        node: node.to_owned(),
    };
    let doc = DbsDoc {
        id: some("a"),
        by_node: [("n".to_owned(), vec!["r".to_owned()]), ("m".to_owned(), vec![])].into(),
        changelog: vec![change(""), change("n")],
        ..DbsDoc::default()
    };
    assert_eq!(docs, [(some("a"), Some(doc)), (some("b"), None)]);
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,8}".prop_map(serde_json::Value::from),
    ];
    let key = prop_oneof![
        Just("sizes"),
        Just("file"),
        Just("rows"),
        Just("doc"),
        Just("views"),
        Just("by_node"),
        Just("userCtx"),
        Just("channels"),
        Just("waiting"),
        Just("view_index"),
        Just("jobs"),
        Just("changelog"),
        Just("shard_suffix"),
        Just("update_seq"),
        Just("signature"),
    ];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6).prop_map(|map| {
                map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

proptest! {
    /// Any object is read as any answer: fields of the wrong type are unknown.
    #[test]
    fn any_json_object_parses_as_any_response(fields in prop::collection::btree_map("[a-z_]{1,12}", json(), 0..6), deep in json()) {
        let mut object: serde_json::Map<String, serde_json::Value> = fields.into_iter().collect();
        for key in ["sizes", "rows", "view_index", "userCtx", "by_node", "views", "channels", "jobs"] {
            object.insert(key.to_owned(), deep.clone());
        }
        let text = serde_json::Value::from(object).to_string();
        prop_assert!(serde_json::from_str::<ShardInfo>(&text).is_ok());
        prop_assert!(serde_json::from_str::<ViewInfo>(&text).is_ok());
        prop_assert!(serde_json::from_str::<DesignRows>(&text).is_ok());
        prop_assert!(serde_json::from_str::<MapRows>(&text).is_ok());
        prop_assert!(serde_json::from_str::<DbsDoc>(&text).is_ok());
        prop_assert!(serde_json::from_str::<Session>(&text).is_ok());
        prop_assert!(serde_json::from_str::<SmooshStatus>(&text).is_ok());
        prop_assert!(serde_json::from_str::<ReshardJobs>(&text).is_ok());
        prop_assert!(serde_json::from_str::<System>(&text).is_ok());
    }
}
