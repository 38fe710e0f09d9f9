//! Nodes whose channels recliner has taken over.

use super::*;
use crate::takeover::SECTION;

/// A mark as a takeover leaves it on a node.
fn mark(was: &str) -> String {
    format!(r#"{{"was":{was},"at":1795222434}}"#)
}

/// Settings of two channels, as they are and with a takeover over them.
fn two() -> [NodeConfig; 2] {
    let before = node("n", "3.5.0", "[smoosh.ratio_dbs]\nconcurrency = 3\nmin_priority = 4.0\n");
    let mut taken = before.clone();
    let zero = || ("concurrency".to_owned(), "0".to_owned());
    for (channel, was) in [("ratio_dbs", r#""3""#), ("slack_dbs", "null")] {
        taken.sections.entry(format!("smoosh.{channel}")).or_default().extend([zero()]);
        let key = format!("smoosh.{channel}.concurrency");
        taken.sections.entry(SECTION.to_owned()).or_default().insert(key, mark(was));
    }
    [before, taken]
}

#[test]
fn what_was_noted_is_imported_and_said() {
    let [before, taken] = two();
    let (expected, imported) = (import(&[before]).unwrap(), import(&[taken]).unwrap());
    assert_eq!(imported.channels, expected.channels);
    assert_eq!(imported.per_node, expected.per_node);
    assert_eq!(channel(&imported, "ratio_dbs").concurrency, 3);
    assert_eq!(channel(&imported, "slack_dbs").concurrency, 1, "the default");
    assert!(imported.is_equal());
    let expected = shown(&expected.findings);
    let more: Vec<_> =
        shown(&imported.findings).into_iter().filter(|it| !expected.contains(it)).collect();
    assert_eq!(
        more,
        [
            "note: [smoosh.ratio_dbs] concurrency: a takeover of recliner's holds it at 0; imported is what it was before, \"3\"",
            "note: [smoosh.slack_dbs] concurrency: a takeover of recliner's holds it at 0; imported is its default, as before: it was not set",
        ]
    );
}

#[test]
fn a_channel_that_somebody_else_stopped_stays_stopped() {
    let [_, mut taken] = two();
    taken.sections.remove(SECTION);
    let imported = import(&[taken]).unwrap();
    assert_eq!(channel(&imported, "ratio_dbs").concurrency, 0);
}
