//! Design documents with so many views that changing one rebuilds much.

use super::designs::{DesignName, seconds_to_write};
use crate::{
    advice::{Findings, Gain, Rule, Situation, Wording},
    text::{duration::format_rounded, size::format_size_short},
};
use std::time::Duration;

pub(crate) const RULE: Rule = Rule {
    code: "many_views_in_one_design",
    finds: "Design documents with many views and a large index.",
    because: "All views of a design document are in one index. Adding a view, or changing one, changes the signature, and CouchDB builds all of them again, beside the old index until the new one is done. In separate documents, only the changed view is built. On the other hand, views of one document share the reading of each changed document, so views that change together belong together. The gain is the time spent rebuilding the other views when one changes. The limit is `advice.views_in_one_design`.",
    ..Rule::info(check)
};

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let settings = situation.settings();
    let limit = settings.views_in_one_design.max(2);
    for (ix, db) in situation.survey.dbs() {
        if (db.most_views as u64) < limit || db.view_file_bytes < settings.min_bytes {
            continue;
        }
        for index in situation.views_of(ix) {
            let views = index.view().map_or(0, |view| view.functions.len() as u64);
            let bytes = index.active_bytes().filter(|bytes| *bytes >= settings.min_bytes);
            let Some(bytes) = bytes.filter(|_| views >= limit) else { continue };
            let Some(name) = DesignName::of(index) else { continue };
            let others = bytes - bytes / views;
            let seconds = seconds_to_write(situation, others);
            findings.offer(Gain::Seconds(seconds), || finding(name, views, bytes, seconds));
        }
    }
}

fn finding(name: DesignName, views: u64, bytes: u64, seconds: u64) -> Wording {
    let time = match seconds {
        0..60 => String::new(),
        seconds => {
            let minutes = Duration::from_secs(seconds / 60 * 60);
            format!(", {} of it spent rewriting unchanged views", format_rounded(minutes))
        }
    };
    Wording {
        says: format!(
            "{name} has {views} views in one index of {} in all files; changing any of them rebuilds the whole index{time}.",
            format_size_short(bytes)
        ),
        evidence: vec![
            ("views", views.into()),
            ("index_live_bytes", bytes.into()),
            ("seconds_of_writing", seconds.into()),
        ],
        remedy: vec![
            name.show("See its views:"),
            "At the next change, move the views that change often, and those that nobody waits for, to separate design documents."
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
        test_cluster::{Index, Shard, TestCluster},
    };

    fn found(views: u64, bytes: Option<u64>) -> Vec<Finding> {
        let shard = |node| Shard::new("orders", node, 0, 500 << 20);
        let mut cluster = TestCluster::with_shards(&[shard("a"), shard("b")]);
        let index = Index::new("orders", "_design/all", 1);
        cluster.add_index(&Index { functions: (0..views).collect(), bytes, ..index });
        cluster.findings_of(&RULE)
    }

    #[test]
    fn reports_ten_views_in_a_large_index() {
        let found = found(10, Some(50 << 30));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "orders/_design/all has 10 views in one index of 100 GiB in all files; changing any of them rebuilds the whole index, 1h 20m of it spent rewriting unchanged views."
        );
        assert_eq!(only.severity, Severity::Info);
    }

    #[test]
    fn ignores_nine_views_and_a_small_index() {
        assert_eq!(found(9, Some(50 << 30)), []);
        assert_eq!(found(10, Some(31 << 20)), []);
    }

    #[test]
    fn is_silent_if_view_functions_or_size_are_unknown() {
        assert_eq!(found(0, Some(50 << 30)), []);
        assert_eq!(found(10, None), []);
    }
}
