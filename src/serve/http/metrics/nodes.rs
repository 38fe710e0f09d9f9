//! The CouchDB nodes: which of them answer, and their versions.

use super::members;
use crate::plan::Plan;
use metrics_text::{Writer, families};

families! {
    NODE_UP: Gauge None "recliner_node_up" ["node"]
        "1 if the CouchDB node answered when it was last asked, 0 if it did not.";
    NODE_INFO: Gauge None "recliner_node_info" ["node", "version"]
        "Always 1, labelled with the CouchDB version that the node reports.";
}

pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    let up = members(plan).filter_map(|node| Some(([&*node.name], node.is_up?)));
    writer.write(&NODE_UP, up);
    let mut samples = writer.family(&NODE_INFO);
    for node in members(plan) {
        if let Some(build) = &node.build {
            samples.sample(&[&node.name, &build.to_string()], 1_u64);
        }
    }
}
