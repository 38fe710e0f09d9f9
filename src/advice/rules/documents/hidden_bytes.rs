//! Dead data that CouchDB counts as live.

use crate::{
    advice::{DbSurvey, Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    table::DbIx,
    text::size::format_size_short,
};
use std::cmp::Reverse;

pub(crate) const RULE: Rule = Rule {
    code: "hidden_bytes",
    finds: "Databases in which CouchDB counts data as live although a compaction would remove it.",
    because: "Before 3.4.3, live bytes include attachments of replaced and deleted revisions, before 3.3 also their bodies (apache/couchdb#5346), and they stay wrong after an upgrade until the shard is compacted. smoosh ranks a file by its live bytes, so it compacts such a database too late or never. recliner learns how much compactions remove from finished ones and from looking inside files; long trees of revisions shrink too (tried on 3.5.2). The rule is silent if there were none, in the database or in others where live bytes are known to mislead, or if the difference is less than a tenth of the live bytes, which may be an error of the prediction. It shows no gain, because the rules about compaction count these bytes.",
    untried: Some("CouchDB 3.5.2 counts bodies and attachments right"),
    ..Rule::info(check)
};

/// Share of live bytes from which hidden bytes count as dead data rather than as the prediction's
/// error, which is a few percent.
const MIN_SHARE: f64 = 0.1;

/// These bytes have no gain of their own: they are counted with all other waste.
const NO_GAIN: Gain = Gain::Bytes(0);

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let min_bytes = situation.settings().min_bytes;
    let hides = |db: &DbSurvey| {
        let share = db.hidden_bytes as f64 / db.active_bytes.max(1) as f64;
        db.hidden_bytes >= min_bytes && share >= MIN_SHARE
    };
    let mut dbs: Vec<(DbIx, &DbSurvey)> =
        situation.survey.dbs().filter(|(_, db)| hides(db)).collect();
    // No finding has a gain of its own: the rules about compaction count the waste.
    dbs.sort_by_key(|(ix, db)| (Reverse(db.hidden_bytes), *ix));
    for (ix, db) in dbs {
        findings.offer(NO_GAIN, || finding(situation, ix, db));
    }
}

fn finding(situation: &Situation<'_>, ix: DbIx, db: &DbSurvey) -> Wording {
    let (snapshot, name) = (situation.snapshot(), situation.db_name(ix));
    let bytes = db.hidden_bytes;
    let most = db.most_hidden.and_then(|(bytes, at)| Some((bytes, snapshot.target(at)?)));
    let mut remedy: Vec<Remedy> = most
        .map(|(bytes, target)| {
            let says = format!(
                "Let a running recliner compact the copy that hides the most ({}):",
                format_size_short(bytes)
            );
            Remedy::compact(says, &target.id().to_string())
        })
        .into_iter()
        .collect();
    if !situation.has_rent_channel() {
        remedy.push(Remedy::configuration(
            "Let recliner find all of them; this preset ranks by what a compaction would free:",
            "channels: rent",
        ));
    }
    remedy.push("Where CouchDB is older than 3.4.3, upgrade it: each shard's live bytes are right after its next compaction.".into());
    Wording {
        subject: Subject::Database(name.to_owned()),
        says: format!(
            "{name} has {} of hidden waste in all files: CouchDB counts it as live, but compactions remove such data.",
            format_size_short(bytes)
        ),
        evidence: vec![
            ("hidden_bytes", bytes.into()),
            ("active_bytes", db.active_bytes.into()),
            ("file_bytes", db.file_bytes.into()),
        ],
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::{
        advice::test_cluster::{NOW, Shard, TestCluster},
        model::{
            correction::{Correction, Corrections},
            target::TargetKind,
        },
    };
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    /// Two copies of 900 MiB, all live; judging by earlier compactions, the documents of each take
    /// this many MiB.
    fn found(documents: f32, trust: f32) -> Vec<Finding> {
        let density = documents * 1_048.576;
        let shard = |node| Shard::new("orders", node, 0, 900 * MIB).with_docs(1_000, 0);
        let mut cluster = TestCluster::with_shards(&[shard("a"), shard("b")]);
        let mut corrections = Corrections::default();
        let learned = Correction {
            density,
            trust,
            trust_where_low: trust,
            is_confirmed: true,
            ..Correction::NONE
        };
        corrections.set("orders", ".1", TargetKind::Db, learned);
        cluster.draft.set_corrections(&Arc::new(corrections), Some(NOW));
        cluster.findings_of(&RULE)
    }

    #[test]
    fn sums_hidden_bytes_over_all_copies() {
        // The documents should take 300 MiB, and half of the difference is trusted.
        let found = found(300.0, 0.5);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "orders has 600 MiB of hidden waste in all files: CouchDB counts it as live, but compactions remove such data."
        );
        assert_eq!((only.gain, only.remedy.len()), (Gain::Bytes(0), 3));
    }

    #[test]
    fn ignores_few_hidden_bytes() {
        assert_eq!(found(809.0, 1.0).len(), 1);
        assert_eq!(found(811.0, 1.0), [], "less than a tenth");
        assert_eq!(found(809.0, 0.3), []);
    }

    #[test]
    fn ignores_databases_without_learned_hidden_bytes() {
        assert_eq!(found(0.0, 0.0), []);
    }
}
