//! Index builds that fail each time.

use super::designs::DesignName;
use crate::{
    advice::{Findings, Gain, Remedy, Rule, Situation, Wording},
    jobs::FailedBuilds,
    table::TargetRef,
    text::{counted, duration::format_rounded},
};

/// Fewer failures in a row may come from a restart of a node.
const MIN_FAILURES: u32 = 3;

pub(crate) const RULE: Rule = Rule {
    code: "failing_build",
    finds: "View and search indexes whose builds fail each time.",
    because: "CouchDB accepts a build at once and reports nothing when it fails: the indexer just ends, and the index lags as before. Each query of it fails or times out. Usual causes are a document that ends the query server, a map function that CouchDB cannot compile, or a query server that does not start. recliner counts the builds that its warmer requested, three failures in a row at least; in advise mode there are none. A lag is read from one range only, so a document that breaks the index of another range is not noticed.",
    ..Rule::warning(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    for (ix, failed) in &*situation.inputs.failed_builds {
        let index = situation.snapshot().target(*ix).filter(|_| failed.count >= MIN_FAILURES);
        let Some((index, name)) = index.and_then(|it| Some((it, DesignName::of(it)?))) else {
            continue;
        };
        let gain = index.file_bytes().map_or(Gain::Unknown, Gain::Risk);
        findings.offer(gain, || finding(situation, index, name, failed));
    }
}

fn finding(
    situation: &Situation<'_>,
    index: TargetRef<'_>,
    name: DesignName,
    failed: &FailedBuilds,
) -> Wording {
    let view = index.view().and_then(|view| view.build_query.as_ref());
    let mut remedy: Vec<Remedy> = Vec::new();
    match view.filter(|_| index.search().is_none()) {
        Some(query) => remedy.push(Remedy::query_view(
            "Query it without rows; CouchDB answers with the error. The answer may take long, as it first tries to build the index:",
            &name.db,
            query,
        )),
        None => remedy.push("Query it: CouchDB answers with the error.".into()),
    }
    remedy.push("If the answer does not tell the cause, look in the nodes' logs for errors that name this design document, or os_process and couchjs.".into());
    remedy.push(name.show("Correct the function or the document; if nobody needs the index, delete its design document. This shows the functions:"));
    let age = format_rounded(failed.since.age(situation.now));
    let refused = failed.refused_because.as_ref();
    let reason = refused.map_or_else(String::new, |why| format!(" CouchDB's last answer: {why}"));
    let mut evidence = vec![("failures", failed.count.into())];
    evidence.extend(index.facts().updates_pending.get().map(|it| ("updates_pending", it.into())));
    Wording {
        says: format!(
            "The build of the index of {name} failed {} in a row, for {age}: queries of it fail or wait.{reason}",
            counted(failed.count.into(), "time", "times"),
        ),
        evidence,
        remedy,
        subject: name.subject(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{
        Finding, Severity,
        test_cluster::{Index, NOW, Shard, TestCluster},
    };
    use wall_clock::Moment;

    fn findings(count: u32, refused_because: Option<&str>) -> Vec<Finding> {
        let mut cluster = TestCluster::with_shards(&[Shard::new("orders", "a", 0, 1 << 20)]);
        let index = Index { pending: Some(500), ..Index::new("orders", "_design/reports", 1) };
        let ix = cluster.add_index(&index);
        let since = Moment::from_unix(NOW.unix() - 1_800);
        let refused_because = refused_because.map(str::to_owned);
        cluster.failed_builds.insert(ix, FailedBuilds { count, since, refused_because });
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_three_failures_in_a_row() {
        let found = findings(3, None);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "The build of the index of orders/_design/reports failed 3 times in a row, for 30m: queries of it fail or wait."
        );
        assert_eq!((only.severity, only.gain), (Severity::Warning, Gain::Risk(100 << 20)));
        assert_eq!(
            only.remedy[0].text.as_deref(),
            Some(
                "curl -u \"$COUCHDB_USER\" \"$COUCHDB_URL\"'/orders/_design/reports/_view/all?limit=0'"
            )
        );
    }

    #[test]
    fn quotes_why_couchdb_refused_the_build() {
        let found = findings(4, Some("403 Forbidden"));
        assert!(found[0].says.ends_with("wait. CouchDB's last answer: 403 Forbidden"), "{found:?}");
    }

    #[test]
    fn is_silent_about_fewer_failures() {
        assert_eq!(findings(2, None), []);
    }
}
