//! Waste below the thresholds of all channels.

use super::super::queues::queues;
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Subject, Wording, total},
    table::Waste,
    text::size::format_size_short,
};

pub(crate) const RULE: Rule = Rule {
    code: "waste_no_channel_takes",
    finds: "Much waste in files that no channel takes.",
    because: "A ratio says how bloated a file is, not how long its waste has existed: with smoosh's ratio of 2, a file that stopped growing at 1.9 keeps its waste for ever. Channels by rent take such a file once its waste has cost as much as a compaction, so with such channels the rule is silent. The limit, as a share of all files, is `advice.untaken_waste`.",
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    if situation.has_rent_channel() {
        return;
    }
    let waste = Waste::of(situation.snapshot());
    let Some((all, waste)) = waste.file_bytes().zip(waste.reclaimable_bytes()) else { return };
    let queued_bytes = total(queues(situation).map(|(queue, _)| queue.reclaimable_bytes));
    let is_complete = queues(situation).all(|(queue, _)| queue.overflow == 0);
    let untaken = waste.saturating_sub(queued_bytes);
    let share = untaken as f64 / all.max(1) as f64;
    let settings = situation.settings();
    // Of targets that do not fit into a queue, only the number is known.
    if !is_complete
        || untaken < settings.min_bytes
        || share * 100.0 < settings.untaken_waste_percent
    {
        return;
    }
    findings.offer(Gain::Bytes(untaken), || Wording {
        subject: Subject::Cluster,
        says: format!(
            "{} ({:.0} % of all files) are wasted in files that no channel takes.",
            format_size_short(untaken),
            share * 100.0
        ),
        evidence: vec![("reclaimable_bytes", untaken.into()), ("share_of_files", share.into())],
        remedy: vec![
            Remedy::recliner(
                "See what channels by rent would do with it:",
                &["what-if", "--channels", "rent"],
            ),
            Remedy::configuration("If you like the result:", "channels: rent"),
        ],
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Finding;
    use crate::advice::test_cluster::{Shard, TestCluster};

    /// A tenth of each file's size, in bytes.
    const TENTH: u64 = 90 << 20;

    fn found(active: u64) -> Vec<Finding> {
        let shard =
            |db| Shard { active_bytes: Some(active * TENTH), ..Shard::new(db, "a", 0, 10 * TENTH) };
        TestCluster::with_shards(&[shard("orders"), shard("users")]).findings_of(&RULE)
    }

    #[test]
    fn reports_waste_from_the_configured_share() {
        let some = found(6);
        let [only] = &some[..] else { panic!("{some:?}") };
        assert_eq!(
            only.says,
            "752 MiB (42 % of all files) are wasted in files that no channel takes."
        );
        assert_eq!(found(9), [], "less than a fifth");
        assert_eq!(found(1), [], "a channel takes them");
    }

    #[test]
    fn is_silent_if_sizes_are_unknown() {
        let shard = Shard { active_bytes: None, ..Shard::new("orders", "a", 0, 10 * TENTH) };
        assert_eq!(TestCluster::with_shards(&[shard]).findings_of(&RULE), []);
    }
}
