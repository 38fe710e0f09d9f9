//! Writes families of the `prometheus` crate through the same writer.
//!
//! Owns the conversion of `Registry::gather`'s result: the crate's own encoder supports only text
//! 0.0.4, spells `le` differently from OpenMetrics, and fails the whole scrape over one empty
//! family. Timestamps are left out, because recliner sets none.

use super::{
    escape::push_escaped,
    writer::{FamilyHeader, Writer},
};
use super::{family::MetricType as Ours, number};
use prometheus::proto::{Histogram, LabelPair, Metric, MetricFamily, MetricType, Summary};

/// Writes gathered families. Families without metrics or with a name that was already written are
/// skipped; a counter whose name lacks `_total` has type `unknown` in OpenMetrics, so that its
/// series has the same name in both formats.
pub fn write_gathered(writer: &mut Writer, families: &[MetricFamily]) {
    for family in families {
        let Some((text_type, open_type)) = type_labels(family) else { continue };
        let name = family.name();
        if family.get_metric().is_empty() || writer.was_written(name) {
            continue;
        }
        writer.header(&FamilyHeader {
            name,
            help: family.help(),
            text_type,
            openmetrics_type: open_type,
        });
        for metric in family.get_metric() {
            write_metric(writer, name, family.get_field_type(), metric);
        }
    }
}

/// The label of the family's type in text 0.0.4 and in OpenMetrics.
fn type_labels(family: &MetricFamily) -> Option<(&'static str, &'static str)> {
    Some(match family.get_field_type() {
        MetricType::COUNTER if family.name().ends_with("_total") => {
            (Ours::Counter.label(), Ours::Counter.label())
        }
        MetricType::COUNTER => (Ours::Counter.label(), "unknown"),
        MetricType::GAUGE => (Ours::Gauge.label(), Ours::Gauge.label()),
        MetricType::HISTOGRAM => (Ours::Histogram.label(), Ours::Histogram.label()),
        MetricType::SUMMARY => ("summary", "summary"),
        // The crate has no metric of this type and deprecates the value.
        MetricType::UNTYPED => return None,
    })
}

fn write_metric(writer: &mut Writer, name: &str, kind: MetricType, metric: &Metric) {
    let labels = metric.get_label();
    match kind {
        MetricType::COUNTER => {
            write_f64(writer, name, "", labels, metric.get_counter().get_value())
        }
        MetricType::GAUGE => write_f64(writer, name, "", labels, metric.get_gauge().get_value()),
        MetricType::HISTOGRAM => write_histogram(writer, name, labels, metric.get_histogram()),
        MetricType::SUMMARY => write_summary(writer, name, labels, metric.get_summary()),
        MetricType::UNTYPED => {}
    }
}

fn write_histogram(writer: &mut Writer, name: &str, labels: &[LabelPair], histogram: &Histogram) {
    let count = histogram.get_sample_count();
    // The crate leaves the last bucket to the encoder but accepts an explicit one too.
    let bounded = histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite());
    let buckets = bounded.map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
    for (bound, cumulative) in buckets.chain([(f64::INFINITY, count)]) {
        write_name(&mut writer.out, name, "_bucket", labels, Some(("le", bound)));
        number::push_u64(&mut writer.out, cumulative);
        writer.end_line();
    }
    write_f64(writer, name, "_sum", labels, histogram.get_sample_sum());
    write_count(writer, name, labels, count);
}

fn write_summary(writer: &mut Writer, name: &str, labels: &[LabelPair], summary: &Summary) {
    for quantile in summary.get_quantile() {
        write_name(&mut writer.out, name, "", labels, Some(("quantile", quantile.quantile())));
        number::push_f64(&mut writer.out, quantile.value());
        writer.end_line();
    }
    write_f64(writer, name, "_sum", labels, summary.sample_sum());
    write_count(writer, name, labels, summary.sample_count());
}

fn write_f64(writer: &mut Writer, name: &str, suffix: &str, labels: &[LabelPair], value: f64) {
    write_name(&mut writer.out, name, suffix, labels, None);
    number::push_f64(&mut writer.out, value);
    writer.end_line();
}

fn write_count(writer: &mut Writer, name: &str, labels: &[LabelPair], count: u64) {
    write_name(&mut writer.out, name, "_count", labels, None);
    number::push_u64(&mut writer.out, count);
    writer.end_line();
}

/// Appends a series' name and labels, `extra` last, and the space before its value.
fn write_name(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: &[LabelPair],
    extra: Option<(&str, f64)>,
) {
    out.extend([name, suffix]);
    let mut before = "{";
    for pair in labels {
        out.extend([before, pair.name(), "=\""]);
        push_escaped(out, pair.value());
        out.push('"');
        before = ",";
    }
    if let Some((label, value)) = extra {
        out.extend([before, label, "=\""]);
        number::push_canonical(out, value);
        out.push('"');
        before = ",";
    }
    out.push_str(if before == "," { "} " } else { " " });
}
