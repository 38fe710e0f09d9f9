//! A whole scrape, from request to body, through the router: with the default series of a
//! small and of a very large cluster, and with a hundred thousand series.

use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use couchdb_names::Range;
use criterion::{Criterion, criterion_group, criterion_main};
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use recliner::{
    model::{
        channel::Channels,
        facts::{FactSource, Facts, Measurement, OptionalU64},
    },
    plan::{Conditions, Queues},
    serve::http::{self, Allow, AppState, ConfigStatus, ProcessInfo, WebAccess},
    sources::{present_design::DesignReader, request_metrics::RequestMetrics},
    table::{DbName, Draft},
};
use std::{hint::black_box, sync::Arc};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt as _;
use wall_clock::{Clock, Moment};

/// As in packages.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NOW: Moment = Moment::from_unix(1_795_222_440);
const NODES: usize = 3;
const RANGES: u32 = 8;

/// No scrape reads a design document.
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
}

/// A surface over `dbs` databases of eight shards, of which `top` are exported whole.
/// Returns the senders too: they keep the channels open.
fn surface(dbs: usize, top: usize) -> (Router, impl Sized) {
    let mut draft = Draft::new(top);
    let nodes: Vec<_> = (0..NODES)
        .map(|at| {
            let node = draft.get_or_add_node(&format!("couchdb@node-{at}.example.org"));
            draft.update_node(node, |node| {
                node.is_up = Some(true);
                node.is_member = true;
                node.last_success = Some(NOW);
            });
            node
        })
        .collect();
    let width = u32::MAX / RANGES;
    for at in 0..dbs {
        let name = format!("customers/of-the-{at:07}/orders-and-invoices");
        let db = draft.get_or_add_db(DbName { db: &name, suffix: ".1521590400" });
        for part in 0..RANGES {
            let from = part * (width + 1);
            let node = nodes[(at + part as usize) % NODES];
            let ix = draft.get_or_add_shard(node, db, Some(Range { from, to: from + width }));
            let active = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
            draft.set_facts(
                ix,
                Facts {
                    file_bytes: OptionalU64::new(active * (2 + u64::from(part)) / 2),
                    active_bytes: OptionalU64::new(active),
                    external_bytes: OptionalU64::new(active * 2),
                    measured_at: Some(Measurement { at: NOW, source: FactSource::Http }),
                    ..Facts::default()
                },
            );
        }
    }
    let snapshot = draft.publish(NOW);
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, NOW);
    let plan = queues.make_plan(&snapshot, &Conditions::default(), &Arc::default(), NOW);
    let (plan, plan_rx) = watch::channel(Arc::new(plan));
    let (status, status_rx) = watch::channel(Arc::default());
    let (config, config_rx) = watch::channel(Arc::new(ConfigStatus::default()));
    let registry = prometheus::Registry::new();
    RequestMetrics::register(&registry).expect("the registry is new");
    let process = prometheus::process_collector::ProcessCollector::for_self();
    registry.register(Box::new(process)).expect("the registry is new");
    let state = AppState {
        feed: None,
        journal: None,
        plan: plan_rx,
        advice: watch::channel(Arc::default()).1,
        scorecard: watch::channel(Arc::default()).1,
        status: status_rx,
        about: Arc::new(ProcessInfo::of_this_build(false)),
        clock: Clock::System,
        config: config_rx,
        counts: watch::channel(Arc::default()).1,
        changes: watch::channel(Arc::default()).1,
        takeovers: watch::channel(Arc::default()).1,
        node_settings: watch::channel(Arc::default()).1,
        designs: Arc::new(NoDesigns),
        builds: watch::channel(Arc::default()).1,
        certificates: watch::channel(couchdb_client::CertificateEnds::default()).1,
        couchdb: watch::channel(Arc::from([])).1,
        registry,
        orders: mpsc::channel(1).0,
        allow: Allow::default(),
        web: WebAccess::default(),
        stop: tokio_util::sync::CancellationToken::new(),
    };
    (http::router(state), (plan, status, config))
}

async fn scrape(router: Router, accept: &str, coding: &str) -> usize {
    let request = Request::get("/metrics")
        .header(header::ACCEPT, accept)
        .header(header::ACCEPT_ENCODING, coding)
        .body(Body::empty())
        .expect("the headers are text");
    let Ok(answer) = router.oneshot(request).await;
    assert!(answer.status().is_success());
    let body = answer.into_body().collect().await.expect("the body is in memory");
    body.to_bytes().len()
}

fn scrapes(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a runtime starts");
    // Three families a target, and four for the sums of as many databases more; what the totals and
    // queues add is some two hundred series.
    for (name, dbs, top) in
        [("default", 1_000, 100), ("series_100k", 5_000, 3_400), ("targets_1m", 125_000, 100)]
    {
        let (router, _open) = surface(dbs, top);
        let mut group = criterion.benchmark_group(format!("metrics/{name}"));
        group.sample_size(if top > 1_000 { 20 } else { 100 });
        for (format, accept) in
            [("text", "text/plain"), ("openmetrics", "application/openmetrics-text")]
        {
            for coding in ["identity", "gzip"] {
                let size = runtime.block_on(scrape(router.clone(), accept, coding));
                group.bench_function(format!("{format}/{coding}/{size}_bytes"), |bencher| {
                    bencher.iter(|| {
                        runtime.block_on(scrape(router.clone(), accept, black_box(coding)))
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, scrapes);
criterion_main!(benches);
