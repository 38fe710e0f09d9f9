//! Nodes for which no source of free space is configured.

use super::super::queues::{gain_of_waste, queued, served_nodes};
use crate::{
    advice::{Findings, Remedy, Rule, Situation, Subject, Wording},
    plan::Plan,
    table::NodeIx,
    text::{
        counted, listed,
        quote::{promql_string, yaml_scalar},
        size::format_size_short,
    },
};
use std::collections::BTreeSet;

pub(crate) const RULE: Rule = Rule {
    code: "unknown_volumes",
    finds: "Nodes whose free space is unknown, so that their large files are never compacted.",
    because: "CouchDB 3.x compacts without checking free space and does not report it over HTTP, so recliner needs another source: the node's own directory, a Prometheus query or a fixed number. Without one it starts nothing larger than `headroom.blind_limit` there, because a compaction that fills the disk stops the node's writes.",
    ..Rule::info(check)
};

/// Maximum number of nodes for which configuration lines are written out.
const MAX_LINES: usize = 5;

fn check(situation: &Situation<'_>, findings: &mut Findings) {
    let plan = &*situation.inputs.plan;
    let nodes = unknown_nodes(plan);
    if nodes.is_empty() {
        return;
    }
    let limit = plan.rules.headroom.blind_limit;
    let (mut count, mut bytes) = (0_u64, 0_u64);
    for (queue, target) in queued(plan) {
        // A view of the cluster needs space on all nodes.
        let is_there =
            queue.node == NodeIx::CLUSTER || nodes.iter().any(|(ix, _)| *ix == queue.node);
        if is_there && target.facts().file_bytes.get().is_some_and(|file| file > limit) {
            count += 1;
            bytes = bytes.saturating_add(target.reclaimable_bytes().unwrap_or_default());
        }
    }
    if count == 0 || bytes < situation.settings().min_bytes {
        return;
    }
    let gain = gain_of_waste(plan, bytes);
    findings.offer(gain, || {
        let names: Vec<String> = nodes.iter().map(|(_, name)| (*name).to_owned()).collect();
        let targets = counted(count, "file or index waits", "files and indexes wait");
        Wording {
            subject: Subject::Setting("headroom.volumes".to_owned()),
            says: format!(
                "recliner does not know how much space is free on {}, so nothing larger than {} is compacted there: {targets} ({} to free).",
                listed(&names),
                format_size_short(limit),
                format_size_short(bytes),
            ),
            evidence: vec![
                ("nodes", listed(&names).into()),
                ("blind_limit_bytes", limit.into()),
                ("waiting", count.into()),
                ("reclaimable_bytes", bytes.into()),
            ],
            remedy: vec![
                Remedy::configuration(
                    "Tell recliner where to read the free space, with your node_exporter's labels and mount point:",
                    configuration(&names),
                ),
                "Without Prometheus, run a recliner with files.data_dir beside each of these nodes, or give a fixed number with `available`.".into(),
            ],
        }
    });
}

/// The nodes without any volume.
///
/// A command that reads the cluster once measures nothing, so configured volumes count as well. If
/// no volume at all is measured, a node whose directories are read here counts as one that a
/// service would measure.
fn unknown_nodes(plan: &Plan) -> Vec<(NodeIx, &str)> {
    let disks = &plan.conditions.disks;
    let configured = plan.rules.headroom.volumes.iter().flat_map(|volume| &volume.nodes);
    let configured: BTreeSet<&str> = configured.map(String::as_str).collect();
    let unknown = served_nodes(plan).filter(|(_, node)| {
        let is_read_here = disks.volumes.is_empty() && node.disk_usage.is_some();
        !configured.contains(&*node.name)
            && !is_read_here
            && disks.of_node(&node.name).next().is_none()
    });
    unknown.map(|(ix, node)| (ix, &*node.name)).collect()
}

fn configuration(nodes: &[String]) -> String {
    let mut lines = "headroom:\n  volumes:".to_owned();
    for node in nodes.iter().take(MAX_LINES) {
        let host = node.split_once('@').map_or(&**node, |(_, host)| host);
        let instance = promql_string(&format!("{host}:9100"));
        let query = format!(
            "node_filesystem_avail_bytes{{instance={instance},mountpoint=\"/opt/couchdb/data\"}}"
        );
        lines.push_str(&format!(
            "\n    - nodes: [{}]\n      prometheus:\n        url: http://prometheus:9090\n        query: {}",
            yaml_scalar(node),
            yaml_scalar(&query)
        ));
    }
    if let Some(more) = nodes.len().checked_sub(MAX_LINES).filter(|more| *more > 0) {
        lines.push_str(&format!("\n    # and so on for {}", counted(more as u64, "node", "nodes")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        advice::test_cluster::{Shard, TestCluster},
        model::settings::limits::{Free, VolumeSettings},
    };

    const GIB: u64 = 1 << 30;

    fn cluster(file_bytes: u64) -> TestCluster {
        let shard = |node, range| Shard::new("orders", node, range, file_bytes);
        let shards = [shard("couchdb@a", 0), shard("couchdb@b", 1)];
        TestCluster::with_shards(&shards.map(|shard| shard.with_active(GIB / 4)))
    }

    #[test]
    fn advises_configuring_volumes_that_large_files_wait_for() {
        let found = cluster(5 * GIB / 4).findings_of(&RULE);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.says,
            "recliner does not know how much space is free on couchdb@a and couchdb@b, so nothing larger than 1 GiB is compacted there: 2 files and indexes wait (2 GiB to free)."
        );
        let lines = only.remedy[0].text.as_deref().unwrap_or_default();
        assert!(
            lines.starts_with("headroom:\n  volumes:\n    - nodes: [\"couchdb@a\"]\n"),
            "{lines}"
        );
        assert!(lines.contains(r#"instance=\"b:9100\""#), "{lines}");
    }

    #[test]
    fn ignores_files_small_enough_to_start_without_known_space() {
        assert_eq!(cluster(GIB).findings_of(&RULE), []);
    }

    #[test]
    fn configured_volume_counts_as_known_even_if_not_measured() {
        let mut cluster = cluster(5 * GIB / 4);
        let nodes = vec!["couchdb@a".to_owned(), "couchdb@b".to_owned()];
        cluster.rules.headroom.volumes.push(VolumeSettings {
            nodes,
            free: Free::Available(GIB),
            size: None,
        });
        assert_eq!(cluster.findings_of(&RULE), []);
    }
}
