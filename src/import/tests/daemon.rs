//! Tests of importing the compaction daemon's rules.

use super::*;
use crate::{
    model::{
        target::TargetKind,
        window::{Days, Window},
    },
    text::pattern::NameFilter,
};
use jiff::civil;

fn berlin() -> TimeZone {
    TimeZone::get("Europe/Berlin").unwrap()
}

fn import_rules(ini: &str) -> Imported {
    import_daemon(&[node("n", "2.3.1", ini)], &berlin()).unwrap()
}

fn ratio(name: &str, kind: TargetKind, min_priority: f64, min_size: u64) -> Channel {
    let channel = Channel::with_defaults(name, kind, PriorityKind::Ratio);
    Channel { min_priority, min_size, ..channel }
}

/// Beginnings of the general remarks that every import with a channel makes.
const ALWAYS: [&str; 3] = [
    "the daemon never compacts",
    "the daemon requires free space of twice the live bytes",
    "the daemon compacts one database",
];

fn own_findings(imported: &Imported) -> Vec<String> {
    let own = imported
        .findings
        .iter()
        .filter(|finding| !ALWAYS.iter().any(|always| finding.message.starts_with(always)));
    finding_texts(&own.cloned().collect::<Vec<_>>())
}

#[test]
fn rules_become_ratio_channels_as_in_migration_guide() {
    let imported = import_rules(
        "[compaction_daemon]\nmin_file_size = 1000\n[compactions]\n\
         _default = [{db_fragmentation, \"70%\"}, {view_fragmentation, \"60%\"}]\n",
    );
    assert_eq!(
        imported.channels.list,
        [
            ratio("default_dbs", TargetKind::Db, 1.0 / (1.0 - 0.7), 999),
            ratio("default_views", TargetKind::View, 2.5, 999),
        ]
    );
    assert!(imported.is_equal());
    assert_eq!(imported.per_node, 1);
    assert_eq!(
        finding_texts(&imported.findings),
        [
            "warning: [compactions]: the daemon never compacts a file without live bytes, and always compacts one whose live bytes are unknown; recliner gives the first kind the lowest priority, and never compacts the second",
            "note: [compaction_daemon] min_file_size: the daemon includes files of exactly this size, but min_size does not, so it is one byte less",
            "note: [compactions]: the daemon compacts one database of a node at a time, its views after it: set limits.per_node to 1 to match that",
            "note: [compactions]: the daemon requires free space of twice the live bytes on the volume; recliner's headroom does the same with its own factor",
            "note: [compactions] _default: db_fragmentation 70% becomes min_priority 3.3333, above which the channel compacts; the daemon rounds, so it compacts from 69.5% on, a ratio of 3.2787",
            "note: [compactions] _default: view_fragmentation 60% becomes min_priority 2.5000, above which the channel compacts; the daemon rounds, so it compacts from 59.5% on, a ratio of 2.4691",
        ]
    );
}

#[test]
fn default_channel_excludes_databases_with_own_rules() {
    let imported = import_rules(
        "[compactions]\n\
         _default = [{db_fragmentation, \"50%\"}, {view_fragmentation, \"50%\"}, \
         {from, \"20:00\"}, {to, \"06:00\"}, {strict_window, true}]\n\
         my/db = [{db_fragmentation, \"150%\"}, {view_fragmentation, \"50%\"}, {parallel_view_compaction, true}]\n\
         my_db = [{db_fragmentation, \"75%\"}, {view_fragmentation, \"50%\"}]\n",
    );
    let night = vec![Window {
        days: Days::ALL,
        from: civil::time(20, 0, 0, 0),
        to: civil::time(6, 0, 0, 0),
        zone: berlin(),
    }];
    let only = |name: &str| NameFilter::new(&[name], &[]).unwrap();
    let rest = NameFilter::new(&[], &["my/db", "my_db"]).unwrap();
    let default = |channel: Channel| Channel {
        databases: rest.clone(),
        windows: night.clone(),
        strict_window: true,
        ..channel
    };
    assert_eq!(
        imported.channels.list,
        [
            Channel {
                databases: only("my_db"),
                ..ratio("my_db_dbs", TargetKind::Db, 4.0, 131_071)
            },
            default(ratio("default_dbs", TargetKind::Db, 2.0, 131_071)),
            Channel {
                databases: only("my/db"),
                ..ratio("my_db_views", TargetKind::View, 2.0, 131_071)
            },
            Channel {
                databases: only("my_db"),
                ..ratio("my_db_2_views", TargetKind::View, 2.0, 131_071)
            },
            default(ratio("default_views", TargetKind::View, 2.0, 131_071)),
        ]
    );
    assert_eq!(imported.per_node, 2);
    assert_eq!(
        own_findings(&imported),
        [
            "warning: [compactions] _default: strict_window made the daemon cancel running compactions when the window closed; that is not possible over HTTP, so recliner does not start what would not end inside the window",
            "note: [compactions] _default: db_fragmentation 50% becomes min_priority 2.0000, above which the channel compacts; the daemon rounds, so it compacts from 49.5% on, a ratio of 1.9802",
            "note: [compactions] _default: view_fragmentation 50% becomes min_priority 2.0000, above which the channel compacts; the daemon rounds, so it compacts from 49.5% on, a ratio of 1.9802",
            "note: [compactions] my/db: db_fragmentation 150% is never reached, so no channel takes these dbs",
            "note: [compactions] my/db: view_fragmentation 50% becomes min_priority 2.0000, above which the channel compacts; the daemon rounds, so it compacts from 49.5% on, a ratio of 1.9802",
            "note: [compactions] my_db: db_fragmentation 75% becomes min_priority 4.0000, above which the channel compacts; the daemon rounds, so it compacts from 74.5% on, a ratio of 3.9216",
            "note: [compactions] my_db: view_fragmentation 50% becomes min_priority 2.0000, above which the channel compacts; the daemon rounds, so it compacts from 49.5% on, a ratio of 1.9802",
        ]
    );
}

#[test]
fn unreadable_rules_are_reported_and_left_out() {
    let imported = import_rules(
        "[compactions]\n_default = [{db_fragmentation, \"50%\"}, {view_fragmentation, \"50%\"}]\n\
         a = [{from, \"20:00\"}]\nb = {db}\nc = [{db_fragmentation, 50}]\n\
         d = [{db_fragmentation, \"50.5%\"}]\ne = [{strict_window, \"true\"}]\n\
         f = [{db_fragmentation, \"50%\"}\ng = [{colour, \"red\"}]\n\
         h = [db_fragmentation]\ni = [{to, \"6\"}]\n",
    );
    let names: Vec<_> =
        imported.channels.list.iter().map(|channel| channel.databases.clone()).collect();
    assert_eq!(names, [NameFilter::default(), NameFilter::default()]);
    assert_eq!(
        own_findings(&imported),
        [
            "warning: [compactions] a: is ignored by the daemon, which cannot read it: from and to must be given together",
            "warning: [compactions] b: is ignored by the daemon, which cannot read it: it is not a list",
            "warning: [compactions] c: is ignored by the daemon, which cannot read it: db_fragmentation must be a whole percentage, such as \"70%\"",
            "warning: [compactions] d: is ignored by the daemon, which cannot read it: db_fragmentation must be a whole percentage, such as \"70%\"",
            "warning: [compactions] e: is ignored by the daemon, which cannot read it: strict_window must be true or false, without quotes",
            "warning: [compactions] f: is ignored by the daemon, which cannot read it: letter 27: a comma or ] is missing",
            "warning: [compactions] g: is ignored by the daemon, which cannot read it: colour is not one of its parameters",
            "warning: [compactions] h: is ignored by the daemon, which cannot read it: it contains something other than pairs",
            "warning: [compactions] i: is ignored by the daemon, which cannot read it: to must be a time such as \"20:00\"",
            "note: [compactions] _default: db_fragmentation 50% becomes min_priority 2.0000, above which the channel compacts; the daemon rounds, so it compacts from 49.5% on, a ratio of 1.9802",
            "note: [compactions] _default: view_fragmentation 50% becomes min_priority 2.0000, above which the channel compacts; the daemon rounds, so it compacts from 49.5% on, a ratio of 1.9802",
        ]
    );
}

#[test]
fn rules_for_impossible_database_names_make_no_channel() {
    let long = format!("userdb-{}", "61".repeat(40));
    let imported = import_rules(&format!(
        "[compactions]\n_default = [{{db_fragmentation, \"70%\"}}, {{view_fragmentation, \"200%\"}}]\n\
         Orders = [{{db_fragmentation, \"50%\"}}]\n_users = [{{db_fragmentation, \"50%\"}}]\n\
         {long} = [{{db_fragmentation, \"50%\"}}]\n"
    ));
    let shortened = format!("userdb_{}6_dbs", "61".repeat(16));
    assert_eq!(channel_names(&imported.channels)[..3], ["users_dbs", &shortened, "default_dbs"]);
    let rest = NameFilter::new(&[], &["_users", &long]).unwrap();
    assert_eq!(channel(&imported, "default_dbs").databases, rest);
    assert!(own_findings(&imported).contains(
        &"warning: [compactions] Orders: does nothing: no database can have this name".to_owned()
    ));
}

#[test]
fn reports_rules_that_no_channel_can_express() {
    let imported = import_rules(
        "[compaction_daemon]\nmin_file_size = x\n[compactions]\n\
         a = [{view_fragmentation, \"100%\"}]\n\
         shards/00000000-7fffffff/x.1 = [{db_fragmentation, \"50%\"}]\n",
    );
    assert_eq!(
        imported.channels.list,
        [Channel {
            databases: NameFilter::new(&["a"], &[]).unwrap(),
            ..ratio("a_dbs", TargetKind::Db, 1.0, 0)
        }]
    );
    assert!(!imported.is_equal());
    assert_eq!(
        own_findings(&imported),
        [
            "impossible: [compaction_daemon] min_file_size: is not an integer, so the daemon crashes at every file: its default of 131072 is assumed",
            "impossible: [compactions] a: db_fragmentation is missing or 0, so the daemon compacts every db each time, even without waste; the channel takes those with any waste: set db_fragmentation",
            "impossible: [compactions] a: view_fragmentation 100% would be an infinite min_priority, so no channel is written; the daemon rounds to whole per cents and compacts from a ratio of 200 on: to match that, write a channel with min_priority: 199.99",
            "impossible: [compactions] shards/00000000-7fffffff/x.1: is a rule for one shard; channels take whole databases, so this rule is left out",
            "warning: [compactions] _default: is missing, so databases without their own rule are not compacted; CouchDB 2.3's default.ini sets it to 70% and 60%: also name that file if it is in use",
        ]
    );
}

#[test]
fn reports_settings_of_the_compaction_daemon() {
    let imported = import_rules(
        "[compaction_daemon]\ncheck_interval = 1\nsnooze_period_ms = 1\nfoo = 1\n[compactions]\n\
         _default = [{db_fragmentation, \"50%\"}, {view_fragmentation, \"50%\"}, {from, \"24:00\"}, {to, \"24:01\"}]\n",
    );
    assert_eq!(imported.per_node, 1);
    let jobs: Vec<_> = imported.channels.list.iter().map(|channel| channel.concurrency).collect();
    assert_eq!(jobs, [0, 0]);
    assert_eq!(
        own_findings(&imported),
        [
            "warning: [compaction_daemon] foo: does nothing: the daemon reads no such key",
            "warning: [compactions] _default: its period never opens: the channel is written with concurrency 0",
            "note: [compaction_daemon] check_interval: has no counterpart in a channel: recliner looks at every scan.interval",
            "note: [compaction_daemon] snooze_period_ms: has no counterpart: recliner paces itself by couchdb.cold_reads_per_second",
            "note: [compactions] _default: db_fragmentation 50% becomes min_priority 2.0000, above which the channel compacts; the daemon rounds, so it compacts from 49.5% on, a ratio of 1.9802",
            "note: [compactions] _default: view_fragmentation 50% becomes min_priority 2.0000, above which the channel compacts; the daemon rounds, so it compacts from 49.5% on, a ratio of 1.9802",
        ]
    );
}

#[test]
fn empty_settings_make_no_channel() {
    let imported = import_rules("");
    assert_eq!(imported.channels.list, []);
    assert_eq!(
        own_findings(&imported),
        [
            "warning: [compactions] _default: is missing, so databases without their own rule are not compacted; CouchDB 2.3's default.ini sets it to 70% and 60%: also name that file if it is in use",
        ]
    );
    assert!(matches!(import_daemon(&[], &berlin()), Err(ImportError::NoNodes)));
}
