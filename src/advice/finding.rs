//! One finding of a rule.
//!
//! Owns the types in which all rules report. Rules create findings; the view, the API and the
//! metrics read them.

use super::Remedy;
use crate::model::{rounding::to_bytes, target::TargetId};
use std::{cmp::Ordering, fmt};
use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

/// How much a finding matters.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something can be gained; nothing is wrong.
    Info,
    /// Something is wrong, or will be.
    Warning,
    /// Data or service is at risk.
    Critical,
}

/// What a finding is about.
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The whole cluster.
    Cluster,
    /// A database, without the suffix of its files.
    Database(String),
    /// A design document, by database and id.
    Design {
        /// The database.
        db: String,
        /// The id, `_design/x`.
        design: String,
    },
    /// A target.
    Target(TargetId),
    /// A node, by CouchDB's name.
    Node(String),
    /// A volume, by its name in the configuration.
    Volume(String),
    /// A channel of recliner's or of smoosh's.
    Channel(String),
    /// A setting of CouchDB or of recliner, such as `[smoosh] db_channels` or `limits.per_node`.
    Setting(String),
}

impl Subject {
    /// The labels of all kinds.
    pub const KINDS: &[&str] = Self::VARIANTS;

    /// The label of its kind.
    pub fn kind(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Subject {
    /// The name by which findings about it are muted: `cluster`, or its own name.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => out.write_str("cluster"),
            Self::Design { db, design } => write!(out, "{db}/{design}"),
            Self::Target(id) => id.fmt(out),
            Self::Database(name)
            | Self::Node(name)
            | Self::Volume(name)
            | Self::Channel(name)
            | Self::Setting(name) => out.write_str(name),
        }
    }
}

/// The benefit of following the advice.
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// Bytes that become free.
    Bytes(u64),
    /// Seconds of a node's work that are saved.
    Seconds(u64),
    /// Bytes of data that are at risk of being lost, unreadable or not written.
    Risk(u64),
    /// A gain of unknown size.
    Unknown,
}

/// Bytes worth as much as a second of a node's work: what a compaction writes in that second.
const BYTES_PER_SECOND: f64 = crate::what_if::ASSUMED_RATE;

impl Gain {
    /// The labels of all kinds.
    pub const KINDS: &[&str] = Self::VARIANTS;

    /// The label of its kind.
    pub fn kind(self) -> &'static str {
        self.into()
    }

    /// The number of bytes or seconds, if known.
    pub const fn value(self) -> Option<u64> {
        match self {
            Self::Bytes(value) | Self::Seconds(value) | Self::Risk(value) => Some(value),
            Self::Unknown => None,
        }
    }

    /// Bytes that become free; zero for all other kinds.
    pub const fn freed_bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Seconds(_) | Self::Risk(_) | Self::Unknown => 0,
        }
    }

    /// The gain in bytes, for comparing gains of different kinds.
    pub fn weight(self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Risk(bytes) => bytes,
            Self::Seconds(seconds) => to_bytes(seconds as f64 * BYTES_PER_SECOND),
            Self::Unknown => 0,
        }
    }
}

/// The numbers of a finding, by name; a name ends with its unit.
pub type Evidence = Vec<(&'static str, serde_json::Value)>;

/// One finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// One plain sentence that contains the numbers.
    pub says: String,
    /// The numbers behind it.
    pub evidence: Evidence,
    /// The benefit of following the advice.
    pub gain: Gain,
    /// What to do, in this order unless the remedies say that they are a choice.
    pub remedy: Vec<Remedy>,
}

/// A finding's texts. Severity and gain are given separately when the finding is offered.
#[derive(Clone, Debug, PartialEq)]
pub struct Wording {
    /// What the finding is about.
    pub subject: Subject,
    /// One plain sentence that contains the numbers.
    pub says: String,
    /// The numbers behind it.
    pub evidence: Evidence,
    /// What to do, in this order unless the remedies say that they are a choice.
    pub remedy: Vec<Remedy>,
}

impl Finding {
    /// The order in which findings are shown: by severity, then by gain.
    pub fn compare(&self, other: &Self) -> Ordering {
        let rank = |it: &Self| rank(it.severity, it.gain);
        rank(other).cmp(&rank(self)).then_with(|| self.subject.cmp(&other.subject))
    }
}

/// Sort key of findings: severity, then gain. A critical finding of unknown gain may be worth
/// everything.
pub(super) fn rank(severity: Severity, gain: Gain) -> (Severity, u64) {
    let is_unknown = severity == Severity::Critical && gain == Gain::Unknown;
    (severity, if is_unknown { u64::MAX } else { gain.weight() })
}
