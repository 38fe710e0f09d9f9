use super::*;
use tokio::time::Instant;
use wall_clock::Moment;

fn sweep() -> Sweep {
    let now = Now { wall: Moment::from_unix(9), at: Instant::now() };
    let mut sweep = Sweep::new(now);
    sweep.begin(now);
    sweep
}

fn node(at: usize) -> NodeIx {
    NodeIx::from_usize(at).unwrap()
}

#[test]
fn node_joins_exactly_one_round_of_a_sweep_after_answering() {
    let mut sweep = sweep();
    assert!(!sweep.is_next(node(1)));
    sweep.node_answered(node(1));
    assert!(sweep.is_next(node(1)));
    sweep.begin_round([node(1)].into());
    assert!(sweep.is_first_round() && !sweep.is_next(node(1)));
    sweep.node_answered(node(2));
    assert!(sweep.is_next(node(2)));
    sweep.begin_round([node(2)].into());
    assert!(!sweep.is_first_round() && !sweep.is_next(node(1)) && !sweep.is_next(node(2)));
    assert_eq!(*sweep.round(), [node(2)].into());
}

#[test]
fn sweep_may_continue_once_members_and_one_node_answered() {
    let mut sweep = sweep();
    assert!(!sweep.may_continue_without_late_nodes());
    sweep.node_answered(node(1));
    assert!(!sweep.may_continue_without_late_nodes(), "the members are unknown");
    sweep.members_answered();
    assert!(sweep.may_continue_without_late_nodes());
    sweep.enter(&Stage::Map { map_node: None });
    assert!(!sweep.may_continue_without_late_nodes());
}

#[test]
fn node_is_read_once_after_its_last_shard() {
    let mut sweep = sweep();
    sweep.expect_shards([(node(1), 2)].into());
    assert!(sweep.expects_shards(node(1)) && !sweep.expects_shards(node(2)));
    assert!(!sweep.shard_requested(node(1)) && sweep.shard_requested(node(1)));
    assert!(!sweep.shard_requested(node(2)), "no shard was expected");
    assert!(sweep.node_read(node(1)) && !sweep.node_read(node(1)));
    sweep.unread(node(2));
    assert!(!sweep.node_read(node(2)) && sweep.is_incomplete(node(2)) && !sweep.is_complete());
}

#[test]
fn views_are_complete_if_cluster_and_splits_were_read() {
    for (unread_before, unread_since, splits, whole) in [
        (false, false, true, true),
        (false, false, false, false),
        (true, false, true, false),
        (false, true, true, false),
    ] {
        let mut sweep = sweep();
        if unread_before {
            sweep.unread(NodeIx::CLUSTER);
        }
        sweep.begin_views();
        if unread_since {
            sweep.unread(NodeIx::CLUSTER);
        }
        if splits {
            assert!(sweep.splits_answered() && !sweep.splits_answered(), "new only once");
        }
        assert_eq!(sweep.views_read(), whole);
        assert_eq!(sweep.views(), ViewPhase::Done);
    }
    // An earlier sweep's views do not count for this sweep.
    let mut sweep = sweep();
    sweep.views_read();
    assert_eq!(sweep.views(), ViewPhase::Waiting);
}

#[test]
fn new_sweep_forgets_results_of_the_previous_one() {
    let mut sweep = sweep();
    sweep.node_answered(node(1));
    sweep.begin_round([node(1)].into());
    sweep.unread(node(1));
    sweep.continue_without_late_nodes();
    sweep.members_failed(true);
    let right = ReadError { reason: "forbidden", message: String::new(), right: Some("members") };
    sweep.record_missing_right(&right);
    sweep.set_lists(false);
    sweep.end();
    assert!(!sweep.runs() && !sweep.is_complete() && sweep.missing_rights().contains("members"));
    sweep.begin(sweep.began());
    assert!(sweep.runs() && sweep.asks_nodes() && sweep.is_complete());
    assert!(!sweep.has_answered(node(1)) && !sweep.awaits_late_nodes());
    assert!(!sweep.members_unanswered() && sweep.missing_rights().is_empty());
    assert!(sweep.round().is_empty() && !sweep.lists());
}
