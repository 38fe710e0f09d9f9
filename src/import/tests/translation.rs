//! Tests of the findings that the import adds to those about the settings themselves.

use super::*;

#[track_caller]
fn assert_findings(version: &str, ini: &str, expected: &[&str]) {
    assert_eq!(translation_findings(version, ini), expected, "{version} {ini:?}");
}

#[test]
fn importing_default_settings_adds_no_findings() {
    for version in ["3.1.2", "3.2.2", "3.3.3", "3.5.0"] {
        let settings = read_smoosh(&node("n", version, "")).findings.len();
        assert_eq!(import_one(version, "").findings.len(), settings, "{version}");
    }
}

#[test]
fn broken_channel_that_some_databases_skip_is_an_error() {
    assert_findings(
        "3.5.0",
        "[smoosh.slack_dbs]\nmin_changes = 5\nmin_size = x\n",
        &[
            "impossible: [smoosh.slack_dbs] min_size: despite the wrong value, databases with fewer than 5 changes are passed on to upgrade_dbs; no recliner channel can express this: correct the setting",
        ],
    );
    assert_findings("3.5.0", "[smoosh.slack_dbs]\nmin_size = x\n", &[]);
    assert_findings("3.5.0", "[smoosh.upgrade_dbs]\nmin_changes = 5\nmin_size = x\n", &[]);
}

#[test]
fn channel_that_never_starts_gets_concurrency_0() {
    for ini in ["concurrency = -1", "capacity = 0", "from = 24:00\nto = 24:01"] {
        assert_findings(
            "3.5.0",
            &format!("[smoosh.upgrade_dbs]\n{ini}\n"),
            &[
                "note: [smoosh.upgrade_dbs]: is written with concurrency 0, because smoosh never starts a job of it",
            ],
        );
    }
}

#[test]
fn reports_settings_without_counterpart() {
    assert_findings(
        "3.5.0",
        "[smoosh]\npersist=true\nwait_secs=5\nstaleness=1\ncompaction_log_level=info\nstate_dir=.\nbogus=1\n",
        &[
            "note: [smoosh] compaction_log_level: has no counterpart: set --log.level",
            "note: [smoosh] persist: has no counterpart: recliner always keeps its state",
            "note: [smoosh] staleness: has no counterpart: smoosh scores on writes, recliner at every scan.interval",
            "note: [smoosh] wait_secs: has no counterpart: it is how long smoosh waits after CouchDB starts",
        ],
    );
    assert_findings("3.2.2", "[smoosh]\nwait_secs = x\npersist=true\n", &[]);
    assert!(!import_one("3.2.2", "[smoosh]\nwait_secs = x\n").is_equal());
}

#[test]
fn reports_how_windows_differ_from_smoosh() {
    assert_findings(
        "3.5.0",
        "[smoosh.upgrade_dbs]\nfrom = 20:00\nto = 06:00\nstrict_window = true\n",
        &[
            "warning: [smoosh.upgrade_dbs] strict_window: smoosh suspends running jobs when the window closes; that is not possible over HTTP, so recliner does not start what would not end inside the window: the same targets are queued, but one that needs more than a whole window never starts",
            "note: [smoosh.upgrade_dbs] from: the window is in UTC; smoosh also starts jobs for up to a minute after CouchDB starts, and waits for the next write when a window opens; recliner does neither",
        ],
    );
    assert_findings("3.5.0", "[smoosh.upgrade_dbs]\nstrict_window = true\n", &[]);
}

#[test]
fn invalid_channel_names_are_replaced() {
    assert_findings(
        "3.5.0",
        "[smoosh]\nview_channels = ratio_dbs\n",
        &[
            "impossible: [smoosh] view_channels: ratio_dbs is listed for more than one kind; in smoosh these share a queue and concurrency, but recliner's channel for the view part, ratio_dbs_views, has its own: use two names in CouchDB",
        ],
    );
    let imported = import_one("3.5.0", "[smoosh]\nview_channels = ratio_dbs\n");
    assert_eq!(channel_names(&imported.channels)[3..5], ["ratio_dbs_views", "ratio_views"]);
    assert_findings(
        "3.5.0",
        "[smoosh]\nview_channels = ,x\n",
        &["note: [smoosh]: the view channel without a name becomes unnamed_views"],
    );
    let ini = "[smoosh]\ndb_channels = Ratio dbs, ratio-dbs\n";
    let note = |name: &str, becomes: &str| {
        format!(
            "note: [smoosh]: \"{name}\" is not a valid channel name in recliner: it becomes {becomes}"
        )
    };
    let notes = [note("Ratio dbs", "ratio_dbs_dbs"), note("ratio-dbs", "ratio_dbs_2_dbs")];
    assert_findings("3.5.0", ini, &[&*notes[0], &*notes[1]]);
    assert_eq!(
        channel_names(&import_one("3.5.0", ini).channels)[..3],
        ["ratio_dbs_dbs", "ratio_dbs_2_dbs", "ratio_dbs"]
    );
}

#[test]
fn channel_that_takes_nothing_is_left_out() {
    for bounds in ["max_size = 0", "min_priority = 0\nmax_priority = -1"] {
        let ini = format!("[smoosh.ratio_dbs]\n{bounds}\n");
        assert_findings(
            "3.5.0",
            &ini,
            &["note: [smoosh.ratio_dbs]: takes nothing, so no channel is written"],
        );
        assert_eq!(channel_names(&import_one("3.5.0", &ini).channels)[0], "slack_dbs");
    }
    let imported = import_one("3.5.0", "[smoosh.ratio_dbs]\nmax_priority = 1\n");
    assert_eq!(channel(&imported, "ratio_dbs").max_priority, 2.0);
}

#[test]
fn reports_channels_for_files_without_live_bytes() {
    let note = "note: [smoosh.a_dbs]: takes only files without live bytes, so it is written with equal min_priority and max_priority";
    let ini = "[smoosh]\ndb_channels = a_dbs\n[smoosh.a_dbs]\npriority=foo\nmin_priority=3\n";
    assert_findings("3.5.0", ini, &[note]);
    assert_findings(
        "3.5.0",
        "[smoosh.upgrade_views]\nmin_priority = infinity\n",
        &[
            "impossible: [smoosh.upgrade_views] min_priority: CouchDB drops files without live bytes here; recliner leaves them to later channels: remove the key",
        ],
    );
}

#[test]
fn reports_databases_of_which_only_some_shards_are_ignored() {
    assert_findings(
        "3.5.0",
        "[smoosh.ignore]\nshards/00000000-7fffffff/db.1 = true\nshards/00000000-ffffffff/all.1 = true\n_dbs=true\n",
        &[
            "warning: [smoosh.ignore]: only some shards of db.1 are named: recliner does not compact those shards, but HTTP compacts all copies of a view at once, including those on these shards",
        ],
    );
}

#[test]
fn version_without_smoosh_is_an_error() {
    let imported = import_smoosh(&[node("n", "2.3.1", ""), node("m", "3.5.0", "")]).unwrap();
    assert_eq!(
        finding_texts(&imported.findings)[0],
        "impossible: [smoosh]: CouchDB 2.3.1 has no smoosh, which came with 3.0"
    );
}
