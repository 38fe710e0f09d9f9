//! Databases with fewer copies than new databases get.

use super::nodes::{configs, value};
use crate::{
    advice::{
        Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording, grouped_by,
        remedy::to_json, total,
    },
    table::{DbIx, NodeIx, ShardMapEntry},
    text::{counted, listed, quote::shell_word},
};
use couchdb_names::{Range, encode_part};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const RULE: Rule = Rule {
    code: "fewer_copies",
    finds: "Databases whose ranges have fewer copies than `[cluster] n`, although there are enough nodes.",
    because: "The number of copies is fixed when a database is created: `n`, 3 by default, or the number of nodes at that time if that is smaller. Nodes that join later get no copies of existing databases (couchdb#1729). So the databases of a first node, including `_users` and `_replicator`, stay on it alone: while it is down nobody can log in. Live bytes that only one node has are at risk. It is a warning about CouchDB's own databases; others may have fewer copies on purpose (`?n=1`).",
    severities: &[Severity::Info, Severity::Warning],
    ..Rule::info(check)
};

/// CouchDB's default of `[cluster] n`.
const DEFAULT_COPIES: u64 = 3;

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let members = situation.snapshot().members().count() as u64;
    // Nodes with different settings have advice of their own; here the lowest value counts.
    let wanted = configs(situation).map(|config| match value(config, "cluster", "n") {
        None => Some(DEFAULT_COPIES),
        Some(text) => text.trim().parse().ok(),
    });
    let Some(wanted) = wanted.min().flatten().map(|copies| copies.min(members)) else { return };
    for (db, _) in situation.survey.dbs() {
        let map = situation.snapshot().shard_map(db);
        if u64::from(map.copies) >= wanted.saturating_mul(map.ranges.into()) || map.ranges == 0 {
            continue;
        }
        let is_own = situation.db_name(db).starts_with('_');
        let severity = if is_own { Severity::Warning } else { Severity::Info };
        let gain = bytes_on_one_node(situation, db).map_or(Gain::Unknown, Gain::Risk);
        findings.offer_as(severity, gain, || finding(situation, db, map, wanted));
    }
}

/// Live bytes that are lost with one node: those of ranges with one copy. None if such a size is unknown.
fn bytes_on_one_node(situation: &Situation<'_>, db: DbIx) -> Option<u64> {
    let copies = situation.shards_of(db).map(|copy| (copy.range(), copy.active_bytes()));
    let ranges = grouped_by(copies).into_values();
    let alone: Option<Vec<u64>> =
        ranges.filter(|copies| copies.len() == 1).map(|copies| copies[0]).collect();
    alone.map(total)
}

fn finding(situation: &Situation<'_>, db: DbIx, map: ShardMapEntry, wanted: u64) -> Wording {
    let name = situation.db_name(db);
    let holders: BTreeSet<&str> = situation.shards_of(db).map(|shard| shard.node()).collect();
    let members = situation.snapshot().members();
    let others: Vec<String> = members
        .filter(|(_, node)| !holders.contains(&*node.name))
        .map(|(_, node)| node.name.to_string())
        .collect();
    let without = match &others[..] {
        [] => String::new(),
        others => {
            format!(" {} {} none.", listed(others), if others.len() == 1 { "has" } else { "have" })
        }
    };
    let copies = u64::from(map.copies);
    let added = added_copies(situation, db, map, wanted);
    Wording {
        subject: Subject::Database(name.to_owned()),
        says: format!(
            "{name} has {} of its {}; with n = {wanted} it would have {}.{without}",
            counted(copies, "copy", "copies"),
            counted(map.ranges.into(), "range", "ranges"),
            wanted.saturating_mul(map.ranges.into()),
        ),
        evidence: vec![
            ("copies", copies.into()),
            ("ranges", map.ranges.into()),
            ("copies_of_each_range", wanted.into()),
        ],
        remedy: vec![
            "If it was created with fewer copies on purpose, mute this.".into(),
            add_to_map(name, &added),
            Remedy::couchdb("Then fill the new copies:", "POST", &[name, "_sync_shards"], None),
            Remedy::get("Check that each range has its nodes:", &[name, "_shards"]),
        ],
    }
}

/// A node for each copy that a range lacks: among those without the range, one with fewest copies of the database,
/// then with least live data.
fn added_copies<'a>(
    situation: &Situation<'a>,
    db: DbIx,
    map: ShardMapEntry,
    wanted: u64,
) -> Vec<(Range, &'a str)> {
    let placed = situation.shards_of(db).filter_map(|copy| Some((copy.range()?, copy.node_ix())));
    let mut holders: BTreeMap<Range, BTreeSet<NodeIx>> = BTreeMap::new();
    for (range, node) in placed {
        holders.entry(range).or_default().insert(node);
    }
    if holders.values().map(BTreeSet::len).sum::<usize>() as u64 != u64::from(map.copies) {
        // Some copies are on nodes that this process does not watch.
        return Vec::new();
    }
    let held = |holders: &BTreeMap<Range, BTreeSet<NodeIx>>, node: &NodeIx| {
        holders.values().filter(|nodes| nodes.contains(node)).count()
    };
    let mut added = Vec::new();
    for range in holders.keys().copied().collect::<Vec<_>>() {
        while (holders[&range].len() as u64) < wanted {
            let free =
                situation.snapshot().members().filter(|(ix, _)| !holders[&range].contains(ix));
            let key = |(ix, _): &(NodeIx, _)| {
                (held(&holders, ix), situation.survey.node(*ix).active_bytes)
            };
            let Some((ix, node)) = free.min_by_key(key) else { break };
            holders.entry(range).or_default().insert(ix);
            added.push((range, &*node.name));
        }
    }
    added
}

/// How to add copies to a database's shard map; by hand if it is unknown which.
fn add_to_map(db: &str, added: &[(Range, &str)]) -> Remedy {
    let path = shell_word(&format!("/_node/_local/_dbs/{}", encode_part(db))).into_owned();
    if added.is_empty() {
        return Remedy::get(
            "Otherwise read its shard map, save the output, add nodes without a copy to each range (by_node, by_range, and an entry [\"add\", RANGE, NODE] in changelog), and PUT the document back; take no node out:",
            &["_node", "_local", "_dbs", db],
        );
    }
    let added: Vec<_> =
        added.iter().map(|(range, node)| json!([range.text().as_str(), node])).collect();
    let add = r#"reduce $added[] as [$range, $node] (.; if .by_range[$range] | index($node) then . else .by_range[$range] += [$node] | .by_node[$node] += [$range] | .changelog += [["add", $range, $node]] end)"#;
    let lines = [
        format!("map=$(ask -f \"$COUCHDB_URL\"{path})"),
        "printf '%s\n' \"$map\"".to_owned(),
        format!("added={}", shell_word(&to_json(&added.into()))),
        format!("map=$(printf %s \"$map\" | jq -c --argjson added \"$added\" {})", shell_word(add)),
        format!(
            "ask -f -X PUT -H 'Content-Type: application/json' \"$COUCHDB_URL\"{path} -d \"$map\""
        ),
    ];
    Remedy::script(
        "Otherwise add these copies to its shard map. The command needs jq, and prints the old map: keep it. If `[cluster] placement` is set, first check that these nodes are in the right zones:",
        &lines,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{
        Finding,
        test_cluster::{Shard, TestCluster},
    };

    /// Three nodes, where only `a` has this database, with this `n`.
    fn found(db: &'static str, n: Option<&'static str>) -> Vec<Finding> {
        let full = |node| Shard::new("full", node, 0, 1 << 20);
        let shards = [Shard::new(db, "a", 0, 1 << 20), full("a"), full("b"), full("c")];
        let mut cluster = TestCluster::with_shards(&shards);
        for node in ["a", "b"] {
            cluster.set(node, &[]);
        }
        if let Some(n) = n {
            cluster.set("c", &[("cluster", "n", n)]);
        }
        cluster.findings_of(&RULE)
    }

    #[test]
    fn only_system_databases_with_too_few_copies_are_a_warning() {
        let found_own = found("_users", None);
        let [only] = &found_own[..] else { panic!("{found_own:?}") };
        assert_eq!(only.severity, Severity::Warning);
        assert_eq!(
            only.says,
            "_users has 1 copy of its 1 range; with n = 3 it would have 3. b and c have none."
        );
        assert_eq!(found("orders", None)[0].severity, Severity::Info);
        let script = only.remedy[1].text.as_deref().unwrap_or_default();
        assert!(
            script.contains(r#"added='[["00000000-1ffffffe","b"],["00000000-1ffffffe","c"]]'"#),
            "{script}"
        );
    }

    #[test]
    fn data_on_one_node_comes_first_and_is_counted_once() {
        let sized = |db, node, live| {
            let shard = Shard::new(db, node, 0, 9 << 20);
            Shard { active_bytes: Some(live), ..shard }
        };
        let full = |node| Shard::new("full", node, 0, 1 << 20);
        let mut shards = vec![full("a"), full("b"), full("c"), sized("alone", "a", 5)];
        shards.extend(["a", "b"].map(|node| sized("twice", node, 7_000)));
        let mut cluster = TestCluster::with_shards(&shards);
        for node in ["a", "b", "c"] {
            cluster.set(node, &[]);
        }
        let found = cluster.findings_of(&RULE);
        let found: Vec<(&Subject, Gain)> = found.iter().map(|it| (&it.subject, it.gain)).collect();
        let db = |name: &str| Subject::Database(name.to_owned());
        assert_eq!(found, [(&db("alone"), Gain::Risk(5)), (&db("twice"), Gain::Risk(0))]);
    }

    #[test]
    fn is_silent_if_enough_copies_exist_or_the_setting_is_unknown() {
        assert_eq!(found("_users", Some("1")), []);
        assert_eq!(
            found("_users", Some("2"))[0].evidence[2],
            ("copies_of_each_range", 2_u64.into())
        );
        assert_eq!(found("_users", Some("many")), []);
        let shards = [Shard::new("_users", "a", 0, 1 << 20), Shard::new("full", "b", 0, 1 << 20)];
        assert_eq!(
            TestCluster::with_shards(&shards).findings_of(&RULE),
            [],
            "no settings were read"
        );
    }
}
