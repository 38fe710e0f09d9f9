//! What compactions showed about predictions, weighted for each database and kind of target.
//!
//! Owns how evidence is summed, decays, is limited in number, and is turned into the
//! [`Corrections`] in force. Pure; the job state task adds evidence, the journal stores the
//! records.
//!
//! # Weight
//!
//! Trust is a regression through the origin, of the fitted rule's error on the difference between
//! the two predictions, shrunk towards a prior: `sum(difference * missed) / sum(difference²)`. So a
//! compaction for which both predictions were right shows nothing, and one for which they were far
//! apart shows much. Evidence halves every 90 days. The prior is zero or, where active bytes are
//! known to be misleading, the mean trust of all databases of the cluster.

use crate::model::{
    correction::{CompactionEvidence, Correction, Corrections},
    rounding::to_single,
    target::TargetKind,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// Maximum number of records, one for each database and kind. Those whose predictions were wrong by
/// the most bytes are kept.
const MAX_RECORDS: usize = 4096;

/// Time after which evidence counts half.
const HALF_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);

/// Weight of the prior: it equals that of one compaction whose two predictions differ by the square root of this, 17 %.
const PRIOR_WEIGHT: f64 = 0.03;

/// Largest difference between the two predictions, as a share of the fitted one, that counts.
const MAX_DIFFERENCE: f64 = 0.5;

/// Largest part of the difference that one compaction can show to be waste.
const MAX_MISSED: f64 = 1.5;

/// The cluster's mean trust starts as if this many databases had shown no error.
const CLUSTER_PRIOR_DATABASES: f64 = 2.0;

/// Factor by which each new compaction reduces the weight of earlier ones in the density, so that
/// it follows a database whose documents change.
const EARLIER_DENSITY_WEIGHT: f64 = 0.8;

/// Weighted number of compactions that confirms predictions: three, less the weight that they lose within a month.
const CONFIRMING_OUTCOMES: f64 = 2.3;

/// Trust is published in steps of this size, so that small changes do not change the tables.
const TRUST_STEP: f64 = 1.0 / 256.0;

/// Identifies one sum of evidence: a database instance and a kind of target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CorrectionKey {
    /// The database.
    pub db: Box<str>,
    /// The suffix that identifies the instance, with its dot.
    pub suffix: Box<str>,
    /// The kind of target.
    pub kind: TargetKind,
}

/// The evidence of one database and kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CorrectionRecord {
    /// When the last compaction ended; all sums are as of then.
    pub at: Moment,
    /// Number of compactions, weighted by age.
    pub outcomes: f64,
    /// Sum of the squared differences between the two predictions, as shares of the fitted one.
    pub differences: f64,
    /// Sum of difference times missed share.
    pub missed: f64,
    /// Bytes by which the fitted rule was wrong.
    pub missed_bytes: f64,
    /// Bytes left by compactions before `at`, without overhead.
    pub earlier_bytes: f64,
    /// Units of content in `earlier_bytes`.
    pub earlier_units: f64,
    /// Bytes left by compactions that ended at `at`.
    pub latest_bytes: f64,
    /// Units of content in `latest_bytes`.
    pub latest_units: f64,
}

impl CorrectionRecord {
    /// Adds the evidence of one compaction. The order of compactions that end at the same moment
    /// does not matter: each is compared with those before that moment.
    pub fn add(&mut self, evidence: &CompactionEvidence) {
        if evidence.at != self.at {
            let weight = self.weight_at(evidence.at);
            self.outcomes *= weight;
            self.differences *= weight;
            self.missed *= weight;
            self.missed_bytes *= weight;
            self.earlier_bytes = EARLIER_DENSITY_WEIGHT * (self.earlier_bytes + self.latest_bytes);
            self.earlier_units = EARLIER_DENSITY_WEIGHT * (self.earlier_units + self.latest_units);
            (self.latest_bytes, self.latest_units) = (0.0, 0.0);
            self.at = evidence.at;
        }
        let missed = evidence.missed_share();
        // The first compaction shows whether active bytes mislead, but nothing about how well the
        // density predicts.
        let difference = match density(self.earlier_bytes, self.earlier_units) {
            Some(density) => evidence.difference_share(density),
            None => missed.max(0.0),
        };
        let missed = missed.clamp(-MAX_MISSED * difference, MAX_MISSED * difference);
        // One extreme compaction counts no more than any other clear one.
        let limit = (MAX_DIFFERENCE / difference.max(MAX_DIFFERENCE)).min(1.0);
        let (difference, missed) = (difference * limit, missed * limit);
        self.outcomes += 1.0;
        self.differences += difference * difference;
        self.missed += difference * missed;
        self.missed_bytes += evidence.fitted_bytes.abs_diff(evidence.left_bytes) as f64;
        let content = evidence.content;
        self.latest_bytes += evidence.left_bytes.saturating_sub(content.overhead_bytes) as f64;
        self.latest_units += content.units as f64;
    }

    /// Weight of this record's evidence at `now`.
    fn weight_at(&self, now: Moment) -> f64 {
        (-self.at.age(now).as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
    }

    /// The trust in the density at `now`, shrunk towards a prior.
    fn trust(&self, prior: f64, now: Moment) -> f64 {
        let weight = self.weight_at(now);
        let trust = (weight * self.missed + PRIOR_WEIGHT * prior)
            / (weight * self.differences + PRIOR_WEIGHT);
        trust.clamp(0.0, 1.0)
    }

    /// The correction at `now`; `cluster_trust` is the mean trust of all databases.
    fn correction(&self, cluster_trust: f64, now: Moment) -> Correction {
        let is_confirmed = self.outcomes * self.weight_at(now) >= CONFIRMING_OUTCOMES;
        let density =
            density(self.earlier_bytes + self.latest_bytes, self.earlier_units + self.latest_units);
        let Some(density) = density else { return Correction { is_confirmed, ..Correction::NONE } };
        let trust = rounded(self.trust(0.0, now));
        let trust_where_low = rounded(self.trust(cluster_trust, now));
        // With zero trust, density is zero as well, so that new measurements do not rescore targets.
        let density = if trust_where_low > 0.0 { to_single(density) } else { 0.0 };
        Correction { density, trust, trust_where_low, is_confirmed, ..Correction::NONE }
    }
}

fn density(bytes: f64, units: f64) -> Option<f64> {
    (units > 0.0).then(|| bytes / units)
}

fn rounded(trust: f64) -> f32 {
    to_single((trust / TRUST_STEP).round() * TRUST_STEP)
}

/// The evidence of all databases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnedCorrections {
    records: BTreeMap<CorrectionKey, CorrectionRecord>,
}

impl LearnedCorrections {
    /// The evidence that an earlier process stored.
    pub const fn new(records: BTreeMap<CorrectionKey, CorrectionRecord>) -> Self {
        Self { records }
    }

    /// Adds the evidence of one compaction; returns the records to store, or to delete where the
    /// record is `None`.
    pub fn learn(
        &mut self,
        key: CorrectionKey,
        evidence: &CompactionEvidence,
    ) -> Vec<(CorrectionKey, Option<CorrectionRecord>)> {
        let record = self.records.entry(key.clone()).or_default();
        record.add(evidence);
        let mut changes = vec![(key, Some(*record))];
        while self.records.len() > MAX_RECORDS {
            let missed = |record: &CorrectionRecord| {
                record.missed_bytes * record.weight_at(evidence.at.max(record.at))
            };
            let least = self.records.iter().min_by(|(_, one), (_, two)| {
                missed(one).total_cmp(&missed(two)).then(one.at.cmp(&two.at))
            });
            let Some(least) = least.map(|(key, _)| key.clone()) else { break };
            self.records.remove(&least);
            changes.push((least, None));
        }
        changes
    }

    /// The corrections at `now`.
    pub fn in_force(&self, now: Moment) -> Corrections {
        let cluster = [TargetKind::Db, TargetKind::View].map(|kind| self.mean_trust(kind, now));
        let mut corrections = Corrections::default();
        for (key, record) in &self.records {
            let cluster_trust = cluster[usize::from(key.kind == TargetKind::View)];
            let correction = record.correction(cluster_trust, now);
            if correction != Correction::NONE {
                corrections.set(&key.db, &key.suffix, key.kind, correction);
            }
        }
        corrections
    }

    /// The mean trust of the databases, as if [`CLUSTER_PRIOR_DATABASES`] more had shown no error.
    fn mean_trust(&self, kind: TargetKind, now: Moment) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for record in self.records.iter().filter(|(key, _)| key.kind == kind).map(|(_, it)| it) {
            let outcomes = record.outcomes * record.weight_at(now);
            let weight = outcomes / (outcomes + 1.0);
            sum += weight * record.trust(0.0, now);
            count += weight;
        }
        sum / (count + CLUSTER_PRIOR_DATABASES)
    }
}

#[cfg(test)]
mod tests;
