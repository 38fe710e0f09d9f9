//! Prometheus's text formats, both written by one writer.
//!
//! Owns metric families ([`Family`], declared by [`families!`]), the [`Writer`] that turns samples
//! into Prometheus text 0.0.4 or OpenMetrics 1.0, and the pure half of the HTTP answer: the
//! requested format ([`negotiate`]) and whether gzip is accepted. For receivers that are pushed to,
//! [`OtlpEncoder`] makes requests of OTLP from that text. Never measures anything, never
//! opens a socket, and never decides what is exported. The handler of a scrape calls it with the
//! current values.
//!
//! There is one writer because the two formats must name the same series: `prometheus`'s own
//! encoder writes `le="1"` where OpenMetrics requires `le="1.0"`, and Prometheus 2 treats these as
//! different series when the negotiated format changes.

mod encoding;
mod escape;
mod family;
mod gzip;
mod labels;
mod negotiation;
mod number;
mod otlp;
mod registry;
mod writer;

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

#[cfg(test)]
mod tests;

pub use encoding::{Encoding, accepts_gzip};
pub use family::{Family, FamilyDescription, MetricType, Unit};
pub use labels::{LabelSet, LabelSets};
pub use negotiation::negotiate;
pub use otlp::{OtlpEncoder, OtlpOrigin, otlp_rejection};
pub use registry::write_gathered;
pub use writer::{Column, PieceSink, Samples, Value, Writer};

/// A text format that Prometheus scrapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TextFormat {
    /// Prometheus text 0.0.4, which every client reads.
    #[default]
    Text,
    /// OpenMetrics 1.0, which Prometheus prefers by default.
    OpenMetrics,
}

impl TextFormat {
    /// Both formats, starting with the one that every client reads.
    pub const ALL: [Self; 2] = [Self::Text, Self::OpenMetrics];

    /// The value of the `Content-Type` header. It is always sent, because Prometheus 3 refuses a
    /// scrape without one.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}
