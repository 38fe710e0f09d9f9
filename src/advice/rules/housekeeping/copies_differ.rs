//! Copies of a range that do not contain the same documents.

use crate::{
    advice::{
        CopyDifference, CopyReading, Findings, Gain, Remedy, Rule, Severity, Situation, Subject,
        Wording, grouped_by,
    },
    model::rounding::to_bytes,
    plan::pressure::Signal,
    table::{DbIx, TargetRef},
    text::{counted, grouped, listed, quote::shell_word},
};
use couchdb_names::{Range, encode_part};

pub(crate) const RULE: Rule = Rule {
    code: "copies_differ",
    finds: "Copies of a shard that differ in the number or size of their documents although nothing is written to them.",
    because: "Nodes replicate each write to the other copies of its range, and a node that was down receives what it lacks when it returns. Then all copies have the same documents, deleted documents and uncompressed bytes to the last byte (tried on 3.5.2: with conflicts, attachments, purges and compactions). What a reader gets depends on the copies that answer, so a lasting difference makes answers vary, counts above all. Copies are compared only if all were read twice, five minutes apart, with the same sequence, and none is being split: so only a running recliner finds this. If only bytes differ (severity info), one copy has other revisions, or a sum from an old version of CouchDB. `_sync_shards` sends each copy what it lacks since the last checkpoint; it deletes nothing. It repeats no purge, and a copy restored from before one may bring back what was purged (tried on 3.5.2): only the same purge helps.",
    severities: &[Severity::Info, Severity::Warning],
    ..Rule::info(check)
};

/// Maximum number of copies for which a command is written out.
const MAX_COMMANDS: usize = 3;

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let lasting = situation.inputs.copies.lasting();
    for (db, ranges) in grouped_by(lasting.map(|(db, range, it)| (db, (range, it)))) {
        let in_documents = ranges.iter().any(|(_, difference)| difference.in_documents());
        let severity = if in_documents { Severity::Warning } else { Severity::Info };
        findings.offer_as(severity, Gain::Unknown, || finding(situation, db, &ranges));
    }
}

fn finding(situation: &Situation<'_>, db: DbIx, ranges: &[(Range, &CopyDifference)]) -> Wording {
    let name = situation.db_name(db);
    // A range whose documents differ says more than a range in which only bytes differ.
    let worst = ranges.iter().max_by_key(|(_, it)| (it.in_documents(), missing_documents(it)));
    let (range, difference) = *worst.unwrap_or(&ranges[0]);
    let others = match ranges.len() as u64 - 1 {
        0 => String::new(),
        others => {
            format!(" The copies of {} differ too.", counted(others, "other range", "other ranges"))
        }
    };
    let since = ranges.iter().map(|(_, it)| it.since).min().unwrap_or_default().rfc3339();
    let copies = copies_of(situation, difference);
    let differs = by_contents(&copies, difference);
    Wording {
        subject: Subject::Database(name.to_owned()),
        says: format!(
            "The copies of {name}'s range {} differ although nothing is written to them: {}.{others} {}",
            range.short(),
            listed(&differs),
            cause(situation, &copies, difference),
        ),
        evidence: vec![
            ("range", range.text().as_str().to_owned().into()),
            ("ranges", (ranges.len() as u64).into()),
            ("missing_documents", missing_documents(difference).into()),
            ("copies", differs.join("; ").into()),
            ("seen_since", since.into()),
        ],
        remedy: remedy(name, &copies, difference),
    }
}

type Copies<'a> = Vec<(TargetRef<'a>, &'a CopyReading)>;

fn copies_of<'a>(situation: &Situation<'a>, difference: &'a CopyDifference) -> Copies<'a> {
    let snapshot = situation.snapshot();
    difference.copies.iter().filter_map(|copy| Some((snapshot.target(copy.ix)?, copy))).collect()
}

/// How many documents, deleted or not, the copy with the fewest lacks.
fn missing_documents(difference: &CopyDifference) -> u64 {
    let span = |of: fn(&CopyReading) -> u64| {
        let least = difference.copies.iter().map(of).min().unwrap_or_default();
        difference.copies.iter().map(of).max().unwrap_or_default() - least
    };
    span(|copy| copy.docs).max(span(|copy| copy.deleted))
}

/// The contents of the copies, equal ones together: `a and b have 588 documents and 20 deleted ones`.
fn by_contents(copies: &Copies<'_>, difference: &CopyDifference) -> Vec<String> {
    let contents = |copy: &CopyReading| match copy.external_bytes {
        Some(bytes) if !difference.in_documents() => {
            format!("{} uncompressed bytes", grouped(bytes))
        }
        Some(_) | None => {
            format!("{} documents and {} deleted ones", grouped(copy.docs), grouped(copy.deleted))
        }
    };
    let nodes = grouped_by(copies.iter().map(|(it, copy)| (contents(copy), it.node().to_owned())));
    let verb = |nodes: &[String]| if nodes.len() == 1 { "has" } else { "have" };
    nodes.iter().map(|(has, on)| format!("{} {} {has}", listed(on), verb(on))).collect()
}

/// The likely cause.
fn cause(situation: &Situation<'_>, copies: &Copies<'_>, difference: &CopyDifference) -> String {
    if difference.in_purges() {
        return "They saw different numbers of purges: a copy missed a purge, or was restored from before it.".to_owned();
    }
    let pressures = &situation.inputs.plan.conditions.pressures.nodes;
    let backlog = |target: &TargetRef<'_>| {
        let signals = &pressures.get(&target.node_ix())?.signals;
        Some(to_bytes(*signals.get(&Signal::ReplicationBacklog)?))
    };
    let behind = copies.iter().filter_map(|(target, _)| Some((backlog(target)?, target.node())));
    match behind.max() {
        Some((changes @ 1.., node)) => format!(
            "{node} still has {} to send to other nodes, so they may only be behind.",
            counted(changes, "change", "changes")
        ),
        Some(_) | None => "Possible causes: a node was down, a file was restored, or replication between the nodes broke off."
            .to_owned(),
    }
}

fn remedy(db: &str, copies: &Copies<'_>, difference: &CopyDifference) -> Vec<Remedy> {
    let look = |target: &TargetRef<'_>| {
        let shard = target.shard_name()?;
        let says = "See what each copy contains (doc_count, doc_del_count, purge_seq):";
        Some(Remedy::get(says, &["_node", target.node(), &shard]))
    };
    let mut remedy: Vec<Remedy> =
        copies.iter().take(MAX_COMMANDS).filter_map(|(target, _)| look(target)).collect();
    remedy.extend(compare(copies));
    if difference.in_purges() {
        remedy.push("If documents were purged, purge them again first, with the same revisions (POST /DB/_purge): copies that did it before ignore it, and replication may otherwise bring them back.".into());
    }
    remedy.push(Remedy::couchdb(
        "If they still differ, make the nodes send each other what the copies lack; this deletes nothing:",
        "POST",
        &[db, "_sync_shards"],
        None,
    ));
    remedy.push(
        "Look again after ten minutes without writes: this advice disappears when the copies agree. If it stays, look in these nodes' CouchDB logs for why replication between them (mem3_sync, mem3_rep) fails, and delete no file."
            .into(),
    );
    remedy
}

/// The command that lists what only one of two copies has: those that differ most in what was found to differ.
fn compare(copies: &Copies<'_>) -> Option<Remedy> {
    let sum = |copy: &CopyReading| (copy.docs, copy.deleted, copy.external_bytes);
    let spread = |of: fn(&CopyReading) -> u64| {
        let values = || copies.iter().map(|(_, copy)| of(copy));
        values().max().unwrap_or_default() - values().min().unwrap_or_default()
    };
    let by_deleted = spread(|copy| copy.deleted) > spread(|copy| copy.docs);
    let key = |(_, copy): &&(TargetRef<'_>, &CopyReading)| {
        (if by_deleted { copy.deleted } else { copy.docs }, sum(copy))
    };
    let (least, most) = (copies.iter().min_by_key(key)?.0, copies.iter().max_by_key(key)?.0);
    let rows = |target: TargetRef<'_>, file: &str| {
        let path =
            ["_node", target.node(), &target.shard_name()?].map(|it| encode_part(it).to_string());
        let path = format!("/{}/_changes?style=all_docs", path.join("/"));
        let path = shell_word(&path).into_owned();
        Some(format!("rows {path} >{file}"))
    };
    let lines = [
        "cd \"$(mktemp -d)\"".to_owned(),
        "rows() { ask -f \"$COUCHDB_URL\"\"$1\" >rows; sed -n 's/,$//; s/^{\"seq\":[^,]*,//p' rows | LC_ALL=C sort; }".to_owned(),
        rows(least, "one")?,
        rows(most, "two")?,
        "LC_ALL=C comm -3 one two".to_owned(),
    ];
    let (least, most) = (least.node(), most.node());
    let says = format!(
        "See which revisions, also of deleted documents, only {least} has (left) or only {most} has (indented); with the same revisions in both, nothing is printed:"
    );
    Some(Remedy::script(says, &lines)).filter(|_| least != most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::{
            CopyHistory, Finding, Survey,
            test_cluster::{NOW, Shard, TestCluster},
        },
        model::facts::{FactSource, Facts, Measurement, OptionalU64, Overhead},
        plan::pressure::{NodePressure, Pressures},
    };
    use std::sync::Arc;
    use wall_clock::Moment;

    /// A cluster of three copies of two ranges, seen twice with these contents of the first range: documents,
    /// deleted documents, bytes and purges.
    fn cluster(copies: [(u64, u64, u64, u64); 3]) -> TestCluster {
        let nodes = ["a", "b", "c"];
        let shards: Vec<Shard> = (0..2)
            .flat_map(|range| nodes.map(|node| Shard::new("orders", node, range, 1 << 20)))
            .collect();
        let mut cluster = TestCluster::with_shards(&shards);
        for seconds in [600, 0] {
            let at = Moment::from_unix(NOW.unix() - seconds);
            let targets = cluster.draft.current().targets().enumerate();
            let targets: Vec<_> = targets.map(|(at, it)| (at, it.ix(), it.facts())).collect();
            for (place, ix, facts) in targets {
                let (docs, deleted, bytes, purges) = copies[if place < 3 { place } else { 0 }];
                let number = OptionalU64::new;
                let facts = Facts {
                    docs: number(docs),
                    deleted_docs: number(deleted),
                    external_bytes: number(bytes),
                    update_seq: number(docs + deleted),
                    overhead: Overhead { purge_seq: number(purges), ..Overhead::default() },
                    measured_at: Some(Measurement { at, source: FactSource::Http }),
                    ..facts
                };
                cluster.draft.set_facts(ix, facts);
            }
            let snapshot = cluster.draft.publish(NOW);
            cluster.copies = cluster.copies.updated(&snapshot, &Survey::of(&snapshot, NOW));
        }
        cluster
    }

    fn one(cluster: TestCluster) -> Finding {
        let mut found = cluster.findings_of(&RULE);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn copy_that_lacks_documents_is_reported_with_a_safe_remedy() {
        let found = one(cluster([(588, 20, 9, 0), (588, 20, 9, 0), (1_440, 0, 8, 0)]));
        assert_eq!(found.severity, Severity::Warning);
        assert_eq!(
            found.says,
            "The copies of orders's range 00-1f differ although nothing is written to them: c has 1,440 documents and 0 deleted ones and a and b have 588 documents and 20 deleted ones. Possible causes: a node was down, a file was restored, or replication between the nodes broke off."
        );
        assert_eq!(found.evidence[2], ("missing_documents", 852_u64.into()));
        let told = "\ncd \"$(mktemp -d)\"\nrows() { ask -f \"$COUCHDB_URL\"\"$1\" >rows; sed -n 's/,$//; s/^{\"seq\":[^,]*,//p' rows | LC_ALL=C sort; }\nrows '/_node/a/shards%2F00000000-1ffffffe%2Forders.1/_changes?style=all_docs' >one\nrows '/_node/c/shards%2F00000000-1ffffffe%2Forders.1/_changes?style=all_docs' >two\nLC_ALL=C comm -3 one two)";
        let commands: Vec<&str> =
            found.remedy.iter().filter_map(|remedy| remedy.text.as_deref()).collect();
        assert_eq!(
            [commands[2], commands[4]],
            [
                "curl -u \"$COUCHDB_USER\" \"$COUCHDB_URL\"/_node/c/shards%2F00000000-1ffffffe%2Forders.1",
                "curl -u \"$COUCHDB_USER\" -X POST -H 'Content-Type: application/json' \"$COUCHDB_URL\"/orders/_sync_shards",
            ]
        );
        assert!(commands[3].ends_with(told), "{}", commands[3]);
    }

    #[test]
    fn copies_that_differ_only_in_deletions_are_compared_with_them() {
        let found = one(cluster([(0, 1_500, 9, 0), (0, 1_200, 9, 0), (0, 1_500, 9, 0)]));
        let compare = found.remedy.iter().find(|it| it.says.starts_with("See which")).unwrap();
        assert!(compare.says.contains("only b has (left) or only c has"), "{}", compare.says);
        let same = one(cluster([(9, 5, 1_200, 0), (9, 5, 1_000, 0), (9, 5, 1_200, 0)]));
        assert!(same.remedy.iter().any(|it| it.says.contains("only b has (left)")), "{same:?}");
    }

    #[test]
    fn purges_and_a_backlog_are_named_as_causes() {
        let found = one(cluster([(970, 0, 9, 50), (970, 0, 9, 50), (1_000, 0, 10, 0)]));
        assert!(found.says.ends_with("or was restored from before it."), "{}", found.says);
        let place = |text: &str| found.remedy.iter().position(|it| it.says.contains(text));
        assert!(place("purge them again first") < place("send each other"), "{found:?}");
        let mut behind = cluster([(970, 0, 9, 0), (970, 0, 9, 0), (900, 0, 8, 0)]);
        let node = behind.draft.find_node("b").unwrap();
        let signals = [(Signal::ReplicationBacklog, 70.0)].into();
        let pressure = NodePressure { signals, ..NodePressure::default() };
        let nodes = [(node, pressure)].into();
        behind.conditions.pressures = Arc::new(Pressures { nodes, ..Pressures::default() });
        let says = one(behind).says;
        assert!(
            says.ends_with(
                "b still has 70 changes to send to other nodes, so they may only be behind."
            ),
            "{says}"
        );
    }

    #[test]
    fn difference_only_in_bytes_has_severity_info() {
        let found = one(cluster([(9, 0, 1_200, 0), (9, 0, 1_000, 0), (9, 0, 1_200, 0)]));
        assert_eq!(found.severity, Severity::Info);
        assert!(
            found.says.contains("b has 1,000 uncompressed bytes and a and c have 1,200"),
            "{}",
            found.says
        );
    }

    #[test]
    fn ignores_copies_that_agree_or_differed_only_once() {
        assert_eq!(cluster([(9, 1, 8, 0), (9, 1, 8, 0), (9, 1, 8, 7)]).findings_of(&RULE), []);
        let mut once = cluster([(9, 1, 8, 0), (9, 1, 8, 0), (8, 1, 8, 0)]);
        once.copies = CopyHistory::default();
        assert_eq!(once.findings_of(&RULE), []);
    }
}
