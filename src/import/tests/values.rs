//! Tests of the imported channels.

use super::*;
use crate::model::{
    channel::ChannelPreset,
    target::TargetKind,
    window::{Days, Window},
};
use jiff::civil;

#[test]
fn default_settings_become_default_channels() {
    for version in ["3.3.0", "3.4.2", "3.5.0"] {
        let imported = import_one(version, "");
        assert_eq!(imported.channels, Channels::default(), "{version}");
        assert_eq!(imported.per_node, 7);
        assert!(imported.is_equal());
    }
}

#[test]
fn import_before_3_3_keeps_channel_order_without_cleanup() {
    let imported = import_one("3.2.2", "");
    assert_eq!(
        channel_names(&imported.channels),
        ["upgrade_dbs", "ratio_dbs", "slack_dbs", "upgrade_views", "ratio_views", "slack_views"]
    );
    let ini = "[smoosh]\ndb_channels = b, ratio_dbs ,a,,b,,\nview_channels = none\ncleanup_index_files = true\n";
    assert_eq!(
        channel_names(&import_one("3.2.2", ini).channels),
        ["b", "ratio_dbs", "a", "unnamed_dbs", "none", "index_cleanup"]
    );
    let emptied = NodeConfig {
        sections: [("smoosh".to_owned(), [("db_channels".to_owned(), String::new())].into())]
            .into(),
        ..node("n", "3.2.2", "")
    };
    assert_eq!(channel_names(&import_smoosh(&[emptied]).unwrap().channels)[0], "unnamed_dbs");
}

#[test]
fn imported_defaults_depend_on_couchdb_version() {
    for (version, ratio, slack) in [
        ("3.0.0", 5.0, 16_777_216.0),
        ("3.1.2", 2.0, 16_777_216.0),
        ("3.2.0", 2.0, 536_870_912.0),
        ("3.5.0", 2.0, 536_870_912.0),
    ] {
        let imported = import_one(version, "");
        let least = |name| channel(&imported, name).min_priority;
        assert_eq!((least("ratio_dbs"), least("slack_views")), (ratio, slack), "{version}");
    }
}

#[test]
fn imports_every_setting_of_a_channel() {
    let imported = import_one(
        "3.5.0",
        "[smoosh]\ndb_channels = big_dbs\n[smoosh.big_dbs]\npriority = slack\nmin_priority = 1.5e9\n\
         max_priority = 9000000000\nmin_size = 20000000000\nmax_size = 2000000000000\nmin_changes = 1000\n\
         capacity = 99\nconcurrency = 2\nfrom = 20:00\nto = 6:30\nstrict_window = true\n",
    );
    let mut expected = ChannelPreset::Smoosh.channels();
    expected.insert(
        0,
        Channel {
            min_priority: 1.5e9,
            max_priority: 9e9,
            min_size: 20_000_000_000,
            max_size: Some(2_000_000_000_000),
            min_changes: 1000,
            capacity: 99,
            concurrency: 2,
            windows: vec![Window {
                days: Days::ALL,
                from: civil::time(20, 0, 0, 0),
                to: civil::time(6, 30, 0, 0),
                zone: TimeZone::UTC,
            }],
            strict_window: true,
            ..Channel::with_defaults("big_dbs", TargetKind::Db, PriorityKind::Slack)
        },
    );
    assert_eq!(imported.channels.list, expected);
    assert_eq!(imported.per_node, 9);
}

#[test]
fn unusual_values_have_the_same_effect_after_import() {
    for (version, ini, edit) in [
        (
            "3.5.0",
            "min_priority = 0.0",
            (|channel| channel.min_priority = 1e-15) as fn(&mut Channel),
        ),
        ("3.5.0", "min_priority = 0", |channel| channel.min_priority = 0.0),
        ("3.5.0", "min_size = 1000.5", |channel| channel.min_size = 1000),
        ("3.5.0", "min_size = -1", |channel| channel.min_size = 0),
        ("3.5.0", "min_size = infinity", |channel| channel.min_size = 1 << 62),
        ("3.5.0", "max_size = infinity", |_| ()),
        ("3.5.0", "min_changes = -5", |_| ()),
        ("3.5.0", "concurrency = 0", |channel| channel.concurrency = 0),
        ("3.5.0", "capacity = 0\nconcurrency = 5", |channel| channel.concurrency = 0),
        ("3.5.0", "capacity = 99999999999999999999", |channel| {
            channel.capacity = Channel::MAX_CAPACITY
        }),
        ("3.5.0", "from = 24:00\nto = 24:01", |channel| channel.concurrency = 0),
        ("3.5.0", "from = 07:00\nto = 07:00\nstrict_window = true", |_| ()),
        ("3.5.0", "from = noon\nto = later", |_| ()),
        ("3.5.0", "strict_window = yes", |_| ()),
        ("3.5.0", "min_priority = infinity", |channel| {
            channel.min_priority = (1_u64 << 62) as f64;
            channel.concurrency = 0;
        }),
        ("3.2.2", "min_priority = infinity", |channel| {
            channel.min_priority = (1_u64 << 62) as f64;
        }),
    ] {
        let imported = import_one(version, &format!("[smoosh.ratio_dbs]\n{ini}\n"));
        let mut expected = Channel::with_defaults("ratio_dbs", TargetKind::Db, PriorityKind::Ratio);
        edit(&mut expected);
        assert_eq!(channel(&imported, "ratio_dbs"), expected, "{ini}");
    }
}

#[test]
fn invalid_number_drops_its_channel_and_later_ones() {
    let imported = import_one("3.5.0", "[smoosh.slack_dbs]\nmax_priority = 1e9\n");
    assert_eq!(
        channel_names(&imported.channels),
        ["ratio_dbs", "ratio_views", "slack_views", "upgrade_views", "index_cleanup"]
    );
}

#[test]
fn unknown_priority_takes_only_files_without_live_bytes() {
    let ini = "[smoosh]\nview_channels = odd\n[smoosh.odd]\npriority = age\nmin_priority = 7\n";
    let expected = Channel {
        min_priority: 7.0,
        max_priority: 7.0,
        ..Channel::with_defaults("odd", TargetKind::View, PriorityKind::Ratio)
    };
    assert_eq!(channel(&import_one("3.5.0", ini), "odd"), expected);
}

#[test]
fn cleanup_channel_exists_if_cleanup_is_on() {
    for (version, value, exists) in [
        ("3.5.0", "true", true),
        ("3.5.0", "false", false),
        ("3.5.0", "no", true),
        ("3.2.2", "true", true),
        ("3.2.2", "false", false),
        ("3.2.2", "yes", false),
    ] {
        let imported = import_one(version, &format!("[smoosh]\ncleanup_index_files = {value}\n"));
        let found = imported.channels.find("index_cleanup").is_some();
        assert_eq!(found, exists, "{version} {value}");
    }
}

#[test]
fn ignored_names_become_exact_patterns() {
    let name = "shards/00000000-ffffffff/a*b[1].1795222434";
    let imported = import_one("3.5.0", &format!("[smoosh.ignore]\n{name} = true\n"));
    assert!(imported.channels.ignore.matches(name));
    assert!(!imported.channels.ignore.matches("shards/00000000-ffffffff/axb1.1795222434"));
}

#[test]
fn channel_taken_over_keeps_its_earlier_concurrency() {
    let ini = "[smoosh.ratio_dbs]
concurrency = 0
[smoosh.slack_dbs]
concurrency = 0
[smoosh.ratio_views]
concurrency = 0
[recliner]
smoosh.ratio_dbs.concurrency = {\"was\": \"4\", \"at\": 1795222434}
smoosh.slack_dbs.concurrency = {\"was\": null, \"at\": 1795222434}
";
    let imported = import_one("3.5.0", ini);
    let concurrency = |name| channel(&imported, name).concurrency;
    assert_eq!(concurrency("ratio_dbs"), 4, "the value noted by the takeover");
    assert_eq!(concurrency("slack_dbs"), 1, "the default, because the key was absent");
    assert_eq!(concurrency("ratio_views"), 0, "not taken over, so 0 stays");
    let findings = translation_findings("3.5.0", ini);
    for line in [
        "note: [smoosh.ratio_dbs] concurrency: is 0 because a recliner has taken the channel over; its earlier value \"4\" is used here",
        "note: [smoosh.slack_dbs] concurrency: is 0 because a recliner has taken the channel over; the key was not set before the takeover, so its default is used here",
    ] {
        assert!(findings.iter().any(|finding| finding == line), "{findings:#?}");
    }
}
