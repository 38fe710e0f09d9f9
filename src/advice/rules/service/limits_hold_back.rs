//! Limits under which waiting work grows.

use super::super::queues::{enforces, queued, served_nodes};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Severity, Situation, Subject, Wording},
    model::{rounding::to_bytes, settings::limits::Limits},
    plan::Plan,
    text::{duration::format_rounded, size::format_size_short},
};
use std::time::Duration;

pub(crate) const RULE: Rule = Rule {
    code: "limits_hold_back",
    finds: "Limits so low that compactions cannot keep up with writes, or need weeks to clear the queue.",
    because: "recliner compacts no more than its limits allow: bytes an hour, jobs at a time, and the share of a node's time in which compactions run. The rule assumes the best case: every slot is busy, windows and pressure hold nothing back, and compactions run at recliner's measured rate. If waste grows faster even then, the backlog grows for ever, which is a warning; a backlog longer than `advice.max_backlog` has severity info. Growth counts once it was measured for `advice.min_watched`. Limits of 0 are meant to stop recliner and give no advice.",
    severities: &[Severity::Info, Severity::Warning],
    ..Rule::info(check)
};

const DAY: f64 = 86_400.0;

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let plan = &*situation.inputs.plan;
    let backlog = Backlog::of(plan);
    if backlog.reclaimable < situation.settings().min_bytes {
        return;
    }
    let Some(limit) = tightest_limit(plan, &backlog) else { return };
    let growth = waste_per_day(situation).filter(|growth| *growth >= limit.freed_per_day);
    let days = backlog.reclaimable as f64 / limit.freed_per_day;
    let takes = Duration::try_from_secs_f64(days * DAY).unwrap_or(Duration::MAX);
    if growth.is_none() && takes <= situation.settings().max_backlog {
        return;
    }
    let severity = if growth.is_some() { Severity::Warning } else { Severity::Info };
    findings.offer_as(severity, Gain::Unknown, || finding(&backlog, &limit, (growth, takes)));
}

/// Sums over the waiting targets that may be started.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    file: u64,
    reclaimable: u64,
}

impl Backlog {
    fn of(plan: &Plan) -> Self {
        let mut backlog = Self::default();
        for (_, target) in queued(plan).filter(|(queue, _)| enforces(plan, queue)) {
            let sizes = target.file_bytes().zip(target.reclaimable_bytes());
            let Some((file, reclaimable)) = sizes else { continue };
            backlog.file = backlog.file.saturating_add(file);
            backlog.reclaimable = backlog.reclaimable.saturating_add(reclaimable);
        }
        backlog
    }
}

/// The limit that allows least.
#[derive(Clone, Debug)]
struct TightestLimit {
    setting: &'static str,
    value: String,
    /// Bytes that can be freed a day.
    freed_per_day: f64,
}

/// The tightest limit. `None` if a limit stops everything, or if clusters share one, because each cluster's share
/// changes with what the others need.
fn tightest_limit(plan: &Plan, backlog: &Backlog) -> Option<TightestLimit> {
    let Limits { per_node, cluster, bytes_per_hour, duty_percent, .. } = plan.rules.limits;
    let on_nodes = per_node.saturating_mul(served_nodes(plan).count());
    let jobs = on_nodes.min(cluster);
    let is_shared = plan.rules.jobs_are_shared() || plan.rules.bytes_are_shared();
    if is_shared || jobs == 0 || bytes_per_hour == 0 || backlog.file == 0 {
        return None;
    }
    let (file, freed) = (backlog.file as f64, backlog.reclaimable as f64);
    let by_budget = TightestLimit {
        setting: "limits.bytes_per_hour",
        value: format_size_short(bytes_per_hour),
        freed_per_day: 24.0 * bytes_per_hour as f64 * freed / file,
    };
    let by_time = plan.conditions.constraints.measured_rate().map(|rate| {
        let (setting, value) = if duty_percent < 100.0 {
            ("limits.duty", format!("{duty_percent} %"))
        } else if cluster < on_nodes {
            ("limits.cluster", cluster.to_string())
        } else {
            ("limits.per_node", per_node.to_string())
        };
        let rewritten_per_day = rate * DAY * jobs as f64 * duty_percent / 100.0;
        let freed_per_day = rewritten_per_day * freed / (file - freed).max(1.0);
        TightestLimit { setting, value, freed_per_day }
    });
    let tighter = by_time.filter(|limit| limit.freed_per_day < by_budget.freed_per_day);
    Some(tighter.unwrap_or(by_budget))
}

/// Bytes of waste that a day's writes add; none until they were measured for long enough.
fn waste_per_day(situation: &Situation<'_>) -> Option<f64> {
    let growth = situation.survey.growth();
    growth.watched().filter(|watched| *watched >= situation.settings().min_watched)?;
    Some((growth.file_rate - growth.active_rate).max(0.0) * DAY)
}

fn finding(
    backlog: &Backlog,
    limit: &TightestLimit,
    (growth, takes): (Option<f64>, Duration),
) -> Wording {
    let waits = format_size_short(backlog.reclaimable);
    let allowed = to_bytes(limit.freed_per_day);
    let begins = format!(
        "Under {} ({}) at most {} a day can be freed",
        limit.setting,
        limit.value,
        format_size_short(allowed)
    );
    let says = match growth {
        Some(growth) => format!(
            "{begins}, but waste grows by {} a day, so the backlog ({waits} now) keeps growing.",
            format_size_short(to_bytes(growth))
        ),
        None => format!(
            "{begins}, so the {waits} waiting would take {} to free.",
            format_rounded(takes)
        ),
    };
    let mut evidence = vec![
        ("waiting_file_bytes", backlog.file.into()),
        ("waiting_reclaimable_bytes", backlog.reclaimable.into()),
        ("freed_bytes_per_day", allowed.into()),
        ("backlog_seconds", takes.as_secs().into()),
    ];
    if let Some(growth) = growth {
        evidence.push(("waste_bytes_per_day", to_bytes(growth).into()));
    }
    Wording {
        // Which limit is the tightest changes with the rate, so a mute covers all of them.
        subject: Subject::Setting("limits".to_owned()),
        says,
        evidence,
        // The gain is unknown: everything is freed in either case, only later.
        remedy: vec![
            Remedy::choice(format!(
                "If the nodes can bear more compaction, raise {} and watch the latency of requests; otherwise accept more waste with a higher min_priority.",
                limit.setting
            )),
            Remedy::recliner(
                "Compare the present rules with those of a changed recliner.yml:",
                &["what-if", "--config.file", "recliner.yml"],
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::test_cluster::{Shard, TestCluster},
        jobs::TargetConstraints,
        model::{
            channel::{Channel, Mode},
            share::Share,
        },
        shared_limits::Allowance,
    };
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;

    /// 400 GiB, of which 306 GiB can be freed, under a limit of `budget` bytes an hour.
    fn cluster(budget: u64) -> TestCluster {
        let shard = Shard::new("orders", "a", 0, 400 * GIB).with_active(100 * GIB);
        cluster_of(shard, budget)
    }

    fn cluster_of(shard: Shard, budget: u64) -> TestCluster {
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.rules.mode = Mode::Enforce;
        let mode = Mode::Enforce;
        cluster.channels = cluster.channels.map(|channel| Channel { mode, ..channel.clone() });
        cluster.rules.limits.bytes_per_hour = budget;
        cluster
    }

    #[test]
    fn reports_limit_that_delays_waste_by_more_than_a_week() {
        let found = cluster(2 * GIB).findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.severity, Severity::Info);
        assert_eq!(only.subject.to_string(), "limits");
        assert_eq!(
            only.says,
            "Under limits.bytes_per_hour (2 GiB) at most 36.7 GiB a day can be freed, so the 306 GiB waiting would take 8d 8h to free."
        );
        assert_eq!(cluster(3 * GIB).findings_of(&RULE), [], "less than a week");
        assert_eq!(cluster(0).findings_of(&RULE), [], "it is stopped on purpose");
    }

    #[test]
    fn ignores_limits_that_clusters_share() {
        let mut sharing = cluster(2 * GIB);
        let share = Share { jobs: 8, bytes_per_hour: 2 * GIB };
        sharing.rules.shared = Some(Allowance { share, until: None, most: Share::ALL });
        assert_eq!(sharing.findings_of(&RULE), []);
    }

    #[test]
    fn warns_if_waste_grows_faster_than_the_limit_allows() {
        let shard = Shard::new("orders", "a", 0, 400 * GIB).with_active(100 * GIB);
        let growing = shard.grown_from(5 * 86_400, 100 * GIB, 100 * GIB);
        let found = cluster_of(growing, 3 * GIB).findings_of(&RULE);
        assert_eq!(found[0].severity, Severity::Warning);
        assert_eq!(
            found[0].says,
            "Under limits.bytes_per_hour (3 GiB) at most 55 GiB a day can be freed, but waste grows by 60 GiB a day, so the backlog (306 GiB now) keeps growing."
        );
    }

    #[test]
    fn reports_the_duty_limit_if_the_measured_rate_is_low() {
        let mut cluster = cluster(500 * GIB);
        cluster.conditions.constraints = Arc::new(TargetConstraints {
            rewrite_bytes_per_second: Some(100_000.0),
            ..TargetConstraints::default()
        });
        let found = cluster.findings_of(&RULE);
        assert!(found[0].says.starts_with("Under limits.duty (50 %) "), "{}", found[0].says);
        assert_eq!(found[0].subject.to_string(), "limits");
    }

    #[test]
    fn is_silent_if_sizes_are_unknown() {
        let unmeasured = Shard { active_bytes: None, ..Shard::new("orders", "a", 0, 400 * GIB) };
        assert_eq!(cluster_of(unmeasured, 2 * GIB).findings_of(&RULE), []);
    }

    #[test]
    fn is_silent_in_advise_mode() {
        let mut cluster = cluster(2 * GIB);
        cluster.rules.mode = Mode::Advise;
        assert_eq!(cluster.findings_of(&RULE), []);
    }
}
