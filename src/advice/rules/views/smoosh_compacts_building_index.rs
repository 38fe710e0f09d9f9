//! Compactions of indexes that are being built.

use super::designs::{DesignName, builds_by_design, nodes_of, seconds_to_write};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Wording, total},
    jobs::{Job, JobKey, JobKind, Jobs},
    model::{channel::Mode, records::JobOwner, settings::work::SmooshMode},
    text::{counted, listed, quote::yaml_scalar},
};

pub(crate) const RULE: Rule = Rule {
    code: "smoosh_compacts_building_index",
    finds: "Compactions of a view index that smoosh or a person started while the index is being built.",
    because: "A build writes much that it soon replaces, so smoosh finds the index worth compacting while the build runs. The compaction copies an index that is outdated when it ends, indexes again what was added meanwhile, and slows the build down for hours (cht-core#9989); then smoosh finds the index worth compacting again. recliner never compacts an index that is being built. CouchDB offers no way to stop a running compaction.",
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let jobs = &situation.inputs.plan.conditions.jobs;
    for (name, builds) in builds_by_design(situation, |_| true) {
        let compactions: Vec<&Job> =
            builds.iter().filter_map(|build| foreign_compaction(jobs, build)).collect();
        if compactions.is_empty() {
            continue;
        }
        let sizes = compactions.iter().filter_map(|job| job.predicted_bytes.or(job.file_bytes));
        let gain = Gain::Seconds(seconds_to_write(situation, total(sizes)));
        findings.offer(gain, || finding(situation, name, &compactions));
    }
}

/// A compaction, started by others, of the index that a job builds.
fn foreign_compaction<'a>(jobs: &'a Jobs, build: &Job) -> Option<&'a Job> {
    let JobKind::BuildView(design) = &build.key.kind else { return None };
    let key = JobKey { kind: JobKind::CompactView(design.clone()), ..build.key.clone() };
    jobs.list.iter().find(|job| job.owner == JobOwner::Other && job.key == key)
}

fn finding(situation: &Situation<'_>, name: DesignName, compactions: &[&Job]) -> Wording {
    let nodes = listed(&nodes_of(situation, compactions));
    Wording {
        says: format!(
            "{} of the index of {name} on {nodes} that recliner did not start {} while the index is being built.",
            counted(compactions.len() as u64, "compaction", "compactions"),
            if compactions.len() == 1 { "runs" } else { "run" },
        ),
        evidence: vec![("compactions", (compactions.len() as u64).into()), ("nodes", nodes.into())],
        remedy: remedy(situation),
        subject: name.subject(),
    }
}

/// The channels of smoosh that compact a view by its waste.
const VIEW_CHANNELS: [&str; 3] = ["ratio_views", "slack_views", "upgrade_views"];

fn remedy(situation: &Situation<'_>) -> Vec<Remedy> {
    let smoosh = &situation.inputs.remedy_settings.smoosh;
    let is_listed = |channel| smoosh.takeover.iter().any(|listed| listed == channel);
    let is_set =
        smoosh.mode == SmooshMode::Takeover && VIEW_CHANNELS.iter().all(|it| is_listed(*it));
    let mut remedy = Vec::new();
    if !is_set {
        // The list in the configuration replaces the default one.
        let mut channels = smoosh.takeover.clone();
        channels.extend(VIEW_CHANNELS.into_iter().filter(|it| !is_listed(*it)).map(str::to_owned));
        let channels: Vec<_> = channels.iter().map(|channel| yaml_scalar(channel)).collect();
        remedy.push(Remedy::configuration(
            "Let recliner compact views instead of smoosh, in enforce mode:",
            format!("smoosh:\n  mode: takeover\n  takeover: [{}]", channels.join(", ")),
        ));
    } else if situation.inputs.plan.rules.mode != Mode::Enforce {
        remedy.push(Remedy::configuration(
            "Let recliner compact views instead of smoosh:",
            "mode: enforce",
        ));
    }
    remedy.push(Remedy::configuration(
        "Or stop smoosh's view channels on every node while a large index is built:",
        "[smoosh.ratio_views]\nconcurrency = 0\n\n[smoosh.slack_views]\nconcurrency = 0",
    ));
    remedy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::{
        Severity,
        test_cluster::{Shard, TestCluster, build_job},
    };

    fn compaction(owner: JobOwner) -> Job {
        let build = build_job("orders", "_design/reports", 0);
        let kind = JobKind::CompactView("_design/reports".into());
        Job { owner, key: JobKey { kind, ..build.key.clone() }, ..build }
    }

    fn found(jobs: Vec<Job>) -> Vec<Finding> {
        let shard = Shard::new("orders", "a", 0, 1 << 20);
        let mut cluster = TestCluster::with_shards(&[shard]);
        jobs.into_iter().for_each(|job| cluster.add_job(job));
        cluster.findings_of(&RULE)
    }

    #[test]
    fn finds_compaction_by_others_during_a_build() {
        let build = build_job("orders", "_design/reports", 0);
        let found = found(vec![compaction(JobOwner::Other), build]);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "1 compaction of the index of orders/_design/reports on a that recliner did not start runs while the index is being built."
        );
        assert_eq!(only.severity, Severity::Warning);
    }

    #[test]
    fn ignores_own_compactions_and_other_indexes() {
        let build = build_job("orders", "_design/reports", 0);
        assert_eq!(found(vec![compaction(JobOwner::Recliner), build]), []);
        let other = build_job("orders", "_design/other", 0);
        assert_eq!(found(vec![compaction(JobOwner::Other), other]), []);
    }

    #[test]
    fn is_silent_if_no_build_is_known() {
        assert_eq!(found(vec![compaction(JobOwner::Other)]), []);
    }
}
