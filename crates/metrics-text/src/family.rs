//! What a metric family is: its name, type, unit, help and label names.
//!
//! Owns the words only; the table is in `families`, the text in `writer`.

/// How a family's values behave over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricType {
    /// Goes up and down.
    Gauge,
    /// Only grows, until the process restarts; its name ends in `_total`.
    Counter,
    /// Counts of observations by size.
    Histogram,
}

impl MetricType {
    /// The word in a `# TYPE` line, the same in both formats.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// What a family's values are measured in. Base units alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A number of things, or a truth value.
    None,
    /// Bytes.
    Bytes,
    /// Seconds, of a span or since 1970.
    Seconds,
    /// One quantity over another, never percent.
    Ratio,
}

impl Unit {
    /// Every unit that has a name.
    pub const NAMED: [Self; 3] = [Self::Bytes, Self::Seconds, Self::Ratio];

    /// The word in a name and in a `# UNIT` line; empty where there is no unit.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::Ratio => "ratio",
        }
    }

    /// The unit a family's name ends in, its `_total` not counted. OpenMetrics knows
    /// units in this place only, so that `queue_slack_bytes_min` has none there.
    #[must_use]
    pub fn ending(name: &str) -> Self {
        let name = name.strip_suffix("_total").unwrap_or(name);
        let last = name.rsplit_once('_').map_or("", |(_, last)| last);
        Self::NAMED.into_iter().find(|unit| unit.label() == last).unwrap_or(Self::None)
    }
}

/// A metric family with `N` labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family<const N: usize> {
    /// The full name, `recliner_` and a counter's `_total` included.
    pub name: &'static str,
    /// How its values behave.
    pub metric_type: MetricType,
    /// What its values are measured in.
    pub unit: Unit,
    /// One sentence for the reader of `/metrics`.
    pub help: &'static str,
    /// Names of its labels, in the order samples give their values.
    pub labels: [&'static str; N],
}

impl<const N: usize> Family<N> {
    /// The same without the number of labels in its type, for lists.
    #[must_use]
    pub const fn describe(&'static self) -> Description {
        Description {
            name: self.name,
            metric_type: self.metric_type,
            unit: self.unit,
            help: self.help,
            labels: &self.labels,
        }
    }
}

/// A [`Family`] as a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// The full name.
    pub name: &'static str,
    /// How its values behave.
    pub metric_type: MetricType,
    /// What its values are measured in.
    pub unit: Unit,
    /// One sentence for the reader of `/metrics`.
    pub help: &'static str,
    /// Names of its labels, in order.
    pub labels: &'static [&'static str],
}

/// Declares families as statics, one row each, and `ALL`, the table of them in that order.
///
/// ```
/// metrics_text::families! {
///     QUEUE_SIZE: Gauge None "app_queue_size" ["queue"] "Jobs that wait.";
/// }
/// let mut writer = metrics_text::Writer::new(
///     metrics_text::Format::Text,
///     metrics_text::Coding::Identity,
/// );
/// writer.family(&QUEUE_SIZE).sample(&["mail"], 3_u64);
/// assert!(String::from_utf8(writer.finish()).unwrap().ends_with("app_queue_size{queue=\"mail\"} 3\n"));
/// ```
#[macro_export]
macro_rules! families {
    ($($id:ident: $kind:ident $unit:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub static $id: $crate::Family<{ <[&str]>::len(&[$($label),*]) }> = $crate::Family {
                name: $name,
                metric_type: $crate::MetricType::$kind,
                unit: $crate::Unit::$unit,
                help: $help,
                labels: [$($label),*],
            };
        )*

        /// The whole table, in the order above.
        pub static ALL: &[$crate::Description] = &[$($id.describe()),*];
    };
}
