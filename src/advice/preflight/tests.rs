//! A document before its deployment, in a small cluster.

use super::*;
use crate::{
    advice::test_cluster::{Index, NOW, Shard, TestCluster, build_job},
    jobs::{Job, JobKey, JobKind},
    model::{
        records::BuildSpeed,
        settings::{limits::Headroom, work::EnforceViews},
    },
};
use proptest::prelude::*;
use std::{collections::BTreeSet, sync::Arc};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// `orders` on nodes `a` and `b`, two copies on each, a million documents in each.
fn shards(docs: u64) -> Vec<Shard> {
    let copy = |(node, range)| Shard::new("orders", node, range, GIB).with_docs(docs, docs / 10);
    [("a", 0), ("a", 1), ("b", 0), ("b", 1)].map(copy).to_vec()
}

fn cluster() -> TestCluster {
    TestCluster::with_shards(&shards(1_000_000))
}

/// An index whose file has `mib` MiB in each copy.
fn index(design: &'static str, signature: u8, mib: u64, views: u64) -> Index {
    let functions = (0..views).collect();
    Index { bytes: Some(mib * MIB), functions, ..Index::new("orders", design, signature) }
}

fn document(views: &str) -> DesignDocument {
    let text = format!(r#"{{"_id":"_design/by_day","views":{views}}}"#);
    DesignDocument::parse(&text, None).unwrap()
}

const BY_DAY: &str = r#"{"by_day":{"map":"function(doc){emit(doc.day,1)}"}}"#;

fn asked(cluster: TestCluster, design: &DesignDocument, present: &PresentDesign) -> Preflight {
    let inputs = cluster.inputs();
    let plan = &*inputs.plan;
    let db = database_called(&plan.snapshot, "orders", NOW).unwrap();
    preflight(&PreflightInputs {
        plan,
        db,
        design,
        present,
        beside: [&[]; 2],
        sample: None,
        now: NOW,
    })
}

fn new(cluster: TestCluster) -> Preflight {
    asked(cluster, &document(BY_DAY), &PresentDesign::Absent)
}

fn known(views: &str) -> PresentDesign {
    PresentDesign::Known(Box::new(document(views)))
}

fn speed(db: &str, changes: u64, language: &str) -> BuildSpeed {
    BuildSpeed {
        db: db.to_owned(),
        design: "_design/x".to_owned(),
        node: "a".to_owned(),
        language: Some(language.to_owned()),
        views: Some(1),
        changes,
        seconds: 100,
        indexers: 2,
        at: NOW,
    }
}

#[test]
fn cost_per_document_is_estimated_from_siblings() {
    let mut cluster = cluster();
    cluster.add_index(&index("_design/one", 1, 100, 1));
    cluster.add_index(&index("_design/two", 2, 400, 4));
    cluster.add_index(&index("_design/three", 3, 50, 1));
    let found = new(cluster);
    let size = found.size.unwrap();
    assert_eq!((size.basis, size.measured), (SizeBasis::Siblings, 3));
    // 100 MiB for a million documents in each of four copies; half to double of the extremes.
    let expected = [100.0, 400.0, 800.0].map(|mib| mib * MIB as f64);
    let live = [size.live.low, size.live.likely, size.live.high];
    assert!(live.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1.0), "{live:?}");
    assert_eq!((found.kind, found.docs), (BuildKind::New, Some(2_000_000)));
}

#[test]
fn cost_grows_with_views_and_emitted_documents() {
    let cost = |views: &str| {
        let mut cluster = cluster();
        cluster.add_index(&index("_design/one", 1, 100, 1));
        asked(cluster, &document(views), &PresentDesign::Absent).size.unwrap().live
    };
    let one = cost(BY_DAY);
    let two = cost(r#"{"a":{"map":"function(doc){emit(1,2)}"},"b":{"map":"x"}}"#);
    assert!((two.likely / one.likely - 2.0).abs() < 1e-9);
    let whole = cost(r#"{"a":{"map":"function(doc){emit(doc.day, doc)}"}}"#);
    // Four copies of 1 GiB.
    assert!(whole.likely > 3.0 * GIB as f64 && whole.low > one.low, "{whole:?}");
}

/// The cost of a design document whose present index has two views of 100 MiB each, beside a
/// sibling of 1 or 10,000 MiB.
fn changed_cost(sibling: u64, views: &str) -> IndexSize {
    let present = r#"{"a":{"map":"m"},"b":{"map":"n"}}"#;
    let mut cluster = cluster();
    let signature = document(present).signature;
    let own = Index { functions: vec![1, 2], ..index("_design/by_day", 0, 200, 2) };
    cluster.add_index_of(&own, signature);
    cluster.add_index(&index("_design/other", 2, sibling, 1));
    asked(cluster, &document(views), &known(present)).size.unwrap()
}

#[test]
fn kept_views_are_estimated_at_their_present_cost() {
    let mib = |bytes: f64| (bytes / (4 * MIB) as f64).round();
    // Views renamed, and with their names exchanged.
    for views in [r#"{"b":{"map":"m"},"a":{"map":"n"}}"#, r#"{"x":{"map":"m"},"y":{"map":"n"}}"#] {
        for sibling in [1, 10_000] {
            let IndexSize { live, basis, .. } = changed_cost(sibling, views);
            assert_eq!(basis, SizeBasis::Present, "{views}");
            assert_eq!([live.low, live.likely, live.high].map(mib), [160.0, 200.0, 250.0]);
        }
    }
    // The cost of an added view is known only from siblings.
    let added = r#"{"a":{"map":"m"},"b":{"map":"n"},"c":{"map":"o"}}"#;
    let (small, large) = (changed_cost(1, added), changed_cost(10_000, added));
    assert_eq!(mib(small.live.likely), 210.0, "the middle of 1 and 100");
    assert_eq!(mib(large.live.likely), 1_200.0, "the middle of 100 and 10,000");
    assert!(small.says().contains("for unchanged views"), "{}", small.says());
    // One of two views stays: its share of the index is less certain.
    let halved = changed_cost(10_000, r#"{"a":{"map":"m"}}"#);
    assert_eq!([halved.live.low, halved.live.high].map(mib), [50.0, 200.0]);
    // If most of the index is dropped, or its language changes, the index is one sibling of
    // several.
    let new = changed_cost(10_000, r#"{"z":{"map":"z"}}"#);
    assert_eq!(new.basis, SizeBasis::Siblings);
}

proptest! {
    #[test]
    fn keeping_more_views_never_widens_the_estimate(kept in 1_usize..6, sibling in 1_u64..10_000) {
        let views = |count: usize| {
            let all: Vec<String> =
                (0..6).map(|at| format!(r#""v{at}":{{"map":"{}"}}"#, if at < count { at } else { at + 90 })).collect();
            format!("{{{}}}", all.join(","))
        };
        let cost = |count: usize| {
            let mut cluster = cluster();
            let signature = document(&views(6)).signature;
            let own = Index { functions: (0..6).collect(), ..index("_design/by_day", 0, 600, 6) };
            cluster.add_index_of(&own, signature);
            cluster.add_index(&index("_design/other", 2, sibling, 1));
            let live = asked(cluster, &document(&views(count)), &known(&views(6))).size.map(|it| it.live);
            live.map(|live| live.high / live.low)
        };
        if let Some((fewer, more)) = cost(kept - 1).zip(cost(kept)).filter(|_| kept < 6) {
            prop_assert!(more <= fewer * 1.000_001, "{more} {fewer}");
        }
    }
}

#[test]
fn ignores_indexes_not_built_or_not_measured() {
    for unusable in [
        Index { pending: Some(900_000), ..index("_design/one", 1, 100, 1) },
        Index { pending: None, ..index("_design/one", 1, 100, 1) },
        Index { bytes: None, ..index("_design/one", 1, 100, 1) },
        index("_design/one", 1, 100, 0),
    ] {
        let mut cluster = cluster();
        cluster.add_index(&unusable);
        let found = new(cluster);
        assert_eq!(found.size, None, "{unusable:?}");
        assert!(found.notes[0].starts_with("The size of the index is unknown"));
        assert!(found.nodes.iter().all(|node| node.verdict == SpaceVerdict::Unknown));
    }
}

#[test]
fn without_siblings_other_databases_give_a_wider_range() {
    let with_other = |own: bool| {
        let mut all = shards(1_000_000);
        all.push(Shard::new("users", "a", 0, GIB).with_docs(1_000_000, 0));
        let mut cluster = TestCluster::with_shards(&all);
        let other = Index { db: "users", ..index("_design/u", 9, 100, 1) };
        cluster.add_index(&other);
        if own {
            cluster.add_index(&index("_design/one", 1, 100, 1));
        }
        new(cluster).size.unwrap()
    };
    let (own, other) = (with_other(true), with_other(false));
    assert_eq!((own.basis, other.basis), (SizeBasis::Siblings, SizeBasis::Cluster));
    assert!(other.live.low < own.live.low && other.live.high > own.live.high);
    assert!(other.says().contains("no built index"), "{}", other.says());
}

#[test]
fn unknown_document_count_leaves_size_and_time_unknown() {
    let uncounted: Vec<Shard> =
        shards(0).into_iter().map(|it| Shard { docs: None, ..it }).collect();
    let mut cluster = TestCluster::with_shards(&uncounted);
    cluster.add_index(&index("_design/one", 1, 100, 1));
    cluster.conditions.constraints = Arc::new(crate::jobs::TargetConstraints {
        build_speeds: [speed("orders", 50_000, "javascript")].into(),
        ..crate::jobs::TargetConstraints::default()
    });
    let found = new(cluster);
    assert_eq!((found.docs, found.size, found.seconds), (None, None, None));
}

#[test]
fn build_kind_depends_on_the_signatures() {
    let other = r#"{"by_day":{"map":"function(doc){emit(doc.month,1)}"}}"#;
    let unread = || PresentDesign::Unread("a node is down".to_owned());
    for (text, present, expected) in [
        (BY_DAY, PresentDesign::Absent, BuildKind::New),
        (BY_DAY, known(other), BuildKind::Rebuild),
        (BY_DAY, known("{}"), BuildKind::New),
        (BY_DAY, known(BY_DAY), BuildKind::Unchanged),
        (BY_DAY, unread(), BuildKind::Unknown),
        ("{}", PresentDesign::Absent, BuildKind::NoViews),
        ("{}", known(BY_DAY), BuildKind::NoViews),
        (r#"{"lib":{"a":"b"}}"#, known(BY_DAY), BuildKind::NoViews),
    ] {
        let found = asked(cluster(), &document(text), &present);
        assert_eq!(found.kind, expected, "{text} {present:?}");
        assert_eq!(found.nodes.is_empty(), !expected.builds());
    }
}

#[test]
fn an_index_of_the_same_signature_is_shared() {
    let mut cluster = cluster();
    let design = document(BY_DAY);
    let shared = Index { functions: vec![1], ..Index::new("orders", "_design/other", 0) };
    cluster.add_index(&shared);
    let inputs = cluster.inputs();
    let same = DesignDocument { signature: Signature([0; 16]), ..design };
    let plan = &*inputs.plan;
    let db = database_called(&plan.snapshot, "orders", NOW).unwrap();
    let present = PresentDesign::Absent;
    let found = preflight(&PreflightInputs {
        plan,
        db,
        design: &same,
        present: &present,
        beside: [&[]; 2],
        sample: None,
        now: NOW,
    });
    assert_eq!(found.kind, BuildKind::Shared);
    assert_eq!(found.shared_with, ["_design/other"]);
}

/// Replaces a document whose index the cluster has; `shared`: another document uses that index too.
fn replaced(shared: bool) -> Preflight {
    let mut cluster = cluster();
    let present =
        DesignDocument { signature: Signature([7; 16]), ..document(r#"{"by_day":{"map":"old"}}"#) };
    cluster.add_index(&index("_design/by_day", 7, 100, 1));
    if shared {
        // All design documents of an index share one entry.
        let ix = cluster.draft.current().targets().find(|it| it.view().is_some()).unwrap().ix();
        let view = cluster.draft.current().target(ix).unwrap().view().unwrap().clone();
        let designs = Arc::new(["_design/by_day".into(), "_design/other".into()]);
        let db = cluster.draft.get_or_add_db(crate::table::DbName { db: "orders", suffix: ".1" });
        cluster.draft.add_view(db, crate::table::View { designs, ..view });
    }
    asked(cluster, &document(BY_DAY), &PresentDesign::Known(Box::new(present)))
}

/// After freeing space, if that is needed: nothing else can be done before the document is there.
#[test]
fn remedy_begins_with_saving_the_document() {
    for (free, automatic, before, when) in [
        (20 * GIB, true, 0, "CouchDB builds its index at once."),
        (20 * GIB, false, 0, "CouchDB builds its index at the first query."),
        (100 * MIB, true, 1, "CouchDB builds its index at once."),
    ] {
        let mut cluster = cluster();
        cluster.add_index(&index("_design/one", 1, 100, 1));
        cluster.set_free_space(&[("a", Some(free)), ("b", Some(free))]);
        let design = DesignDocument { is_updated_automatically: automatic, ..document(BY_DAY) };
        let found = asked(cluster, &design, &PresentDesign::Absent);
        let says: Vec<_> = found.remedy.iter().map(|step| step.says.as_str()).collect();
        let expected = format!("Save the document as _design/by_day in orders; {when}");
        assert_eq!(says.get(before), Some(&&*expected), "{says:?}");
    }
}

#[test]
fn the_old_index_stays_beside_the_new_one_until_a_cleanup() {
    let found = replaced(false);
    assert_eq!(found.kind, BuildKind::Rebuild);
    let old: Vec<_> = found.nodes.iter().map(|node| node.old_bytes).collect();
    assert_eq!(old, [Some(200 * MIB), Some(200 * MIB)]);
    let pasted: Vec<_> = found.remedy.iter().filter_map(|it| it.text.as_deref()).collect();
    assert!(pasted.iter().any(|line| line.ends_with("/orders/_view_cleanup")), "{pasted:?}");
    assert!(pasted.contains(&"recliner compact orders/_design/by_day"), "{pasted:?}");
}

#[test]
fn index_used_by_another_document_does_not_become_stale() {
    let found = replaced(true);
    assert!(found.nodes.iter().all(|node| node.old_bytes.is_none()), "{:?}", found.nodes);
}

#[test]
fn index_is_judged_by_the_free_space_of_each_node() {
    let verdicts = |free: [Option<u64>; 2]| {
        let mut cluster = cluster();
        cluster.add_index(&index("_design/one", 1, 100, 1));
        cluster.set_free_space(&[("a", free[0]), ("b", free[1])]);
        new(cluster).nodes.into_iter().map(|node| node.verdict).collect::<Vec<_>>()
    };
    use SpaceVerdict::{DoesNotFit, Fits, MayNotFit, Unknown};
    // Two copies of 25 to 400 MiB of live data, a multiple of that as built, plus a compaction.
    assert_eq!(verdicts([Some(20 * GIB), Some(GIB)]), [Fits, MayNotFit]);
    assert_eq!(verdicts([Some(100 * MIB), None]), [DoesNotFit, Unknown]);
}

#[test]
fn kept_space_and_running_compactions_are_not_free() {
    let free = |keep_free_percent: f64, compaction: Option<u64>| {
        let mut cluster = cluster();
        cluster.set_free_space(&[("a", Some(20 * GIB))]);
        let disks = Arc::make_mut(&mut cluster.conditions.disks);
        disks.volumes[0].space.as_mut().unwrap().size = Some(100 * GIB);
        cluster.rules.headroom = Headroom { keep_free_percent, ..cluster.rules.headroom.clone() };
        if let Some(reserved_bytes) = compaction {
            let job = build_job("orders", "_design/one", 0);
            let key = JobKey { kind: JobKind::CompactDb, ..job.key.clone() };
            cluster.add_job(Job { key, reserved_bytes, ..job });
        }
        let need = new(cluster).nodes.swap_remove(0);
        (need.free_bytes, need.reserved_bytes)
    };
    assert_eq!(free(0.0, None), (Some(20 * GIB), 0));
    assert_eq!(free(15.0, None), (Some(5 * GIB), 0));
    assert_eq!(free(15.0, Some(2 * GIB)), (Some(3 * GIB), 2 * GIB));
    assert_eq!(free(15.0, Some(6 * GIB)), (Some(0), 6 * GIB));
}

#[test]
fn nodes_on_one_volume_share_its_space() {
    let verdict = |is_shared: bool| {
        let mut cluster = cluster();
        cluster.add_index(&index("_design/one", 1, 100, 1));
        cluster.set_free_space(&[("a", Some(12 * GIB))]);
        if is_shared {
            let disks = Arc::make_mut(&mut cluster.conditions.disks);
            disks.volumes[0].nodes.push("b".into());
        }
        new(cluster).nodes[0].verdict
    };
    assert_eq!((verdict(false), verdict(true)), (SpaceVerdict::Fits, SpaceVerdict::MayNotFit));
}

fn seconds_with(speeds: &[BuildSpeed]) -> Option<Spread> {
    let mut cluster = cluster();
    cluster.conditions.constraints = Arc::new(crate::jobs::TargetConstraints {
        build_speeds: speeds.into(),
        ..crate::jobs::TargetConstraints::default()
    });
    new(cluster).seconds
}

#[test]
fn build_time_follows_measured_builds_of_the_language() {
    assert_eq!(seconds_with(&[]), None);
    assert_eq!(seconds_with(&[speed("orders", 50_000, "query")]), None);
    let own = seconds_with(&[speed("orders", 50_000, "javascript")]).unwrap();
    // 1.1 million changes in each copy at 500 a second, with as many copies at a time as were
    // measured.
    assert!((own.likely - 2_200.0).abs() < 1.0, "{own:?}");
    assert!(own.low < own.likely && own.likely < own.high);
    let other = seconds_with(&[speed("users", 50_000, "javascript")]).unwrap();
    assert!(other.low < own.low && other.high > own.high, "{other:?}");
}

#[test]
fn notes_say_what_could_not_be_read() {
    let why = PresentDesign::Unread("a node is down".to_owned());
    let found = asked(cluster(), &document(BY_DAY), &why);
    assert!(found.notes[0].contains("a node is down"), "{:?}", found.notes);
    assert!(matches!(PresentDesign::of(Ok(Some("[]".to_owned()))), PresentDesign::Unread(_)));
}

#[test]
fn database_with_only_orphans_is_not_found() {
    let mut cluster = cluster();
    cluster.add_shard(&Shard::new("gone", "a", 0, GIB).orphan());
    let inputs = cluster.inputs();
    let find = |name| database_called(&inputs.plan.snapshot, name, NOW).is_some();
    assert_eq!(["orders", "gone", "order"].map(find), [true, false, false]);
}

proptest! {
    #[test]
    fn estimates_are_ordered_and_never_shrink_with_more_documents(
        docs in 1_u64..1_000_000_000,
        more in 0_u64..1_000_000_000,
        cost in 1_u64..10_000,
        rate in 1_u64..1_000_000,
        views in 1_usize..5,
    ) {
        let views: Vec<String> =
            (0..views).map(|at| format!(r#""v{at}":{{"map":"m{at}"}}"#)).collect();
        let design = document(&format!("{{{}}}", views.join(",")));
        let asked_of = |docs: u64| {
            let mut all = shards(docs);
            // The cost of a document is known from another database, so it stays the same.
            all.push(Shard::new("users", "a", 0, GIB).with_docs(1 << 20, 0));
            let mut cluster = TestCluster::with_shards(&all);
            cluster.add_index(&Index { db: "users", ..index("_design/u", 9, cost, 1) });
            cluster.conditions.constraints = Arc::new(crate::jobs::TargetConstraints {
                build_speeds: [speed("users", rate, "javascript")].into(),
                ..crate::jobs::TargetConstraints::default()
            });
            asked(cluster, &design, &PresentDesign::Absent)
        };
        let (few, many) = (asked_of(docs), asked_of(docs + more));
        let spreads = |found: &Preflight| {
            let size = found.size.clone().unwrap();
            let mut all = vec![size.live, size.built, found.seconds.unwrap()];
            all.extend(found.nodes.iter().filter_map(|node| node.peak));
            all
        };
        for (few, many) in spreads(&few).into_iter().zip(spreads(&many)) {
            for spread in [few, many] {
                prop_assert!(spread.low <= spread.likely && spread.likely <= spread.high);
            }
            prop_assert!(few.low <= many.low && few.likely <= many.likely && few.high <= many.high);
        }
    }
}

/// A document `_design/<name>` with one view.
fn named(name: &str, map: &str) -> DesignDocument {
    let text = format!(r#"{{"_id":"_design/{name}","views":{{"v":{{"map":"{map}"}}}}}}"#);
    DesignDocument::parse(&text, None).unwrap()
}

/// The cluster with the indexes of these documents, each with its MiB per copy, on a volume with `free` GiB for each
/// node.
fn deployed_cluster(live: &[(&DesignDocument, u64)], free: u64) -> TestCluster {
    let mut cluster = cluster();
    cluster.set_free_space(&[("a", Some(free * GIB)), ("b", Some(free * GIB))]);
    let ids: Vec<&'static str> =
        live.iter().map(|(design, _)| &*Box::leak(design.id.clone().into_boxed_str())).collect();
    for ((design, mib), id) in live.iter().zip(ids) {
        cluster.add_index_of(&index(id, 0, *mib, 1), design.signature);
    }
    cluster
}

fn deployed(live: &[(&DesignDocument, u64)], free: u64) -> Arc<Plan> {
    deployed_cluster(live, free).inputs().plan
}

fn rehearsed(plan: &Plan, designs: &[DesignDocument], live: &[&DesignDocument]) -> Rehearsal {
    let db = database_called(&plan.snapshot, "orders", NOW).unwrap();
    let live = LiveDesigns::Known(live.iter().map(|it| (*it).clone()).collect());
    rehearse(plan, db, designs, &live, None, NOW)
}

#[test]
fn deploying_one_document_costs_the_same_as_its_preflight() {
    let (sibling, old) = (named("sibling", "s"), named("by_day", "old"));
    let plan = deployed(&[(&sibling, 100), (&old, 200)], 3_000);
    let new = named("by_day", "new");
    let found = rehearsed(&plan, std::slice::from_ref(&new), &[&sibling, &old]);
    let present = PresentDesign::Known(Box::new(old));
    let db = database_called(&plan.snapshot, "orders", NOW).unwrap();
    let inputs = PreflightInputs {
        plan: &plan,
        db,
        design: &new,
        present: &present,
        beside: [&[]; 2],
        sample: None,
        now: NOW,
    };
    let alone = preflight(&inputs);
    assert_eq!(alone.kind, BuildKind::Rebuild);
    assert_eq!(found.steps.len(), 1);
    assert_eq!(found.steps[0].nodes, alone.nodes);
    assert_eq!(found.together, alone.nodes);
    assert_eq!(found.steps[0].seconds, alone.seconds);
}

#[test]
fn staged_deployment_peak_includes_uncompacted_indexes() {
    let [old, new] =
        ["old", "new"].map(|age| ["a", "b"].map(|it| named(it, &format!("{age}_{it}"))));
    let highest = |nodes: &[NodeNeed]| nodes[0].peak.unwrap().high;
    for (views, compacts) in [(EnforceViews::Q1, false), (EnforceViews::All, true)] {
        let mut cluster = deployed_cluster(&[(&old[0], 100), (&old[1], 100)], 3_000);
        cluster.rules.views = views;
        let found = rehearsed(&cluster.inputs().plan, &new, &[&old[0], &old[1]]);
        assert_eq!(found.compacts, compacts);
        let one = &found.documents[0].cost.nodes[0];
        let (live, built) = (one.live.unwrap().high, one.built.unwrap().high);
        let expected = if compacts { live + built + live } else { built + built };
        assert!((highest(&found.staged) - expected).abs() < 1.0, "{views:?}: {found:?}");
        assert!(highest(&found.staged) <= highest(&found.together));
        assert!(highest(&found.steps[1].nodes) < highest(&found.staged) || !compacts);
    }
}

#[test]
fn deployment_names_what_happens_to_each_document() {
    let [a, b, c, d, gone] = ["a", "b", "c", "d", "gone"].map(|name| named(name, name));
    let plan = deployed(&[(&a, 100), (&b, 100), (&c, 100), (&d, 100), (&gone, 100)], 3_000);
    let designs = [
        named("a", "a"),
        named("b", "b2"),
        named("fresh", "f"),
        named("moved", "c"),
        named("twin", "f"),
        named("like_a", "a"),
    ];
    let found = rehearsed(&plan, &designs, &[&a, &b, &c, &d, &gone]);
    let changes: Vec<Change> = found.documents.iter().map(|it| it.change).collect();
    let expected = [
        Change::Unchanged,
        Change::Changed,
        Change::New,
        Change::Renamed,
        Change::Shared,
        Change::Shared,
    ];
    assert_eq!(changes, expected);
    let built: BTreeSet<&str> = found.steps.iter().map(|step| &*step.design).collect();
    assert_eq!(built, ["_design/b", "_design/fresh"].into());
    let left: Vec<(&str, bool)> =
        found.left.iter().map(|it| (&*it.design, it.is_renamed)).collect();
    assert_eq!(left, [("_design/c", true), ("_design/d", false), ("_design/gone", false)]);
    assert_eq!(found.left[0].bytes, None, "the renamed document uses them");
    assert_eq!(found.left[1].bytes, Some(4 * 100 * MIB));
}

#[test]
fn an_index_that_another_document_takes_over_is_not_deleted() {
    // The views of two documents are exchanged: both indexes stay.
    let (a, b) = (named("a", "a"), named("b", "b"));
    let plan = deployed(&[(&a, 100), (&b, 100)], 3_000);
    let designs = [named("a", "b"), named("b", "other")];
    let found = rehearsed(&plan, &designs, &[&a, &b]);
    assert_eq!(found.steps.len(), 1);
    assert_eq!(found.steps[0].design, "_design/b");
    assert!(found.steps[0].nodes.iter().all(|node| node.old_bytes.is_none()));
}

#[test]
fn change_is_unknown_if_live_documents_were_not_read() {
    let plan = deployed(&[], 3_000);
    let db = database_called(&plan.snapshot, "orders", NOW).unwrap();
    let live = LiveDesigns::Unread("it hangs".to_owned());
    let found = rehearse(&plan, db, &[named("a", "a")], &live, None, NOW);
    assert_eq!(found.documents[0].change, Change::Unknown);
    assert_eq!((found.unread.as_deref(), found.left.len()), (Some("it hangs"), 0));
    assert!(found.steps[0].nodes.iter().all(|node| node.peak.is_none()), "no size is known");
}

proptest! {
    /// Waiting never makes a step need more than building everything at once, and no other order has a
    /// smaller worst step.
    #[test]
    fn step_order_minimises_the_largest_space_need(olds in proptest::collection::vec(0_u64..2_000, 1..5)) {
        let names = ["a", "b", "c", "d", "e"];
        let old: Vec<DesignDocument> = olds.iter().zip(names).map(|(_, name)| named(name, name)).collect();
        let sibling = named("sibling", "s");
        let mut live: Vec<(&DesignDocument, u64)> =
            old.iter().zip(&olds).filter(|(_, mib)| **mib > 0).map(|(it, mib)| (it, *mib)).collect();
        live.push((&sibling, 100));
        let plan = deployed(&live, 3_000);
        let present: Vec<&DesignDocument> = live.iter().map(|(it, _)| *it).collect();
        let new: Vec<DesignDocument> =
            names.iter().take(olds.len()).map(|name| named(name, &format!("{name}2"))).collect();
        let worst = |found: &Rehearsal| {
            let peaks = found.steps.iter().flat_map(|step| &step.nodes).filter_map(|it| it.peak);
            peaks.map(|peak| peak.likely).fold(0.0, f64::max)
        };
        let found = rehearsed(&plan, &new, &present);
        let all = found.together.iter().filter_map(|it| it.peak).map(|it| it.likely).fold(0.0, f64::max);
        prop_assert!(worst(&found) <= all + 1.0);
        // Every order of up to four documents.
        let costs: Vec<&Preflight> = found.documents.iter().map(|it| &it.cost).collect();
        for order in orders(costs.len()) {
            let other: Vec<&Preflight> = order.iter().map(|at| costs[*at]).collect();
            let steps = rehearsal::steps(&other, rehearsal::Way::BY_HAND);
            let other = worst(&Rehearsal { steps, ..found.clone() });
            prop_assert!(worst(&found) <= other + 1.0, "{} {other}", worst(&found));
        }
    }
}

/// Every permutation of this many items.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let with_last = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, count - 1);
            order
        })
    };
    orders(count - 1).into_iter().flat_map(with_last).collect()
}

#[test]
fn each_step_states_its_missing_space() {
    let sibling = named("sibling", "s");
    let plan = deployed(&[(&sibling, 100)], 1);
    let designs = ["a", "b", "c"].map(|name| named(name, name));
    let found = rehearsed(&plan, &designs, &[&sibling]);
    let short = |step: &RehearsalStep| step.nodes.iter().filter_map(|it| it.missing_bytes).max();
    let missing: Vec<Option<u64>> = found.steps.iter().map(short).collect();
    let peak = found.steps[2].nodes[0].peak.unwrap().low;
    let free = found.steps[2].nodes[0].free_bytes.unwrap() as f64;
    assert!(peak > 0.0 && missing.is_sorted(), "{missing:?}");
    assert_eq!(missing[2].is_some(), peak > free);
}
