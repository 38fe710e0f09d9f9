//! Shards whose compaction fails every time.

use crate::{
    advice::{CopyReading, Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    model::{
        records::Backoff,
        target::{TargetKind, TargetState},
    },
    table::TargetRef,
    text::{counted, quote::shell_word},
};

pub(crate) const RULE: Rule = Rule {
    code: "failing_compaction",
    finds: "Shards whose compactions failed so often in a row that recliner no longer starts them.",
    because: "A compaction reads every document of a shard, so it ends at the first unreadable one: each attempt fails at the same place, closes the shard for the requests of that moment, and frees nothing (couchdb#5070). Others fail for lack of space, or because CouchDB was restarted, and succeed later; only CouchDB's log shows the cause. Replication between nodes does not repair a damaged file, because it looks for documents that a copy lacks. A damaged copy can be rebuilt from others; the commands are shown only if two others were read and have equal numbers of documents, deleted documents and bytes. recliner counts its own compactions: in advise mode there are none.",
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for (ix, rest) in &situation.inputs.plan.conditions.constraints.backoffs {
        let Backoff::Quarantined { failures, .. } = rest else { continue };
        let target = situation.snapshot().target(*ix);
        let Some(target) = target.filter(|target| target.kind() == TargetKind::Db) else {
            continue;
        };
        let gain = target.file_bytes().map_or(Gain::Unknown, Gain::Risk);
        findings.offer(gain, || finding(situation, target, *failures));
    }
}

fn finding(situation: &Situation<'_>, target: TargetRef<'_>, failures: u32) -> Wording {
    let others = agreeing_copies(situation, target);
    let id = target.id();
    let mut remedy: Vec<Remedy> = vec![
        format!("Look in CouchDB's log on {} for why it failed.", target.node()).as_str().into(),
        Remedy::recliner(
            "If the volume was full or CouchDB was restarted, fix that and let recliner try again:",
            &["release", &id.to_string()],
        ),
    ];
    match (&others[..], target.shard_name()) {
        ([_, _, ..], Some(shard)) => rebuild(situation, target, &shard, &others, &mut remedy),
        _ => remedy.push("If the log shows that the file is damaged, do not delete or replace it: fewer than two other copies are known to agree. Copy the file, bring all nodes up, and restore what no node has from a backup.".into()),
    }
    Wording {
        says: format!(
            "The compaction of {} failed {} in a row, so recliner no longer tries it.",
            id.title(None),
            counted(failures.into(), "time", "times"),
        ),
        subject: Subject::Target(id),
        evidence: vec![
            ("failures", failures.into()),
            ("copies_that_agree", (others.len() as u64).into()),
        ],
        remedy,
    }
}

/// The other copies of a shard's range, if all were read, are on nodes that answer, and contain the same.
fn agreeing_copies<'a>(situation: &Situation<'a>, target: TargetRef<'a>) -> Vec<TargetRef<'a>> {
    let snapshot = situation.snapshot();
    let shards: Vec<TargetRef<'a>> = situation.shards_of(target.db()).collect();
    let complete = shards.len() == snapshot.shard_map(target.db()).copies as usize;
    let others: Vec<TargetRef<'a>> = shards
        .into_iter()
        .filter(|it| it.range() == target.range() && it.ix() != target.ix())
        .collect();
    let contents = |copy: &TargetRef<'a>| {
        let (_, copy) = CopyReading::of(snapshot, *copy)?;
        Some((copy.docs, copy.deleted, copy.external_bytes?))
    };
    let first = others.first().and_then(contents);
    let agree = first.is_some() && others.iter().all(|copy| contents(copy) == first);
    let is_settled = target.range().is_some() && target.state() == TargetState::Ok;
    if complete && agree && is_settled { others } else { Vec::new() }
}

/// How a copy is rebuilt from others, with a check before each step that cannot be taken back.
fn rebuild(
    situation: &Situation<'_>,
    target: TargetRef<'_>,
    shard: &str,
    others: &[TargetRef<'_>],
    remedy: &mut Vec<Remedy>,
) {
    let (node, db) = (target.node(), target.db_name().db);
    let look = |says: &str, copy: &TargetRef<'_>| Remedy::get(says, &["_node", copy.node(), shard]);
    let sync = |says: &str| Remedy::couchdb(says, "POST", &[db, "_sync_shards"], None);
    remedy.push(sync(
        "If the log shows that the file is damaged, this copy can be rebuilt. First make the nodes send each other what only one of them has:",
    ));
    for other in others {
        remedy.push(look(
            "A minute later, check what this copy has (doc_count, doc_del_count):",
            other,
        ));
    }
    remedy.push(look("And check what the damaged one has:", &target));
    remedy.push("Continue only if all other copies have the same numbers, the damaged one has no more documents or deleted documents than they have, nothing is being written, and all nodes are up.".into());
    remedy.push(Remedy::leave_service("Then rebuild the copy.", node));
    remedy.push(format!("Stop CouchDB on {node} only.").as_str().into());
    let known = situation.snapshot().node(target.node_ix());
    let directories: Vec<&str> = known
        .into_iter()
        .flat_map(|it| it.volume_usage.iter().map(|usage| &*usage.volume.directory))
        .collect();
    let data = match directories[..] {
        [only] => shell_word(only).into_owned(),
        _ => "\"$COUCHDB_DATA\"".to_owned(),
    };
    let file = shell_word(&format!("{shard}.couch")).into_owned();
    remedy.push(Remedy::command(
        format!("Set the file aside on {node}; do not delete it:"),
        format!("(cd {data} && mv -n {file} {file}.set-aside)"),
    ));
    remedy.push(
        format!("Start CouchDB on {node}: it creates the copy, and the others fill it.")
            .as_str()
            .into(),
    );
    remedy.push(sync("Make them send everything:"));
    remedy.push(look(
        "Check that its doc_count and doc_del_count become those of the others:",
        &target,
    ));
    remedy.push("If they do not, stop CouchDB there, restore the file's name and start CouchDB. If they do, keep the file that ends in .set-aside until a backup has the database; then delete it, which frees its space.".into());
    remedy.push(Remedy::enter_service(node));
    remedy.push(Remedy::recliner(
        "Then let recliner compact it again:",
        &["release", &target.id().to_string()],
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::{
            Finding,
            test_cluster::{NOW, Shard, TestCluster},
        },
        model::facts::{Facts, OptionalU64},
    };
    use std::sync::Arc;

    /// A shard on three nodes, of which the copy on `a` was given up; with changes to the copy on `c`.
    fn found(change: impl FnOnce(&mut Facts), adjust: impl FnOnce(&mut TestCluster)) -> Finding {
        let shard = |node| Shard::new("orders", node, 0, 5 << 20).with_docs(90, 4);
        let mut cluster = TestCluster::with_shards(&["a", "b", "c"].map(shard));
        let targets: Vec<_> =
            cluster.draft.current().targets().map(|it| (it.ix(), it.facts())).collect();
        let mut change = Some(change);
        for (at, (ix, facts)) in targets.iter().enumerate() {
            let (external_bytes, update_seq) = (OptionalU64::new(700), OptionalU64::new(99));
            let mut facts = Facts { external_bytes, update_seq, ..*facts };
            if let Some(change) = change.take_if(|_| at == 2) {
                change(&mut facts);
            }
            cluster.draft.set_facts(*ix, facts);
        }
        let rest = Backoff::Quarantined { since: NOW, failures: 5 };
        Arc::make_mut(&mut cluster.conditions.constraints).backoffs.insert(targets[0].0, rest);
        adjust(&mut cluster);
        let mut found = cluster.findings_of(&RULE);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn moves_the_file(finding: &Finding) -> bool {
        finding.remedy.iter().filter_map(|it| it.text.as_deref()).any(|text| text.contains("mv -n"))
    }

    #[test]
    fn advises_rebuilding_a_copy_only_if_the_other_two_agree() {
        let same = found(|_| {}, |_| {});
        assert_eq!(
            same.says,
            "The compaction of orders 00-1f on a failed 5 times in a row, so recliner no longer tries it."
        );
        let texts: Vec<&str> = same.remedy.iter().filter_map(|it| it.text.as_deref()).collect();
        let name = "shards/00000000-1ffffffe/orders.1.couch";
        assert!(
            texts.contains(&&*format!("(cd \"$COUCHDB_DATA\" && mv -n {name} {name}.set-aside)")),
            "{texts:?}"
        );
        let unlike: [fn(&mut Facts); 4] = [
            |facts| facts.docs = OptionalU64::new(91),
            |facts| facts.deleted_docs = OptionalU64::new(5),
            |facts| facts.external_bytes = OptionalU64::new(701),
            |facts| facts.docs = OptionalU64::UNKNOWN,
        ];
        for change in unlike {
            assert!(!moves_the_file(&found(change, |_| {})));
        }
    }

    #[test]
    fn advises_no_rebuild_while_a_copy_is_down_or_being_split() {
        assert!(moves_the_file(&found(|_| {}, |_| {})));
        let is_down = |cluster: &mut TestCluster| {
            let node = cluster.draft.find_node("b").unwrap();
            cluster.draft.update_node(node, |node| node.is_up = Some(false));
        };
        assert!(!moves_the_file(&found(|_| {}, is_down)));
        let is_split = |cluster: &mut TestCluster| {
            let ix = cluster.draft.current().targets().next().unwrap().ix();
            cluster.draft.set_state(ix, TargetState::Resharding);
        };
        assert!(!moves_the_file(&found(|_| {}, is_split)));
    }
}
