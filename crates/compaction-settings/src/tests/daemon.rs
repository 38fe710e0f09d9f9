//! Tests of the compaction daemon's rules.

use super::*;

#[test]
fn reads_all_rules_and_puts_the_default_last() {
    let settings = read_daemon(&node(
        "2.3.1",
        "[compaction_daemon]\nmin_file_size = 1000\n[compactions]\n\
         _default = [{db_fragmentation, \"70%\"}, {view_fragmentation, \"60%\"},\n {from, \"20:00\"}, {to, \"06:00\"}, {strict_window, true}]\n\
         my/db = [{db_fragmentation, \"-5%\"}, {parallel_view_compaction, true}]\n",
    ));
    assert_eq!(settings.findings, []);
    assert_eq!(settings.min_file_size, 1000);
    assert_eq!(
        settings.rules,
        [
            DaemonRule {
                database: "my/db".to_owned(),
                db_fragmentation: Some(0),
                parallel_view_compaction: true,
                ..DaemonRule::default()
            },
            DaemonRule {
                database: "_default".to_owned(),
                db_fragmentation: Some(70),
                view_fragmentation: Some(60),
                opens: Opening::Daily(Window { from: 20 * 60, to: 6 * 60 }),
                strict_window: true,
                ..DaemonRule::default()
            },
        ]
    );
    assert!(settings.rules.last().is_some_and(DaemonRule::is_default));
}

#[test]
fn unreadable_rules_are_reported_and_left_out() {
    let settings = read_daemon(&node(
        "2.3.1",
        "[compactions]\n_default = [{db_fragmentation, \"50%\"}]\n\
         a = [{from, \"20:00\"}]\nb = {db}\nc = [{db_fragmentation, 50}]\n\
         d = [{db_fragmentation, \"50.5%\"}]\ne = [{strict_window, \"true\"}]\n\
         f = [{db_fragmentation, \"50%\"}\ng = [{colour, \"red\"}]\n\
         h = [db_fragmentation]\ni = [{to, \"6\"}]\n",
    ));
    assert_eq!(settings.rules.len(), 1);
    assert_eq!(
        finding_texts(&settings.findings),
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
        ]
    );
}

#[test]
fn reports_rules_that_the_daemon_does_not_find() {
    let rule = "[{db_fragmentation, \"70%\"}]";
    let ini = format!(
        "[compactions]\n_default  = {rule}\nOrders = {rule}\na = {rule} % nightly\n_default =\n"
    );
    let settings = read_daemon(&node("2.3.1", &ini));
    assert_eq!(settings.rules, []);
    assert_eq!(
        finding_texts(&settings.findings),
        [
            "warning: [compactions] Orders: does nothing: no database can have this name",
            "warning: [compactions] _default: is empty, so databases without their own rule are not compacted",
            "warning: [compactions] _default : does nothing: CouchDB keeps the spaces around the key as part of the key",
            "warning: [compactions] a: is ignored by the daemon, which cannot read it: letter 38: the comment after % swallows the full stop that CouchDB adds at the end",
            "note: [compactions]: local.ini:5: removes the value that an earlier file sets for _default",
        ]
    );
}

#[test]
fn reports_keys_that_the_daemon_does_not_read() {
    let settings = read_daemon(&node(
        "2.3.1",
        "[compaction_daemon]\nmin_file_size = x\ncheck_interval = 1\nsnooze_period_ms = 1\nfoo = 1\n",
    ));
    assert_eq!(settings.min_file_size, 131_072);
    assert_eq!(
        finding_texts(&settings.findings),
        [
            "error: [compaction_daemon] min_file_size: is not an integer, so the daemon crashes at every file: its default of 131072 is assumed",
            "warning: [compaction_daemon] foo: does nothing: the daemon reads no such key",
            "warning: [compactions] _default: is missing, so databases without their own rule are not compacted; CouchDB 2.3's default.ini sets it to 70% and 60%: also name that file if it is in use",
        ]
    );
}
