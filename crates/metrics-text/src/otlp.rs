//! Metrics as OTLP carries them in Protocol Buffers, made from the text that [`Writer`](super::Writer) writes.
//!
//! Owns the shape of a request. There is one list of what is exported, the text of a scrape, so that a series has
//! the same name and labels whether it is scraped or pushed. No unit is sent: receivers that store series for
//! Prometheus would append it to the name.

use prost::{Message, Oneof};
use std::mem;
use wall_clock::Moment;

/// Counters and histograms accumulate from the start of the process.
const CUMULATIVE: i32 = 2;

/// The origin of the metrics, and their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpOrigin {
    /// The attributes of the resource, such as `service.name`.
    pub resource: Vec<(String, String)>,
    /// Labels that precede each series' own.
    pub labels: Vec<(String, String)>,
    /// When the counters started.
    pub started: Moment,
    /// The time of every value.
    pub at: Moment,
}

/// Collects the samples of a text until they are enough for a request.
#[derive(Debug)]
pub struct OtlpEncoder {
    origin: OtlpOrigin,
    max_points: usize,
    help: String,
    kind: Kind,
    metrics: Vec<Metric>,
    points: usize,
    histogram: Option<HistogramPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
    Histogram,
}

impl OtlpEncoder {
    /// An encoder whose requests have about this many values.
    pub const fn new(origin: OtlpOrigin, max_points: usize) -> Self {
        Self {
            origin,
            max_points,
            help: String::new(),
            kind: Kind::Gauge,
            metrics: Vec::new(),
            points: 0,
            histogram: None,
        }
    }

    /// Reads whole lines of Prometheus text 0.0.4 without timestamps, and returns the bodies of the requests that
    /// became full. Ignores other lines.
    pub fn push(&mut self, text: &str) -> Vec<Vec<u8>> {
        let mut full = Vec::new();
        for line in text.split('\n') {
            self.read(line);
            if self.points >= self.max_points {
                full.extend(self.take());
            }
        }
        full
    }

    /// The body of a request with the remaining values; `None` if there are none.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        self.points = 0;
        let metrics = mem::take(&mut self.metrics);
        if metrics.is_empty() {
            return None;
        }
        let resource = Some(Resource { attributes: attributes(&self.origin.resource) });
        let scope_metrics = vec![ScopeMetrics { metrics }];
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics }];
        Some(Request { resource_metrics }.encode_to_vec())
    }

    fn read(&mut self, line: &str) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            help.split_once(' ').map_or("", |(_, help)| help).clone_into(&mut self.help);
        } else if let Some(family) = line.strip_prefix("# TYPE ") {
            self.kind = match family.rsplit_once(' ') {
                Some((_, "counter")) => Kind::Counter,
                Some((_, "histogram")) => Kind::Histogram,
                Some(_) | None => Kind::Gauge,
            };
        } else if let Some(sample) = Sample::parse(line) {
            match self.kind {
                Kind::Gauge | Kind::Counter => self.add_number(sample),
                Kind::Histogram => self.add_to_histogram(sample),
            }
        }
    }

    fn add_number(&mut self, sample: Sample<'_>) {
        let is_counter = self.kind == Kind::Counter;
        let point = NumberPoint {
            attributes: self.attributes(sample.labels),
            start_time_unix_nano: if is_counter { nanoseconds(self.origin.started) } else { 0 },
            time_unix_nano: nanoseconds(self.origin.at),
            as_double: Some(sample.value),
        };
        let points = match self.data(sample.name) {
            Some(Data::Gauge(gauge)) => &mut gauge.data_points,
            Some(Data::Sum(sum)) => &mut sum.data_points,
            Some(Data::Histogram(_)) | None => return,
        };
        points.push(point);
        self.points += 1;
    }

    /// Adds a bucket, the sum, or the count, which comes last and ends the histogram.
    fn add_to_histogram(&mut self, sample: Sample<'_>) {
        let Sample { name, mut labels, value } = sample;
        let point = self.histogram.get_or_insert_default();
        if name.ends_with("_bucket") {
            let bound = labels.pop().and_then(|(_, bound)| bound.parse::<f64>().ok());
            let cumulative = whole(value);
            let below: u64 = point.bucket_counts.iter().sum();
            point.bucket_counts.push(cumulative.saturating_sub(below));
            point.explicit_bounds.extend(bound.filter(|bound| bound.is_finite()));
        } else if name.ends_with("_sum") {
            point.sum = Some(value);
        } else if let (Some(name), Some(mut point)) =
            (name.strip_suffix("_count"), self.histogram.take())
        {
            point.count = whole(value);
            point.attributes = self.attributes(labels);
            point.start_time_unix_nano = nanoseconds(self.origin.started);
            point.time_unix_nano = nanoseconds(self.origin.at);
            if let Some(Data::Histogram(histogram)) = self.data(name) {
                histogram.data_points.push(point);
                self.points += 1;
            }
        }
    }

    fn attributes(&self, labels: Vec<(&str, String)>) -> Vec<Attribute> {
        let own = labels.into_iter().map(|(key, value)| Attribute::new(key, value));
        attributes(&self.origin.labels).into_iter().chain(own).collect()
    }

    /// The data of the metric with this name, which is the last one or a new one.
    fn data(&mut self, name: &str) -> Option<&mut Data> {
        if self.metrics.last().is_none_or(|last| last.name != name) {
            let data = match self.kind {
                Kind::Gauge => Data::Gauge(Gauge::default()),
                Kind::Counter => Data::Sum(Sum {
                    data_points: Vec::new(),
                    aggregation_temporality: CUMULATIVE,
                    is_monotonic: true,
                }),
                Kind::Histogram => Data::Histogram(Histogram {
                    data_points: Vec::new(),
                    aggregation_temporality: CUMULATIVE,
                }),
            };
            let description = self.help.clone();
            self.metrics.push(Metric { name: name.to_owned(), description, data: Some(data) });
        }
        self.metrics.last_mut()?.data.as_mut()
    }
}

/// A line with a value.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let Some((name, labels)) = series.split_once('{') else {
            return Some(Self { name: series, labels: Vec::new(), value });
        };
        let mut rest = labels.strip_suffix('}')?;
        let mut labels = Vec::new();
        while let Some((label, quoted)) = rest.split_once("=\"") {
            let (value, after) = unescape(quoted)?;
            labels.push((label, value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        Some(Self { name, labels, value })
    }
}

/// The value of a label up to its closing quote, and what follows.
fn unescape(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            letter => value.push(letter),
        }
    }
    None
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
const fn whole(value: f64) -> u64 {
    value as u64
}

const fn nanoseconds(moment: Moment) -> u64 {
    moment.unix().saturating_mul(1_000_000_000)
}

fn attributes(pairs: &[(String, String)]) -> Vec<Attribute> {
    pairs.iter().map(|(key, value)| Attribute::new(key, value.clone())).collect()
}

/// The number of values that a receiver rejected, and its reason; `None` if it accepted all, or the answer is not OTLP.
pub fn otlp_rejection(answer: &[u8]) -> Option<(i64, String)> {
    let partial = Answer::decode(answer).ok()?.partial_success?;
    (partial.rejected > 0).then_some((partial.rejected, partial.error_message))
}

// The parts in use of opentelemetry/proto/metrics/v1/metrics.proto.

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(oneof = "Data", tags = "5, 7, 9")]
    data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
struct NumberPoint {
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<Attribute>,
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    // Optional, because a zero must still be sent.
    #[prost(double, optional, tag = "4")]
    as_double: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramPoint {
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    explicit_bounds: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

impl Attribute {
    fn new(key: &str, value: String) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { string_value: Some(value) }) }
    }
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
}

#[cfg(test)]
mod tests;
