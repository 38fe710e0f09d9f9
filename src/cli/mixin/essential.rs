//! The alerts to begin with: enough to notice that disks fill, that waste is not reclaimed, and that recliner
//! cannot see the cluster.

use super::GROUPS;

const ESSENTIAL: [&str; 10] = [
    "ReclinerDown",
    "ReclinerCouchDbUnreachable",
    "ReclinerNodeUnseen",
    "ReclinerScanStale",
    "ReclinerReclaimableHigh",
    "ReclinerAdviceCritical",
    "ReclinerDiskAlmostFull",
    "ReclinerDiskFillsFast",
    "ReclinerDiskFills",
    "ReclinerJobsFail",
];

/// The alerts file reduced to the essential alerts. Groups without one are left out, and so are comments about
/// single alerts, which would end up next to other alerts.
pub(super) fn only_essential(alerts: &str) -> String {
    let (comment, groups) = alerts.split_once(GROUPS).unwrap_or(("", alerts));
    let mut text = [comment, GROUPS].concat();
    let groups = groups.split("  - name: ").filter(|group| !group.is_empty());
    let kept = groups.filter_map(essential_group).map(|group| format!("  - name: {group}"));
    text.push_str(&kept.collect::<Vec<_>>().join("\n"));
    text
}

/// A group, beginning with its name, reduced to its essential alerts; `None` if it has none.
fn essential_group(group: &str) -> Option<String> {
    const RULE: &str = "      - alert: ";
    let mut rules = group.split(RULE);
    let head = rules.next()?.lines().filter(|line| !line.trim_start().starts_with('#'));
    let head: String = head.map(|line| format!("{line}\n")).collect();
    let is_essential = |rule: &&str| rule.lines().next().is_some_and(|it| ESSENTIAL.contains(&it));
    let kept = rules.filter(is_essential).map(|rule| {
        let lines = rule.lines().filter(|line| !line.starts_with("      #") && !line.is_empty());
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        format!("{RULE}{lines}")
    });
    let kept: Vec<String> = kept.collect();
    (!kept.is_empty()).then(|| [head, kept.join("\n")].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_complete_essential_alerts_and_no_empty_group() {
        let shipped = include_str!("../../../alerts/alerts.yaml");
        let essential = only_essential(shipped);
        for name in ESSENTIAL {
            let rule = format!("      - alert: {name}\n");
            assert_eq!(essential.matches(&rule).count(), 1, "{name}");
            let from =
                |text: &str| text.split(&rule).nth(1).unwrap().lines().next().map(str::to_owned);
            assert_eq!(from(&essential), from(shipped), "{name}");
        }
        assert_eq!(essential.matches("- alert:").count(), ESSENTIAL.len());
        assert_eq!(essential.matches("runbook_url:").count(), ESSENTIAL.len());
        for group in essential.split("  - name: ").skip(1) {
            assert!(group.contains("    rules:\n      - alert: "), "{group}");
        }
    }
}
