//! A copy that lost documents is found although nothing is written.

use super::*;
use recliner::advice::Subject;

#[tokio::test(start_paused = true)]
async fn lasting_difference_between_copies_is_advised() {
    let mut rig = Rig::new(world(), ON_DEMAND);
    let advice = rig.start_advice();
    let found = || {
        let view = advice.view.borrow().clone();
        let result = view.results.iter().find(|it| it.rule.code == "copies_differ");
        result.map_or_else(Vec::new, |it| it.findings.clone())
    };
    let plan = rig.sweep().await;
    let lost = targets(&plan, TargetKind::Db).find(|it| it.node() == B && it.db_name().db == "app");
    let file = lost.and_then(|it| it.shard_name()).unwrap();
    for _ in 0..3 {
        sleep(Duration::from_secs(400)).await;
        rig.sweep().await;
    }
    assert_eq!(found(), [], "all are alike");
    rig.cluster.faults().lose_documents(B, &file, 7);
    rig.sweep().await;
    sleep(Duration::from_secs(61)).await;
    assert_eq!(found(), [], "it may be a write that is under way");
    for _ in 0..3 {
        sleep(Duration::from_secs(400)).await;
        rig.sweep().await;
    }
    sleep(Duration::from_secs(61)).await;
    let found = found();
    let [only] = &found[..] else { panic!("{found:?}") };
    assert_eq!(only.subject, Subject::Database("app".to_owned()));
    assert!(only.says.contains(B), "{}", only.says);
}
