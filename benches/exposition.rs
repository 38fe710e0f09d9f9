//! A scrape of 100,000 series, about 16 MB of text: both formats, with and without gzip,
//! beside the `prometheus` crate's encoder for the same series.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use prometheus::{
    Encoder, TextEncoder,
    proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType},
};
use recliner::exposition::{Family, Format, Writer, families, gzip};
use std::hint::black_box;

const TARGETS: usize = 33_334;
const FAMILIES: [&Family<6>; 3] = [
    &families::TARGET_FILE_BYTES,
    &families::TARGET_ACTIVE_BYTES,
    &families::TARGET_RECLAIMABLE_BYTES,
];

struct Target {
    node: String,
    db: String,
    range: String,
    bytes: u64,
}

impl Target {
    fn labels(&self) -> [&str; 6] {
        [&self.node, "db", &self.db, &self.range, "", ""]
    }
}

fn targets() -> Vec<Target> {
    (0..TARGETS as u64)
        .map(|n| Target {
            node: format!("couchdb@node-{}.example.org", n % 3),
            db: format!("orders-of-customer-{n:06}"),
            range: format!("{:08x}-{:08x}", (n % 8) << 29, ((n % 8) << 29) + 0x1fff_ffff),
            bytes: n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 28,
        })
        .collect()
}

fn written(format: Format, targets: &[Target], buffer: String) -> String {
    let mut writer = Writer::new(format, buffer);
    for family in FAMILIES {
        let mut samples = writer.family(family);
        for target in targets {
            samples.sample(&target.labels(), target.bytes);
        }
    }
    writer.finish()
}

fn gathered(targets: &[Target]) -> Vec<MetricFamily> {
    let pair = |(name, value): (&&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    let metric = |target: &Target| {
        let mut gauge = Gauge::default();
        gauge.set_value(target.bytes as f64);
        let mut metric = Metric::from_gauge(gauge);
        metric.set_label(FAMILIES[0].labels.iter().zip(target.labels()).map(pair).collect());
        metric
    };
    FAMILIES
        .map(|family| {
            let mut gathered = MetricFamily::default();
            gathered.set_name(family.name.to_owned());
            gathered.set_help(family.help.to_owned());
            gathered.set_field_type(MetricType::GAUGE);
            gathered.set_metric(targets.iter().map(metric).collect());
            gathered
        })
        .into()
}

fn exposition(criterion: &mut Criterion) {
    let targets = targets();
    let text = written(Format::Text, &targets, String::new());
    let room = text.len() + 4096;
    let mut group = criterion.benchmark_group("exposition");
    group.sample_size(20).throughput(Throughput::Bytes(text.len() as u64));
    for (name, format) in [("text", Format::Text), ("openmetrics", Format::OpenMetrics)] {
        // A server keeps its buffer: a fresh one of this size is mostly page faults.
        let mut kept = String::with_capacity(room);
        group.bench_function(name, |bench| {
            bench.iter(|| {
                kept.clear();
                kept = written(format, black_box(&targets), std::mem::take(&mut kept));
            });
        });
    }
    group.bench_function("text_fresh_buffer", |bench| {
        bench.iter(|| written(Format::Text, black_box(&targets), String::with_capacity(room)));
    });
    group.bench_function("gzip_alone", |bench| bench.iter(|| gzip(black_box(text.as_bytes()))));
    group.bench_function("text_and_gzip", |bench| {
        let mut kept = String::with_capacity(room);
        bench.iter(|| {
            kept.clear();
            kept = written(Format::Text, black_box(&targets), std::mem::take(&mut kept));
            gzip(kept.as_bytes())
        });
    });
    let families = gathered(&targets);
    group.bench_function("prometheus_encode", |bench| {
        let mut out = Vec::with_capacity(room);
        bench.iter(|| {
            out.clear();
            TextEncoder::new().encode(black_box(&families), &mut out).expect("families are whole");
        });
    });
    group.bench_function("prometheus_build_and_encode", |bench| {
        let mut out = Vec::with_capacity(room);
        bench.iter(|| {
            out.clear();
            let families = gathered(black_box(&targets));
            TextEncoder::new().encode(&families, &mut out).expect("families are whole");
        });
    });
    group.finish();
}

criterion_group!(benches, exposition);
criterion_main!(benches);
