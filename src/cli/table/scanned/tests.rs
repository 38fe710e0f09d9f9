//! Tests of what a scan prints.

use super::*;
use crate::{
    model::{channel::Channels, facts::Facts},
    plan::{Conditions, Queues},
    table::{DbName, DiskUsage, Draft, PartSums, ShardMapEntry, View},
};
use couchdb_names::{Range, Signature};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const RANGE: Range = Range { from: 0, to: u32::MAX };

fn facts(file: u64) -> Facts {
    Facts::sized(file, MIB)
}

/// A database with two shard copies and one view. Its index files are read if `parts` is set;
/// without `asks_cluster`, nothing else is known of the view.
fn plan(parts: bool, asks_cluster: bool) -> Plan {
    let mut draft = Draft::new(5);
    let [a, b] = ["couchdb@a", "couchdb@b"].map(|name| draft.get_or_add_node(name));
    let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".17" });
    let view = asks_cluster.then(|| {
        let designs = ["_design/by_day".into()].into();
        let view = View { signature: Signature([1; 16]), designs, ..View::default() };
        draft.add_view(db, view)
    });
    draft.set_shard_map(db, ShardMapEntry { copies: 2, ranges: 1 }, view.as_slice());
    for node in [a, b] {
        draft.update_node(node, |node| {
            node.is_member = true;
            node.disk_usage = parts.then(DiskUsage::default);
        });
        let shard = draft.get_or_add_shard(node, db, Some(RANGE));
        draft.set_facts(shard, facts(40 * MIB));
        if parts {
            let part = draft.get_or_add_part(node, db, Some(RANGE), Signature([1; 16]));
            draft.set_facts(part, facts(30 * MIB));
        }
    }
    if let Some(view) = view {
        draft.set_facts(view, facts(30 * MIB));
        if parts {
            let sums = PartSums {
                count: 2,
                file_bytes: 60 * MIB,
                active_bytes: 2 * MIB,
                reclaimable_bytes: 58 * MIB,
                ..PartSums::default()
            };
            draft.set_parts(view, sums);
        }
    }
    let snapshot = draft.publish(Moment::from_unix(7));
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, Moment::from_unix(7));
    queues.make_plan(&snapshot, &Conditions::default(), &Arc::default(), Moment::from_unix(7))
}

#[test]
fn view_with_all_its_copies_counts_once() {
    for (parts, asks_cluster, row, views_listed) in [
        (false, true, "1 view, all copies", 1),
        (true, true, "1 view, all copies", 1),
        // The cluster was not asked for the view, so each of its files counts separately.
        (true, false, "2 view indexes", 2),
    ] {
        let plan = plan(parts, asks_cluster);
        let shown = nodes(&plan, 200);
        let line = shown.lines().find(|line| line.starts_with(row));
        let line = line.unwrap_or_else(|| panic!("{parts} {asks_cluster}: {shown}"));
        assert!(line.contains("60.0 MiB"), "{line}");
        let listed = targets(&plan, 200);
        let views = listed.lines().filter(|line| line.starts_with("orders/"));
        assert_eq!(views.count(), views_listed, "{listed}");
        assert_eq!(
            listed.lines().filter(|line| line.starts_with("orders ")).count(),
            2,
            "{listed}"
        );
    }
}
