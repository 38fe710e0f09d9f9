//! Which findings are open, since when, and which of them are muted.
//!
//! Owns the records about advice, as a value: it receives what the rules found and what an operator
//! muted, and returns what to store. Its task stores that.

use super::{Finding, ForecastView, RuleResult, Severity, Subject, rule_of_code, rules};
use crate::{
    model::records::{AdviceKey, AdviceRecord, Mute, StateChange},
    table::TargetRef,
    text::{Label, listed},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// A finding counts as gone only after this time, because one near its threshold appears and
/// disappears by the minute.
const GONE_AFTER: Duration = Duration::from_secs(3_600);

/// A finding that returns within this time counts as the same one.
const SAME_WITHIN: Duration = Duration::from_secs(86_400);

/// How long the record of a finding is kept after the finding is gone.
const KEPT: Duration = Duration::from_secs(30 * 86_400);

/// A finding of a rule, with its record.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// The rule and its findings.
    pub result: &'a RuleResult,
    /// The finding.
    pub finding: &'a Finding,
    /// When it was first found; `None` in commands that read the cluster once.
    pub since: Option<Moment>,
    /// The mute in force, if any.
    pub muted: Option<&'a Mute>,
}

/// The advice, as last computed.
#[derive(Clone, Debug, Default)]
pub struct AdviceView {
    /// When the rules last ran; none before the first time.
    pub checked_at: Option<Moment>,
    /// What the rules found.
    pub results: Vec<RuleResult>,
    /// Records about findings and mutes.
    pub records: BTreeMap<AdviceKey, AdviceRecord>,
    /// Since when findings that do not yet count as gone have been absent. Not stored: after a
    /// restart the time starts again.
    absent_since: BTreeMap<AdviceKey, Moment>,
    /// The forecasts of volumes.
    pub forecasts: Arc<ForecastView>,
}

impl AdviceView {
    /// What the rules found, without any records.
    pub fn found(results: Vec<RuleResult>, now: Moment) -> Self {
        Self { checked_at: Some(now), results, ..Self::default() }
    }

    /// Every finding that is shown, ordered by severity and gain.
    pub fn pieces(&self, now: Moment) -> Vec<Piece<'_>> {
        let of_result = |result| self.pieces_of(result, now);
        let mut pieces: Vec<Piece<'_>> = self.results.iter().flat_map(of_result).collect();
        pieces.sort_by(|one, two| one.finding.compare(two.finding));
        pieces
    }

    fn pieces_of<'a>(
        &'a self,
        result: &'a RuleResult,
        now: Moment,
    ) -> impl Iterator<Item = Piece<'a>> {
        let whole = self.mute(&AdviceKey::of_code(result.rule.code), now);
        result.findings.iter().map(move |finding| {
            let key = AdviceKey::of(result.rule.code, finding.subject.to_string());
            let since = self.records.get(&key).and_then(|record| record.first_seen);
            Piece { result, finding, since, muted: whole.or_else(|| self.mute(&key, now)) }
        })
    }

    /// The findings about a target or its design documents that nobody muted.
    pub fn about<'a>(&'a self, target: TargetRef<'_>, now: Moment) -> Vec<&'a Finding> {
        let own = target.id();
        let is_meant = |subject: &Subject| match subject {
            Subject::Target(id) => own == *id,
            Subject::Design { db, design } => {
                let designs = target.view().map_or(&[][..], |view| &view.designs);
                target.db_name().db == db && designs.iter().any(|it| **it == **design)
            }
            Subject::Cluster
            | Subject::Database(_)
            | Subject::Node(_)
            | Subject::Volume(_)
            | Subject::Channel(_)
            | Subject::Setting(_) => false,
        };
        let pieces = self.results.iter().flat_map(|result| self.pieces_of(result, now));
        let open = pieces.filter(|piece| piece.muted.is_none()).map(|piece| piece.finding);
        let mut about: Vec<&Finding> = open.filter(|finding| is_meant(&finding.subject)).collect();
        about.sort_by(|one, two| one.compare(two));
        about
    }

    /// Number of a rule's findings that nobody muted, by severity, and the bytes that acting on
    /// them would free.
    pub fn open_of(&self, code: &str, now: Moment) -> ([u64; Severity::ALL.len()], u64) {
        let (mut counts, mut freed) = ([0; Severity::ALL.len()], 0_u64);
        for result in self.results.iter().filter(|result| result.rule.code == code) {
            for piece in self.pieces_of(result, now).filter(|piece| piece.muted.is_none()) {
                counts[piece.finding.severity as usize] += 1;
                freed = freed.saturating_add(piece.finding.gain.freed_bytes());
            }
            if self.mute(&AdviceKey::of_code(code), now).is_none() {
                for (count, more) in counts.iter_mut().zip(result.surplus.counts) {
                    *count += more;
                }
                freed = freed.saturating_add(result.surplus.freed_bytes);
            }
        }
        (counts, freed)
    }

    /// The mute that is in force for a rule or one of its findings.
    fn mute(&self, key: &AdviceKey, now: Moment) -> Option<&Mute> {
        let mute = self.records.get(key)?.mute.as_ref()?;
        (now < mute.until).then_some(mute)
    }

    /// Replaces the findings by new ones; returns the changes to store.
    pub fn update(&mut self, results: Vec<RuleResult>, now: Moment) -> Vec<StateChange> {
        self.results = results;
        self.checked_at = Some(now);
        let before = self.records.clone();
        let mut keys = BTreeSet::new();
        for result in &self.results {
            for finding in &result.findings {
                keys.insert(AdviceKey::of(result.rule.code, finding.subject.to_string()));
            }
        }
        for key in &keys {
            self.absent_since.remove(key);
            let record = self.records.entry(key.clone()).or_default();
            record.gone_at = record.gone_at.filter(|gone| gone.age(now) >= SAME_WITHIN);
            if record.first_seen.is_none() || record.gone_at.is_some() {
                (record.first_seen, record.gone_at) = (Some(now), None);
            }
        }
        self.note_absent(&keys, now);
        for record in self.records.values_mut() {
            record.mute = record.mute.take().filter(|mute| now < mute.until);
        }
        self.records.retain(|key, record| {
            let is_kept = match (record.first_seen, record.gone_at) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(_), Some(gone)) => gone.age(now) < KEPT,
            };
            record.mute.is_some() || (is_kept && rule_of_code(&key.code).is_some())
        });
        changes(&before, &self.records)
    }

    /// Marks findings that were absent for long enough as gone.
    fn note_absent(&mut self, found: &BTreeSet<AdviceKey>, now: Moment) {
        // Findings that are only counted may include some that were shown before.
        let is_crowded = |code: &str| {
            self.results.iter().any(|it| it.rule.code == code && it.surplus.count() > 0)
        };
        for (key, record) in &mut self.records {
            if found.contains(key) || is_crowded(&key.code) {
                self.absent_since.remove(key);
            } else if record.first_seen.is_some() && record.gone_at.is_none() {
                let since = *self.absent_since.entry(key.clone()).or_insert(now);
                if since.age(now) >= GONE_AFTER {
                    record.gone_at = Some(since);
                    self.absent_since.remove(key);
                }
            }
        }
    }

    /// Checks that there is such advice.
    ///
    /// # Errors
    /// If there is none: a sentence that says what exists.
    pub fn check_known(&self, key: &AdviceKey) -> Result<(), String> {
        let AdviceKey { code, subject } = key;
        if rule_of_code(code).is_none() {
            let codes: Vec<String> = rules().map(|rule| rule.code.to_owned()).collect();
            return Err(format!("no advice has the code {code:?}; codes: {}", listed(&codes)));
        }
        let Some(subject) = subject else { return Ok(()) };
        let result = self.results.iter().find(|result| result.rule.code == code);
        let findings = result.map_or(&[][..], |result| &result.findings);
        let is_shown = findings.iter().any(|finding| finding.subject.to_string() == *subject);
        // A finding near its threshold is absent at times.
        let may_return = self.absent_since.contains_key(key);
        if is_shown || may_return || result.is_some_and(|result| result.surplus.count() > 0) {
            return Ok(());
        }
        let names: Vec<String> =
            findings.iter().map(|finding| finding.subject.to_string()).collect();
        Err(match &names[..] {
            [] => {
                format!("{code} has no open advice, so none about {subject:?} can be muted")
            }
            names => {
                format!("no advice {code} is about {subject:?}; it is about {}", listed(names))
            }
        })
    }

    /// The answer to an order to end a mute that does not exist.
    pub fn not_muted(&self, key: &AdviceKey) -> String {
        let words = |key: &AdviceKey| match &key.subject {
            Some(subject) => format!("{} about {subject}", key.code),
            None => key.code.clone(),
        };
        let muted = self.records.iter().filter(|(_, record)| record.mute.is_some());
        let muted: Vec<String> = muted.map(|(key, _)| words(key)).collect();
        let muted = if muted.is_empty() { "nothing".to_owned() } else { listed(&muted) };
        if rule_of_code(&key.code).is_none() {
            return format!("no advice has the code {:?}; muted: {muted}", key.code);
        }
        format!("{} is not muted; muted: {muted}", words(key))
    }

    /// Mutes a rule or one of its findings, or ends that mute; returns what to store.
    pub fn set_mute(&mut self, key: AdviceKey, mute: Option<Mute>) -> StateChange {
        let record = self.records.entry(key.clone()).or_default();
        record.mute = mute;
        let record = Some(record.clone()).filter(|it| *it != AdviceRecord::default());
        if record.is_none() {
            self.records.remove(&key);
        }
        StateChange::SetAdvice(key, record)
    }
}

/// The changes to store to get from one set of records to another.
fn changes(
    before: &BTreeMap<AdviceKey, AdviceRecord>,
    after: &BTreeMap<AdviceKey, AdviceRecord>,
) -> Vec<StateChange> {
    let changed = after.iter().filter(|(key, record)| before.get(*key) != Some(*record));
    let changed = changed.map(|(key, record)| (key, Some(record.clone())));
    let removed = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key, None));
    changed.chain(removed).map(|(key, it)| StateChange::SetAdvice(key.clone(), it)).collect()
}

#[cfg(test)]
mod tests;
