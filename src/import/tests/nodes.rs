//! Tests of importing several nodes at once.

use super::*;
use compaction_settings::Severity;

#[test]
fn nodes_with_equivalent_settings_form_one_group() {
    let a = node("a", "3.5.0", "[smoosh.ratio_dbs]\nmin_priority = 3.0\n");
    let b = node(
        "b",
        "3.3.3",
        "[smoosh.ratio_dbs]\nmin_priority = 3\npriority = ratio\n[smoosh]\nstaleness = 7\n",
    );
    let imported = import_smoosh(&[a, b]).unwrap();
    assert!(imported.is_equal());
    assert_eq!(imported.per_node, 7);
    assert_eq!(
        imported.summary(),
        [
            "a (CouchDB 3.5.0), b (CouchDB 3.3.3): 7 channels: ratio_dbs, slack_dbs, upgrade_dbs, ratio_views, slack_views, upgrade_views, index_cleanup",
            "concurrent jobs on a node: at most 7; a lower limits.per_node is stricter than CouchDB",
            "0 impossible, 0 warnings, 9 notes",
        ]
    );
}

#[test]
fn different_settings_are_errors_that_name_nodes() {
    let a = node("a", "3.5.0", "[smoosh]\ndb_channels = big\n[smoosh.big]\nmin_size = 5000000\n");
    let b = node("b", "3.5.0", "[smoosh.ratio_dbs]\nmin_priority = 3.0\nfrom = 20:00\n");
    let c = node("c", "3.3.3", "[smoosh.ratio_dbs]\nmin_priority = 3\nfrom = 20:00\n");
    let d = node("d", "3.2.2", "[smoosh]\ncleanup_index_files = true\n");
    let imported = import_smoosh(&[a, b, c, d]).unwrap();
    assert!(!imported.is_equal());
    let groups: Vec<Vec<_>> = imported
        .groups
        .iter()
        .map(|group| group.nodes.iter().map(|(node, _)| node.as_str()).collect())
        .collect();
    assert_eq!(groups, [vec!["b", "c"], vec!["a"], vec!["d"]]);
    assert_eq!(imported.channels, imported.groups[0].channels);
    let impossible: Vec<_> = imported
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        impossible,
        [
            "impossible: [smoosh.big] (b, c, d, a): differs between nodes: missing on b, c, d; in use on a; this recliner.yml serves all nodes and follows b, c: make the settings equal, or run a separate recliner for each group of nodes",
            "impossible: [smoosh.ratio_dbs] min_priority (b, c, a, d): differs between nodes: 3 on b, c; 2 on a, d; this recliner.yml serves all nodes and follows b, c: make the settings equal, or run a separate recliner for each group of nodes",
            "impossible: [smoosh.ratio_dbs] window (b, c, a, d): differs between nodes: 20:00:00 to 00:00:00 UTC on b, c; always on a, d; this recliner.yml serves all nodes and follows b, c: make the settings equal, or run a separate recliner for each group of nodes",
            "impossible: [smoosh] order of channels (b, c, a, d): differs between nodes: ratio_dbs, slack_dbs, upgrade_dbs, ratio_views, slack_views, upgrade_views, index_cleanup on b, c, a; upgrade_dbs, ratio_dbs, slack_dbs, upgrade_views, ratio_views, slack_views, index_cleanup on d; this recliner.yml serves all nodes and follows b, c: make the settings equal, or run a separate recliner for each group of nodes",
        ]
    );
}

#[test]
fn findings_list_each_node_once() {
    let ini = "[smoosh.ratio_dbs]\nfoo = 1\n";
    let imported = import_smoosh(&[node("a", "3.5.0", ini), node("b", "3.5.0", ini)]).unwrap();
    let first = imported.findings.first().unwrap();
    assert_eq!(
        *first,
        Finding {
            severity: Severity::Warning,
            nodes: vec!["a".to_owned(), "b".to_owned()],
            section: "smoosh.ratio_dbs".to_owned(),
            key: Some("foo".to_owned()),
            message: "does nothing: smoosh reads no such key".to_owned(),
        }
    );
}

#[test]
fn ignored_shards_of_all_nodes_are_merged() {
    let a = node("a", "3.5.0", "[smoosh.ignore]\nshards/00000000-7fffffff/x.1 = true\n");
    let b =
        node("b", "3.5.0", "[smoosh.ignore]\nshards/80000000-ffffffff/x.1 = true\nother = true\n");
    let imported = import_smoosh(&[a, b]).unwrap();
    assert!(imported.is_equal());
    assert_eq!(
        imported.channels.ignore.texts(),
        ["shards/00000000-7fffffff/x.1", "shards/80000000-ffffffff/x.1"]
    );
    let excluded: Vec<_> = imported
        .channels
        .list
        .iter()
        .map(|channel| (&*channel.name, channel.databases.texts().1.join(" ")))
        .filter(|(_, names)| !names.is_empty())
        .collect();
    assert_eq!(
        excluded,
        [
            ("ratio_views", "x"),
            ("slack_views", "x"),
            ("upgrade_views", "x"),
            ("index_cleanup", "other")
        ]
        .map(|(name, excluded)| (name, excluded.to_owned()))
    );
    let warnings: Vec<_> = imported
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Warning)
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        warnings,
        [
            "warning: [smoosh.ignore] other (b): is not ignored on a, but recliner will ignore it on all nodes; that makes no difference on nodes without a copy of it",
            "warning: [smoosh.ignore] shards/00000000-7fffffff/x.1 (a): is not ignored on b, but recliner will ignore it on all nodes; that makes no difference on nodes without a copy of it",
            "warning: [smoosh.ignore] shards/80000000-ffffffff/x.1 (b): is not ignored on a, but recliner will ignore it on all nodes; that makes no difference on nodes without a copy of it",
            "warning: [smoosh.ignore] other (b): is not the name of a shard file, so it only stops smoosh from cleaning up that database's index files (and from compacting a database that only this node has): write shards/RANGE/db.SUFFIX to ignore a shard",
        ]
    );
}

#[test]
fn node_without_smoosh_is_skipped_unless_alone() {
    let old = || node("old", "2.3.1", "");
    let imported = import_smoosh(&[old(), node("new", "3.5.0", "")]).unwrap();
    assert!(!imported.is_equal());
    assert_eq!(imported.groups.len(), 1);
    assert_eq!(imported.channels, Channels::default());
    assert_eq!(
        import_smoosh(&[old()]).unwrap_err().to_string(),
        "none of the nodes (old) runs smoosh, which came with CouchDB 3.0: import compaction-daemon instead"
    );
    assert!(matches!(import_smoosh(&[]), Err(ImportError::NoNodes)));
}
