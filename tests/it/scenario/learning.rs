//! Predictions that learn from compactions, on a CouchDB version that counts dead attachments as
//! active bytes.

use super::*;
use couchdb_names::Version;
use recliner::{model::correction::Correction, plan::Plan, table::TargetRef};

const WRITES: u64 = 2_500;

/// A thousand documents of 20 kB. Each write replaces an attachment of 15 kB.
fn world() -> Config {
    let old = Node { version: Version::new(3, 3, 3), ..Node::new(A) };
    let letters = Database {
        q: 1,
        n: 1,
        docs: 1_000,
        doc_bytes: 5_000,
        attachment_bytes: 15_000,
        replaced_bytes: 15_000,
        bloat: 1.0,
        new_share: 0.0,
        delete_share: 0.0,
        ..Database::new("letters")
    };
    Config { compaction_rate: 5_000_000, ..alone(old).with(on(A, letters)) }
}

fn letters(plan: &Plan) -> TargetRef<'_> {
    plan.snapshot
        .targets()
        .find(|it| it.shard_name().is_some_and(|name| name.contains("letters")))
        .expect("the shard is there")
}

/// Writes documents, rereads them, and returns the relative error of the predicted size after a
/// compaction.
async fn error_after_writes(rig: &mut Rig) -> f64 {
    rig.cluster.world(|world| world.write("letters", WRITES));
    let plan = rig.sweep().await;
    letters(&plan).predicted_bytes().expect("it is known") as f64
}

/// Compacts the file, requested by recliner or by another client, and returns its size afterwards.
async fn compact(rig: &mut Rig, by_recliner: bool) -> f64 {
    let before = rig.cluster.world(|world| world.compactions()).len();
    let plan = rig.planned().await;
    let target = letters(&plan);
    if by_recliner {
        let now = rig.cluster.wall();
        let order = CompactionOrder {
            at: now,
            until: now.plus(HOUR),
            by: "ann".into(),
            force: true,
            run: None,
        };
        rig.watch.job_state.order(target.id(), order).await.expect("the change is stored");
    } else {
        let file = target.shard_name().expect("it has one");
        assert_eq!(rig.cluster.world(|world| world.compact(A, &file)), Some(true));
    }
    rig.run_for(10 * MINUTE).await;
    let compactions = rig.cluster.world(|world| world.compactions());
    assert_eq!(compactions.len(), before + 1, "one compaction: {compactions:#?}");
    let end = compactions.last().and_then(|one| one.end).expect("it ended");
    end.after as f64
}

#[tokio::test(start_paused = true)]
async fn prediction_learns_hidden_bytes_from_three_compactions() {
    let mut rig = Rig::in_mode(Mode::Enforce, START, world(), &roomy());
    rig.run_for(MINUTE).await;
    let mut errors = Vec::new();
    for by_recliner in [false, true, true, false] {
        let predicted = error_after_writes(&mut rig).await;
        let size = compact(&mut rig, by_recliner).await;
        errors.push(predicted / size - 1.0);
    }
    assert!(errors[0] > 1.5, "the fitted rule is wrong: {errors:?}");
    // A plan expects a size of at least what the last compaction left, so it errs on the safe side.
    assert!((0.0..0.2).contains(&errors[3]), "after three compactions it is not: {errors:?}");

    error_after_writes(&mut rig).await;
    let read_prediction = async |rig: &mut Rig| {
        let plan = rig.sweep().await;
        let (target, forecast) = (letters(&plan), plan.forecast(letters(&plan)));
        (target.predicted_bytes(), forecast.confidence, target.rent().is_known())
    };
    let before = read_prediction(&mut rig).await;
    assert_eq!((before.1, before.2), ("learned", true));
    // A killed process knows as much after its restart as before.
    rig.kill_for(MINUTE).await;
    rig.run_for(MINUTE).await;
    assert_eq!(read_prediction(&mut rig).await, before);
    let kept = rig.store.kept().corrections;
    let record = kept.values().next().expect("one database was learned from");
    assert_eq!(kept.len(), 1);
    assert!((3.9..=4.0).contains(&record.outcomes), "each compaction counts once: {record:?}");

    let size = compact(&mut rig, true).await;
    let plan = rig.sweep().await;
    let target = letters(&plan);
    let (predicted, file) = (target.predicted_bytes(), target.file_bytes());
    assert_eq!(file.map(|file| file as f64), Some(size));
    // Another compaction would leave what this one left, although the active bytes are correct again.
    assert_eq!((predicted, target.correction() == Correction::NONE), (file, false));
}
