//! Reasons to cancel a start just before its request.

use super::check::{Fresh, Wanted, refusal};
use crate::{
    model::{
        channel::{Channel, Channels},
        facts::{Facts, Flags, Known},
        target::Kind,
    },
    plan::{Request, Start},
    sources::inventory::{Doing, TaskSeen},
    table::{Ix, NodeIx},
};

const SHARD: &str = "shards/00000000-ffffffff/orders.1";
const DESIGN: &str = "_design/x";

fn channel(name: &str) -> Channel {
    Channels::default().named(name).unwrap().1.clone()
}

fn start(design: Option<&str>, shard: Option<&str>) -> Start {
    Start {
        ix: Ix::from_usize(0).unwrap(),
        node: NodeIx::from_usize(1).unwrap(),
        shard: shard.map(Into::into),
        design: design.map(Into::into),
        channel: 0,
        ordered: None,
        request: Request { method: http::Method::POST, path: String::new() },
        file: None,
        gain: None,
        rewrite: None,
        peak: 0,
        duration: None,
        caveats: vec![],
    }
}

fn bloated() -> Facts {
    Facts { file: Known::new(100 << 20), active: Known::new(10 << 20), ..Facts::default() }
}

fn refused(
    start: &Start,
    kind: Kind,
    in_round: bool,
    facts: Option<Facts>,
    tasks: Vec<TaskSeen>,
) -> String {
    let channel = channel(if kind == Kind::Db { "ratio_dbs" } else { "ratio_views" });
    let planned = bloated();
    let wanted =
        Wanted { start, kind, channel: &channel, planned: &planned, in_round, per_node: 2 };
    refusal(wanted, &Fresh { facts, tasks, splitting: false }).unwrap_or_default()
}

#[test]
fn changed_facts_cancel_a_start() {
    let start = start(None, Some(SHARD));
    let flags = |compact_running, updater_running| Flags {
        compact_running,
        updater_running,
        ..Flags::default()
    };
    let cases = [
        (Some(bloated()), ""),
        (None, "no longer exists"),
        (Some(Facts { flags: flags(true, false), ..bloated() }), "already"),
        (Some(Facts { flags: flags(false, true), ..bloated() }), "being built"),
        (
            Some(Facts { file: Known::new(11 << 20), ..bloated() }),
            "no longer takes it: below_min_priority",
        ),
        (Some(Facts { active: Known::new(13 << 20), ..bloated() }), ""),
        (Some(Facts { active: Known::new(30 << 20), ..bloated() }), "grew"),
    ];
    for (facts, expected) in cases {
        let why = refused(&start, Kind::Db, false, facts, vec![]);
        assert!(
            why.contains(expected) && why.is_empty() == expected.is_empty(),
            "{expected}: {why}"
        );
    }
}

#[test]
fn tasks_on_the_same_file_or_at_the_limit_cancel_a_start() {
    let task = |doing: Doing, shard: &str| TaskSeen::bare(doing, shard.into());
    let views = |design: &str| Doing::CompactsView(design.into());
    let builds = |design: &str| Doing::Builds(design.into());
    let (db, view, whole) =
        (start(None, Some(SHARD)), start(Some(DESIGN), Some(SHARD)), start(Some(DESIGN), None));
    let cases = [
        (&db, Kind::Db, vec![task(Doing::Compacts, "other")], ""),
        (&db, Kind::Db, vec![task(Doing::Compacts, SHARD)], "compacting it"),
        (
            &db,
            Kind::Db,
            vec![task(Doing::Compacts, "a"), task(views("_design/y"), "b")],
            "its limit of compactions",
        ),
        (&db, Kind::Db, vec![task(builds(DESIGN), SHARD), task(builds(DESIGN), "b")], ""),
        (&view, Kind::View, vec![task(Doing::Compacts, SHARD)], ""),
        (&view, Kind::View, vec![task(views("_design/y"), SHARD)], ""),
        (&view, Kind::View, vec![task(views(DESIGN), SHARD)], "compacting it"),
        (&view, Kind::View, vec![task(builds(DESIGN), SHARD)], "building its index"),
        (&view, Kind::View, vec![task(views(DESIGN), "other")], ""),
        (&whole, Kind::View, vec![task(views(DESIGN), "any")], "compacting it"),
    ];
    for (at, (start, kind, tasks, expected)) in cases.into_iter().enumerate() {
        let why = refused(start, kind, false, Some(bloated()), tasks);
        assert!(
            why.contains(expected) && why.is_empty() == expected.is_empty(),
            "case {at}: {why}"
        );
    }
}

#[test]
fn the_remaining_copies_of_a_view_are_compacted_whatever_the_measured_copy_shows() {
    let start = start(Some(DESIGN), Some(SHARD));
    let lean = Some(Facts { file: Known::new(10 << 20), ..bloated() });
    assert!(!refused(&start, Kind::View, false, lean, vec![]).is_empty());
    assert_eq!(refused(&start, Kind::View, true, lean, vec![]), "");
    let cleanup = self::start(None, None);
    assert_eq!(
        refused(&cleanup, Kind::Cleanup, false, None, vec![]),
        "",
        "nothing can be read about it"
    );
}
