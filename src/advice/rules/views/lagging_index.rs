//! Indexes far behind their database that nothing builds.

use super::designs::{DesignName, is_building};
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Wording},
    model::channel::Mode,
    table::TargetRef,
    text::{duration::format_rounded, grouped, size::format_size_short},
};

pub(crate) const RULE: Rule = Rule {
    code: "lagging_index",
    finds: "View indexes that are many changes behind their database while no build of them runs.",
    because: "CouchDB builds an index when a view is queried, and on its own (ken) only after writes, never right after a restart. The next reader of a lagging index waits until all changes are indexed, often longer than its timeout, and every retry waits again. The lag is that of the copy that was read, or the sum of one copy of each range, so it is a lower bound. Documents with `autoupdate: false` leave building to their readers, and are ignored. A running recliner compares the lag with that of one to two hours ago. The limit is `advice.lagging_index`. The gain is the size of the index: data that cannot be read until it is built.",
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let limit = situation.settings().lagging_index_updates.max(1);
    if !knows_all_jobs(situation) {
        return;
    }
    for (ix, db) in situation.survey.dbs() {
        if db.most_pending < limit {
            continue;
        }
        for index in situation.views_of(ix) {
            let pending = index.facts().updates_pending.get().filter(|pending| *pending >= limit);
            let Some(pending) = pending.filter(|_| !is_building(situation, index)) else {
                continue;
            };
            let has_query = index.view().is_some_and(|view| view.build_query.is_some());
            let Some(name) = DesignName::of(index).filter(|_| has_query) else { continue };
            let gain = Gain::Risk(index.file_bytes().unwrap_or_default());
            findings.offer(gain, || finding(situation, index, name, pending));
        }
    }
}

/// Whether the running jobs of every member of the cluster are known.
fn knows_all_jobs(situation: &Situation<'_>) -> bool {
    let polled = &situation.inputs.plan.conditions.jobs.polled_nodes;
    let mut members = situation.snapshot().members();
    members.all(|(member, _)| polled.iter().any(|(node, _)| *node == member))
}

fn finding(
    situation: &Situation<'_>,
    index: TargetRef<'_>,
    name: DesignName,
    pending: u64,
) -> Wording {
    let bytes = index.file_bytes().unwrap_or_default();
    let query = index.view().and_then(|view| view.build_query.as_ref());
    let mut evidence = vec![("updates_pending", pending.into()), ("file_bytes", bytes.into())];
    let mut grew = String::new();
    let change = situation.inputs.lags.change(index);
    if let Some(change) = change.filter(|change| change.growth() > 0) {
        let (growth, span) = (grouped(change.growth()), format_rounded(change.span));
        grew = format!(" It is {growth} more than {span} ago.");
        evidence.push(("updates_pending_before", change.before.into()));
        evidence.push(("watched_seconds", change.span.as_secs().into()));
    }
    let says = "Start the build now; it continues even if the request times out:";
    let build = query.map(|query| Remedy::query_view(says, &name.db, query));
    let remedy = build.into_iter().chain(warmer(situation)).collect();
    Wording {
        says: format!(
            "The index of {name} ({}) is at least {} changes behind its database, and nothing is building it. The next query will wait for all of them.{grew}",
            format_size_short(bytes),
            grouped(pending),
        ),
        evidence,
        remedy,
        subject: name.subject(),
    }
}

/// How to make recliner build such indexes; none if it already does.
fn warmer(situation: &Situation<'_>) -> Option<Remedy> {
    let is_enforcing = situation.inputs.plan.rules.mode == Mode::Enforce;
    match (situation.inputs.remedy_settings.is_warmer_enabled, is_enforcing) {
        (true, true) => None,
        (true, false) => Some(Remedy::configuration(
            "Or let recliner build indexes that lag; its warmer is on, and starts builds in enforce mode:",
            "mode: enforce",
        )),
        (false, _) => Some(Remedy::configuration(
            "Or have recliner, in enforce mode, build indexes that lag:",
            "warmer: {enabled: true}",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::{
            Severity,
            test_cluster::{Index, Shard, TestCluster, build_job},
        },
        table::IndexQuery,
    };

    const MIB: u64 = 1 << 20;

    fn cluster(pending: Option<u64>) -> TestCluster {
        let shard = |node| Shard::new("orders", node, 0, 500 * MIB);
        let mut cluster = TestCluster::with_shards(&[shard("a"), shard("b")]);
        let index = Index { pending, ..Index::new("orders", "_design/reports", 1) };
        cluster.add_index(&index);
        cluster.poll_all_nodes();
        cluster
    }

    #[test]
    fn finds_index_far_behind_that_nothing_builds() {
        let found = cluster(Some(100_000)).findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "The index of orders/_design/reports (200 MiB) is at least 100,000 changes behind its database, and nothing is building it. The next query will wait for all of them."
        );
        assert_eq!((only.severity, only.gain), (Severity::Warning, Gain::Risk(200 * MIB)));
        assert_eq!(
            only.remedy[0].text.as_deref().unwrap_or_default(),
            "curl -u \"$COUCHDB_USER\" \"$COUCHDB_URL\"'/orders/_design/reports/_view/all?limit=0'"
        );
    }

    #[test]
    fn does_not_suggest_enabling_a_warmer_that_is_enabled() {
        let texts = |is_warmer_enabled, mode| {
            let mut cluster = cluster(Some(100_000));
            cluster.remedy_settings.is_warmer_enabled = is_warmer_enabled;
            cluster.rules.mode = mode;
            let found = cluster.findings_of(&RULE);
            let texts = found[0].remedy.iter().skip(1).filter_map(|it| it.text.clone());
            texts.collect::<Vec<_>>()
        };
        assert_eq!(texts(false, Mode::Enforce), ["warmer: {enabled: true}"]);
        assert_eq!(texts(true, Mode::Advise), ["mode: enforce"]);
        assert_eq!(texts(true, Mode::Enforce), [""; 0]);
    }

    #[test]
    fn ignores_index_that_lags_less_or_is_being_built() {
        assert_eq!(cluster(Some(99_999)).findings_of(&RULE), []);
        let mut building = cluster(Some(100_000));
        building.add_job(build_job("orders", "_design/reports", 0));
        // A task names its shard and document, and the tables may not know the file yet.
        std::sync::Arc::make_mut(&mut building.conditions.jobs).list[0].target = None;
        assert_eq!(building.findings_of(&RULE), []);
        let mut others = cluster(Some(100_000));
        others.add_job(build_job("invoices", "_design/reports", 0));
        assert_eq!(others.findings_of(&RULE).len(), 1);
    }

    #[test]
    fn is_silent_if_lag_or_running_jobs_are_unknown() {
        assert_eq!(cluster(None).findings_of(&RULE), []);
        let mut unpolled = cluster(Some(100_000));
        unpolled.conditions.jobs = std::sync::Arc::default();
        assert_eq!(unpolled.findings_of(&RULE), []);
    }

    #[test]
    fn ignores_index_that_only_readers_may_build() {
        let mut cluster = cluster(None);
        let index = Index { pending: Some(100_000), ..Index::new("orders", "_design/lazy", 2) };
        cluster.add_index(&Index { build_query: None::<IndexQuery>, ..index });
        assert_eq!(cluster.findings_of(&RULE), []);
    }
}
