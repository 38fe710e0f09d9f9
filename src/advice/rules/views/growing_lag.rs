//! Indexes that fall further behind while they are built.

use super::designs::{DesignName, is_building};
use crate::{
    advice::{Findings, Gain, LagChange, Rule, Situation, Wording},
    text::{duration::format_rounded, grouped},
};

pub(crate) const RULE: Rule = Rule {
    code: "growing_lag",
    finds: "View indexes that fall further behind their database while they are being built.",
    because: "For each shard copy, one process builds the index and hands one document after the other to a query server. If documents are written faster than that, the lag grows for as long as the load lasts, and readers that want current data wait longer. Lag is compared with that of one to two hours ago; a lag caused by one burst of writes ends by itself. The limit is `advice.lagging_index`. Only a running recliner finds this, not a command that reads the cluster once.",
    untried: Some("the lag has to grow for an hour"),
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let limit = situation.settings().lagging_index_updates.max(1);
    for index in situation.listed(&situation.survey.lagging_views) {
        let Some(change) = situation.inputs.lags.change(index) else { continue };
        if change.now < limit || change.growth() == 0 || !is_building(situation, index) {
            continue;
        }
        let Some(name) = DesignName::of(index) else { continue };
        let gain = Gain::Risk(index.file_bytes().unwrap_or_default());
        findings.offer(gain, || finding(name, &change));
    }
}

fn finding(name: DesignName, change: &LagChange) -> Wording {
    let span = format_rounded(change.span);
    Wording {
        says: format!(
            "The index of {name} is being built but keeps falling behind: {} changes behind, {} more than {span} ago.",
            grouped(change.now),
            grouped(change.growth()),
        ),
        evidence: vec![
            ("updates_pending", change.now.into()),
            ("updates_pending_before", change.before.into()),
            ("watched_seconds", change.span.as_secs().into()),
        ],
        remedy: vec![
            name.show(
                "Look for map functions that do more than they need, and for views that nobody reads: all of them run for each change:",
            ),
            "If all are needed, move views to separate design documents, which are built in parallel, write them in Erlang or as a Mango index, or split the ranges of the database: each range has its own build process.".into(),
        ],
        subject: name.subject(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::{
            LagHistory, Severity,
            test_cluster::{Index, NOW, Shard, TestCluster, build_job},
        },
        model::facts::{FactSource, Measurement, OptionalU64},
    };
    use wall_clock::Moment;

    /// An index that lags now as given, and lagged by 100,000 changes two hours ago.
    fn cluster(pending: u64, is_built: bool) -> TestCluster {
        let mut cluster = TestCluster::with_shards(&[Shard::new("orders", "a", 0, 1 << 20)]);
        cluster.add_index(&Index::new("orders", "_design/reports", 1));
        let index = cluster.draft.current().targets().find(|it| it.view().is_some());
        let (ix, facts) = index.map(|it| (it.ix(), it.facts())).unwrap();
        for (seconds, pending) in [(7_200, 100_000), (0, pending)] {
            let at = Moment::from_unix(NOW.unix() - seconds);
            let mut facts = facts;
            facts.updates_pending = OptionalU64::new(pending);
            facts.measured_at = Some(Measurement { at, source: FactSource::Http });
            cluster.draft.set_facts(ix, facts);
            cluster.lags = cluster.lags.updated(cluster.draft.current(), &[ix]);
        }
        if is_built {
            cluster.add_job(build_job("orders", "_design/reports", 0));
        }
        cluster
    }

    #[test]
    fn finds_build_that_does_not_keep_up() {
        // The older of the two readings is still the first one.
        let found = cluster(130_000, true).findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "The index of orders/_design/reports is being built but keeps falling behind: 130,000 changes behind, 30,000 more than 2h ago."
        );
        assert_eq!(only.severity, Severity::Warning);
    }

    #[test]
    fn ignores_index_that_catches_up_or_is_not_built() {
        assert_eq!(cluster(100_000, true).findings_of(&RULE), []);
        assert_eq!(cluster(99_999, true).findings_of(&RULE), []);
        assert_eq!(cluster(130_000, false).findings_of(&RULE), [], "another rule names it");
    }

    #[test]
    fn is_silent_without_an_earlier_reading() {
        let mut cluster = cluster(130_000, true);
        cluster.lags = LagHistory::default();
        assert_eq!(cluster.findings_of(&RULE), []);
    }
}
