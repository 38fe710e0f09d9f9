//! Databases with fewer copies than new databases get.

use super::nodes::{configs, value};
use crate::{
    advice::{
        Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording, grouped_by,
        remedy::to_json, total,
    },
    table::{DbIx, NodeIx, ShardMapEntry, TargetRef},
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

/// The copies of ranges that have no other copy.
fn only_copies<'a>(situation: &Situation<'a>, db: DbIx) -> impl Iterator<Item = TargetRef<'a>> {
    let ranges = grouped_by(situation.shards_of(db).map(|copy| (copy.range(), copy)));
    ranges.into_values().filter(|copies| copies.len() == 1).flatten()
}

/// Live bytes that are lost with one node: those of ranges with one copy. None if such a size is unknown.
fn bytes_on_one_node(situation: &Situation<'_>, db: DbIx) -> Option<u64> {
    only_copies(situation, db).map(TargetRef::active_bytes).collect::<Option<Vec<u64>>>().map(total)
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
        remedy: remedy(situation, db, map, wanted),
    }
}

fn remedy(situation: &Situation<'_>, db: DbIx, map: ShardMapEntry, wanted: u64) -> Vec<Remedy> {
    let name = situation.db_name(db);
    let first = "If it was created with fewer copies on purpose, mute this.".into();
    let silent = situation.snapshot().members().filter(|(_, node)| !node.answers());
    let silent: Vec<String> = silent.map(|(_, node)| node.name.to_string()).collect();
    if !silent.is_empty() {
        let wait = format!("Otherwise wait until {} answers, and look again.", listed(&silent));
        return vec![first, Remedy::choice(wait)];
    }
    let by_node = grouped_by(added_copies(situation, db, map, wanted));
    // A node that alone has a range of it is the last to leave service.
    let alone: BTreeSet<&str> = only_copies(situation, db).map(TargetRef::node).collect();
    let first_node = by_node.iter().max_by_key(|(node, it)| (!alone.contains(*node), it.len()));
    let Some((node, added)) = first_node else {
        return vec![
            first,
            Remedy::choice(
                "Otherwise ask a recliner that watches all nodes: this one does not know where all copies are.",
            ),
        ];
    };
    let nodes: Vec<String> = by_node.keys().map(|node| (*node).to_owned()).collect();
    vec![
        first,
        Remedy::leave_service(
            &format!(
                "Otherwise add copies on {}, one node at a time; when this advice is computed again, it names the next one. If `[cluster] placement` is set, check that the node is in the right zone.",
                listed(&nodes)
            ),
            node,
        ),
        add_copies(name, node, added),
        Remedy::enter_service(node),
        Remedy::get("Check that each range has its nodes:", &[name, "_shards"]),
    ]
}

/// A copy of a range to add to a node.
struct AddedCopy<'a> {
    range: Range,
    shard: String,
    /// A node that has the range.
    from: &'a str,
}

/// By node, the copies that ranges lack: each on the node without it that has fewest copies of the database, then
/// least live data. Empty if it is not known where all copies are.
fn added_copies<'a>(
    situation: &Situation<'a>,
    db: DbIx,
    map: ShardMapEntry,
    wanted: u64,
) -> Vec<(&'a str, AddedCopy<'a>)> {
    let placed = situation.shards_of(db).filter_map(|copy| Some((copy.range()?, copy)));
    let placed = grouped_by(placed);
    if placed.values().map(Vec::len).sum::<usize>() as u64 != u64::from(map.copies) {
        // Some copies are on nodes that this process does not watch.
        return Vec::new();
    }
    let mut held: BTreeMap<NodeIx, usize> = BTreeMap::new();
    for copy in placed.values().flatten() {
        *held.entry(copy.node_ix()).or_default() += 1;
    }
    let mut added = Vec::new();
    for (range, copies) in &placed {
        let mut lacking: Vec<_> = situation
            .snapshot()
            .members()
            .filter(|(ix, _)| copies.iter().all(|copy| copy.node_ix() != *ix))
            .collect();
        let live = |ix: NodeIx| situation.survey.node(ix).active_bytes;
        lacking.sort_by_key(|(ix, _)| (held.get(ix).copied(), live(*ix)));
        let missing = copies.len() as u64..wanted;
        for ((ix, node), _) in lacking.into_iter().zip(missing) {
            *held.entry(ix).or_default() += 1;
            let (shard, from) = (copies[0].shard_name().unwrap_or_default(), copies[0].node());
            added.push((&*node.name, AddedCopy { range: *range, shard, from }));
        }
    }
    added
}

/// The command that adds copies to a database's shard map, and waits until they are filled.
fn add_copies(db: &str, node: &str, added: &[AddedCopy<'_>]) -> Remedy {
    let word = |part: &str| shell_word(&encode_part(part).to_string()).into_owned();
    let (map, sync) =
        (format!("/_node/_local/_dbs/{}", word(db)), format!("/{}/_sync_shards", word(db)));
    let ranges: Vec<String> =
        added.iter().map(|copy| copy.range.text().as_str().to_owned()).collect();
    let ranges = shell_word(&to_json(&json!(ranges))).into_owned();
    let filter = r#"reduce $ranges[] as $range (.; if .by_range[$range] | index($node) then . else .by_range[$range] += [$node] | .by_node[$node] += [$range] | .changelog += [["add", $range, $node]] end)"#;
    let put = "-H 'Content-Type: application/json' \"$COUCHDB_URL\"";
    let mut lines = vec![
        format!("map=$(ask -f \"$COUCHDB_URL\"{map})"),
        "printf '%s\\n' \"$map\"".to_owned(),
        format!("map=$(printf %s \"$map\" | jq -c --arg node {} --argjson ranges {ranges} '{filter}')", shell_word(node)),
        format!("ask -f -X PUT {put}{map} -d \"$map\""),
        format!("ask -f -X POST {put}{sync}"),
        r#"docs() { n=$(ask "$COUCHDB_URL/_node/$1/$2" | sed -n 's/.*"doc_count":\([0-9]*\),"doc_del_count":\([0-9]*\).*/\1+\2/p'); [ -z "$n" ] || echo $(($n)); }"#.to_owned(),
        r#"fill() { while all=$(docs "$2" "$3"); sleep 5; has=$(docs "$1" "$3"); [ -z "$all" ] || [ "${has:-0}" -lt "$all" ]; do echo "$3: ${has:-0} of ${all:-?} documents"; done; }"#.to_owned(),
    ];
    lines.extend(
        added
            .iter()
            .map(|copy| format!("fill {} {} {}", word(node), word(copy.from), word(&copy.shard))),
    );
    Remedy::script(
        "Add the copies to the shard map, have them filled, and wait until they have as many documents as the others. The command needs jq, and prints the old map: keep it:",
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
        assert!(
            only.remedy[1].says.starts_with("Otherwise add copies on b and c, one node at a time")
        );
        let script = only.remedy[2].text.as_deref().unwrap_or_default();
        assert!(
            script.contains(r#"--arg node c --argjson ranges '["00000000-1ffffffe"]'"#),
            "{script}"
        );
        assert!(script.ends_with("\nfill c a shards%2F00000000-1ffffffe%2F_users.1)"), "{script}");
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
