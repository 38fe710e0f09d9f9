//! Views that two indexes of a database both build.

use super::designs::DesignName;
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Wording},
    table::TargetRef,
    text::{counted, size::format_size_short},
};

pub(crate) const RULE: Rule = Rule {
    code: "duplicate_views",
    finds: "Design documents whose views another design document of the database repeats in a separate index.",
    because: "CouchDB shares an index between design documents only if all their views are equal, including names and order: then both have the same signature. Renaming a view, or repeating only some views, gives another signature. The same map and reduce functions then run twice for each change, and their rows are stored twice in every copy. recliner compares functions as text, with language, options and library; their names do not count.",
    ..Rule::info(check)
};

/// An index whose views are all in another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duplicate<'a> {
    pub(crate) index: TargetRef<'a>,
    pub(crate) other: TargetRef<'a>,
    bytes: u64,
}

/// The duplicates among the indexes of a database whose functions and sizes are known.
pub(crate) fn duplicates<'a>(indexes: impl Iterator<Item = TargetRef<'a>>) -> Vec<Duplicate<'a>> {
    let known = indexes.filter(|index| !functions(*index).is_empty());
    let mut known: Vec<(u64, TargetRef<'_>)> =
        known.filter_map(|index| Some((index.file_bytes()?, index))).collect();
    // The smaller of the two is the duplicate.
    known.sort_unstable_by_key(|(bytes, index)| (functions(*index).len(), *bytes, index.ix()));
    let mut found = Vec::new();
    for (at, &(bytes, index)) in known.iter().enumerate() {
        let mut others = known.iter().skip(at + 1).map(|(_, other)| *other);
        let other = others.find(|other| is_contained(functions(index), functions(*other)));
        found.extend(other.map(|other| Duplicate { index, other, bytes }));
    }
    found
}

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let min_bytes = situation.settings().min_bytes;
    for (ix, db) in situation.survey.dbs() {
        if db.views < 2 || db.most_views == 0 || db.view_file_bytes < min_bytes {
            continue;
        }
        for duplicate in duplicates(situation.views_of(ix)) {
            let Some(name) = DesignName::of(duplicate.index) else { continue };
            if duplicate.bytes >= min_bytes {
                findings.offer(Gain::Bytes(duplicate.bytes), || finding(name, duplicate));
            }
        }
    }
}

fn functions<'a>(index: TargetRef<'a>) -> &'a [u64] {
    index.view().map_or(&[], |view| &view.functions)
}

/// Whether a sorted list has all of another sorted list's entries.
fn is_contained(few: &[u64], many: &[u64]) -> bool {
    let mut many = many.iter();
    few.iter().all(|one| many.any(|other| other == one))
}

fn finding(name: DesignName, Duplicate { index, other, bytes }: Duplicate<'_>) -> Wording {
    let count = functions(index).len() as u64;
    let other = DesignName::of(other).map_or_else(String::new, |other| other.design);
    Wording {
        says: format!(
            "{} of {name} {} the same functions as in {other}, and both are indexed: {} in all files.",
            counted(count, "view", "views"),
            if count == 1 { "has" } else { "have" },
            format_size_short(bytes),
        ),
        evidence: vec![
            ("views", count.into()),
            ("file_bytes", bytes.into()),
            ("also_in", other.clone().into()),
        ],
        remedy: vec![
            name.show("See its views:"),
            Remedy::choice(format!(
                "Let the clients of these views query {other} instead, then delete {}; `recliner indexes` shows who reads them, if recliner follows access logs.",
                name.design
            )),
            Remedy::view_cleanup("Then delete the files of its index:", &name.db),
        ],
        subject: name.subject(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::{
        Severity,
        test_cluster::{Index, Shard, TestCluster},
    };

    const MIB: u64 = 1 << 20;

    fn found(indexes: &[(&'static str, &[u64], Option<u64>)]) -> Vec<Finding> {
        let shard = |node| Shard::new("orders", node, 0, 500 * MIB);
        let mut cluster = TestCluster::with_shards(&[shard("a"), shard("b")]);
        for (signature, (design, functions, mib)) in (1..).zip(indexes) {
            let index = Index::new("orders", design, signature);
            let bytes = mib.map(|mib| mib * MIB);
            cluster.add_index(&Index { functions: functions.to_vec(), bytes, ..index });
        }
        cluster.findings_of(&RULE)
    }

    #[test]
    fn finds_index_whose_views_are_all_in_another() {
        let found =
            found(&[("_design/all", &[1, 4, 9], Some(300)), ("_design/old", &[4], Some(50))]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "1 view of orders/_design/old has the same functions as in _design/all, and both are indexed: 100 MiB in all files."
        );
        assert_eq!((only.severity, only.gain), (Severity::Info, Gain::Bytes(100 * MIB)));
        assert_eq!(only.subject.to_string(), "orders/_design/old");
    }

    #[test]
    fn smaller_of_two_indexes_with_equal_views_is_the_duplicate() {
        let found = found(&[("_design/b", &[1, 4], Some(90)), ("_design/a", &[1, 4], Some(80))]);
        let subjects: Vec<String> = found.iter().map(|it| it.subject.to_string()).collect();
        assert_eq!(subjects, ["orders/_design/a"]);
    }

    #[test]
    fn ignores_differing_views_and_small_indexes() {
        assert_eq!(
            found(&[("_design/a", &[1, 5], Some(90)), ("_design/b", &[1, 4], Some(80))]),
            []
        );
        assert_eq!(found(&[("_design/a", &[1], Some(90)), ("_design/b", &[1], Some(31))]), []);
    }

    #[test]
    fn is_silent_if_view_functions_or_sizes_are_unknown() {
        assert_eq!(found(&[("_design/a", &[], Some(90)), ("_design/b", &[], Some(80))]), []);
        assert_eq!(found(&[("_design/a", &[1], None), ("_design/b", &[1], None)]), []);
    }
}
