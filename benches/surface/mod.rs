//! The HTTP interface over a made-up cluster, with the senders of everything that it reads.

use axum::Router;
use couchdb_names::{Range, Signature};
use futures::future::BoxFuture;
use recliner::{
    model::{
        channel::Channels,
        facts::{FactFlags, FactSource, Facts, Measurement, OptionalU64},
    },
    plan::{Conditions, Plan, Queues},
    scan::ScanStatus,
    serve::http::{self, Allow, AppState, ConfigStatus, ProcessInfo, WebAccess},
    sources::{present_design::DesignReader, request_metrics::RequestMetrics},
    table::{DbName, Draft, NodeIx, ShardMapEntry, TargetIx, View},
};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use wall_clock::{Clock, Moment};

const NOW: Moment = Moment::from_unix(1_795_222_440);
const NODES: usize = 3;
const RANGES: u32 = 8;

/// A source of design documents that has none, because no bench reads one.
#[derive(Debug)]
struct NoDesigns;

impl DesignReader for NoDesigns {
    fn design<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, String>> {
        Box::pin(async { Ok(None) })
    }

    fn designs<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn facts(active: u64, file: u64) -> Facts {
    Facts {
        file_bytes: OptionalU64::new(file),
        active_bytes: OptionalU64::new(active),
        external_bytes: OptionalU64::new(active * 2),
        measured_at: Some(Measurement { at: NOW, source: FactSource::Http }),
        ..Facts::default()
    }
}

/// The interface over `dbs` databases of eight shards, each with a view if `views` is set; `top` databases are
/// exported completely. Also a function that publishes a sweep and its plan: every n-th shard is changed, by a
/// value that depends on a number.
pub(crate) fn over(dbs: usize, top: usize, views: bool) -> (Router, impl FnMut(usize, u64)) {
    let mut draft = Draft::new(top);
    let nodes: Vec<NodeIx> = (0..NODES).map(|at| node(&mut draft, at)).collect();
    let mut shards = Vec::new();
    for at in 0..dbs {
        add_database(&mut draft, at, &nodes, views, &mut shards);
    }
    let mut queues = Queues::new(Arc::new(Channels::default()));
    let mut planned = move |draft: &mut Draft, now| {
        let snapshot = draft.publish(now);
        queues.apply_snapshot(&snapshot, now);
        Arc::new(queues.make_plan(&snapshot, &Conditions::default(), &Arc::default(), now))
    };
    let (plan, plan_rx) = watch::channel(planned(&mut draft, NOW));
    let (router, open) = router_over(plan_rx);
    let sweep = move |every: usize, number: u64| {
        let _open = &open;
        for (at, ix) in shards.iter().enumerate().step_by(every) {
            let active = (at as u64 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
            draft.set_facts(*ix, facts(active, active * 3));
        }
        plan.send_replace(planned(&mut draft, Moment::from_unix(NOW.unix() + number)));
    };
    (router, sweep)
}

fn node(draft: &mut Draft, at: usize) -> NodeIx {
    let node = draft.get_or_add_node(&format!("couchdb@node-{at}.example.org"));
    draft.update_node(node, |node| {
        node.is_up = Some(true);
        node.is_member = true;
        node.last_success = Some(NOW);
    });
    node
}

pub(crate) fn db_name(at: usize) -> String {
    format!("customers/of-the-{at:07}/orders-and-invoices")
}

fn add_database(
    draft: &mut Draft,
    at: usize,
    nodes: &[NodeIx],
    views: bool,
    shards: &mut Vec<TargetIx>,
) {
    let name = db_name(at);
    let db = draft.get_or_add_db(DbName { db: &name, suffix: ".1521590400" });
    let width = u32::MAX / RANGES;
    let active = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
    for part in 0..RANGES {
        let from = part * (width + 1);
        let node = nodes[(at + part as usize) % NODES];
        let ix = draft.get_or_add_shard(node, db, Some(Range { from, to: from + width }));
        draft.set_facts(ix, facts(active, active * (2 + u64::from(part)) / 2));
        shards.push(ix);
    }
    if views {
        let view = View {
            signature: Signature([7; 16]),
            designs: ["_design/by-day".into()].into(),
            language: "javascript".into(),
            exact_range: true,
            ..View::default()
        };
        let ix = draft.add_view(db, view);
        draft.set_shard_map(db, ShardMapEntry { copies: RANGES, ranges: RANGES }, &[ix]);
        let flags = FactFlags { estimated: true, ..FactFlags::default() };
        draft.set_facts(ix, Facts { flags, ..facts(active / 10, active / 3) });
    }
}

/// The router over a plan, and the senders of everything else that it reads.
fn router_over(plan: watch::Receiver<Arc<Plan>>) -> (Router, impl Sized) {
    let status = ScanStatus { ready: true, sweeps: 1, ..ScanStatus::default() };
    let (status, status_rx) = watch::channel(Arc::new(status));
    let (config, config_rx) = watch::channel(Arc::new(ConfigStatus::default()));
    let registry = prometheus::Registry::new();
    RequestMetrics::register(&registry).expect("the registry is new");
    let process = prometheus::process_collector::ProcessCollector::for_self();
    registry.register(Box::new(process)).expect("the registry is new");
    let state = AppState {
        feed: None,
        journal: None,
        plan,
        advice: watch::channel(Arc::default()).1,
        scorecard: watch::channel(Arc::default()).1,
        status: status_rx,
        about: Arc::new(ProcessInfo::of_this_build(false)),
        clock: Clock::System,
        config: config_rx,
        counts: watch::channel(Arc::default()).1,
        changes: watch::channel(Arc::default()).1,
        ledger: watch::channel(Arc::default()).1,
        fleet: watch::channel(Arc::default()).1,
        sharing: recliner::act::sharing::Sharing::none(),
        reads: watch::channel(Arc::default()).1,
        takeovers: watch::channel(Arc::default()).1,
        node_settings: watch::channel(Arc::default()).1,
        designs: Arc::new(NoDesigns),
        xrays: recliner::scan::xrays::XrayHandle::none(),
        builds: watch::channel(Arc::default()).1,
        certificates: watch::channel(couchdb_client::CertificateEnds::default()).1,
        couchdb: watch::channel(Arc::from([])).1,
        registry,
        orders: mpsc::channel(1).0,
        allow: Allow::default(),
        web: WebAccess::default(),
        stop: tokio_util::sync::CancellationToken::new(),
        limits: http::Limits::default(),
        waste_reasons: http::KeptReasons::default(),
    };
    (http::router(state), (status, config))
}
