//! Tests of the findings about one node's settings, except those that default settings cause too.

use super::*;

/// The findings about these settings, except those that default settings cause too.
fn new_findings(version: &str, ini: &str) -> Vec<String> {
    let silent = read_smoosh(&node(version, "")).findings;
    let mut findings = read_smoosh(&node(version, ini)).findings;
    findings.retain(|finding| !silent.contains(finding));
    finding_texts(&findings)
}

#[track_caller]
fn assert_findings(version: &str, ini: &str, expected: &[&str]) {
    assert_eq!(new_findings(version, ini), expected, "{version} {ini:?}");
}

#[test]
fn invalid_number_disables_its_channel_and_later_ones() {
    assert_findings(
        "3.5.0",
        "[smoosh]\ndb_channels = zz, big\n[smoosh.big]\nconcurrency = 0\nmin_size = 1e9\n",
        &[
            "warning: [smoosh] db_channels: since CouchDB 3.3 this list adds to the built-in channels, which stay (upgrade_dbs, ratio_dbs, slack_dbs), and channels are tried by name: big, ratio_dbs, slack_dbs, upgrade_dbs, zz",
            "warning: [smoosh.big] min_size: \"1e9\" is not a valid number for smoosh, which reads 2.5, 7, 1.0e9 (not 1e9) or infinity: it fails on every db that reaches this channel, so the channel takes nothing, and neither do those tried after it: ratio_dbs, slack_dbs, upgrade_dbs, zz",
            "note: [smoosh]: min_priority is missing in ratio_views: CouchDB 3.5.0 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh]: min_priority is missing in slack_views: CouchDB 3.5.0 uses more than 512 MiB, although its configuration reference says at least 16 MB",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.slack_dbs]\nmin_changes = 5\nmin_size = x\n",
        &[
            "warning: [smoosh.slack_dbs] min_size: \"x\" is not a valid number for smoosh, which reads 2.5, 7, 1.0e9 (not 1e9) or infinity: it fails on every db that reaches this channel, so the channel takes nothing, and neither do those tried after it: upgrade_dbs",
            "note: [smoosh]: min_priority is missing in slack_views: CouchDB 3.5.0 uses more than 512 MiB, although its configuration reference says at least 16 MB",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.upgrade_dbs]\nmin_changes = 5.5\n",
        &[
            "warning: [smoosh.upgrade_dbs] min_changes: \"5.5\" is not a valid integer for smoosh, which reads 7: it fails on every db that reaches this channel, so the channel takes nothing",
        ],
    );
}

#[test]
fn non_breaking_space_is_part_of_the_value() {
    assert_findings(
        "3.5.0",
        "[smoosh.upgrade_dbs]\nmin_priority =\u{a0} 1.3\n",
        &[
            "warning: [smoosh.upgrade_dbs] min_priority: \"\\u{a0} 1.3\" is not a valid number for smoosh, which reads 2.5, 7, 1.0e9 (not 1e9) or infinity: it fails on every db that reaches this channel, so the channel takes nothing",
        ],
    );
}

#[test]
fn channel_that_never_starts_still_takes_targets() {
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_dbs]\nconcurrency = 0\n",
        &[
            "warning: [smoosh.ratio_dbs]: takes targets but never starts one, because its concurrency is below 1, and slack_dbs, upgrade_dbs never see them",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.upgrade_dbs]\nconcurrency = -1\n",
        &[
            "warning: [smoosh.upgrade_dbs]: takes targets but never starts one, because its concurrency is below 1",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_dbs]\nfrom = 24:00\nto = 24:01\nstrict_window = true\n",
        &[
            "warning: [smoosh.ratio_dbs]: takes targets but never starts one, because its window never opens, and slack_dbs, upgrade_dbs never see them",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_views]\ncapacity = 0\n",
        &[
            "warning: [smoosh.ratio_views]: takes targets but never starts one, because its capacity makes it crash, and slack_views, upgrade_views never see them",
            "warning: [smoosh.ratio_views] capacity: \"0\" is not an integer above 0: smoosh's channel crashes at every target",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.slack_views]\nconcurrency=x\n",
        &[
            "warning: [smoosh.slack_views]: takes targets but never starts one, because its concurrency makes it crash, and upgrade_views never see them",
            "warning: [smoosh.slack_views] concurrency: \"x\" is not an integer: smoosh's channel crashes at every target",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_dbs]\nmin_priority = infinity\n",
        &[
            "warning: [smoosh.ratio_dbs]: takes files without live bytes but never starts one, because its min_priority is infinity, which fails on every target that it takes, and slack_dbs, upgrade_dbs never see them",
            "note: [smoosh]: min_priority is missing in ratio_views: CouchDB 3.5.0 uses more than 2, although its configuration reference says at least 5.0",
        ],
    );
}

#[test]
fn reports_settings_without_effect() {
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_dbs]\npriority = slack\nfoo = 1\n[smoosh.nobody]\na=1\n",
        &[
            "warning: [smoosh.nobody]: does nothing: no list of channels in [smoosh] contains this one",
            "warning: [smoosh.ratio_dbs] foo: does nothing: smoosh reads no such key",
            "warning: [smoosh.ratio_dbs] priority: \"slack\" does nothing: the priority of the built-in channel ratio_dbs is ratio",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_views]\nmin_changes = 5\n[smoosh.index_cleanup]\nmin_size = 1\ncapacity = 5\n",
        &[
            "warning: [smoosh.index_cleanup] min_size: does nothing: smoosh reads no such key",
            "warning: [smoosh.ratio_views] min_changes: does nothing: smoosh counts changes only of databases",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\npersist=true\nwait_secs=5\nstaleness=1\ncompaction_log_level=info\nstate_dir=.\nbogus=1\n",
        &["warning: [smoosh] bogus: does nothing: smoosh reads no such key"],
    );
    assert_findings(
        "3.2.2",
        "[smoosh]\nwait_secs = x\nschema_channels = a\npersist=true\n",
        &[
            "error: [smoosh] wait_secs: is not a number of seconds: smoosh's channels crash when they start, and nothing is compacted",
            "warning: [smoosh] persist: does nothing: smoosh reads no such key",
            "note: [smoosh] schema_channels: does nothing in CouchDB",
        ],
    );
    assert_findings(
        "3.2.2",
        "[smoosh.ratio_dbs]\nmin_size  = 7\n",
        &[
            "warning: [smoosh.ratio_dbs] min_size : does nothing: CouchDB keeps the spaces around the key as part of the key",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.upgrade_dbs]\nstrict_window = true\n",
        &[
            "note: [smoosh.upgrade_dbs] strict_window: does nothing in a channel that is always open",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.upgrade_dbs]\nfrom = 8pm\nto = x\nstrict_window = yes\n",
        &[
            "warning: [smoosh.upgrade_dbs] from: \"8pm\" is not a time in the form HH:MM, so 00:00 applies",
            "warning: [smoosh.upgrade_dbs] strict_window: \"yes\" is not exactly \"true\" and does nothing",
            "warning: [smoosh.upgrade_dbs] to: \"x\" is not a time in the form HH:MM, so 24:00 applies",
        ],
    );
}

#[test]
fn reports_settings_of_other_sections_and_versions() {
    assert_findings(
        "3.5.0",
        "[smoosh]\nmin_file_size = 131072\nmin_size = 7\n[Smoosh.ratio_dbs]\nmin_priority = 3.0\n\
         [smoosh.upgrade_dbs]\ndb_channels = a\nmin_file_size = 1\n[SMOOSH]\na=b\n[smooshy]\na=b\n",
        &[
            "warning: [SMOOSH]: does nothing: names of sections are case-sensitive: write [smoosh]",
            "warning: [Smoosh.ratio_dbs]: does nothing: names of sections are case-sensitive: write [smoosh.ratio_dbs]",
            "warning: [smoosh] min_file_size: does nothing: it is a setting of CouchDB 2; smoosh has min_size in each channel's section",
            "warning: [smoosh] min_size: does nothing here: smoosh reads it in the section of a channel, such as [smoosh.ratio_dbs]",
            "warning: [smoosh.upgrade_dbs] db_channels: does nothing here: smoosh reads it in [smoosh]",
            "warning: [smoosh.upgrade_dbs] min_file_size: does nothing: it is a setting of CouchDB 2; smoosh has min_size in each channel's section",
        ],
    );
    let rule =
        |more: &str| format!("[compactions]\n_default = [{{db_fragmentation, \"70%\"}}{more}]\n");
    let (always, nightly) = (rule(""), rule(", {from, \"23:00\"}, {to, \"04:00\"}"));
    let nothing = "warning: [compactions]: does nothing: CouchDB 3.5.0 has smoosh instead of the compaction daemon and never reads these rules";
    let window = ", not even for their windows (23:00 to 04:00): each smoosh channel has from and to, in UTC";
    assert_findings("3.5.0", &always, &[nothing]);
    assert_findings("3.5.0", &nightly, &[&format!("{nothing}{window}")]);
    assert_findings("2.3.1", &nightly, &[]);
    let daemon = |version, ini: &str| finding_texts(&read_daemon(&node(version, ini)).findings);
    assert_eq!(daemon("3.5.0", &nightly), [format!("{nothing}{window}")]);
    assert_eq!(
        daemon("2.3.1", &format!("{nightly}[smoosh.ratio_dbs]\nmin_priority = 3.0\n")),
        [
            "warning: [smoosh.ratio_dbs]: does nothing: CouchDB 2.3.1 has no smoosh, which came with 3.0"
        ]
    );
    assert_eq!(daemon("", &nightly), [""; 0]);
}

#[test]
fn meaning_of_channel_lists_depends_on_version() {
    assert_findings(
        "3.5.0",
        "[smoosh]\ndb_channels = upgrade_dbs,ratio_dbs,slack_dbs\n",
        &[
            "note: [smoosh] db_channels: the order written here is ignored; channels are tried by name: ratio_dbs, slack_dbs, upgrade_dbs",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\ndb_channels = ,\n",
        &[
            "warning: [smoosh] db_channels: since CouchDB 3.3 this list adds to the built-in channels, which stay (upgrade_dbs, ratio_dbs, slack_dbs), and channels are tried by name: ratio_dbs, slack_dbs, upgrade_dbs",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\ndb_channels = zz_dbs\n[smoosh.zz_dbs]\npriority = upgrade\n",
        &[
            "warning: [smoosh] db_channels: since CouchDB 3.3 this list adds to the built-in channels, which stay (upgrade_dbs, ratio_dbs, slack_dbs), and channels are tried by name: ratio_dbs, slack_dbs, upgrade_dbs, zz_dbs",
            "note: [smoosh.zz_dbs]: matches nothing on CouchDB 3: older file formats read as the newest once opened",
        ],
    );
    assert_findings(
        "3.2.2",
        "[smoosh]\ndb_channels = zz_dbs\n[smoosh.zz_dbs]\npriority = upgrade\n",
        &[
            "note: [smoosh]: min_priority is missing in ratio_views: CouchDB 3.2.2 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh]: min_priority is missing in slack_views: CouchDB 3.2.2 uses more than 512 MiB, although its configuration reference says at least 16 MB",
            "note: [smoosh.zz_dbs]: matches nothing on CouchDB 3: older file formats read as the newest once opened",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\nview_channels = ratio_dbs\n",
        &[
            "warning: [smoosh] view_channels: since CouchDB 3.3 this list adds to the built-in channels, which stay (upgrade_views, ratio_views, slack_views), and channels are tried by name: ratio_dbs, ratio_views, slack_views, upgrade_views",
            "warning: [smoosh.ratio_views]: takes nothing: ratio_dbs is tried first and takes all of the same targets",
            "note: [smoosh]: min_priority is missing in ratio_dbs, ratio_dbs, ratio_views: CouchDB 3.5.0 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh.slack_views]: gets only what ratio_dbs before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\nview_channels = ,x\n",
        &[
            "warning: [smoosh]: an empty name in the list of view channels creates a ratio channel without a name",
            "warning: [smoosh] view_channels: since CouchDB 3.3 this list adds to the built-in channels, which stay (upgrade_views, ratio_views, slack_views), and channels are tried by name: , ratio_views, slack_views, upgrade_views, x",
            "warning: [smoosh.ratio_views]: takes nothing: the channel without a name is tried first and takes all of the same targets",
            "warning: [smoosh.x]: takes nothing: the channel without a name is tried first and takes all of the same targets",
            "note: [smoosh]: min_priority is missing in ratio_dbs, the channel without a name, ratio_views, x: CouchDB 3.5.0 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh.slack_views]: gets only what the channel without a name before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
        ],
    );
}

#[test]
fn cleanup_is_on_by_default_since_3_3() {
    assert_findings(
        "3.5.0",
        "[smoosh]\ncleanup_channels = a_cleanup\n",
        &[
            "warning: [smoosh] cleanup_channels: since CouchDB 3.3 this list adds to the built-in channels, which stay (index_cleanup), and channels are tried by name: a_cleanup, index_cleanup",
            "warning: [smoosh.index_cleanup]: takes nothing: a_cleanup is tried first and takes all of the same targets",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\ncleanup_index_files = no\n",
        &[
            "warning: [smoosh] cleanup_index_files: \"no\" is neither \"true\" nor \"false\" and counts as the default, which is on",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\ncleanup_index_files = false\n",
        &["note: [smoosh] cleanup_index_files: is off, so there is no cleanup channel"],
    );
    assert_findings(
        "3.2.2",
        "[smoosh]\ncleanup_index_files = true\n",
        &[
            "note: [smoosh] cleanup_index_files: up to 3.2 smoosh cleans up each time it compacts a view",
        ],
    );
}

#[test]
fn reports_channels_that_take_nothing() {
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_dbs]\nmin_size = 10000000\nmax_size = 10000000\n",
        &[
            "warning: [smoosh.ratio_dbs]: takes nothing: no file is both larger than min_size, 9.5 MiB, and no larger than max_size, 9.5 MiB",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_dbs]\nmin_size = infinity\n",
        &["warning: [smoosh.ratio_dbs]: takes nothing: its min_size is larger than any file"],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_dbs]\nmax_priority = 1.5\n",
        &[
            "warning: [smoosh.ratio_dbs]: takes only files without live bytes: no priority is both more than min_priority, 2, and no more than max_priority, 1.5",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_dbs]\nmin_priority = 0\nmax_priority = 0\n",
        &[
            "warning: [smoosh.ratio_dbs]: takes nothing: no priority is both more than min_priority, 0, and no more than max_priority, 0",
            "note: [smoosh]: min_priority is missing in ratio_views: CouchDB 3.5.0 uses more than 2, although its configuration reference says at least 5.0",
        ],
    );
    assert_findings(
        "3.2.2",
        "[smoosh.ratio_dbs]\nmin_priority = infinity\n",
        &[
            "warning: [smoosh.ratio_dbs]: takes only files without live bytes: its min_priority is infinity",
            "note: [smoosh]: min_priority is missing in ratio_views: CouchDB 3.2.2 uses more than 2, although its configuration reference says at least 5.0",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.slack_views]\nmin_priority=1000000000\nmax_size=900000000\n",
        &[
            "warning: [smoosh.slack_views]: takes only files without live bytes: a file of at most max_size, 858.3 MiB, has no slack of more than min_priority, 953.7 MiB",
            "note: [smoosh]: min_priority is missing in slack_dbs: CouchDB 3.5.0 uses more than 512 MiB, although its configuration reference says at least 16 MB",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\ndb_channels = a_dbs\n[smoosh.a_dbs]\npriority=foo\nmin_priority=3\n",
        &[
            "warning: [smoosh] db_channels: since CouchDB 3.3 this list adds to the built-in channels, which stay (upgrade_dbs, ratio_dbs, slack_dbs), and channels are tried by name: a_dbs, ratio_dbs, slack_dbs, upgrade_dbs",
            "warning: [smoosh.a_dbs] priority: \"foo\" is not ratio, slack or upgrade: the channel takes only files without live bytes",
        ],
    );
    assert_findings(
        "3.5.0",
        "[view_upgrade]\ncompact_on_collator_upgrade = false\n",
        &[
            "warning: [smoosh.upgrade_views]: takes nothing: ratio_views is tried first and takes all of the same targets",
            "note: [smoosh.upgrade_views]: takes only files without live bytes, since [view_upgrade] compact_on_collator_upgrade is false",
        ],
    );
}

#[test]
fn reports_channels_shadowed_by_earlier_ones() {
    assert_findings(
        "3.5.0",
        "[smoosh.slack_dbs]\nmax_size = 600000000\n",
        &[
            "warning: [smoosh.slack_dbs]: takes nothing: ratio_dbs is tried first and takes all of the same targets",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\ndb_channels = a_dbs\n[smoosh.a_dbs]\npriority=slack\nmin_priority=500000\n",
        &[
            "warning: [smoosh] db_channels: since CouchDB 3.3 this list adds to the built-in channels, which stay (upgrade_dbs, ratio_dbs, slack_dbs), and channels are tried by name: a_dbs, ratio_dbs, slack_dbs, upgrade_dbs",
            "warning: [smoosh.ratio_dbs]: takes nothing: a_dbs is tried first and takes all of the same targets",
            "warning: [smoosh.slack_dbs]: takes nothing: a_dbs is tried first and takes all of the same targets",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh]\ndb_channels = a_dbs\n[smoosh.a_dbs]\nmin_size=20000000\n",
        &[
            "warning: [smoosh] db_channels: since CouchDB 3.3 this list adds to the built-in channels, which stay (upgrade_dbs, ratio_dbs, slack_dbs), and channels are tried by name: a_dbs, ratio_dbs, slack_dbs, upgrade_dbs",
            "note: [smoosh]: min_priority is missing in a_dbs, ratio_dbs, ratio_views: CouchDB 3.5.0 uses more than 2, although its configuration reference says at least 5.0",
        ],
    );
    assert_findings(
        "3.5.0",
        "[smoosh.ratio_dbs]\nmin_priority = 4\n",
        &[
            "note: [smoosh]: min_priority is missing in ratio_views: CouchDB 3.5.0 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh.slack_dbs]: gets only what ratio_dbs before it does not take: ratios of at most 4, which with this much slack means files of 682.7 MiB or more",
        ],
    );
}

#[test]
fn reports_misleading_lines_of_ini_files() {
    assert_findings(
        "3.4.0",
        "[smoosh.ratio_dbs]\nmin_size =\nfoo\n[smoosh.x\n",
        &[
            "warning: [smoosh.ratio_dbs]: local.ini:2: gives min_size an empty value, which this version ignores: an earlier file's value stays",
            "warning: [smoosh.ratio_dbs]: local.ini:3: is not a setting: write key = value",
            "warning: [smoosh.ratio_dbs]: local.ini:4: starts with [ but is not a section: write [name] with nothing after it; the lines below it still belong to [smoosh.ratio_dbs]",
        ],
    );
}

#[test]
fn reports_ignored_names_that_are_not_shard_files() {
    assert_findings(
        "3.5.0",
        "[smoosh.ignore]\nshards/00000000-7fffffff/db.1 = true\nshards/00000000-ffffffff/all.1 = true\n_dbs=true\nfoo=true\nshards/00000000-7fffffff/x.1 = True\nshards/00000000-7fffffff/y.1.couch = true\n_users = false\n",
        &[
            "warning: [smoosh.ignore] foo: is not the name of a shard file, so it only stops smoosh from cleaning up that database's index files (and from compacting a database that only this node has): write shards/RANGE/db.SUFFIX to ignore a shard",
            "warning: [smoosh.ignore] shards/00000000-7fffffff/x.1: does nothing: a name is ignored only where its value is exactly \"true\"",
            "warning: [smoosh.ignore] shards/00000000-7fffffff/y.1.couch: does nothing: smoosh knows files by their names without .couch",
            "note: [smoosh.ignore] _users: does nothing: a name is ignored only where its value is exactly \"true\"",
        ],
    );
}

#[test]
fn reports_the_defaults_in_effect_if_nothing_is_set() {
    let texts = finding_texts(&read_smoosh(&node("3.5.0", "")).findings);
    assert_eq!(
        texts,
        [
            "note: [smoosh]: min_priority is missing in ratio_dbs, ratio_views: CouchDB 3.5.0 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh]: min_priority is missing in slack_dbs, slack_views: CouchDB 3.5.0 uses more than 512 MiB, although its configuration reference says at least 16 MB",
            "note: [smoosh] cleanup_index_files: is missing and therefore on since CouchDB 3.3, although its documentation says off",
            "note: [smoosh.slack_dbs]: gets only what ratio_dbs before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
            "note: [smoosh.slack_views]: gets only what ratio_views before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
            "note: [smoosh.upgrade_dbs]: matches nothing on CouchDB 3: older file formats read as the newest once opened",
        ]
    );
    let texts = finding_texts(&read_smoosh(&node("3.2.2", "")).findings);
    assert_eq!(
        texts,
        [
            "note: [smoosh]: min_priority is missing in ratio_dbs, ratio_views: CouchDB 3.2.2 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh]: min_priority is missing in slack_dbs, slack_views: CouchDB 3.2.2 uses more than 512 MiB, although its configuration reference says at least 16 MB",
            "note: [smoosh] cleanup_index_files: is off unless exactly \"true\" up to 3.2, so there is no cleanup channel",
            "note: [smoosh.slack_dbs]: gets only what ratio_dbs before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
            "note: [smoosh.slack_views]: gets only what ratio_views before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
            "note: [smoosh.upgrade_dbs]: matches nothing on CouchDB 3: older file formats read as the newest once opened",
        ]
    );
    let texts = finding_texts(&read_smoosh(&node("3.1.2", "")).findings);
    assert_eq!(
        texts,
        [
            "note: [smoosh]: min_priority is missing in ratio_dbs, ratio_views: CouchDB 3.1.2 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh] cleanup_index_files: is off unless exactly \"true\" up to 3.2, so there is no cleanup channel",
            "note: [smoosh.slack_dbs]: gets only what ratio_dbs before it does not take: ratios of at most 2, which with this much slack means files of 32 MiB or more",
            "note: [smoosh.slack_views]: gets only what ratio_views before it does not take: ratios of at most 2, which with this much slack means files of 32 MiB or more",
            "note: [smoosh.upgrade_dbs]: matches nothing on CouchDB 3: older file formats read as the newest once opened",
        ]
    );
    let texts = finding_texts(&read_smoosh(&node("3.0.0", "")).findings);
    assert_eq!(
        texts,
        [
            "note: [smoosh] cleanup_index_files: is off unless exactly \"true\" up to 3.2, so there is no cleanup channel",
            "note: [smoosh.slack_dbs]: gets only what ratio_dbs before it does not take: ratios of at most 5, which with this much slack means files of 20 MiB or more",
            "note: [smoosh.slack_views]: gets only what ratio_views before it does not take: ratios of at most 5, which with this much slack means files of 20 MiB or more",
            "note: [smoosh.upgrade_dbs]: matches nothing on CouchDB 3: older file formats read as the newest once opened",
        ]
    );
    let texts = finding_texts(&read_smoosh(&node("2.3.1", "")).findings);
    assert_eq!(texts, ["error: [smoosh]: CouchDB 2.3.1 has no smoosh, which came with 3.0"]);
    let texts = finding_texts(&read_smoosh(&node("", "")).findings);
    assert_eq!(
        texts,
        [
            "warning: [smoosh]: \"\" is not a CouchDB version, so the rules of 3.5.2 are assumed",
            "note: [smoosh]: min_priority is missing in ratio_dbs, ratio_views: CouchDB 3.5.2 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh]: min_priority is missing in slack_dbs, slack_views: CouchDB 3.5.2 uses more than 512 MiB, although its configuration reference says at least 16 MB",
            "note: [smoosh] cleanup_index_files: is missing and therefore on since CouchDB 3.3, although its documentation says off",
            "note: [smoosh.slack_dbs]: gets only what ratio_dbs before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
            "note: [smoosh.slack_views]: gets only what ratio_views before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
            "note: [smoosh.upgrade_dbs]: matches nothing on CouchDB 3: older file formats read as the newest once opened",
        ]
    );
    let texts = finding_texts(&read_smoosh(&node("3.9.0", "")).findings);
    assert_eq!(
        texts,
        [
            "note: [smoosh]: min_priority is missing in ratio_dbs, ratio_views: CouchDB 3.9.0 uses more than 2, although its configuration reference says at least 5.0",
            "note: [smoosh]: min_priority is missing in slack_dbs, slack_views: CouchDB 3.9.0 uses more than 512 MiB, although its configuration reference says at least 16 MB",
            "note: [smoosh] cleanup_index_files: is missing and therefore on since CouchDB 3.3, although its documentation says off",
            "note: [smoosh.slack_dbs]: gets only what ratio_dbs before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
            "note: [smoosh.slack_views]: gets only what ratio_views before it does not take: ratios of at most 2, which with this much slack means files of 1 GiB or more",
            "note: [smoosh.upgrade_dbs]: matches nothing on CouchDB 3: older file formats read as the newest once opened",
        ]
    );
}
