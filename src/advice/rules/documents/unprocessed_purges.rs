//! Purges that a view index has not processed.

use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording},
    model::facts::Overhead,
    sources::inventory::doc_hash,
    table::{DbIx, TargetRef},
    text::{grouped, size::format_size_short},
};
use couchdb_names::Range;
use std::collections::BTreeMap;

pub(crate) const RULE: Rule = Rule {
    code: "unprocessed_purges",
    finds: "View indexes that have not processed many purges, so that compaction has to keep the entries about these.",
    because: "A purge removes a document at once, and leaves an entry that tells indexes and other copies to do the same. An index does so at its next build, and a purge alone starts no build: until then the index still contains what was emitted for the document. A compaction drops old entries beyond `_purged_infos_limit` (1,000 by default), but none that an index or a copy of the shard has not processed (`couch_db:get_minimum_purge_seq/1`), so one index that nobody queries keeps all of them in every copy. An index is compared with the copy of its range that saw the fewest purges, so the number is a lower bound. Lagging search indexes and copies also keep entries, but the rule does not see them.",
    ..Rule::warning(check)
};

/// What is known about the purges of a database.
#[derive(Clone, Copy, Debug, Default)]
struct Purges {
    /// Number of purge entries that a compaction keeps in any case.
    kept_always: u64,
    /// Bytes of the entries in all copies where they are known.
    bytes: u64,
}

impl Purges {
    fn add(&mut self, overhead: &Overhead) {
        self.kept_always = self.kept_always.max(overhead.purges_kept_always());
        self.bytes = self.bytes.saturating_add(overhead.purge_bytes.get().unwrap_or_default());
    }
}

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let mut dbs: BTreeMap<DbIx, Purges> = BTreeMap::new();
    for (shard, overhead) in situation.snapshot().overheads() {
        if overhead.purge_seq.get() > Some(overhead.purges_kept_always()) {
            dbs.entry(shard.db()).or_default().add(overhead);
        }
    }
    for (ix, purges) in dbs {
        let made = purges_by_range(situation, ix);
        for index in situation.views_of(ix) {
            let behind = purges_behind(&made, index).filter(|it| *it > purges.kept_always);
            if let Some(behind) = behind {
                findings.offer(Gain::Unknown, || finding(index, behind, &purges));
            }
        }
    }
}

/// By range, the purges that every copy has seen. An index belongs to one copy, but it is not
/// always known which, so the index can be expected to have processed only these purges. A shard
/// without purges is not recorded.
fn purges_by_range(situation: &Situation<'_>, db: DbIx) -> BTreeMap<Range, u64> {
    let mut made = BTreeMap::new();
    for shard in situation.shards_of(db) {
        let Some(range) = shard.range() else { continue };
        let purges = shard.overhead().and_then(|it| it.purge_seq.get()).unwrap_or_default();
        made.entry(range)
            .and_modify(|least: &mut u64| *least = purges.min(*least))
            .or_insert(purges);
    }
    made
}

/// Minimum number of purges that an index lacks; none if that is unknown.
fn purges_behind(made: &BTreeMap<Range, u64>, index: TargetRef<'_>) -> Option<u64> {
    let processed = index.facts().purge_seq.get()?;
    let view = index.view()?;
    let made = if view.exact_range {
        // It is unknown through which of the documents that share the index it was read.
        let of_design = |design: &str| {
            let hash = doc_hash(design);
            made.iter().find(|(range, _)| range.contains(hash)).map(|(_, purges)| *purges)
        };
        view.designs.iter().filter_map(|design| of_design(design)).min()?
    } else {
        made.values().copied().fold(0, u64::saturating_add)
    };
    Some(made.saturating_sub(processed))
}

fn finding(index: TargetRef<'_>, behind: u64, purges: &Purges) -> Wording {
    let db = index.db_name().db.to_owned();
    let view = index.view();
    let design = view.and_then(|view| view.designs.first()).map(ToString::to_string);
    let design = design.unwrap_or_default();
    let bytes = (purges.bytes > 0).then_some(purges.bytes);
    let kept = bytes.map_or_else(String::new, |bytes| {
        format!(" Entries about purges take {} in all files.", format_size_short(bytes))
    });
    let mut evidence = vec![
        ("unprocessed_purges", behind.into()),
        ("purges_kept_in_any_case", purges.kept_always.into()),
    ];
    evidence.extend(bytes.map(|bytes| ("purge_bytes", bytes.into())));
    let query = view.and_then(|view| view.build_query.as_ref());
    let build = match query {
        Some(query) => Remedy::query_view(
            "Wait until all copies have received the purges: an index that is built earlier may keep rows of purged documents. Then make the index process them, and purge nothing meanwhile; the build continues even if the request times out:",
            &db,
            query,
        ),
        None => "Query a view of the design document once: CouchDB then builds its index, which processes them.".into(),
    };
    Wording {
        says: format!(
            "The index of {db}/{design} has not processed at least {} purges: it still holds the purged documents' rows, and compaction keeps the entries about these purges.{kept}",
            grouped(behind),
        ),
        evidence,
        remedy: vec![
            build,
            Remedy::get(
                "Or, if nobody needs the design document, delete it. This shows its revision (_rev), which the DELETE needs:",
                &[&db, &design],
            ),
            Remedy::view_cleanup("and then its index:", &db),
        ],
        subject: Subject::Design { db, design },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::{
            Severity,
            test_cluster::{Index, Shard, TestCluster},
        },
        model::facts::OptionalU64,
    };

    const MIB: u64 = 1 << 20;

    /// Two ranges with this many purges in each of two copies, and an index that processed this
    /// many in total.
    fn cluster(made: Option<u64>, processed: Option<u64>) -> TestCluster {
        let shard = |node, range| Shard::new("orders", node, range, 9 * MIB);
        let shards = [shard("a", 0), shard("b", 0), shard("a", 1), shard("b", 1)];
        let mut cluster = TestCluster::with_shards(&shards);
        cluster
            .add_index(&Index { purges: processed, ..Index::new("orders", "_design/reports", 1) });
        let purge_seq = made.map_or(OptionalU64::UNKNOWN, OptionalU64::new);
        cluster.set_overhead("orders", Overhead { purge_seq, ..Overhead::default() });
        cluster
    }

    #[test]
    fn finds_index_that_holds_back_purge_entries() {
        let found = cluster(Some(6_000), Some(9_000)).findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "The index of orders/_design/reports has not processed at least 3,000 purges: it still holds the purged documents' rows, and compaction keeps the entries about these purges."
        );
        assert_eq!((only.severity, only.gain), (Severity::Warning, Gain::Unknown));
        assert_eq!(
            only.remedy[0].text.as_deref().unwrap_or_default(),
            "curl -u \"$COUCHDB_USER\" \"$COUCHDB_URL\"'/orders/_design/reports/_view/all?limit=0'"
        );
    }

    #[test]
    fn ignores_purges_that_compaction_keeps_anyway() {
        assert_eq!(cluster(Some(6_000), Some(11_000)).findings_of(&RULE), []);
        assert_eq!(cluster(Some(6_000), Some(10_999)).findings_of(&RULE).len(), 1);
        let mut with_limit = cluster(Some(6_000), Some(9_000));
        let overhead = Overhead {
            purges_limit: OptionalU64::new(3_000),
            purge_bytes: OptionalU64::new(MIB),
            ..Overhead::default()
        };
        with_limit.set_overhead("orders", overhead);
        assert_eq!(with_limit.findings_of(&RULE), []);
    }

    #[test]
    fn states_bytes_of_purge_entries_if_headers_were_read() {
        let mut cluster = cluster(Some(6_000), Some(9_000));
        let purge_bytes = OptionalU64::new(MIB);
        cluster.set_overhead("orders", Overhead { purge_bytes, ..Overhead::default() });
        let says = cluster.findings_of(&RULE)[0].says.clone();
        assert!(says.ends_with(" Entries about purges take 4 MiB in all files."), "{says}");
    }

    #[test]
    fn is_silent_if_either_number_is_unknown() {
        assert_eq!(cluster(None, Some(0)).findings_of(&RULE), []);
        assert_eq!(cluster(Some(6_000), None).findings_of(&RULE), []);
    }

    #[test]
    fn index_of_one_range_is_compared_with_purges_of_that_range() {
        let mut cluster = cluster(None, None);
        let behind = |cluster: &TestCluster, processed: u64| {
            let snapshot = cluster.draft.current();
            let index = snapshot.targets().find(|it| it.view().is_some()).unwrap();
            let mut facts = index.facts();
            facts.purge_seq = OptionalU64::new(processed);
            (index.ix(), facts)
        };
        let (ix, facts) = behind(&cluster, 400);
        cluster.draft.set_facts(ix, facts);
        let mut view = cluster.draft.current().target(ix).unwrap().view().unwrap().clone();
        view.exact_range = true;
        cluster.draft.set_view(ix, view);
        let index = cluster.draft.current().target(ix).unwrap();
        let hash = doc_hash("_design/reports");
        let half = u32::MAX / 2;
        let (low, high) = (Range { from: 0, to: half }, Range { from: half + 1, to: u32::MAX });
        let own = if low.contains(hash) { low } else { high };
        let made = |range: Range| if range == own { 3_000 } else { 90_000 };
        let made = BTreeMap::from([(low, made(low)), (high, made(high))]);
        assert_eq!(purges_behind(&made, index), Some(2_600));
    }
}
