//! Writing 100,000 series, about 16 MB of text: both formats, with and without gzip, compared with
//! the `prometheus` crate's encoder for the same series.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use metrics_text::{Encoding, Family, LabelSets, TextFormat, Writer};
use prometheus::{
    Encoder, TextEncoder,
    proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType},
};
use std::hint::black_box;

const TARGETS: usize = 33_334;

const FAMILIES: [&Family<6>; 3] = [
    &family("recliner_target_file_bytes"),
    &family("recliner_target_active_bytes"),
    &family("recliner_target_reclaimable_bytes"),
];

const fn family(name: &'static str) -> Family<6> {
    Family {
        name,
        metric_type: metrics_text::MetricType::Gauge,
        unit: metrics_text::Unit::Bytes,
        help: "Bytes of a target.",
        labels: ["node", "kind", "db", "range", "ddoc", "signature"],
    }
}

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

fn write_series(format: TextFormat, coding: Encoding, targets: &[Target]) -> Vec<u8> {
    let mut writer = Writer::new(format, coding);
    for family in FAMILIES {
        let mut samples = writer.family(family);
        for target in targets {
            samples.sample(&target.labels(), target.bytes);
        }
    }
    writer.finish()
}

/// Writes the same text with labels formatted once for three families, as a scrape does.
fn write_label_sets(format: TextFormat, coding: Encoding, targets: &[Target]) -> Vec<u8> {
    let mut writer = Writer::new(format, coding);
    let mut sets = LabelSets::with_capacity(FAMILIES[0], targets.len(), targets.len() * 80);
    for target in targets {
        sets.push(&target.labels());
    }
    for family in FAMILIES {
        let mut samples = writer.family(family);
        for (labels, target) in sets.iter().zip(targets) {
            samples.sample_of(labels, target.bytes);
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
    let size = write_series(TextFormat::Text, Encoding::Identity, &targets).len();
    let mut group = criterion.benchmark_group("exposition");
    group.sample_size(20).throughput(Throughput::Bytes(size as u64));
    for (format, format_name) in
        [(TextFormat::Text, "text"), (TextFormat::OpenMetrics, "openmetrics")]
    {
        for (coding, coding_name) in [(Encoding::Identity, "identity"), (Encoding::Gzip, "gzip")] {
            let name = |how: &str| format!("{format_name}/{coding_name}/{how}");
            group.bench_function(name("labels_each"), |bench| {
                bench.iter(|| write_series(format, coding, black_box(&targets)));
            });
            group.bench_function(name("label_sets"), |bench| {
                bench.iter(|| write_label_sets(format, coding, black_box(&targets)));
            });
        }
    }
    let families = gathered(&targets);
    group.bench_function("prometheus_encode", |bench| {
        let mut out = Vec::with_capacity(size + 4096);
        bench.iter(|| {
            out.clear();
            TextEncoder::new().encode(black_box(&families), &mut out).expect("families are whole");
        });
    });
    group.bench_function("prometheus_build_and_encode", |bench| {
        let mut out = Vec::with_capacity(size + 4096);
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
