use super::*;

fn at(seconds: u64) -> Moment {
    Moment::from_unix(seconds)
}

fn orders() -> RunScope {
    RunScope::Database("orders".into())
}

fn begin(scope: RunScope) -> RunCommand {
    RunCommand::Begin(Run::beginning(scope, false, "ann".into(), at(1)))
}

fn end(number: u64) -> RunCommand {
    let left_out = Vec::new();
    RunCommand::End(
        number,
        RunEnd { at: at(9), how: RunEnding::Done, by: None, members: 0, left_out },
    )
}

fn outcome(target: &str, owner: JobOwner, ending: JobResult, after: Option<u64>) -> Outcome {
    let target: TargetId = target.parse().unwrap();
    Outcome {
        kind: target.kind(),
        target,
        node: "couchdb@a".into(),
        design: None,
        channel: None,
        owner,
        ordered_by: None,
        started_at: at(2),
        ended_after: None,
        charged_bytes: None,
        ended_at: at(7),
        before_bytes: Some(100),
        after_bytes: after,
        predicted_bytes: None,
        ending,
        why: None,
    }
}

const SHARD: &str = "db:couchdb@a/shards%2F00000000-7fffffff%2Forders.17";
const VIEW: &str = "view:_cluster/orders.17/0f045e3b41d71d93aaa32f23021ba536";

#[test]
fn scope_covers_shards_and_views_and_nothing_else() {
    use TargetKind::{Cleanup, Db, Search, View};
    for (scope, expected) in [
        (orders(), [true, true, false, false, false]),
        (RunScope::Node("couchdb@a".into()), [true, false, true, false, false]),
        (RunScope::All, [true, true, true, false, false]),
    ] {
        let covers =
            |kind, db: &str, node: &str| scope.covers(kind, |name| name == db, |name| name == node);
        let found = [
            covers(Db, "orders", "couchdb@a"),
            covers(View, "orders", CLUSTER_NODE),
            covers(Db, "users", "couchdb@a"),
            covers(Cleanup, "orders", CLUSTER_NODE),
            covers(Search, "orders", CLUSTER_NODE),
        ];
        assert_eq!(found, expected, "{scope}");
    }
}

#[test]
fn commands_are_carried_out_on_open_runs_only() {
    let mut runs = Runs::default();
    assert_eq!(runs.apply(begin(orders())), Ok(vec![1]));
    assert_eq!(runs.apply(begin(orders())), Err(RunRejected::Repeated(1, orders())));
    assert_eq!(runs.apply(begin(RunScope::All)), Ok(vec![2]));
    let pause = |by: &str| Suspension { since: at(3), by: Some(by.into()), why: None };
    assert_eq!(runs.apply(RunCommand::Pause(1, pause("bob"))), Ok(vec![1]));
    assert_eq!(runs.apply(RunCommand::Pause(1, pause("eve"))), Ok(vec![1]));
    assert_eq!(runs.0[&1].paused, Some(pause("bob")), "it stays paused since the first order");
    assert_eq!(runs.active().map(|(number, _)| number).collect::<Vec<_>>(), [2]);
    assert_eq!(runs.apply(RunCommand::Resume(1, at(5))), Ok(vec![1]));
    assert_eq!((runs.0[&1].is_active(), runs.0[&1].progress_at), (true, at(5)));
    assert_eq!(runs.apply(end(1)), Ok(vec![1]));
    for command in [end(1), RunCommand::Pause(1, pause("bob")), RunCommand::Resume(7, at(5))] {
        assert!(matches!(runs.apply(command), Err(RunRejected::Unknown(1 | 7))));
    }
    assert_eq!(runs.apply(begin(orders())), Ok(vec![3]), "its number is new");
}

#[test]
fn open_and_ended_runs_are_bounded() {
    let mut runs = Runs::default();
    let scope = |number: u64| RunScope::Node(format!("couchdb@{number}"));
    for number in 0..MAX_OPEN_RUNS as u64 {
        assert!(runs.apply(begin(scope(number))).is_ok());
    }
    assert_eq!(runs.apply(begin(scope(99))), Err(RunRejected::TooMany));
    for number in 17..80 {
        assert_eq!(runs.apply(end(number - 1)).unwrap()[0], number - 1);
        assert_eq!(runs.apply(begin(scope(number))).unwrap()[0], number);
    }
    assert_eq!(runs.0.len(), MAX_OPEN_RUNS + MAX_ENDED_RUNS);
    assert_eq!(runs.open().count(), MAX_OPEN_RUNS);
}

#[test]
fn outcome_counts_once_in_each_open_run_that_covers_it() {
    use JobOwner::{Other, Recliner};
    use JobResult::{Failed, Freed, NothingFreed, Unmeasured};
    // Columns: whether it is the last copy, whether it counts, the results, and the freed bytes.
    for (target, owner, ending, after, is_last, counts, result, freed) in [
        (SHARD, Recliner, Freed, Some(30), true, true, Some(Freed), 70),
        (SHARD, Other, Freed, Some(30), true, true, Some(Freed), 70),
        (SHARD, Other, Failed, None, true, false, None, 0),
        (SHARD, Recliner, Failed, None, true, true, Some(Failed), 0),
        (SHARD, Recliner, NothingFreed, Some(99), true, true, Some(NothingFreed), 1),
        (SHARD, Recliner, Unmeasured, None, true, true, Some(Unmeasured), 0),
        (VIEW, Recliner, Freed, Some(30), false, true, None, 70),
        (VIEW, Recliner, Failed, None, false, true, Some(Failed), 0),
        (VIEW, Other, Freed, Some(30), true, false, None, 0),
        ("cleanup:orders", Recliner, Freed, Some(30), true, false, None, 0),
    ] {
        let mut runs = Runs::default();
        for scope in [orders(), RunScope::Database("users".into()), RunScope::All, orders()] {
            // The first ends, so that the last covers the target instead.
            let _repeated = runs.apply(begin(scope.clone()));
            if runs.0.len() == 1 {
                runs.apply(end(1)).unwrap();
            }
        }
        let covering = runs.record(&outcome(target, owner, ending, after), is_last);
        assert_eq!(covering, if counts { vec![3, 4] } else { Vec::new() }, "{target} {ending:?}");
        let run = &runs.0[&4];
        let results = result.map(|result| (result, 1)).into_iter().collect();
        assert_eq!((&run.results, run.freed_bytes), (&results, freed), "{target} {ending:?}");
        assert_eq!(run.progress_at, if counts { at(7) } else { at(1) });
        assert_eq!((runs.0[&1].done(), runs.0[&2].done()), (0, 0));
    }
}
