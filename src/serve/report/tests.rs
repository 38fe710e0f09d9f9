//! The JSON of targets that other programs depend on, and the search for targets.

use super::*;
use crate::{
    model::{
        channel::{Channels, Mode},
        facts::{FactFlags, OptionalU64},
        share::Share,
    },
    plan::{Conditions, Queues, Refusal, RefusalReason, Rules},
    shared_limits::Allowance,
    table::{DbName, Draft, ShardMapEntry, TargetIx, View},
};
use couchdb_names::{Range, Signature};
use std::sync::Arc;
use strum::VariantArray as _;

const MIB: u64 = 1 << 20;

fn facts(file: u64, active: u64) -> Facts {
    Facts::read(file, active, Moment::from_unix(1_795_222_434))
}

fn plan() -> (Plan, Vec<TargetIx>) {
    let mut draft = Draft::new(5);
    let node = draft.get_or_add_node("couchdb@a");
    let orders = draft.get_or_add_db(DbName { db: "app/orders", suffix: ".17" });
    let shard = draft.get_or_add_shard(node, orders, Some(Range { from: 0, to: u32::MAX }));
    draft.set_facts(shard, facts(8 * MIB, 9 * MIB));
    let view = View {
        signature: Signature([1; 16]),
        designs: ["_design/a".into(), "_design/b".into()].into(),
        language: "javascript".into(),
        collators: ["153.120".into()].into(),
        exact_range: true,
        ..View::default()
    };
    let view = draft.add_view(orders, view);
    draft.set_shard_map(orders, ShardMapEntry { copies: 3, ranges: 1 }, &[view]);
    let flags = FactFlags { estimated: true, ..FactFlags::default() };
    draft.set_facts(view, Facts { flags, updates_pending: OptionalU64::new(4), ..facts(0, 0) });
    let odd = draft.get_or_add_db(DbName { db: "app/_design/x", suffix: ".17" });
    let odd = draft.get_or_add_shard(node, odd, None);
    let snapshot = draft.publish(Moment::from_unix(1_795_222_440));
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, Moment::from_unix(1_795_222_440));
    let plan = queues.make_plan(
        &snapshot,
        &Conditions::default(),
        &Arc::default(),
        Moment::from_unix(1_795_222_440),
    );
    (plan, vec![shard, view, odd])
}

#[test]
fn unknown_fields_are_null_and_known_ones_have_sources() {
    let (plan, ids) = plan();
    let json = |at: usize| {
        serde_json::to_value(Target::of(&plan, plan.snapshot.target(ids[at]).unwrap())).unwrap()
    };
    let shard = json(0);
    assert_eq!(shard["id"], "db:couchdb@a/shards%2F00000000-ffffffff%2Fapp%2Forders.17");
    assert_eq!(shard["name"], "shards/00000000-ffffffff/app/orders.17");
    assert_eq!(shard["reclaimable_bytes"], 0, "never below zero");
    assert_eq!(shard["external_bytes"], serde_json::Value::Null);
    assert_eq!(shard["sources"], serde_json::json!({"file_bytes": "http", "active_bytes": "http"}));
    assert_eq!(shard["measured_at"], "2026-11-21T00:53:54Z");
    assert_eq!(
        shard["misses"][0],
        serde_json::json!({
            "channel": "ratio_dbs",
            "priority": "ratio",
            "reason": "below_min_priority",
            "value": 8.0 / 9.0,
            "limit": 2.0,
            "unit": "ratio",
        })
    );
    let view = json(1);
    assert_eq!(view["id"], format!("view:_cluster/app%2Forders.17/{}", "01".repeat(16)));
    assert_eq!(view["ddoc"], "_design/a");
    assert_eq!(view["copies"], 3);
    assert_eq!(view["updates_pending"], 4);
    assert_eq!(view["collator_versions"], serde_json::json!(["153.120"]));
    let unread = json(2);
    for field in ["file_bytes", "measured_at", "compact_running", "channel", "priority", "refusal"]
    {
        assert_eq!(unread[field], serde_json::Value::Null, "{field}");
    }
}

/// Words by which a sentence says that a compaction runs.
fn says_that_one_runs(text: &str) -> Option<&'static str> {
    // A limit counts what runs together with what goes first.
    let plain = text.replace("run or are first in line", "").replace("what runs on the node", "");
    ["runs", "running", "is being compacted", "are being compacted", "jobs run", "compactions run"]
        .into_iter()
        .find(|words| plain.contains(words))
}

#[test]
fn no_refusal_claims_a_running_compaction_while_none_runs() {
    let (plan, targets) = plan();
    assert_eq!((plan.rules.mode, plan.conditions.jobs.compactions().count()), (Mode::Advise, 0));
    let numbers = [None, Some(0.0), Some(1.0), Some(2.0), Some(6.0), Some(1e9)];
    for reason in RefusalReason::VARIANTS {
        // These two follow only from compactions that run, or ran.
        if matches!(reason, RefusalReason::Running | RefusalReason::Duty) {
            continue;
        }
        for (value, limit) in numbers.iter().flat_map(|it| numbers.map(|limit| (*it, limit))) {
            let refusal = Refusal { value, limit, ..Refusal::without_numbers(*reason) };
            for target in &targets {
                let says = why(&plan, plan.snapshot.target(*target).unwrap(), &refusal);
                assert_eq!(says_that_one_runs(&says), None, "{reason:?}: {says}");
            }
        }
    }
}

#[test]
fn file_larger_than_any_possible_share_is_said_to_never_start() {
    let (mut plan, ids) = plan();
    for (most, begins) in [
        (
            8 * MIB,
            "with it, 9.0 MiB would start within an hour, but this cluster's share of the limits in shared_limits is 1.0 MiB",
        ),
        (
            7 * MIB,
            "its file of 8.0 MiB is larger than the most that this cluster may start within an hour under shared limits, 7.0 MiB, so it never starts; raise ",
        ),
    ] {
        let of = |bytes_per_hour| Share { jobs: 4, bytes_per_hour };
        let allowance = Allowance { share: of(MIB), until: None, most: of(most) };
        plan.rules = Rules::default().bounded_by(Some(allowance)).into();
        let numbers = (Some((9 * MIB) as f64), Some(MIB as f64));
        let refusal = Refusal {
            value: numbers.0,
            limit: numbers.1,
            ..Refusal::without_numbers(RefusalReason::Budget)
        };
        let says = why(&plan, plan.snapshot.target(ids[0]).unwrap(), &refusal);
        assert!(says.starts_with(begins), "{says}");
    }
}

#[test]
fn finds_targets_by_database_design_document_shard_or_id() {
    let (plan, ids) = plan();
    for (text, found) in [
        ("app/orders", Found::Several(vec![ids[0], ids[1]])),
        ("app/orders/_design/b", Found::One(ids[1])),
        ("app/_design/x", Found::One(ids[2])),
        ("shards/00000000-ffffffff/app/orders.17", Found::One(ids[0])),
        ("db:couchdb@a/shards%2F00000000-ffffffff%2Fapp%2Forders.17", Found::One(ids[0])),
        ("db:couchdb@b/shards%2F00000000-ffffffff%2Fapp%2Forders.17", Found::None),
        ("nothing", Found::None),
        ("ordrs", Found::None),
        ("", Found::None),
    ] {
        assert_eq!(find(&plan, text), found, "{text}");
    }
    for (text, says) in [
        ("nothing", "no database, view or shard matches \"nothing\""),
        (
            "App/Ordrs",
            "no database, view or shard matches \"App/Ordrs\"; did you mean \"app/orders\"?",
        ),
        (
            "app/orders/a",
            "no database, view or shard matches \"app/orders/a\"; did you mean \"app/orders/_design/a\"?",
        ),
        ("db:couchdb@b/x", "no target has the id \"db:couchdb@b/x\""),
        (
            "view:_cluster/x/y",
            "\"view:_cluster/x/y\" is not a target id: it must end with a view's signature, 32 hex digits",
        ),
    ] {
        assert_eq!(no_match(&plan, text), says);
    }
    assert_eq!(title(plan.snapshot.target(ids[1]).unwrap()), "app/orders/_design/a");
}
