//! Metric families: name, type, unit, help and label names.
//!
//! Owns the declarations only; the text is in `writer`.

/// How a family's values behave over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricType {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows until the process restarts; its name ends in `_total`.
    Counter,
    /// Counts of observations in buckets.
    Histogram,
}

impl MetricType {
    /// The label in a `# TYPE` line, the same in both formats.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// The unit of a family's values. Base units only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A number of things, or a boolean.
    None,
    /// Bytes.
    Bytes,
    /// Seconds, as a duration or since 1970.
    Seconds,
    /// A quotient, never percent.
    Ratio,
}

impl Unit {
    /// Every unit with a name.
    pub const NAMED: [Self; 3] = [Self::Bytes, Self::Seconds, Self::Ratio];

    /// The suffix in a name and the label in a `# UNIT` line; empty if there is no unit.
    pub const fn label(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::Ratio => "ratio",
        }
    }

    /// The unit that a family's name ends in, ignoring `_total`. OpenMetrics only recognises units
    /// in this position, so `queue_slack_bytes_min` has none.
    pub fn ending(name: &str) -> Self {
        let name = name.strip_suffix("_total").unwrap_or(name);
        let last = name.rsplit_once('_').map_or("", |(_, last)| last);
        Self::NAMED.into_iter().find(|unit| unit.label() == last).unwrap_or(Self::None)
    }
}

/// A metric family with `N` labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family<const N: usize> {
    /// The full name, including `recliner_` and a counter's `_total`.
    pub name: &'static str,
    /// The type of its values.
    pub metric_type: MetricType,
    /// The unit of its values.
    pub unit: Unit,
    /// One sentence for readers of `/metrics`.
    pub help: &'static str,
    /// Its label names, in the order in which samples give the values.
    pub labels: [&'static str; N],
}

impl<const N: usize> Family<N> {
    /// Describes the family without the number of labels in the type, for lists of families.
    pub const fn describe(&'static self) -> FamilyDescription {
        FamilyDescription {
            name: self.name,
            metric_type: self.metric_type,
            unit: self.unit,
            help: self.help,
            labels: &self.labels,
        }
    }
}

/// A [`Family`] as a row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyDescription {
    /// The full name.
    pub name: &'static str,
    /// The type of its values.
    pub metric_type: MetricType,
    /// The unit of its values.
    pub unit: Unit,
    /// One sentence for readers of `/metrics`.
    pub help: &'static str,
    /// Its label names, in order.
    pub labels: &'static [&'static str],
}

/// Declares families as statics, one row each, and `ALL`, the table of them in that order.
///
/// ```
/// metrics_text::families! {
///     QUEUE_SIZE: Gauge None "app_queue_size" ["queue"] "Jobs that wait.";
/// }
/// let mut writer = metrics_text::Writer::new(
///     metrics_text::TextFormat::Text,
///     metrics_text::Encoding::Identity,
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
        pub static ALL: &[$crate::FamilyDescription] = &[$($id.describe()),*];
    };
}
