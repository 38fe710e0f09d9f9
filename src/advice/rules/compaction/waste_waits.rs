//! Waste that nobody frees because recliner only advises.

use super::super::queues::{enforces, queued, queues};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording, total},
    model::{channel::Mode, settings::work::EnforceViews},
    plan::{Decision, Plan, RefusalReason},
    table::{NodeIx, TargetRef},
    text::{counted, grouped, size::format_size_short},
};

pub(crate) const RULE: Rule = Rule {
    code: "waste_waits",
    finds: "Waste in targets that a channel takes, but that recliner does not compact because it only advises or leaves views alone (`views.enforce`).",
    because: "In advise mode recliner starts nothing, so this waste is left to CouchDB's smoosh, if that runs. smoosh checks a database only when it is written to, keeps its queue in memory, and ignores free space and load, so in a quiet cluster such waste can stay for ever.",
    ..Rule::info(check)
};

/// The setting with which recliner compacts all views.
const ALL_VIEWS: &str = "views: {enforce: all}";

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let waiting = queues(situation).filter(|(_, mode)| *mode == Mode::Advise);
    let (bytes, targets) = waiting.fold((0_u64, 0_u64), |(bytes, targets), (queue, _)| {
        let count = queue.queued().len() as u64 + queue.overflow as u64;
        (bytes.saturating_add(queue.reclaimable_bytes), targets + count)
    });
    if targets == 0 || bytes < situation.settings().min_bytes {
        views_left_alone(situation, findings);
        return;
    }
    let plan = &situation.inputs.plan;
    let is_enforcing = plan.rules.mode == Mode::Enforce;
    let mut remedy = vec![
        Remedy::recliner("See what would start now, with the requests:", &["plan"]),
        Remedy::recliner("See what enforcing would change in the next days:", &["what-if"]),
        enforce(is_enforcing),
    ];
    remedy.extend(allow_whole_views(plan));
    findings.offer(Gain::Bytes(bytes), || Wording {
        subject: Subject::Cluster,
        says: format!(
            "{} waiting; compacting {} would free {}, but {} in advise mode.",
            if targets == 1 {
                "1 target is".to_owned()
            } else {
                format!("{} targets are", grouped(targets))
            },
            if targets == 1 { "it" } else { "them" },
            format_size_short(bytes),
            if is_enforcing { "the channels are" } else { "recliner is" },
        ),
        evidence: vec![("reclaimable_bytes", bytes.into()), ("targets", targets.into())],
        remedy,
    });
}

/// Views that wait for nothing else in enforce mode.
fn views_left_alone(situation: &Situation<'_>, findings: &mut Findings) {
    let plan = &situation.inputs.plan;
    if excluded_views(plan) == 0 {
        return;
    }
    let is_left = |target: &TargetRef<'_>| matches!(plan.decision(*target), Decision::Refused(why) if why.reason == RefusalReason::Excluded);
    let waiting = queued(plan).filter(|(queue, _)| enforces(plan, queue));
    let views = waiting.filter(|(queue, view)| queue.node == NodeIx::CLUSTER && is_left(view));
    let wasted: Vec<u64> = views.filter_map(|(_, view)| view.reclaimable_bytes()).collect();
    let bytes = total(wasted.iter().copied());
    if bytes < situation.settings().min_bytes {
        return;
    }
    findings.offer(Gain::Bytes(bytes), || Wording {
        subject: Subject::Cluster,
        says: format!(
            "recliner leaves {} alone, because their databases have several ranges; compacting them would free {}.",
            counted(wasted.len() as u64, "view index", "view indexes"),
            format_size_short(bytes)
        ),
        evidence: vec![
            ("reclaimable_bytes", bytes.into()),
            ("targets", (wasted.len() as u64).into()),
        ],
        remedy: vec![Remedy::configuration(
            "CouchDB compacts such an index on all nodes at once. If that is acceptable:",
            ALL_VIEWS,
        )],
    });
}

/// The number of waiting views that recliner does not compact because of `views.enforce: q1`.
fn excluded_views(plan: &Plan) -> u64 {
    if plan.rules.views != EnforceViews::Q1 {
        return 0;
    }
    let queues = plan.queues.iter().zip(plan.decision_counts.iter());
    let of_cluster = queues.filter(|(queue, _)| queue.node == NodeIx::CLUSTER);
    of_cluster.map(|(_, counts)| counts.refusals(RefusalReason::Excluded)).sum()
}

/// The additional remedy if views wait that recliner does not compact; `None` if none wait.
fn allow_whole_views(plan: &Plan) -> Option<Remedy> {
    (excluded_views(plan) > 0).then(|| {
        Remedy::configuration(
            "Even then, views of databases with several ranges are left alone, because CouchDB compacts them on all nodes at once. If that is acceptable:",
            ALL_VIEWS,
        )
    })
}

/// How to let recliner do it. Even in enforce mode, single channels may still be set to advise.
fn enforce(is_enforcing: bool) -> Remedy {
    if is_enforcing {
        return "If you agree, remove mode: advise from these channels: recliner then compacts what waits in them, within limits and only while space and load allow.".into();
    }
    Remedy::configuration(
        "If you agree, let recliner do it, within limits and only while space and load allow:",
        "mode: enforce",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::{
        advice::test_cluster::{Index, Shard, TestCluster},
        model::channel::Channel,
    };

    /// A tenth of a file.
    const TENTH: u64 = 90 << 20;

    fn found(mode: Mode, active_bytes: Option<u64>) -> Vec<Finding> {
        let shard = Shard { active_bytes, ..Shard::new("orders", "a", 0, 10 * TENTH) };
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.rules.mode = mode;
        cluster.findings_of(&RULE)
    }

    #[test]
    fn advises_enforcing_if_waste_waits() {
        let found = found(Mode::Advise, Some(2 * TENTH));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "1 target is waiting; compacting it would free 731 MiB, but recliner is in advise mode."
        );
    }

    #[test]
    fn advises_enforcing_in_channels_that_only_advise() {
        let shard = Shard::new("orders", "a", 0, 10 * TENTH).with_active(2 * TENTH);
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.rules.mode = Mode::Enforce;
        let mode = Mode::Advise;
        cluster.channels = cluster.channels.map(|channel| Channel { mode, ..channel.clone() });
        let found = cluster.findings_of(&RULE);
        assert!(found[0].says.ends_with("but the channels are in advise mode."), "{found:?}");
        assert!(
            found[0].remedy.iter().all(|remedy| remedy.text.as_deref() != Some("mode: enforce"))
        );
    }

    #[test]
    fn suggests_enforcing_all_views_if_enforcing_skips_some() {
        let views_left_alone = |views| {
            let shards = [0, 1].map(|range| Shard::new("orders", "a", range, 10 * TENTH));
            let mut cluster = TestCluster::with_shards(&shards);
            let index = Index::new("orders", "_design/by_day", 1);
            cluster.add_index(&Index { waste: 10 * TENTH, ..index });
            cluster.rules.views = views;
            let found = cluster.findings_of(&RULE);
            let [only] = &found[..] else { panic!("{found:?}") };
            only.remedy.iter().any(|it| it.text.as_deref() == Some("views: {enforce: all}"))
        };
        assert!(views_left_alone(EnforceViews::Q1));
        assert!(!views_left_alone(EnforceViews::All));
    }

    #[test]
    fn reports_views_that_enforcing_leaves_uncompacted() {
        let found = |views| {
            let shards =
                [0, 1].map(|range| Shard::new("orders", "a", range, TENTH).with_active(TENTH));
            let mut cluster = TestCluster::with_shards(&shards);
            let index = Index::new("orders", "_design/by_day", 1);
            cluster.add_index(&Index { waste: 10 * TENTH, ..index });
            cluster.rules.mode = Mode::Enforce;
            cluster.rules.views = views;
            cluster.findings_of(&RULE)
        };
        let found_q1 = found(EnforceViews::Q1);
        let [only] = &found_q1[..] else { panic!("{found_q1:?}") };
        assert!(only.says.starts_with("recliner leaves 1 view index alone"), "{}", only.says);
        assert_eq!(only.remedy[0].text.as_deref(), Some(ALL_VIEWS));
        assert_eq!(found(EnforceViews::All), []);
    }

    #[test]
    fn ignores_little_waste() {
        let found = |min_bytes| {
            let active = Some(2 * TENTH);
            let shard = Shard { active_bytes: active, ..Shard::new("orders", "a", 0, 10 * TENTH) };
            let mut cluster = TestCluster::with_shards(&[shard]);
            cluster.settings.min_bytes = min_bytes;
            cluster.findings_of(&RULE)
        };
        let [only] = &found(1)[..] else { panic!("nothing waits") };
        let Gain::Bytes(waste) = only.gain else { panic!("{only:?}") };
        assert_eq!(found(waste).len(), 1);
        assert_eq!(found(waste + 1), []);
    }

    #[test]
    fn ignores_waste_that_recliner_frees_or_cannot_measure() {
        assert_eq!(found(Mode::Enforce, Some(2 * TENTH)), []);
        assert_eq!(found(Mode::Advise, Some(9 * TENTH)), [], "no channel takes it");
        assert_eq!(found(Mode::Advise, None), []);
    }
}
