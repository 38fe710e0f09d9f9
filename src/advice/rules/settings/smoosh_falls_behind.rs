//! Channels of smoosh whose queues take days.

use super::nodes::{MAX_COMMANDS, configs, is_taken_over, node, takeover};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording, total},
    table::{NodeIx, NodeSmoosh},
    text::{counted, duration::format_rounded, listed, size::format_size_short},
};
use compaction_settings::{SmooshChannel, read_smoosh};
use std::{collections::BTreeMap, time::Duration};

pub(crate) const RULE: Rule = Rule {
    code: "smoosh_falls_behind",
    finds: "Channels of smoosh whose queue would take too long to clear.",
    because: "Each channel runs `concurrency` compactions on a node, one by default, however long its queue, and the queue is never shown in bytes. recliner counts the files that smoosh reports as waiting. For the time, it takes the bytes that its own channel of the same name would write, at the measured rate of its compactions, with every slot busy. Without a measured rate, and before CouchDB 3.4, the rule is silent. The limit is `advice.max_backlog`.",
    untried: Some("it takes a queue of `advice.max_backlog`"),
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let mut behind: BTreeMap<String, Vec<Behind>> = BTreeMap::new();
    for config in configs(situation) {
        for channel in read_smoosh(config).channels {
            if channel.concurrency == 0 || is_taken_over(config, &channel.name) {
                continue;
            }
            let Some(found) = Behind::of(situation, &config.node, &channel) else { continue };
            if found.takes > situation.settings().max_backlog {
                behind.entry(channel.name).or_default().push(found);
            }
        }
    }
    for (channel, nodes) in behind {
        let bytes = total(nodes.iter().map(|it| it.reclaimable));
        findings.offer(Gain::Unknown, || {
            let remedy = takeover(situation, &channel);
            finding(channel, &nodes, bytes, remedy)
        });
    }
}

/// A channel on one node.
struct Behind {
    node: String,
    waiting: u64,
    concurrency: usize,
    reclaimable: u64,
    takes: Duration,
}

impl Behind {
    /// The backlog of a channel; none if nothing waits, or if its bytes are unknown.
    fn of(situation: &Situation<'_>, name: &str, channel: &SmooshChannel) -> Option<Self> {
        let plan = &situation.inputs.plan;
        let (ix, node) = node(situation, name)?;
        let NodeSmoosh::Channels(reported) = &node.smoosh else { return None };
        let waiting = reported.iter().find(|it| *it.name == *channel.name)?.waiting;
        let (at, _) = plan.channels.find(&channel.name).filter(|_| waiting > 0)?;
        let share = 1.0 / situation.snapshot().members().count().max(1) as f64;
        let (mut rewritten, mut reclaimable) = (0.0, 0.0);
        for (queue, share) in [(plan.queue(ix, at), 1.0), (plan.queue(NodeIx::CLUSTER, at), share)]
        {
            for target in queue.into_iter().flat_map(|queue| queue.queued()) {
                let Some(target) = situation.snapshot().target(target) else { continue };
                rewritten += target.predicted_bytes().unwrap_or_default() as f64 * share;
                reclaimable += target.reclaimable_bytes().unwrap_or_default() as f64 * share;
            }
        }
        let rate = plan.conditions.constraints.measured_rate()?;
        let seconds = rewritten / (rate * channel.concurrency as f64);
        Some(Self {
            node: name.to_owned(),
            waiting,
            concurrency: channel.concurrency,
            reclaimable: crate::model::rounding::to_bytes(reclaimable),
            takes: Duration::try_from_secs_f64(seconds).ok()?,
        })
    }
}

fn finding(channel: String, nodes: &[Behind], bytes: u64, takeover: Option<Remedy>) -> Wording {
    let longest = nodes.iter().map(|node| node.takes).max().unwrap_or_default();
    let waiting = nodes.iter().map(|node| node.waiting).sum();
    let names: Vec<String> = nodes.iter().map(|node| node.node.clone()).collect();
    let faster = |node: &Behind| {
        let (section, more) = (format!("smoosh.{channel}"), (node.concurrency + 1).to_string());
        let says = "Let it run more compactions at a time:";
        Remedy::set_config(says, &node.node, (&section, "concurrency"), &more)
    };
    let mut remedy: Vec<Remedy> = takeover.into_iter().collect();
    remedy.extend(nodes.iter().take(MAX_COMMANDS).map(faster));
    Wording {
        says: format!(
            "smoosh's channel {channel} needs {} to clear its queue on {}: {}, {} reclaimable.",
            format_rounded(longest),
            listed(&names),
            counted(waiting, "file", "files"),
            format_size_short(bytes),
        ),
        evidence: vec![
            ("waiting", waiting.into()),
            ("longest_backlog_seconds", longest.as_secs().into()),
            ("reclaimable_bytes", bytes.into()),
            ("nodes", listed(&names).into()),
        ],
        // The gain is unknown: everything is freed in either case, only later.
        remedy,
        subject: Subject::Channel(channel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::{
        advice::test_cluster::{Shard, TestCluster},
        jobs::TargetConstraints,
        model::{channel::Mode, settings::work::SmooshMode},
        table,
    };
    use std::sync::Arc;

    const GIB: u64 = 1 << 30;

    /// 94 GiB to write, with `waiting` files in smoosh's queue.
    fn found(waiting: u64, gib_per_day: Option<u64>) -> Vec<Finding> {
        cluster(waiting, gib_per_day).findings_of(&RULE)
    }

    fn cluster(waiting: u64, gib_per_day: Option<u64>) -> TestCluster {
        let shard = Shard::new("orders", "a", 0, 400 * GIB).with_active(100 * GIB);
        let mut cluster = TestCluster::with_shards(&[shard]);
        cluster.set("a", &[]);
        let ix = cluster.draft.get_or_add_node("a");
        cluster.draft.update_node(ix, |node| {
            node.smoosh = NodeSmoosh::Channels(vec![table::SmooshChannel {
                name: "ratio_dbs".into(),
                active: 1,
                starting: 0,
                waiting,
                priority_range: None,
            }]);
        });
        let rate = gib_per_day.map(|gib| (gib * GIB) as f64 / 86_400.0);
        cluster.conditions.constraints = Arc::new(TargetConstraints {
            rewrite_bytes_per_second: rate,
            ..TargetConstraints::default()
        });
        cluster
    }

    #[test]
    fn reports_queue_of_more_than_a_week() {
        let found = found(3, Some(10));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "smoosh's channel ratio_dbs needs 9d 11h to clear its queue on a: 3 files, 306 GiB reclaimable."
        );
        let faster = only.remedy[1].text.as_deref().unwrap_or_default();
        assert!(faster.ends_with("-d '\"2\"'"), "{faster}");
    }

    #[test]
    fn omits_remedies_that_are_already_configured() {
        let remedies = |mode, channels: &[&str]| {
            let mut cluster = cluster(3, Some(10));
            cluster.rules.mode = mode;
            cluster.remedy_settings.smoosh.mode = SmooshMode::Takeover;
            cluster.remedy_settings.smoosh.takeover =
                channels.iter().map(|name| (*name).to_owned()).collect();
            let found = cluster.findings_of(&RULE);
            found[0].remedy.iter().map(|remedy| remedy.says.clone()).collect::<Vec<_>>()
        };
        let faster = "Let it run more compactions at a time:";
        assert_eq!(remedies(Mode::Enforce, &["ratio_dbs"]), [faster]);
        let [enforce, last] = &remedies(Mode::Advise, &["ratio_dbs"])[..] else { panic!("two") };
        assert!(enforce.starts_with("Let recliner enforce (mode: enforce)"), "{enforce}");
        assert_eq!(last, faster);
        let add = &remedies(Mode::Enforce, &["slack_dbs"])[0];
        assert!(add.starts_with("Add ratio_dbs to smoosh.takeover"), "{add}");
    }

    #[test]
    fn is_silent_if_the_channel_was_taken_over() {
        let mut cluster = cluster(3, Some(10));
        cluster.set("a", &[("recliner", "smoosh.ratio_dbs.concurrency", "{}")]);
        assert_eq!(cluster.findings_of(&RULE), []);
    }

    #[test]
    fn ignores_queue_of_a_few_days_and_empty_queue() {
        assert_eq!(found(3, Some(14)), []);
        assert_eq!(found(0, Some(10)), []);
    }

    #[test]
    fn is_silent_if_the_rate_is_unknown() {
        assert_eq!(found(3, None), []);
    }
}
