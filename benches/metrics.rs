//! A whole scrape through the router, from request to body: with the default series of a small and
//! of a very large cluster, and with a hundred thousand series.

mod surface;

use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use criterion::{Criterion, criterion_group, criterion_main};
use http_body_util::BodyExt as _;
use std::hint::black_box;
use tower::ServiceExt as _;

/// The allocator of the packages.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

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
    // Three families per target, and four for the sums of each exported database; totals and queues
    // add about two hundred series.
    for (name, dbs, top) in
        [("default", 1_000, 100), ("series_100k", 5_000, 3_400), ("targets_1m", 125_000, 100)]
    {
        let (router, _sweep) = surface::over(dbs, top, false);
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
