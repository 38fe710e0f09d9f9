//! Copies of shards that are not on their nodes' disks.

use super::files::{ByDatabase, by_database, nodes_of};
use crate::{
    advice::{
        Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording, grouped_by, total,
    },
    model::target::{TargetKind, TargetState},
    table::{DbIx, Node, TargetRef},
    text::{counted, size::format_size_short},
};
use couchdb_names::Range;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const RULE: Rule = Rule {
    code: "missing_copies",
    finds: "Copies of a shard that are in the shard map but not on their node's disk, or whose node is not a member.",
    because: "Until a missing copy is restored, its range has fewer copies than its database asks for, and reads and writes that need a quorum depend on the others. CouchDB creates and fills it when its node starts or its shards are synchronised, but not while the node has the deleted file open. It is critical if no copy of a range is left: then its documents cannot be read at all. If the map names a node that is not in the cluster, as after a change of its name, nothing can look for its copies: they are unknown, not lost.",
    severities: &[Severity::Warning, Severity::Critical],
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    renamed(situation, findings);
    let missing = by_database(situation, &situation.survey.missing);
    let unseen = by_database(situation, &situation.survey.on_strangers);
    if missing.is_empty() && unseen.is_empty() {
        return;
    }
    let copies =
        present_copies(situation, |db| missing.contains_key(&db) || unseen.contains_key(&db));
    strangers(&unseen, &copies, findings);
    for (db, targets) in &missing {
        let Some(first) = targets.first() else { continue };
        let unseen = unseen.get(db).map(Vec::as_slice).unwrap_or_default();
        let loss = Loss::of(*db, targets, unseen, &copies);
        let severity = if loss.ranges + loss.unseen_ranges > 0 {
            Severity::Critical
        } else {
            Severity::Warning
        };
        let gain = loss.bytes_at_risk.map_or(Gain::Unknown, Gain::Risk);
        findings.offer_as(severity, gain, || finding(*first, targets, &loss));
    }
}

/// What the missing copies of a database put at risk.
struct Loss {
    /// Ranges with a missing copy and another copy left.
    thin_ranges: u64,
    /// Ranges without a copy.
    ranges: u64,
    /// Ranges whose only other copies are on nodes that are not members, which nobody could check.
    unseen_ranges: u64,
    /// Bytes of the remaining copies, one of each thin range; none if a size is unknown.
    remaining: Option<u64>,
    /// `remaining` plus the bytes of lost ranges, each assumed to be as large as the largest
    /// remaining range; none if no size is known.
    bytes_at_risk: Option<u64>,
}

impl Loss {
    fn of(db: DbIx, targets: &[TargetRef<'_>], unseen: &[TargetRef<'_>], copies: &Copies) -> Self {
        let ranges: BTreeSet<Option<Range>> = targets.iter().map(|it| it.range()).collect();
        let sizes: Vec<Option<u64>> =
            ranges.iter().filter_map(|range| copies.get(&(db, *range)).copied()).collect();
        let without_copy = ranges.iter().filter(|range| !copies.contains_key(&(db, **range)));
        let (unseen, lost): (Vec<&Option<Range>>, Vec<&Option<Range>>) =
            without_copy.partition(|range| unseen.iter().any(|copy| copy.range() == **range));
        let (unseen_ranges, lost) = (unseen.len() as u64, lost.len() as u64);
        let known: Option<Vec<u64>> = sizes.iter().copied().collect();
        let remaining = known.map(total);
        let largest = copies.iter().filter(|((of, _), _)| *of == db).filter_map(|it| *it.1).max();
        let of_lost = match lost + unseen_ranges {
            0 => Some(0),
            out_of_reach => largest.map(|it| it.saturating_mul(out_of_reach)),
        };
        let bytes_at_risk = remaining.zip(of_lost).map(|(one, two)| one.saturating_add(two));
        let thin_ranges = sizes.len() as u64;
        Self { thin_ranges, ranges: lost, unseen_ranges, remaining, bytes_at_risk }
    }

    /// The second half of the sentence.
    fn says(&self) -> String {
        match (self.ranges, self.remaining) {
            (0, _) if self.unseen_ranges > 0 => {
                let ranges = counted(self.unseen_ranges, "range", "ranges");
                format!("the only other copies of {ranges} are on nodes that are not members")
            }
            (0, remaining) => {
                let ranges = if self.thin_ranges == 1 { "its range" } else { "their ranges" };
                match remaining {
                    Some(bytes) => {
                        let bytes = format_size_short(bytes);
                        format!("the remaining copies of {ranges} hold {bytes}")
                    }
                    None => format!("the size of the remaining copies of {ranges} is unknown"),
                }
            }
            (1, _) => "1 range has no copy left".to_owned(),
            (lost, _) => format!("{lost} ranges have no copy left"),
        }
    }
}

fn finding(first: TargetRef<'_>, targets: &[TargetRef<'_>], loss: &Loss) -> Wording {
    let name = first.db_name().db;
    let total = first.shard_map().copies;
    let missing = targets.len() as u64;
    Wording {
        subject: Subject::Database(name.to_owned()),
        says: format!(
            "{missing} of {name}'s {} {} missing on {}; {}.",
            counted(total.into(), "shard copy", "shard copies"),
            if missing == 1 { "is" } else { "are" },
            nodes_of(targets),
            loss.says(),
        ),
        evidence: vec![
            ("missing_copies", missing.into()),
            ("ranges_without_copy", loss.ranges.into()),
            ("copies", total.into()),
            ("nodes", nodes_of(targets).into()),
        ],
        remedy: remedy(name, loss),
    }
}

/// Offers a finding for each node that seems renamed: a member that is down while another node has files of most of its
/// copies where the shard map places none.
fn renamed(situation: &Situation<'_>, findings: &mut Findings) {
    let snapshot = situation.snapshot();
    let is_down = |node: &Node| node.is_member && node.is_down();
    if situation.survey.orphans.is_empty() || !snapshot.nodes().iter().any(|node| is_down(node)) {
        return;
    }
    let orphans = situation.survey.orphans.iter().filter_map(|ix| snapshot.target(*ix));
    let held: BTreeMap<_, &str> =
        orphans.map(|target| ((target.db(), target.range()), target.node())).collect();
    let placed = snapshot.targets().filter(|target| {
        target.kind() == TargetKind::Db
            && target.state() != TargetState::Orphan
            && target.range().is_some()
            && snapshot.node(target.node_ix()).is_some_and(is_down)
    });
    for (node, copies) in grouped_by(placed.map(|target| (target.node(), target))) {
        let holders =
            copies.iter().filter_map(|copy| held.get(&(copy.db(), copy.range())).copied());
        let holders = grouped_by(holders.map(|holder| (holder, ())));
        let most = holders.into_iter().max_by_key(|(_, found)| found.len());
        let Some((holder, found)) = most.filter(|(_, found)| found.len() * 2 > copies.len()) else {
            continue;
        };
        let (total, found) = (copies.len() as u64, found.len() as u64);
        findings.offer_as(Severity::Warning, Gain::Unknown, || Wording {
            subject: Subject::Node(node.to_owned()),
            says: format!(
                "{node} is a member but down, and {holder} has the files of {found} of its {}: {holder} seems to be {node} under another name.",
                counted(total, "shard copy", "shard copies"),
            ),
            evidence: vec![("copies", total.into()), ("found", found.into())],
            remedy: vec![
                Remedy::get("Compare the names of the members:", &["_membership"]),
                Remedy::choice(format!(
                    "If {holder} was {node} before: stop it, give it the name {node} again (-name in vm.args, NODENAME in a container), and start it. Until then, delete no files on it."
                )),
            ],
        });
    }
}

/// Offers findings about copies on nodes that are not members, one per node.
fn strangers(unseen: &ByDatabase<'_>, copies: &Copies, findings: &mut Findings) {
    let targets = unseen.values().flatten();
    for (node, targets) in grouped_by(targets.map(|target| (target.node(), target))) {
        let alone =
            targets.iter().filter(|it| !copies.contains_key(&(it.db(), it.range()))).count();
        let severity = if alone > 0 { Severity::Critical } else { Severity::Warning };
        findings.offer_as(severity, Gain::Unknown, || {
            let dbs: BTreeSet<DbIx> = targets.iter().map(|target| target.db()).collect();
            let alone = match alone {
                0 => String::new(),
                some => format!("; no other copy of {some} of them was found"),
            };
            Wording {
                subject: Subject::Node(node.to_owned()),
                says: format!(
                    "{node} is in the shard map but not a member of the cluster, so nothing can look for its {} of {}{alone}.",
                    counted(targets.len() as u64, "shard copy", "shard copies"),
                    counted(dbs.len() as u64, "database", "databases"),
                ),
                evidence: vec![
                    ("copies", (targets.len() as u64).into()),
                    ("databases", (dbs.len() as u64).into()),
                ],
                remedy: vec![
                    Remedy::get("Compare the names of the members:", &["_membership"]),
                    Remedy::choice(format!(
                        "If a node now has another name, its files are still on its disk: stop it, give it the name {node} again (-name in vm.args, NODENAME in a container), and start it. If {node} has yet to join the cluster, let it join. Until then, delete no files on any node."
                    )),
                    Remedy::choice(format!(
                        "If {node} will not return, put its data directory on a node of that name, or, while another copy of each range exists, place copies of its ranges on other members in the shard map, and keep these in `[couchdb] maintenance_mode` until the copies are filled."
                    )),
                ],
            }
        });
    }
}

fn remedy(db: &str, loss: &Loss) -> Vec<Remedy> {
    let sync = Remedy::couchdb(
        "Make CouchDB create the missing copies and fill them from the others. Who reads a copy before it is filled lacks documents: if that matters, take its node out of service meanwhile (`[couchdb] maintenance_mode`):",
        "POST",
        &[db, "_sync_shards"],
        None,
    );
    let mut remedy = Vec::new();
    if loss.unseen_ranges > 0 {
        remedy.push(
            "First bring back the nodes that are in the shard map but not in the cluster: they have the only copies of some ranges."
                .into(),
        );
    }
    if loss.ranges > 0 {
        remedy.push(
            "If the files were moved, a disk is not mounted, or a node changed its name, fix that before anything else. If their documents can still be read, a node has the deleted files open: copy the database before that node restarts. Otherwise restore those ranges from a backup."
                .into(),
        );
    }
    if loss.thin_ranges > 0 {
        remedy.push(sync);
        remedy.push(
            "If they are still missing a minute later, their node has the deleted files open: restart the node, and it creates and fills them."
                .into(),
        );
    }
    remedy
}

/// The bytes of the largest copy of each range that has one; none if no size is known.
type Copies = BTreeMap<(DbIx, Option<Range>), Option<u64>>;

/// The ranges of these databases that have a copy on any disk, even where the map places none.
fn present_copies(situation: &Situation<'_>, is_of: impl Fn(DbIx) -> bool) -> Copies {
    let mut copies = Copies::new();
    let is_member = |target: TargetRef<'_>| {
        situation.snapshot().node(target.node_ix()).is_some_and(|node| node.is_member)
    };
    let shards = situation.snapshot().targets().filter(|target| {
        target.kind() == TargetKind::Db
            && target.state() != TargetState::Missing
            && is_of(target.db())
            && is_member(*target)
    });
    for target in shards {
        let bytes = copies.entry((target.db(), target.range())).or_default();
        *bytes = (*bytes).max(target.file_bytes());
    }
    copies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Shard, TestCluster};

    const MIB: u64 = 1 << 20;

    fn found(shards: &[Shard]) -> Vec<Finding> {
        TestCluster::with_shards(shards).findings_of(&RULE)
    }

    #[test]
    fn missing_copy_is_a_warning_that_says_what_remains() {
        let shard = |node, range| Shard::new("orders", node, range, 5 * MIB);
        let warning =
            found(&[shard("a", 0), shard("b", 0).missing(), shard("a", 1), shard("b", 1)]);
        let [only] = &warning[..] else { panic!("{warning:?}") };
        assert_eq!((only.severity, only.gain), (Severity::Warning, Gain::Risk(5 * MIB)));
        assert_eq!(
            only.says,
            "1 of orders's 4 shard copies is missing on b; the remaining copies of its range hold 5 MiB."
        );
    }

    #[test]
    fn range_without_any_copy_is_critical_and_counted_once() {
        let shard = |node, range| Shard::new("orders", node, range, 5 * MIB);
        let critical = found(&[shard("a", 0).missing(), shard("b", 0).missing(), shard("a", 1)]);
        assert_eq!(
            (critical[0].severity, critical[0].gain),
            (Severity::Critical, Gain::Risk(5 * MIB)),
            "as much as the range that is left"
        );
        assert_eq!(
            critical[0].says,
            "2 of orders's 3 shard copies are missing on a and b; 1 range has no copy left."
        );
        let all = found(&[shard("a", 0).missing(), shard("a", 1).missing()]);
        assert_eq!((all[0].severity, all[0].gain), (Severity::Critical, Gain::Unknown));
        assert!(all[0].says.ends_with("; 2 ranges have no copy left."), "{}", all[0].says);
        assert!(!format!("{:?}", all[0].remedy).contains("_sync_shards"), "it would not help");
    }

    /// Findings if `b` is not a member.
    fn found_beside_a_stranger(mut shards: Vec<Shard>) -> Vec<Finding> {
        for shard in shards.iter_mut().filter(|shard| shard.node == "b") {
            *shard = Shard { state: TargetState::Unknown, ..shard.clone().missing() };
        }
        let mut cluster = TestCluster::with_shards(&shards);
        if let Some(stranger) = cluster.draft.find_node("b") {
            cluster.draft.update_node(stranger, |node| node.is_member = false);
        }
        cluster.findings_of(&RULE)
    }

    #[test]
    fn copies_on_nonmember_nodes_are_unknown_and_not_lost() {
        let shard = |node, range| Shard::new("orders", node, range, 5 * MIB);
        let alone = found_beside_a_stranger(vec![shard("a", 0), shard("b", 1)]);
        let [only] = &alone[..] else { panic!("{alone:?}") };
        assert_eq!(
            (only.severity, &only.subject),
            (Severity::Critical, &Subject::Node("b".into()))
        );
        assert_eq!(
            only.says,
            "b is in the shard map but not a member of the cluster, so nothing can look for its 1 shard copy of 1 database; no other copy of 1 of them was found."
        );
        let texts = |finding: &Finding| format!("{:?}", finding.remedy);
        assert!(!texts(only).contains("_sync_shards") && !texts(only).contains("backup"));

        let renamed = Shard { state: TargetState::Unknown, ..shard("a", 1) };
        let found = found_beside_a_stranger(vec![shard("b", 1), renamed]);
        assert_eq!(found[0].severity, Severity::Warning, "its files are there under another name");

        let found = found_beside_a_stranger(vec![shard("a", 0).missing(), shard("b", 0)]);
        let missing = found.iter().find(|it| it.subject == Subject::Database("orders".into()));
        let missing = missing.expect("there is a finding about a");
        assert!(
            missing
                .says
                .ends_with("; the only other copies of 1 range are on nodes that are not members.")
        );
        assert!(!texts(missing).contains("_sync_shards") && !texts(missing).contains("backup"));
    }

    #[test]
    fn reports_a_down_node_as_renamed_if_another_has_its_files() {
        let shard = |node, range| Shard::new("orders", node, range, 5 * MIB);
        let orphan = |range| Shard { state: TargetState::Orphan, ..shard("b", range) };
        let found = |shards: &[Shard], is_up| {
            let mut cluster = TestCluster::with_shards(shards);
            let old = cluster.draft.find_node("a").unwrap();
            cluster.draft.update_node(old, |node| node.is_up = is_up);
            cluster.findings_of(&RULE)
        };
        let shards = [shard("a", 0), shard("a", 1), shard("a", 2), orphan(0), orphan(1)];
        let renamed = found(&shards, Some(false));
        let [only] = &renamed[..] else { panic!("{renamed:?}") };
        assert_eq!(
            only.says,
            "a is a member but down, and b has the files of 2 of its 3 shard copies: b seems to be a under another name."
        );
        assert_eq!(found(&shards, Some(true)), []);
        assert_eq!(found(&shards, None), [], "unknown");
        assert_eq!(found(&shards[..4], Some(false)), [], "one of three");
    }

    #[test]
    fn unknown_size_is_not_reported_as_zero() {
        let shard = |node| Shard::new("orders", node, 0, MIB);
        let unmeasured = Shard { file_bytes: None, active_bytes: None, ..shard("a") };
        let found = found(&[unmeasured, shard("b").missing()]);
        assert_eq!(found[0].gain, Gain::Unknown);
        assert_eq!(
            found[0].says,
            "1 of orders's 2 shard copies is missing on b; the size of the remaining copies of its range is unknown."
        );
    }

    #[test]
    fn complete_cluster_has_no_findings() {
        assert_eq!(found(&[Shard::new("orders", "a", 0, MIB)]), []);
    }
}
