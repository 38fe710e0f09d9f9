//! `recliner scan`: reads the cluster once and prints it.

use super::{
    CommandError, Exit,
    args::ScanArgs,
    next_step::{AFTER_SCAN, print_next_step},
    read_once, table,
};
use crate::{
    plan::Plan,
    serve::report::{self, NodeLine, Target},
};
use serde::{Serialize, Serializer};

/// JSON output of a scan.
#[derive(Serialize)]
struct ScanAnswer<'a> {
    generated_at: String,
    nodes: Vec<NodeLine>,
    #[serde(serialize_with = "serialize_targets")]
    targets: &'a Plan,
}

/// Serialises the targets one by one while writing the output.
fn serialize_targets<S: Serializer>(plan: &Plan, out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(plan.snapshot.targets().map(|target| Target::of(plan, target)))
}

pub(super) async fn run(args: ScanArgs) -> Result<Exit, CommandError> {
    let mut settings = args.source.load()?;
    if args.no_pace {
        settings.couchdb.cold_reads_per_second = 0;
    }
    let reading = read_once::read_cluster(&settings, false).await?;
    let plan = &reading.plan;
    let answer = ScanAnswer {
        generated_at: plan.snapshot.generated_at().rfc3339(),
        nodes: report::nodes(plan).collect(),
        targets: plan,
    };
    args.format.print(&answer, |_, width| {
        let parts = [
            table::headline(plan),
            table::nodes(plan, width) + &table::disks(plan, width),
            table::queues(plan, width),
            table::targets(plan, width),
        ];
        parts.join("\n")
    })?;
    read_once::print_node_findings(plan);
    read_once::print_read_errors(&reading.status);
    print_next_step(args.format, AFTER_SCAN);
    Ok(reading.exit())
}
