//! Reasons to cancel a start just before its request.

use super::check::{FreshFacts, StartToCheck, cancel_reason};
use crate::{
    model::{
        channel::{Channel, Channels},
        facts::{FactFlags, Facts, OptionalU64},
        score::RentNow,
        target::TargetKind,
    },
    plan::{CompactionRequest, PlannedStart},
    sources::inventory::{ActiveTask, TaskKind},
    table::{NodeIx, TargetIx},
};

const SHARD: &str = "shards/00000000-ffffffff/orders.1";
const DESIGN: &str = "_design/x";

fn channel(name: &str) -> Channel {
    Channels::default().find(name).unwrap().1.clone()
}

fn start(design: Option<&str>, shard: Option<&str>) -> PlannedStart {
    PlannedStart {
        ix: TargetIx::from_usize(0).unwrap(),
        node: NodeIx::from_usize(1).unwrap(),
        shard: shard.map(Into::into),
        design: design.map(Into::into),
        channel: 0,
        order: None,
        request: CompactionRequest { method: http::Method::POST, path: String::new() },
        file_bytes: None,
        gain_bytes: None,
        caught_up_bytes: 0,
        rewrite_bytes: None,
        peak_bytes: 0,
        duration: None,
        caveats: vec![],
    }
}

fn bloated() -> Facts {
    Facts::sized(100 << 20, 10 << 20)
}

fn refused(
    start: &PlannedStart,
    kind: TargetKind,
    in_round: bool,
    facts: Option<Facts>,
    tasks: Vec<ActiveTask>,
) -> String {
    let channel = channel(if kind == TargetKind::Db { "ratio_dbs" } else { "ratio_views" });
    let planned = bloated();
    let to_check = StartToCheck {
        start,
        kind,
        channel: &channel,
        planned: &planned,
        rent: RentNow::UNKNOWN,
        continues_view: in_round,
        node_limit: 2,
    };
    cancel_reason(to_check, &FreshFacts { facts, tasks, splitting: false }).unwrap_or_default()
}

#[test]
fn changed_facts_cancel_a_start() {
    let start = start(None, Some(SHARD));
    let flags = |compact_running, updater_running| FactFlags {
        compact_running,
        updater_running,
        ..FactFlags::default()
    };
    let cases = [
        (Some(bloated()), ""),
        (None, "no longer exists"),
        (Some(Facts { file_bytes: OptionalU64::default(), ..bloated() }), "size cannot be read"),
        (Some(Facts { flags: flags(true, false), ..bloated() }), "already"),
        (Some(Facts { flags: flags(false, true), ..bloated() }), "being built"),
        (
            Some(Facts { file_bytes: OptionalU64::new(11 << 20), ..bloated() }),
            "no longer takes it: below_min_priority",
        ),
        (Some(Facts { active_bytes: OptionalU64::new(13 << 20), ..bloated() }), ""),
        (Some(Facts { active_bytes: OptionalU64::new(30 << 20), ..bloated() }), "grew"),
    ];
    for (facts, expected) in cases {
        let why = refused(&start, TargetKind::Db, false, facts, vec![]);
        assert!(
            why.contains(expected) && why.is_empty() == expected.is_empty(),
            "{expected}: {why}"
        );
    }
}

#[test]
fn tasks_on_the_same_file_or_at_the_limit_cancel_a_start() {
    let task = |doing: TaskKind, shard: &str| ActiveTask::bare(doing, shard.into());
    let views = |design: &str| TaskKind::CompactsView(design.into());
    let builds = |design: &str| TaskKind::Builds(design.into());
    let (db, view, whole) =
        (start(None, Some(SHARD)), start(Some(DESIGN), Some(SHARD)), start(Some(DESIGN), None));
    let cases = [
        (&db, TargetKind::Db, vec![task(TaskKind::Compacts, "other")], ""),
        (&db, TargetKind::Db, vec![task(TaskKind::Compacts, SHARD)], "compacting it"),
        (
            &db,
            TargetKind::Db,
            vec![task(TaskKind::Compacts, "a"), task(views("_design/y"), "b")],
            "its limit of compactions",
        ),
        (&db, TargetKind::Db, vec![task(builds(DESIGN), SHARD), task(builds(DESIGN), "b")], ""),
        (&view, TargetKind::View, vec![task(TaskKind::Compacts, SHARD)], ""),
        (&view, TargetKind::View, vec![task(views("_design/y"), SHARD)], ""),
        (&view, TargetKind::View, vec![task(views(DESIGN), SHARD)], "compacting it"),
        (&view, TargetKind::View, vec![task(builds(DESIGN), SHARD)], "building its index"),
        (&view, TargetKind::View, vec![task(views(DESIGN), "other")], ""),
        (&whole, TargetKind::View, vec![task(views(DESIGN), "any")], "compacting it"),
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
fn remaining_view_copies_start_even_if_the_measured_one_is_lean() {
    let start = start(Some(DESIGN), Some(SHARD));
    let lean = Some(Facts { file_bytes: OptionalU64::new(10 << 20), ..bloated() });
    assert!(!refused(&start, TargetKind::View, false, lean, vec![]).is_empty());
    assert_eq!(refused(&start, TargetKind::View, true, lean, vec![]), "");
    let cleanup = self::start(None, None);
    assert_eq!(
        refused(&cleanup, TargetKind::Cleanup, false, None, vec![]),
        "",
        "nothing can be read about it"
    );
}
