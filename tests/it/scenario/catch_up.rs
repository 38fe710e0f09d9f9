//! Compactions that had to catch up with writes: another compaction frees what they leave, although
//! no sequence shows it.

use super::*;
use couchdb_sim::Compaction;
use recliner::{
    model::{
        facts::Facts,
        records::{JobOwner, JobResult, SuspensionScope},
    },
    text::Label,
};

const SECOND: Duration = Duration::from_secs(1);

/// A database of 20 MB live data that takes 20 seconds to compact and gets mostly updates.
fn world(bloat: f64) -> Config {
    let hot = Database { bloat, new_share: 0.02, delete_share: 0.01, ..bloated("hot", 20) };
    Config { compaction_rate: 1_000_000, ..alone(Node::new(A)).with(on(A, hot)) }
}

fn compactions(rig: &Rig) -> Vec<Compaction> {
    rig.cluster.world(|world| world.compactions())
}

/// Writes only while the first compaction runs.
async fn write_until_the_first_ends(rig: &mut Rig) {
    for _ in 0..600 {
        rig.run_for(SECOND).await;
        match compactions(rig).first() {
            Some(one) if one.end.is_some() => return,
            Some(_) => rig.cluster.world(|world| world.write("hot", 400)),
            None => {}
        }
    }
    panic!("the first compaction did not end");
}

/// The facts about the only shard.
fn facts(plan: &recliner::plan::Plan) -> Facts {
    let mut shards = plan.snapshot.targets().filter(|it| it.db_name().db == "hot");
    shards.next().expect("the shard exists").facts()
}

/// Waits for the second compaction, after which nothing more can be freed.
async fn freed_by_another(rig: &mut Rig) -> Compaction {
    rig.run_for(10 * MINUTE).await;
    let all = compactions(rig);
    let [_, again] = all.as_slice() else { panic!("two compactions, and not {all:#?}") };
    let end = again.end.expect("it ended");
    assert!(end.swapped && end.after <= end.clean * 11 / 10, "{again:?}");
    assert!(again.before > end.after * 2, "{again:?}");
    again.clone()
}

#[tokio::test(start_paused = true)]
async fn second_compaction_frees_what_a_hindered_first_one_left() {
    let mut rig = Rig::in_mode(Mode::Enforce, START, world(10.0), &roomy());
    write_until_the_first_ends(&mut rig).await;
    let first = compactions(&rig)[0].clone();
    let left = first.end.expect("it ended");
    assert!(left.after > left.clean * 2, "the compaction had to catch up: {first:?}");

    let is_reread = |plan: &recliner::plan::Plan| facts(plan).file_bytes.get() == Some(left.after);
    let plan = rig.plan_where(is_reread).await;
    let facts = facts(&plan);
    assert_eq!(facts.update_seq, facts.compacted_seq, "the sequences do not show it");
    freed_by_another(&mut rig).await;
    let endings: Vec<_> = rig.store.kept().recent_outcomes.iter().map(|it| it.ending).collect();
    assert_eq!(endings, [JobResult::Freed; 2]);
}

#[tokio::test(start_paused = true)]
async fn recliner_frees_space_left_by_a_foreign_compaction() {
    let mut rig = Rig::in_mode(Mode::Enforce, START, world(10.0), &roomy());
    rig.watch
        .job_state
        .suspend(SuspensionScope::All, None, None)
        .await
        .expect("the change is stored");
    rig.run_for(MINUTE).await;
    let file = rig.cluster.world(|world| {
        let files = world.files(A).expect("the node is there");
        files.into_iter().find(|file| file.contains("/hot.")).expect("and the shard")
    });
    assert_eq!(rig.cluster.world(|world| world.compact(A, &file)), Some(true));
    write_until_the_first_ends(&mut rig).await;
    rig.run_for(MINUTE).await;
    rig.watch.job_state.resume(SuspensionScope::All, None).await.expect("the change is stored");
    freed_by_another(&mut rig).await;
    let owners: Vec<_> = rig.store.kept().recent_outcomes.iter().map(|it| it.owner).collect();
    assert_eq!(owners, [JobOwner::Other, JobOwner::Recliner]);
}

#[tokio::test(start_paused = true)]
async fn compaction_hindered_by_writes_is_retried_afterwards() {
    let mut rig = Rig::in_mode(Mode::Enforce, START, world(4.0), &roomy());
    // The file is as bloated before as after: the promised space is not freed.
    write_until_the_first_ends(&mut rig).await;
    let first = compactions(&rig)[0].clone();
    let left = first.end.expect("it ended");
    assert!(left.after + 12_000_000 > first.before, "it freed little: {first:?}");
    let is_reread = |plan: &recliner::plan::Plan| facts(plan).file_bytes.get() == Some(left.after);
    let plan = rig.plan_where(is_reread).await;
    let target =
        plan.snapshot.targets().find(|it| it.db_name().db == "hot").expect("the target exists");
    let Decision::Refused(refusal) = plan.decision(target) else {
        panic!("the target is not refused")
    };
    assert_eq!(refusal.reason.label(), "cool_down", "the writes have ceased, and may come again");
    let explanation = why(&plan, target, &refusal);
    assert!(explanation.contains("much was written while it ran"), "{explanation}");
    assert_eq!(plan.forecast(target).confidence, "learned");
    let reclaimable = plan.forecast(target).reclaimable_bytes;
    assert!(reclaimable.is_some_and(|bytes| bytes > 8 << 20), "{reclaimable:?}");
    freed_by_another(&mut rig).await;
}
