//! Priorities: how a channel ranks its targets.
//!
//! Owns one row for each priority: its label and meaning, what it measures, in which unit, and its
//! default bound. Scoring, configuration, the API, metrics and tables read the row; none of them
//! mentions a particular priority. Bounds are in `channel`, and smoosh's order of checks is in
//! `score`.

use crate::model::facts::Facts;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// How a channel ranks its targets.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityKind {
    /// File over active bytes.
    Ratio,
    /// File minus active bytes.
    Slack,
    /// Constant 1 for every target that needs an upgrade of its file format or collation.
    Upgrade,
    /// Constant 1 for every database with stale index files.
    Cleanup,
    /// Waste over time, over the cost of a compaction.
    Rent,
}

/// What distinguishes one priority from the others.
#[derive(Debug)]
pub struct PriorityRule {
    /// What it ranks targets by.
    pub meaning: &'static str,
    /// Default of the strict lower bound, [`Channel::min_priority`](super::channel::Channel).
    pub default_min: f64,
    /// How a target's priority follows from its facts.
    pub formula: Formula,
}

/// How a target's priority follows from its facts.
#[derive(Clone, Copy, Debug)]
pub enum Formula {
    /// A function of the file's bytes and its active bytes (at least one), compared with the
    /// channel's bounds.
    Measured {
        /// Calculates the priority.
        of: fn(file: u64, active: u64) -> f64,
        /// Its name in sentences and tables.
        noun: &'static str,
        /// Its unit.
        unit: PriorityUnit,
    },
    /// The target's rent over cost times horizon ([`overdue`](super::rent::overdue)), compared with
    /// the channel's bounds. It grows with time, even without writes.
    Overdue,
    /// One if the condition holds. The bounds only matter for files without active bytes.
    Condition {
        /// The condition.
        holds: fn(&Facts) -> bool,
        /// Its name in tables.
        noun: &'static str,
    },
}

/// The unit of a measured priority and of its bounds.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityUnit {
    /// A quotient without unit.
    Ratio,
    /// Bytes.
    Bytes,
}

const RATIO: PriorityRule = PriorityRule {
    meaning: "file bytes divided by active bytes",
    default_min: 2.0,
    formula: Formula::Measured {
        of: |file, active| file as f64 / active as f64,
        noun: "ratio",
        unit: PriorityUnit::Ratio,
    },
};

const SLACK: PriorityRule = PriorityRule {
    meaning: "file bytes minus active bytes",
    // The default since CouchDB 3.2; 16 MiB before.
    default_min: 536_870_912.0,
    formula: Formula::Measured {
        of: |file, active| file as f64 - active as f64,
        noun: "slack",
        unit: PriorityUnit::Bytes,
    },
};

const UPGRADE: PriorityRule = PriorityRule {
    meaning: "whether the file's format or collation is older than CouchDB's",
    default_min: RATIO.default_min,
    formula: Formula::Condition { holds: |facts| facts.flags.needs_upgrade, noun: "upgrade" },
};

const CLEANUP: PriorityRule = PriorityRule {
    meaning: "whether the database has stale index files",
    default_min: 0.0,
    formula: Formula::Condition { holds: |facts| facts.flags.evidence, noun: "stale files" },
};

const RENT: PriorityRule = PriorityRule {
    meaning: "how overdue a compaction is: wasted bytes times seconds, divided by bytes to rewrite times the horizon",
    default_min: 1.0,
    formula: Formula::Overdue,
};

impl PriorityKind {
    /// The row that describes it.
    pub const fn rule(self) -> &'static PriorityRule {
        match self {
            Self::Ratio => &RATIO,
            Self::Slack => &SLACK,
            Self::Upgrade => &UPGRADE,
            Self::Cleanup => &CLEANUP,
            Self::Rent => &RENT,
        }
    }

    /// The unit of its bounds; `None` if it is a condition.
    pub const fn unit(self) -> Option<PriorityUnit> {
        match self.rule().formula {
            Formula::Measured { unit, .. } => Some(unit),
            Formula::Overdue => Some(PriorityUnit::Ratio),
            Formula::Condition { .. } => None,
        }
    }

    /// Its name in sentences and tables.
    pub const fn noun(self) -> &'static str {
        match self.rule().formula {
            Formula::Measured { noun, .. } | Formula::Condition { noun, .. } => noun,
            Formula::Overdue => "rent",
        }
    }
}
