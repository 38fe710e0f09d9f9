//! Tests of the channels in effect.

use super::*;

fn channels(version: &str, ini: &str) -> Vec<SmooshChannel> {
    read_smoosh(&node(version, ini)).channels
}

fn names(version: &str, ini: &str) -> Vec<String> {
    channels(version, ini).into_iter().map(|channel| channel.name).collect()
}

fn channel(version: &str, ini: &str, name: &str) -> SmooshChannel {
    channels(version, ini).into_iter().find(|channel| channel.name == name).unwrap()
}

#[test]
fn channel_order_and_lists_depend_on_couchdb_version() {
    let by_name = [
        "ratio_dbs",
        "slack_dbs",
        "upgrade_dbs",
        "ratio_views",
        "slack_views",
        "upgrade_views",
        "index_cleanup",
    ];
    assert_eq!(names("3.5.0", ""), by_name);
    assert_eq!(
        names("3.2.2", ""),
        ["upgrade_dbs", "ratio_dbs", "slack_dbs", "upgrade_views", "ratio_views", "slack_views"]
    );
    let ini = "[smoosh]\ndb_channels = b, ratio_dbs ,a,,b,,\nview_channels = none\ncleanup_index_files = true\n";
    assert_eq!(names("3.2.2", ini), ["b", "ratio_dbs", "a", "", "none", "index_cleanup"]);
    let old = read_smoosh(&node("2.3.1", ini));
    assert!(!old.runs_smoosh);
    assert_eq!(old.channels, []);
}

#[test]
fn smoosh_defaults_depend_on_couchdb_version() {
    for (version, ratio, slack) in [
        ("3.0.0", 5.0, 16_777_216.0),
        ("3.1.2", 2.0, 16_777_216.0),
        ("3.2.0", 2.0, 536_870_912.0),
        ("3.5.0", 2.0, 536_870_912.0),
    ] {
        let least = |name| channel(version, "", name).min_priority;
        assert_eq!((least("ratio_dbs"), least("slack_views")), (ratio, slack), "{version}");
        let views = channel(version, "", "upgrade_views");
        assert_eq!((views.min_size, views.capacity, views.concurrency), (1_048_576, 9_999, 1));
    }
}

#[test]
fn reads_every_setting_of_a_channel() {
    let ini = "[smoosh]\ndb_channels = big_dbs\n[smoosh.big_dbs]\npriority = slack\nmin_priority = 1.5e9\n\
         max_priority = 9000000000\nmin_size = 20000000000\nmax_size = 2000000000000\nmin_changes = 1000\n\
         capacity = 99\nconcurrency = 2\nfrom = 20:00\nto = 6:30\nstrict_window = true\n";
    assert_eq!(
        channel("3.5.0", ini, "big_dbs"),
        SmooshChannel {
            name: "big_dbs".to_owned(),
            kind: ChannelKind::Db,
            priority: Some(Priority::Slack),
            min_priority: 1.5e9,
            max_priority: 9e9,
            min_size: 20_000_000_000,
            max_size: Some(2_000_000_000_000),
            min_changes: 1000,
            capacity: 99,
            concurrency: 2,
            opens: Opening::Daily(Window { from: 20 * 60, to: 6 * 60 + 30 }),
            strict_window: true,
            never_starts: None,
            only_empty_files: false,
            drops_empty_files: false,
            has_default_min_priority: false,
        }
    );
}

#[test]
fn unusual_values_have_the_same_effect_as_in_smoosh() {
    const BEYOND: f64 = (1_u64 << 62) as f64;
    for (version, ini, edit) in [
        (
            "3.5.0",
            "min_priority = 0.0",
            (|channel| channel.min_priority = 1e-15) as fn(&mut SmooshChannel),
        ),
        ("3.5.0", "min_priority = 0", |channel| channel.min_priority = 0.0),
        ("3.5.0", "min_size = 1000.5", |channel| channel.min_size = 1000),
        ("3.5.0", "min_size = infinity", |channel| channel.min_size = 1 << 62),
        ("3.5.0", "max_size = -5", |channel| channel.max_size = Some(0)),
        ("3.5.0", "min_changes = -5", |_| ()),
        ("3.5.0", "concurrency = 0", |channel| {
            channel.concurrency = 0;
            channel.never_starts = Some(NeverStarts::Concurrency);
        }),
        ("3.5.0", "capacity = 0\nconcurrency = 5", |channel| {
            channel.concurrency = 0;
            channel.never_starts = Some(NeverStarts::Capacity);
        }),
        ("3.5.0", "from = 24:00\nto = 24:01", |channel| {
            channel.concurrency = 0;
            channel.opens = Opening::Never;
            channel.never_starts = Some(NeverStarts::Window);
        }),
        ("3.5.0", "from = noon\nto = later", |_| ()),
        ("3.5.0", "strict_window = yes", |_| ()),
        ("3.5.0", "min_priority = infinity", |channel| {
            channel.min_priority = BEYOND;
            channel.concurrency = 0;
            channel.only_empty_files = true;
            channel.never_starts = Some(NeverStarts::InfiniteMinimum);
        }),
        ("3.2.2", "min_priority = infinity", |channel| {
            channel.min_priority = BEYOND;
            channel.only_empty_files = true;
        }),
    ] {
        let mut expected = channel(version, "", "ratio_dbs");
        expected.has_default_min_priority = !ini.starts_with("min_priority");
        edit(&mut expected);
        let read = channel(version, &format!("[smoosh.ratio_dbs]\n{ini}\n"), "ratio_dbs");
        assert_eq!(read, expected, "{ini}");
    }
}

#[test]
fn invalid_number_drops_its_channel_and_later_ones() {
    let ini = "[smoosh.slack_dbs]\nmin_changes = 5\nmax_priority = 1e9\n";
    let settings = read_smoosh(&node("3.5.0", ini));
    let kept: Vec<_> = settings.channels.iter().map(|channel| channel.name.as_str()).collect();
    assert_eq!(kept, ["ratio_dbs", "ratio_views", "slack_views", "upgrade_views", "index_cleanup"]);
    let broken = BrokenChannel {
        name: "slack_dbs".to_owned(),
        kind: ChannelKind::Db,
        key: "max_priority",
        min_changes: 5,
        not_reached: vec!["upgrade_dbs".to_owned()],
    };
    assert_eq!(settings.broken, [broken]);
}

#[test]
fn channel_without_score_takes_only_files_without_live_bytes() {
    let unknown = "[smoosh]\nview_channels = odd\n[smoosh.odd]\npriority = age\nmin_priority = 7\n";
    let odd = channel("3.5.0", unknown, "odd");
    assert_eq!((odd.priority, odd.min_priority, odd.max_priority), (None, 7.0, 7.0));
    assert!(odd.only_empty_files);
    let off = "[view_upgrade]\ncompact_on_collator_upgrade = false\n";
    assert_eq!(channel("3.5.0", off, "upgrade_views").priority, None);
    assert_eq!(channel("3.5.0", off, "upgrade_dbs").priority, Some(Priority::Upgrade));
}

#[test]
fn infinite_minimum_makes_upgrade_channel_drop_empty_files() {
    let ini = "[smoosh.upgrade_views]\nmin_priority = infinity\n";
    let views = channel("3.5.0", ini, "upgrade_views");
    assert!(views.drops_empty_files && !views.only_empty_files);
    assert_eq!((views.min_priority, views.concurrency), (0.0, 1));
    assert!(!channel("3.2.2", ini, "upgrade_views").drops_empty_files);
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
        let ini = format!("[smoosh]\ncleanup_index_files = {value}\n");
        let found = names(version, &ini).contains(&"index_cleanup".to_owned());
        assert_eq!(found, exists, "{version} {value}");
    }
}

#[test]
fn ignored_names_are_shards_or_databases() {
    let shard = "shards/00000000-ffffffff/a*b[1].1795222434";
    let ini = format!("[smoosh.ignore]\n{shard} = true\nother = true\noff = false\n = true\n");
    let ignored = read_smoosh(&node("3.5.0", &ini)).ignored;
    assert_eq!(ignored.files, [shard.to_owned()].into());
    assert_eq!(ignored.cleanups_of, ["other".to_owned()].into());
}

#[test]
fn smoosh_sections_suffice_to_read_the_channels() {
    let ini = "[smoosh]\ndb_channels = big, ratio_dbs\nview_channels =\n\
        [smoosh.big]\nmin_size = 7\n[smoosh.slack_views]\nfrom = 01:00\nto = 02:00\n\
        [smoosh.ignore]\nshards/00000000-ffffffff/db.17 = true\n\
        [view_upgrade]\ncompact_on_collator_upgrade = false\n\
        [chttpd_auth]\nsecret = s\n[smoosh.unlisted]\nmin_size = 9\n";
    for version in ["3.1.0", "3.5.0", ""] {
        let whole = node(version, ini);
        let sections = smoosh_sections(&whole);
        let mut part = whole.clone();
        part.sections.retain(|name, _| sections.contains(name));
        assert!(part.sections.len() == 5, "{:?}", part.sections.keys());
        let (whole, part) = (read_smoosh(&whole), read_smoosh(&part));
        assert_eq!((whole.channels, whole.ignored), (part.channels, part.ignored));
    }
}
