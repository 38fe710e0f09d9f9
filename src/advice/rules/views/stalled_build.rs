//! Index builds without progress.

use super::designs::{DesignName, builds_by_design, nodes_of};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Wording, total},
    jobs::{Job, JobPhase},
    text::{counted, duration::format_rounded, listed},
};

pub(crate) const RULE: Rule = Rule {
    code: "stalled_build",
    finds: "Builds of view indexes that report no progress.",
    because: "An indexer reports its progress every few seconds while documents go through its map functions. One that stops waits for its query server, for a shard that does not answer, or for a disk. Readers of the view wait with it, and the lag grows. `[couchdb] os_process_timeout` (5 s by default) ends a map function that never returns, unless it was raised. The time is `advice.stalled_build`.",
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let limit = situation.settings().stalled_build;
    let is_stalled = |job: &Job| {
        job.phase == JobPhase::Running && job.last_progress_at.age(situation.now) >= limit
    };
    for (name, jobs) in builds_by_design(situation, is_stalled) {
        let bytes = total(jobs.iter().filter_map(|job| job.file_bytes));
        findings.offer(Gain::Risk(bytes), || finding(situation, name, &jobs));
    }
}

fn finding(situation: &Situation<'_>, name: DesignName, jobs: &[&Job]) -> Wording {
    let ages = jobs.iter().map(|job| job.last_progress_at.age(situation.now));
    let longest = ages.max().unwrap_or_default();
    let nodes = nodes_of(situation, jobs);
    let first = nodes.first().cloned().unwrap_or_default();
    Wording {
        says: format!(
            "{} of {name} on {} {} made no progress for {}.",
            counted(jobs.len() as u64, "index build", "index builds"),
            listed(&nodes),
            if jobs.len() == 1 { "has" } else { "have" },
            format_rounded(longest),
        ),
        evidence: vec![
            ("builds", (jobs.len() as u64).into()),
            ("seconds_without_progress", longest.as_secs().into()),
            ("nodes", listed(&nodes).into()),
        ],
        remedy: vec![
            Remedy::get(
                "See the progress of its tasks, and whether their process_status is waiting:",
                &["_node", &first, "_active_tasks"],
            ),
            name.show("Look for a map function that is slow or loops:"),
            "Look in the node's log for os_process errors and timeouts of this design document, and check the node's load and disks. Ending the couchjs process makes CouchDB start the build again from its last checkpoint."
                .into(),
        ],
        subject: name.subject(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::{
        Severity,
        test_cluster::{Shard, TestCluster, build_job},
    };

    fn found(seconds: u64, phase: JobPhase) -> Vec<Finding> {
        let shard = Shard::new("orders", "a", 0, 1 << 20);
        let mut cluster = TestCluster::with_shards(&[shard]);
        let job = build_job("orders", "_design/reports", seconds);
        cluster.add_job(Job { phase, ..job });
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_half_an_hour_without_progress() {
        let found = found(1_800, JobPhase::Running);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "1 index build of orders/_design/reports on a has made no progress for 30m."
        );
        assert_eq!((only.severity, only.gain), (Severity::Warning, Gain::Risk(50 << 20)));
    }

    #[test]
    fn ignores_shorter_stalls_and_suspended_builds() {
        assert_eq!(found(1_799, JobPhase::Running), []);
        assert_eq!(found(9_999, JobPhase::Suspended), []);
    }

    #[test]
    fn is_silent_if_no_jobs_are_known() {
        let shard = Shard::new("orders", "a", 0, 1 << 20);
        assert_eq!(TestCluster::with_shards(&[shard]).findings_of(&RULE), []);
    }
}
