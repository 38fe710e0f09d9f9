//! Indexes with more live data than their database.

use super::designs::DesignName;
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Wording},
    text::size::format_size_short,
};

pub(crate) const RULE: Rule = Rule {
    code: "index_larger_than_database",
    finds: "View indexes with more live data than the database that they index.",
    because: "An index stores every key and value that its map functions emit, and the id of the document with each. It becomes as large as its database if they emit whole documents, or several rows for each. A query with `include_docs=true` reads the document from the database instead, one more read for each row. The gain is what the index has beyond the size of its database. The factor is `advice.large_index`.",
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let settings = situation.settings();
    for (ix, db) in situation.survey.dbs() {
        let limit = db.active_bytes as f64 * settings.large_index_factor;
        let is_large = |bytes: u64| bytes as f64 > limit && bytes >= settings.min_bytes;
        let is_known = db.unmeasured_shards == 0
            && db.active_bytes > 0
            && db.shards == situation.snapshot().shard_map(ix).copies;
        if !is_known || !db.largest_view.is_some_and(|(bytes, _)| is_large(bytes)) {
            continue;
        }
        for index in situation.views_of(ix) {
            let Some(bytes) = index.active_bytes().filter(|bytes| is_large(*bytes)) else {
                continue;
            };
            let Some(name) = DesignName::of(index) else { continue };
            let gain = bytes.saturating_sub(db.active_bytes);
            if gain < settings.min_bytes {
                continue;
            }
            findings.offer(Gain::Bytes(gain), || finding(name, bytes, db.active_bytes));
        }
    }
}

fn finding(name: DesignName, index: u64, database: u64) -> Wording {
    let factor = index as f64 / database as f64;
    Wording {
        says: format!(
            "The index of {name} has {} of live data in all files, {factor:.1} times its database ({}).",
            format_size_short(index),
            format_size_short(database),
        ),
        evidence: vec![
            ("index_live_bytes", index.into()),
            ("database_live_bytes", database.into()),
            ("factor", factor.into()),
        ],
        remedy: vec![
            name.show("See what its views emit:"),
            "Emit null, or only the fields that readers need, and let them query with include_docs=true. The changed document builds a new index beside the old one, so do it while there is room, then clean up.".into(),
            Remedy::view_cleanup(
                "Delete the files of the old index once the new one is built:",
                &name.db,
            ),
        ],
        subject: name.subject(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Index, Shard, TestCluster};

    const MIB: u64 = 1 << 20;

    fn found(index_mib: Option<u64>, shards: &[Shard]) -> Vec<Finding> {
        let mut cluster = TestCluster::with_shards(shards);
        let index = Index::new("orders", "_design/reports", 1);
        cluster.add_index(&Index { bytes: index_mib.map(|mib| mib * MIB), ..index });
        cluster.findings_of(&RULE)
    }

    fn shards() -> [Shard; 2] {
        ["a", "b"].map(|node| Shard::new("orders", node, 0, 500 * MIB))
    }

    #[test]
    fn finds_index_larger_than_its_database() {
        let found = found(Some(750), &shards());
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "The index of orders/_design/reports has 1.5 GiB of live data in all files, 1.5 times its database (1000 MiB)."
        );
        assert_eq!(only.gain, Gain::Bytes(500 * MIB));
        assert_eq!(only.subject.to_string(), "orders/_design/reports");
    }

    #[test]
    fn ignores_index_as_large_as_its_database() {
        assert_eq!(found(Some(500), &shards()), []);
        assert_eq!(found(Some(531), &shards()), [], "62 MiB more are too little");
    }

    #[test]
    fn is_silent_if_any_size_is_unknown() {
        assert_eq!(found(None, &shards()), []);
        let [one, other] = shards();
        let unknown = Shard { active_bytes: None, ..other.clone() };
        assert_eq!(found(Some(750), &[one.clone(), unknown]), []);
        assert_eq!(found(Some(750), &[one, other.missing()]), []);
    }
}
