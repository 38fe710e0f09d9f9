//! Applies changes to the tables within one transaction.
//!
//! Changes are idempotent: applying one again has no further effect and records no event. A batch
//! can therefore be sent again if it is unknown whether it was stored.

use super::{
    EventDetails, JournalEvent, OverriddenSetting,
    feed_tables::{self, Era},
    retained_table::RetainedTable,
    tables::{
        DB_EVENTS, EVENTS, INTENTS, META, META_ADVICE_PREFIX, META_CALIBRATION,
        META_CORRECTION_PREFIX, META_COUNTS, META_ERAS, META_FORECAST_PREFIX,
        META_NODE_WORK_PREFIX, META_RUN_PREFIX, META_SCORECARD_HOUR_PREFIX, META_SCORECARD_JOBS,
        META_SCORECARD_TARGET_PREFIX, OUTCOMES, OVERRIDDEN_SETTINGS, SUSPENSIONS, TARGET_RECORDS,
        TableCounts, parse_entry,
    },
};
use crate::{
    model::{
        records::{
            AdviceKey, AdviceRecord, CompactionOrder, CorrectionKey, CorrectionRecord, Intent,
            IntentKey, Mute, Outcome, Run, ScorecardChange, StateChange, Suspension,
            SuspensionScope, TargetRecord,
        },
        settings::{
            limits::BUDGET_PERIOD,
            work::{self, Keep},
        },
        target::TargetId,
    },
    text::Label,
};
use lru::LruCache;
use redb::{AccessGuard, Error, ReadableTable as _, Table, WriteTransaction};
use serde::Serialize;
use std::time::Duration;
use wall_clock::Moment;
use xxhash_rust::xxh3::xxh3_128;

/// The latest outcomes, to recognise a repeated one: far more than a batch contains.
pub(super) type RecentOutcomes = LruCache<OutcomeKey, ()>;

type JsonBytes = &'static [u8];

/// Identifies an outcome by a hash of its target, node and start time. Thousands are held in
/// memory, so the key is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OutcomeKey(u128);

impl OutcomeKey {
    pub(super) fn new(outcome: &Outcome) -> Self {
        let Outcome { target, node, started_at, .. } = outcome;
        // The zero byte separates the parts unambiguously, because names cannot contain it.
        let text = format!("{target}\0{node}\0{}", started_at.unix());
        Self(xxh3_128(text.as_bytes()))
    }
}

/// Results of one transaction.
pub(super) struct WriteResult {
    pub(super) counts: TableCounts,
    pub(super) new_outcomes: Vec<OutcomeKey>,
    /// New events with their numbers, if somebody subscribed.
    pub(super) new_events: Vec<(u64, JournalEvent)>,
}

/// The tables within one write transaction.
pub(super) struct WriteTx<'tx> {
    outcomes: Table<'tx, u64, (u32, JsonBytes)>,
    events: Table<'tx, u64, (u32, JsonBytes)>,
    db_events: Table<'tx, u64, (u32, JsonBytes)>,
    feed: feed_tables::FeedTables<'tx>,
    intents: Table<'tx, (&'static str, &'static str), JsonBytes>,
    target_records: Table<'tx, &'static str, JsonBytes>,
    suspensions: Table<'tx, &'static str, JsonBytes>,
    overridden_settings: Table<'tx, (&'static str, &'static str, &'static str), JsonBytes>,
    meta: Table<'tx, &'static str, JsonBytes>,
    counts: TableCounts,
    recent: &'tx RecentOutcomes,
    new_outcomes: Vec<OutcomeKey>,
    /// New events with their numbers, if somebody subscribed.
    new_events: Option<Vec<(u64, JournalEvent)>>,
    now: Moment,
}

impl<'tx> WriteTx<'tx> {
    pub(super) fn new(
        tx: &'tx WriteTransaction,
        counts: TableCounts,
        recent: &'tx RecentOutcomes,
        now: Moment,
    ) -> Result<Self, Error> {
        Ok(Self {
            outcomes: tx.open_table(OUTCOMES)?,
            events: tx.open_table(EVENTS)?,
            db_events: tx.open_table(DB_EVENTS)?,
            feed: feed_tables::FeedTables::open(tx)?,
            intents: tx.open_table(INTENTS)?,
            target_records: tx.open_table(TARGET_RECORDS)?,
            suspensions: tx.open_table(SUSPENSIONS)?,
            overridden_settings: tx.open_table(OVERRIDDEN_SETTINGS)?,
            meta: tx.open_table(META)?,
            counts,
            recent,
            new_outcomes: Vec::new(),
            new_events: None,
            now,
        })
    }

    /// Sets whether new events are collected for subscribers.
    pub(super) fn collect_events(&mut self, has_subscribers: bool) {
        self.new_events = has_subscribers.then(Vec::new);
    }

    pub(super) fn put_meta(&mut self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        self.meta.insert(name, to_json(value)?.as_slice())?;
        Ok(())
    }

    pub(super) fn apply_change(&mut self, change: &StateChange) -> Result<(), Error> {
        match change {
            StateChange::StartIntended(intent) => self.insert_intent(intent),
            StateChange::StartWithdrawn(key) => {
                if !self.remove_intent(key)? {
                    return Ok(());
                }
                let IntentKey { target, node } = key.clone();
                self.insert_event(EventDetails::NotStarted { target, node, why: None })
            }
            StateChange::JobEnded { outcome, closes } => {
                if let Some(key) = closes {
                    self.remove_intent(key)?;
                }
                self.insert_outcome(outcome)
            }
            StateChange::SetTargetRecord(target, remembered) => {
                self.set_target_record(target, remembered.as_ref())
            }
            StateChange::Suspend(scope, suspension) => self.suspend(scope, suspension),
            StateChange::Resume { scope, by } => self.resume(scope, by.as_deref()),
            StateChange::Calibrate(calibration) => self.put_meta(META_CALIBRATION, calibration),
            StateChange::SetCorrection(key, record) => self.set_correction(key, record.as_ref()),
            StateChange::Scorecard(change) => self.change_scorecard(change),
            StateChange::SetAdvice(key, record) => self.set_advice(key, record.as_ref()),
            StateChange::SetForecasts(volume, record) => {
                let name = format!("{META_FORECAST_PREFIX}{volume}");
                self.set_meta(&name, record.as_ref().map(|record| (volume, record)).as_ref())
            }
            StateChange::SetRun(number, run) => self.set_run(*number, run.as_ref()),
            StateChange::SetNodeWork(node, work) => {
                self.put_meta(&format!("{META_NODE_WORK_PREFIX}{node}"), &(node, work))
            }
        }
    }

    fn set_correction(
        &mut self,
        key: &CorrectionKey,
        record: Option<&CorrectionRecord>,
    ) -> Result<(), Error> {
        let CorrectionKey { db, suffix, kind } = key;
        let name = format!("{META_CORRECTION_PREFIX}{}:{db}{suffix}", kind.label());
        self.set_meta(&name, record.map(|record| (key, record)).as_ref())
    }

    fn set_advice(&mut self, key: &AdviceKey, record: Option<&AdviceRecord>) -> Result<(), Error> {
        let subject = key.subject.as_deref().map_or_else(String::new, |it| format!(":{it}"));
        let name = format!("{META_ADVICE_PREFIX}{}{subject}", key.code);
        let before = self.meta.get(name.as_str())?.map(|json| json.value().to_vec());
        let before: Option<(AdviceKey, AdviceRecord)> =
            before.map(|json| parse_entry(&json)).transpose()?;
        self.set_meta(&name, record.map(|record| (key, record)).as_ref())?;
        let before = before.map(|(_, record)| record).unwrap_or_default();
        self.insert_advice_events(key, &before, &record.cloned().unwrap_or_default())
    }

    /// Records events about advice. Forgetting a finding is not an event: it was announced when it
    /// went.
    fn insert_advice_events(
        &mut self,
        key: &AdviceKey,
        before: &AdviceRecord,
        after: &AdviceRecord,
    ) -> Result<(), Error> {
        let AdviceKey { code, subject } = key.clone();
        if let Some(subject) = subject.clone() {
            let is_given = |it: &AdviceRecord| it.first_seen.is_some() && it.gone_at.is_none();
            let code = code.clone();
            match (is_given(before), is_given(after)) {
                (false, true) => self.insert_event(EventDetails::AdviceGiven { code, subject })?,
                (true, false) => self.insert_event(EventDetails::AdviceGone { code, subject })?,
                (true, true) | (false, false) => {}
            }
        }
        match (&before.mute, &after.mute) {
            (before, Some(mute)) if before.as_ref() != Some(mute) => {
                let Mute { since: _, until, by, why } = mute.clone();
                self.insert_event(EventDetails::AdviceMuted { code, subject, until, by, why })
            }
            (Some(_), None) => self.insert_event(EventDetails::AdviceUnmuted { code, subject }),
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    fn set_run(&mut self, number: u64, run: Option<&Run>) -> Result<(), Error> {
        let name = format!("{META_RUN_PREFIX}{number:020}");
        let before = self.meta.get(name.as_str())?.map(|json| parse_entry(json.value()));
        let before: Option<(u64, Run)> = before.transpose()?;
        self.set_meta(&name, run.map(|run| (number, run)).as_ref())?;
        let Some(run) = run else { return Ok(()) };
        let (db, node) = run.scope.names();
        let (db, node) = (db.map(ToOwned::to_owned), node.map(ToOwned::to_owned));
        match (before, &run.ended) {
            (None, None) => {
                let (by, force) = (run.by.clone(), run.force);
                self.insert_event(EventDetails::RunBegan { run: number, db, node, by, force })
            }
            (Some((_, Run { ended: None, .. })), Some(end)) => {
                self.insert_event(EventDetails::RunEnded {
                    run: number,
                    db,
                    node,
                    result: end.how,
                    by: end.by.clone(),
                    done: run.done(),
                    members: end.members,
                    freed_bytes: Some(run.freed_bytes),
                })
            }
            (Some(_), _) | (None, Some(_)) => Ok(()),
        }
    }

    fn change_scorecard(&mut self, change: &ScorecardChange) -> Result<(), Error> {
        match change {
            ScorecardChange::Hour(hour, sums) => {
                let name = format!("{META_SCORECARD_HOUR_PREFIX}{hour:010}");
                self.set_meta(&name, sums.map(|sums| (hour, sums)).as_ref())
            }
            ScorecardChange::Target(id, target) => {
                let name = format!("{META_SCORECARD_TARGET_PREFIX}{id}");
                self.set_meta(&name, target.map(|target| (id, target)).as_ref())
            }
            ScorecardChange::Jobs(jobs) => self.put_meta(META_SCORECARD_JOBS, jobs),
        }
    }

    /// Replaces a single value; `None` removes it.
    fn set_meta(&mut self, name: &str, value: Option<&impl Serialize>) -> Result<(), Error> {
        match value {
            Some(value) => self.put_meta(name, value),
            None => {
                self.meta.remove(name)?;
                Ok(())
            }
        }
    }

    fn insert_intent(&mut self, intent: &Intent) -> Result<(), Error> {
        let (target, json) = (intent.target.to_string(), to_json(intent)?);
        let key = (target.as_str(), intent.node.as_str());
        if to_bytes(self.intents.insert(key, json.as_slice())?).is_some_and(|was| was == json) {
            return Ok(());
        }
        self.insert_event(EventDetails::Started {
            target: intent.target.clone(),
            node: intent.node.clone(),
            channel: intent.channel.clone(),
            ordered_by: intent.ordered_by.clone(),
        })
    }

    fn remove_intent(&mut self, key: &IntentKey) -> Result<bool, Error> {
        let target = key.target.to_string();
        Ok(self.intents.remove((target.as_str(), key.node.as_str()))?.is_some())
    }

    fn insert_outcome(&mut self, outcome: &Outcome) -> Result<(), Error> {
        let ended = OutcomeKey::new(outcome);
        if self.recent.contains(&ended) || self.new_outcomes.contains(&ended) {
            return Ok(());
        }
        let (seq, json) = (self.next_seq(), to_json(outcome)?);
        self.counts.outcomes.insert(&mut self.outcomes, seq, outcome.ended_at, &json)?;
        self.new_outcomes.push(ended);
        self.insert_event(EventDetails::Finished {
            target: outcome.target.clone(),
            node: outcome.node.clone(),
            owner: outcome.owner,
            result: outcome.ending,
            freed_bytes: outcome.freed_bytes(),
        })
    }

    fn set_target_record(
        &mut self,
        target: &TargetId,
        remembered: Option<&TargetRecord>,
    ) -> Result<(), Error> {
        let id = target.to_string();
        let before = match remembered {
            Some(remembered) => {
                to_bytes(self.target_records.insert(id.as_str(), to_json(remembered)?.as_slice())?)
            }
            None => to_bytes(self.target_records.remove(id.as_str())?),
        };
        let before: Option<TargetRecord> = before.map(|json| parse_entry(&json)).transpose()?;
        let ordered = |it: Option<&TargetRecord>| it.and_then(|it| it.ordered.clone());
        match (ordered(before.as_ref()), ordered(remembered)) {
            (before, Some(order)) if before.as_ref() != Some(&order) => {
                let CompactionOrder { by, force, .. } = order;
                self.insert_event(EventDetails::Ordered { target: target.clone(), by, force })?;
            }
            (Some(order), None) if order.until <= self.now => {
                self.insert_event(EventDetails::Lapsed { target: target.clone(), by: order.by })?;
            }
            (Some(_) | None, Some(_) | None) => {}
        }
        let quarantined = |it: &TargetRecord| it.quarantined_since.is_some();
        match (before.as_ref().is_some_and(quarantined), remembered) {
            (false, Some(now)) if quarantined(now) => {
                self.insert_event(EventDetails::Quarantined {
                    target: target.clone(),
                    failures: now.failures,
                })
            }
            (true, now) if !now.is_some_and(quarantined) => {
                self.insert_event(EventDetails::Released { target: target.clone() })
            }
            (true | false, Some(_) | None) => Ok(()),
        }
    }

    fn suspend(&mut self, scope: &SuspensionScope, suspension: &Suspension) -> Result<(), Error> {
        let (name, json) = (scope.to_string(), to_json(&(scope, suspension))?);
        if to_bytes(self.suspensions.insert(name.as_str(), json.as_slice())?)
            .is_some_and(|was| was == json)
        {
            return Ok(());
        }
        let Suspension { since: _, by, why } = suspension.clone();
        self.insert_event(EventDetails::Suspended { scope: scope.clone(), by, why })
    }

    fn resume(&mut self, scope: &SuspensionScope, by: Option<&str>) -> Result<(), Error> {
        if self.suspensions.remove(scope.to_string().as_str())?.is_none() {
            return Ok(());
        }
        self.insert_event(EventDetails::Resumed { scope: scope.clone(), by: by.map(str::to_owned) })
    }

    /// Records that a smoosh setting was overridden or restored. The first recorded value is kept,
    /// because a second reading would find the value set by this program.
    pub(super) fn set_overridden(
        &mut self,
        setting: &OverriddenSetting,
        is_overridden: bool,
    ) -> Result<(), Error> {
        let key = (setting.node.as_str(), setting.section.as_str(), setting.key.as_str());
        if is_overridden {
            if self.overridden_settings.get(key)?.is_some() {
                return Ok(());
            }
            self.overridden_settings.insert(key, to_json(setting)?.as_slice())?;
            return self.insert_event(EventDetails::TakenOver(setting.clone()));
        }
        let Some(json) = to_bytes(self.overridden_settings.remove(key)?) else { return Ok(()) };
        self.insert_event(EventDetails::Restored(parse_entry(&json)?))
    }

    pub(super) fn insert_event(&mut self, what: EventDetails) -> Result<(), Error> {
        let (seq, event) = (self.next_seq(), JournalEvent { at: self.now, details: what });
        let json = to_json(&event)?;
        if event.details.database_change().is_some() {
            self.counts.db_events.insert(&mut self.db_events, seq, self.now, &json)?;
            self.insert_into_feed(seq, &event)?;
        } else {
            self.counts.events.insert(&mut self.events, seq, self.now, &json)?;
        }
        if let Some(collected) = &mut self.new_events {
            collected.push((seq, event));
        }
        Ok(())
    }

    /// Adds a database event to the feed.
    pub(super) fn insert_into_feed(&mut self, seq: u64, event: &JournalEvent) -> Result<(), Error> {
        let Some((change, db)) = event.details.database_change() else { return Ok(()) };
        self.feed.insert(&mut self.counts.feed, (seq, event.at), change, db)
    }

    /// Begins an era, so that numbers assigned from now on differ from those assigned by another
    /// copy of this file.
    pub(super) fn begin_era(&mut self, id: &str) -> Result<(), Error> {
        let json = self.meta.get(META_ERAS)?.map(|json| json.value().to_vec());
        let mut eras: Vec<Era> = json.map_or_else(|| Ok(Vec::new()), |json| parse_entry(&json))?;
        feed_tables::add_era(&mut eras, id, self.counts.last_seq);
        self.put_meta(META_ERAS, &eras)
    }

    /// Removes the oldest entries that exceed their budgets. The history of database events and the
    /// feed share one budget; the history gets the rest. Returns whether more must be removed.
    pub(super) fn trim(
        &mut self,
        budgets: &work::JournalRetention,
        at_most: usize,
    ) -> Result<bool, Error> {
        let TableCounts { outcomes, events, db_events, feed, .. } = &mut self.counts;
        let trim = |entries: &mut RetainedTable, table, keep, needed| {
            entries.trim(table, keep, needed, self.now, at_most)
        };
        // The hourly budget counts outcomes of the last hour.
        let mut more = trim(outcomes, &mut self.outcomes, budgets.outcomes, BUDGET_PERIOD)?;
        more |= trim(events, &mut self.events, budgets.events, Duration::ZERO)?;
        more |= self.feed.trim(feed, budgets.events, self.now, at_most)?;
        let rest = budgets.events.max_size.saturating_sub(feed.size.bytes);
        let history = Keep { max_size: rest, ..budgets.events };
        Ok(trim(db_events, &mut self.db_events, history, Duration::ZERO)? || more)
    }

    /// Writes the counts and returns the results.
    pub(super) fn finish(mut self) -> Result<WriteResult, Error> {
        let counts = self.counts;
        self.put_meta(META_COUNTS, &counts)?;
        Ok(WriteResult {
            counts,
            new_outcomes: self.new_outcomes,
            new_events: self.new_events.unwrap_or_default(),
        })
    }

    const fn next_seq(&mut self) -> u64 {
        self.counts.last_seq += 1;
        self.counts.last_seq
    }
}

fn to_bytes(guard: Option<AccessGuard<'_, JsonBytes>>) -> Option<Vec<u8>> {
    guard.map(|guard| guard.value().to_vec())
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|why| Error::Io(why.into()))
}
