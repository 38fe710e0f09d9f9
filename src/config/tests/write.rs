//! Tests of writing settings, of the changes at a reload, and of the whole example.

use super::*;
use crate::{
    model::{
        channel::{Channel, Channels, Mode},
        priority::PriorityKind,
        settings::{
            Files, Scan, limits,
            shared::{KeeperSettings, SharedLimits},
            work,
        },
        share::Share,
        target::TargetKind,
        window::{DAY_NAMES, Days, Window, WindowEnd, parse_time, parse_zone},
    },
    text::Label,
    text::pattern::{NameFilter, NamePatterns},
};
use proptest::prelude::*;
use std::time::Duration;

fn full() -> Loaded {
    let text = fs::read_to_string(data().join("full.yml")).unwrap();
    load_text(&Flags::default(), &text).unwrap()
}

#[test]
fn every_setting_of_the_example_is_read() {
    let found = full().settings;
    let couchdb = &found.couchdb;
    assert_eq!(couchdb.urls, ["http://couch-a:5984".parse().unwrap()]);
    assert!(
        couchdb.login
            == couchdb_client::Login::file("admin", "/etc/recliner/couchdb.password").unwrap()
    );
    assert_eq!(couchdb.tls.key_file, Some(PathBuf::from("client.key")));
    assert_eq!(
        couchdb.nodes,
        [("couchdb@b".to_owned(), "http://couch-b:5984".parse().unwrap())].into()
    );
    assert_eq!(found.scan, Scan::default());
    assert_eq!(
        found.files,
        Files {
            data_dir: Some(PathBuf::from("/opt/couchdb/data")),
            view_index_dir: Some(PathBuf::from("/opt/couchdb/data")),
            ..Files::default()
        }
    );
    assert_eq!(found.mode, Mode::Advise);
    assert_eq!(
        found.channels,
        Channels {
            list: vec![Channel {
                max_priority: 100.0,
                min_size: 20 << 30,
                max_size: Some(2 << 40),
                min_changes: 1_000,
                databases: NameFilter::new(&["orders-*"], &["*-test"]).unwrap(),
                designs: NameFilter::new(&[] as &[&str], &["_design/old*"]).unwrap(),
                windows: vec![Window {
                    days: "mon-fri".parse().unwrap(),
                    from: parse_time("20:00", WindowEnd::From).unwrap(),
                    to: parse_time("06:00", WindowEnd::To).unwrap(),
                    zone: parse_zone("Europe/Berlin").unwrap(),
                }],
                strict_window: true,
                ..Channel::with_defaults("big_dbs", TargetKind::Db, PriorityKind::Ratio)
            }],
            ignore: NamePatterns::new(&["shards/00000000-ffffffff/tmp.1795221991", "scratch-*"])
                .unwrap(),
        }
    );
    // The example sets these sections to their defaults, apart from the volumes.
    let volumes = std::mem::take(&mut found.headroom.clone().volumes);
    assert_eq!(volumes.len(), 2);
    assert_eq!(found.limits, limits::Limits::default());
    let member = Share { jobs: 1, bytes_per_hour: 20 << 30 };
    let keeper = KeeperSettings {
        members: [("orders".to_owned(), member)].into(),
        ..KeeperSettings::default()
    };
    let shared = SharedLimits {
        url: Some("http://keeper:10984".parse().unwrap()),
        name: Some("orders".to_owned()),
        keeper: Some(keeper),
    };
    assert_eq!(found.shared_limits, shared);
    assert_eq!(found.headroom, limits::Headroom { volumes, ..limits::Headroom::default() });
    assert_eq!(found.pressure, limits::Pressure::default());
    assert_eq!(found.failure, limits::FailureSettings::default());
    assert_eq!(found.views, work::ViewSettings::default());
    assert_eq!(found.smoosh, work::Smoosh::default());
    assert_eq!(found.follow, work::Follow::default());
    assert_eq!(found.warmer, work::Warmer::default());
    assert_eq!(found.journal, work::JournalRetention::default());
}

#[test]
fn example_reports_the_key_without_effect() {
    let said: Vec<String> = full().findings.iter().map(ToString::to_string).collect();
    let says = "channels[0].designs: has no effect in a channel of kind db and priority ratio";
    assert!(said.len() == 1 && said.iter().all(|said| said.ends_with(says)), "{said:?}");
}

#[test]
fn written_settings_are_read_back_unchanged() {
    let trusts = "couchdb: {trust_node_hosts: ['*.Couchdb.svc.cluster.local', couch-b]}";
    let unpaced = "couchdb: {cold_reads_per_second: off}";
    for found in [full().settings, settings(""), settings(unpaced), settings(trusts)] {
        let text = to_yaml(&found);
        let again =
            load_text(&Flags::default(), &text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        assert_eq!(again.settings, found, "{text}");
    }
}

#[test]
fn written_settings_contain_no_secret() {
    let flags = Flags {
        env_user: Some("admin".to_owned()),
        env_password: Some("hunter2".into()),
        ..flags()
    };
    let loaded = load_text(&flags, "").unwrap();
    let json = to_json(&loaded.settings);
    assert_eq!(json["couchdb"]["password"], "<secret>");
    assert_eq!(json["couchdb"]["username"], "admin");
    for text in [
        json.to_string(),
        to_yaml(&loaded.settings),
        format!("{:?}", loaded.settings),
        format!("{flags:?}"),
    ] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn json_has_the_shape_of_the_file() {
    let json = to_json(&full().settings);
    assert_eq!(json["scan"]["interval"], "5m");
    assert_eq!(json["channels"][0]["max_size"], "2TiB");
    assert_eq!(json["channels"][0]["min_priority"], 2);
    assert_eq!(json["headroom"]["keep_free"], "10%");
    assert_eq!(json["storage"]["path"], "data/");
    assert_eq!(json["web"]["listen_address"], "127.0.0.1:10984");
    assert_eq!(json["log"], serde_json::json!({"level": "info", "format": "logfmt"}));
}

#[test]
fn channels_are_written_without_defaults() {
    let mut channels = full().settings.channels;
    channels.list.push(Channel {
        min_priority: 1_073_741_824.0,
        ..Channel::with_defaults("slack_dbs", TargetKind::Db, PriorityKind::Slack)
    });
    assert_eq!(
        crate::config::write::channels_yaml(&channels),
        "channels:
  - name: big_dbs
    kind: db
    priority: ratio
    max_priority: 100
    min_size: \"20GiB\"
    max_size: \"2TiB\"
    min_changes: 1000
    databases:
      include: [\"orders-*\"]
      exclude: [\"*-test\"]
    designs:
      exclude: [\"_design/old*\"]
    windows:
      - days: [\"mon-fri\"]
        from: \"20:00\"
        to: \"06:00\"
        zone: \"Europe/Berlin\"
    strict_window: true
  - name: slack_dbs
    kind: db
    priority: slack
    min_priority: \"1GiB\"
ignore: [\"shards/00000000-ffffffff/tmp.1795221991\", \"scratch-*\"]
"
    );
}

#[test]
fn changes_name_keys_and_when_they_take_effect() {
    let old = settings("");
    assert_eq!(changes(&old, &old), []);
    let mut new = full().settings;
    new.web.listen_address = "127.0.0.1:1".parse().unwrap();
    new.storage_path = PathBuf::from("elsewhere");
    new.web.admin_socket = None;
    new.poll = Duration::from_secs(9);
    new.couchdb.trust_node_hosts = vec!["couch-b".parse().unwrap()];
    new.log.level = crate::log::LogLevel::Debug;
    let changed: Vec<_> =
        changes(&old, &new).into_iter().map(|change| (change.key, change.when)).collect();
    assert_eq!(
        changed,
        [
            ("couchdb.urls", When::NextSweep),
            ("couchdb.username", When::NextSweep),
            ("couchdb.password_file", When::NextSweep),
            ("couchdb.tls", When::NextSweep),
            ("couchdb.nodes", When::NextSweep),
            ("couchdb.trust_node_hosts", When::NextSweep),
            ("poll", When::Live),
            ("files.data_dir", When::NextSweep),
            ("files.view_index_dir", When::NextSweep),
            ("channels", When::Live),
            ("ignore", When::Live),
            ("shared_limits.url", When::Live),
            ("shared_limits.name", When::Live),
            ("shared_limits.keeper", When::Live),
            ("headroom.volumes", When::Live),
            ("--storage.path", When::Restart),
            ("--web.listen-address", When::Restart),
            ("--web.admin-socket", When::Restart),
            ("--log.level", When::Live),
        ]
    );
}

fn any_pattern() -> impl Strategy<Value = String> {
    // Any characters that a name may contain; those with a meaning in patterns are escaped.
    "\\PC{1,12}|[ -~]{1,12}|[\u{0}-\u{a0}\u{2028}\u{feff}\u{1f600}]{1,4}".prop_map(
        |text: String| {
            text.chars()
                .flat_map(|c| "*?[]{}!\\".contains(c).then_some('\\').into_iter().chain([c]))
                .collect()
        },
    )
}

fn any_names() -> impl Strategy<Value = NameFilter> {
    let list = || prop::collection::vec(any_pattern(), 0..3);
    (list(), list()).prop_map(|(include, exclude)| NameFilter::new(&include, &exclude).unwrap())
}

fn any_window() -> impl Strategy<Value = Window> {
    let zone_name = prop::sample::select(vec!["UTC", "Europe/Berlin", "America/Argentina/Ushuaia"]);
    (1u8..128, 0i8..24, 0i8..60, 0i8..24, zone_name).prop_map(|(bits, hour, minute, to, name)| {
        let days = DAY_NAMES
            .iter()
            .enumerate()
            .filter(|(place, _)| bits & (1 << place) != 0)
            .map(|(_, day)| day.parse().unwrap())
            .fold(Days::NONE, Days::union);
        let time = |hour, minute| jiff::civil::Time::new(hour, minute, 0, 0).unwrap();
        Window { days, from: time(hour, minute), to: time(to, 0), zone: parse_zone(name).unwrap() }
    })
}

prop_compose! {
    fn any_channel()(
        name in "[a-z][a-z0-9_]{0,10}",
        (kind, priority) in prop::sample::select(vec![
            (TargetKind::Db, PriorityKind::Ratio), (TargetKind::Db, PriorityKind::Slack), (TargetKind::Db, PriorityKind::Upgrade),
            (TargetKind::View, PriorityKind::Ratio), (TargetKind::View, PriorityKind::Slack),
            (TargetKind::View, PriorityKind::Upgrade), (TargetKind::Cleanup, PriorityKind::Cleanup),
            (TargetKind::Db, PriorityKind::Rent), (TargetKind::View, PriorityKind::Rent),
        ]),
        horizon in (1_u64..300_000_000).prop_map(Duration::from_secs),
        min_priority in prop_oneof![-1e3..1e3, (0u64..1 << 50).prop_map(|bytes| bytes as f64)],
        above in prop_oneof![Just(f64::INFINITY), 1.0..1e18],
        min_size in prop_oneof![0u64..1 << 50, (0u64..64).prop_map(|gib| gib << 30)],
        size_above in prop::option::of(1u64..1 << 50),
        (min_changes, capacity, concurrency) in (any::<u64>(), 1usize..10_000_000, 0usize..10_000),
        mode in prop::sample::select(Mode::ALL.to_vec()),
        databases in any_names(),
        designs in any_names(),
        windows in prop::collection::vec(any_window(), 0..3),
        strict_window in any::<bool>(),
    ) -> Channel {
        Channel {
            name: name.into(), kind, priority, horizon, min_priority, max_priority: min_priority + above,
            min_size, max_size: size_above.map(|above| min_size + above), min_changes, capacity,
            concurrency, mode, databases, designs, windows, strict_window,
        }
    }
}

proptest! {
    #[test]
    fn written_channels_are_read_back_unchanged(
        mut list in prop::collection::vec(any_channel(), 0..4),
        ignore in prop::collection::vec(any_pattern(), 0..3),
    ) {
        list.sort_by(|left, right| left.name.cmp(&right.name));
        list.dedup_by(|left, right| left.name == right.name);
        let channels = Channels { list, ignore: NamePatterns::new(&ignore).unwrap() };
        let text = crate::config::write::channels_yaml(&channels);
        match load_text(&flags(), &text) {
            Ok(loaded) => prop_assert_eq!(loaded.settings.channels, channels, "{}", text),
            Err(why) => prop_assert!(false, "{why}\n{text}"),
        }
    }
}
