//! `check-config` accepts every printed configuration.

use super::*;
use crate::import::as_rent;
use compaction_settings::Sections;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::{collections::BTreeMap, fs};

const VERSIONS: [&str; 5] = ["2.3.1", "3.0.1", "3.2.2", "3.3.3", "3.5.2"];

/// Checks that `check-config` accepts every import. Settings that smoosh refuses have no channels
/// to check.
fn check_imports(node: &NodeConfig) {
    let nodes = std::slice::from_ref(node);
    if let Ok(imported) = import::import_smoosh(nodes) {
        checked_yaml(&imported).unwrap();
        let rent = as_rent(&imported.channels);
        checked_yaml(&Imported { channels: rent.channels, ..imported }).unwrap();
    }
    checked_yaml(&import::import_daemon(nodes, &TimeZone::UTC).unwrap()).unwrap();
}

#[test]
fn imports_of_public_ini_files_are_valid() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/couchdb_ini");
    let paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(paths.len(), 7);
    for path in paths {
        let bytes = fs::read(&path).unwrap();
        for version in VERSIONS {
            check_imports(&NodeConfig::from_ini("n", version, [("local.ini", bytes.as_slice())]));
        }
    }
}

#[test]
fn refuses_output_longer_than_a_file_may_be() {
    let rule = "= [{db_fragmentation, \"50%\"}, {view_fragmentation, \"50%\"}]";
    let rules: String = (0..5_000).map(|at| format!("database-{at} {rule}\n")).collect();
    let ini = format!("[compactions]\n{rules}");
    let node = NodeConfig::from_ini("n", "2.3.1", [("local.ini", ini.as_bytes())]);
    let imported = import::import_daemon(&[node], &TimeZone::UTC).unwrap();
    let refused = checked_yaml(&imported).unwrap_err().why;
    assert!(refused.contains("longer than 1 MiB"), "{refused}");
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => prop::sample::select(vec![
            "ratio_dbs", "slack_views", "Ratio dbs", "ratio-dbs", "a.b", "_users", "A", "", " ", "9",
            "index_cleanup", "ratio_dbs_2_dbs", "upgrade_views", "_default", "_default ",
        ]).prop_map(str::to_owned),
        1 => "[a-zA-Z0-9_/ .,é\u{a0}\u{1}#%*\\[-]{0,12}",
        1 => "[a-z]{60,90}",
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "ratio",
            "slack",
            "upgrade",
            "Ratio",
            "infinity",
            "0",
            "0.0",
            "-1",
            "1",
            "2.0",
            "2",
            "1.0e300",
            "1048576",
            "99999999999999999999",
            "20:00",
            "06:00",
            "24:00",
            "00:00",
            "true",
            "false",
            "",
            "[{db_fragmentation, \"70%\"}, {view_fragmentation, \"60%\"}]",
            "[{db_fragmentation, \"0\"}, {from, \"23:00\"}, {to, \"00:00\"}]",
            "[{view_fragmentation, \"99%\"}, {parallel_view_compaction, true}]",
        ])
        .prop_map(str::to_owned),
        prop::collection::vec(name(), 0..4).prop_map(|names| names.join(",")),
    ]
}

fn sections() -> impl Strategy<Value = Sections> {
    let of = |keys: &'static [&'static str]| {
        let key = prop_oneof![3 => prop::sample::select(keys).prop_map(str::to_owned), 1 => name()];
        prop::collection::btree_map(key, value(), 0..6)
    };
    let lists = of(&["db_channels", "view_channels", "cleanup_index_files", "cleanup_channels"]);
    let channel = of(&[
        "priority",
        "min_priority",
        "max_priority",
        "min_size",
        "max_size",
        "min_changes",
        "capacity",
        "concurrency",
        "from",
        "to",
        "strict_window",
    ]);
    let channels = prop::collection::vec((name(), channel), 0..5);
    let names = || prop::collection::btree_map(name(), value(), 0..5);
    (lists, channels, names(), names()).prop_map(|(lists, channels, ignored, rules)| {
        let mut sections = Sections::from([
            ("smoosh".to_owned(), lists),
            ("smoosh.ignore".to_owned(), ignored),
            ("compactions".to_owned(), rules),
        ]);
        let listed: BTreeMap<_, _> = channels.iter().map(|(name, _)| (name.clone(), ())).collect();
        let list = listed.into_keys().collect::<Vec<_>>().join(",");
        sections
            .entry("smoosh".to_owned())
            .or_default()
            .entry("db_channels".to_owned())
            .or_insert(list);
        for (name, settings) in channels {
            sections.insert(format!("smoosh.{name}"), settings);
        }
        sections
    })
}

proptest! {
    #[test]
    fn imports_of_arbitrary_settings_are_valid(
        version in prop::sample::select(&VERSIONS[..]),
        sections in sections(),
    ) {
        let (node, version) = ("n\nmode: enforce".to_owned(), version.to_owned());
        check_imports(&NodeConfig { node, version, sections, problems: Vec::new() });
    }
}
