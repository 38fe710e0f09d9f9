//! Applies changes to the tables within one transaction.
//!
//! Changes are idempotent: applying one again has no further effect and records no event. A batch
//! can therefore be sent again if it is unknown whether it was stored.

use super::{
    Event, Taken, What,
    feed::{self, Era},
    shelf::Shelf,
    store::{RecentOutcomes, parsed},
    tables::{
        Counts, DB_EVENTS, EVENTS, INTENTS, META, META_CALIBRATION, META_COUNTS, META_ERAS,
        OUTCOMES, REMEMBERED, SUSPENSIONS, TAKEN,
    },
};
use crate::model::{
    memory::{Change, Intent, IntentKey, Ordered, Outcome, Remembered, Scope, Suspension},
    settings::work,
    target::TargetId,
};
use redb::{AccessGuard, Error, ReadableTable as _, Table, WriteTransaction};
use serde::Serialize;
use wall_clock::Moment;
use xxhash_rust::xxh3::xxh3_128;

type Bytes = &'static [u8];

/// Identifies an outcome by a hash of its target, node and start time. Thousands are held in
/// memory, so the key is small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ended(u128);

impl Ended {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let Outcome { target, node, started_at, .. } = outcome;
        // The zero byte separates the parts unambiguously, because names cannot contain it.
        let text = format!("{target}\0{node}\0{}", started_at.unix());
        Self(xxh3_128(text.as_bytes()))
    }
}

/// Results of one transaction.
pub(super) struct Written {
    pub(super) counts: Counts,
    /// New outcomes.
    pub(super) ended: Vec<Ended>,
    /// New events with their numbers, if somebody subscribed.
    pub(super) told: Vec<(u64, Event)>,
}

/// The tables within one write transaction.
pub(super) struct Pen<'tx> {
    outcomes: Table<'tx, u64, (u32, Bytes)>,
    events: Table<'tx, u64, (u32, Bytes)>,
    db_events: Table<'tx, u64, (u32, Bytes)>,
    feed: feed::Tables<'tx>,
    intents: Table<'tx, (&'static str, &'static str), Bytes>,
    remembered: Table<'tx, &'static str, Bytes>,
    suspensions: Table<'tx, &'static str, Bytes>,
    taken: Table<'tx, (&'static str, &'static str, &'static str), Bytes>,
    meta: Table<'tx, &'static str, Bytes>,
    counts: Counts,
    recent: &'tx RecentOutcomes,
    ended: Vec<Ended>,
    /// New events with their numbers, if somebody subscribed.
    told: Option<Vec<(u64, Event)>>,
    now: Moment,
}

impl<'tx> Pen<'tx> {
    pub(super) fn new(
        tx: &'tx WriteTransaction,
        counts: Counts,
        recent: &'tx RecentOutcomes,
        now: Moment,
    ) -> Result<Self, Error> {
        Ok(Self {
            outcomes: tx.open_table(OUTCOMES)?,
            events: tx.open_table(EVENTS)?,
            db_events: tx.open_table(DB_EVENTS)?,
            feed: feed::Tables::open(tx)?,
            intents: tx.open_table(INTENTS)?,
            remembered: tx.open_table(REMEMBERED)?,
            suspensions: tx.open_table(SUSPENSIONS)?,
            taken: tx.open_table(TAKEN)?,
            meta: tx.open_table(META)?,
            counts,
            recent,
            ended: Vec::new(),
            told: None,
            now,
        })
    }

    /// Sets whether new events are collected for subscribers.
    pub(super) fn tells(&mut self, hears: bool) {
        self.told = hears.then(Vec::new);
    }

    pub(super) fn meta(&mut self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        self.meta.insert(name, json(value)?.as_slice())?;
        Ok(())
    }

    pub(super) fn change(&mut self, change: &Change) -> Result<(), Error> {
        match change {
            Change::Intended(intent) => self.intend(intent),
            Change::Withdrawn(key) => {
                if !self.close(key)? {
                    return Ok(());
                }
                let IntentKey { target, node } = key.clone();
                self.event(What::NotStarted { target, node, why: None })
            }
            Change::Ended { outcome, closes } => {
                if let Some(key) = closes {
                    self.close(key)?;
                }
                self.end(outcome)
            }
            Change::Remember(target, remembered) => self.remember(target, remembered.as_ref()),
            Change::Suspend(scope, suspension) => self.suspend(scope, suspension),
            Change::Resume { scope, by } => self.resume(scope, by.as_deref()),
            Change::Calibrate(calibration) => self.meta(META_CALIBRATION, calibration),
        }
    }

    fn intend(&mut self, intent: &Intent) -> Result<(), Error> {
        let (target, said) = (intent.target.to_string(), json(intent)?);
        let key = (target.as_str(), intent.node.as_str());
        if was(self.intents.insert(key, said.as_slice())?).is_some_and(|was| was == said) {
            return Ok(());
        }
        self.event(What::Started {
            target: intent.target.clone(),
            node: intent.node.clone(),
            channel: intent.channel.clone(),
            ordered_by: intent.ordered_by.clone(),
        })
    }

    fn close(&mut self, key: &IntentKey) -> Result<bool, Error> {
        let target = key.target.to_string();
        Ok(self.intents.remove((target.as_str(), key.node.as_str()))?.is_some())
    }

    fn end(&mut self, outcome: &Outcome) -> Result<(), Error> {
        let ended = Ended::of(outcome);
        if self.recent.contains(&ended) || self.ended.contains(&ended) {
            return Ok(());
        }
        let (seq, said) = (self.next_seq(), json(outcome)?);
        self.counts.outcomes.put(&mut self.outcomes, seq, outcome.ended_at, &said)?;
        self.ended.push(ended);
        self.event(What::Finished {
            target: outcome.target.clone(),
            node: outcome.node.clone(),
            owner: outcome.owner,
            result: outcome.ending,
            freed_bytes: outcome.freed_bytes(),
        })
    }

    fn remember(
        &mut self,
        target: &TargetId,
        remembered: Option<&Remembered>,
    ) -> Result<(), Error> {
        let id = target.to_string();
        let before = match remembered {
            Some(remembered) => {
                was(self.remembered.insert(id.as_str(), json(remembered)?.as_slice())?)
            }
            None => was(self.remembered.remove(id.as_str())?),
        };
        let before: Option<Remembered> = before.map(|said| parsed(&said)).transpose()?;
        let ordered = |it: Option<&Remembered>| it.and_then(|it| it.ordered.clone());
        match (ordered(before.as_ref()), ordered(remembered)) {
            (before, Some(order)) if before.as_ref() != Some(&order) => {
                let Ordered { by, force, .. } = order;
                self.event(What::Ordered { target: target.clone(), by, force })?;
            }
            (Some(order), None) if order.until <= self.now => {
                self.event(What::Lapsed { target: target.clone(), by: order.by })?;
            }
            (Some(_) | None, Some(_) | None) => {}
        }
        let quarantined = |it: &Remembered| it.quarantined_since.is_some();
        match (before.as_ref().is_some_and(quarantined), remembered) {
            (false, Some(now)) if quarantined(now) => {
                self.event(What::Quarantined { target: target.clone(), failures: now.failures })
            }
            (true, now) if !now.is_some_and(quarantined) => {
                self.event(What::Released { target: target.clone() })
            }
            (true | false, Some(_) | None) => Ok(()),
        }
    }

    fn suspend(&mut self, scope: &Scope, suspension: &Suspension) -> Result<(), Error> {
        let (name, said) = (scope.to_string(), json(&(scope, suspension))?);
        if was(self.suspensions.insert(name.as_str(), said.as_slice())?)
            .is_some_and(|was| was == said)
        {
            return Ok(());
        }
        let Suspension { since: _, by, why } = suspension.clone();
        self.event(What::Suspended { scope: scope.clone(), by, why })
    }

    fn resume(&mut self, scope: &Scope, by: Option<&str>) -> Result<(), Error> {
        if self.suspensions.remove(scope.to_string().as_str())?.is_none() {
            return Ok(());
        }
        self.event(What::Resumed { scope: scope.clone(), by: by.map(str::to_owned) })
    }

    /// Records that a smoosh setting was overridden or restored. The first recorded value is kept,
    /// because a second reading would find the value set by this program.
    pub(super) fn take(&mut self, taken: &Taken, is_taken: bool) -> Result<(), Error> {
        let key = (taken.node.as_str(), taken.section.as_str(), taken.key.as_str());
        if is_taken {
            if self.taken.get(key)?.is_some() {
                return Ok(());
            }
            self.taken.insert(key, json(taken)?.as_slice())?;
            return self.event(What::TakenOver(taken.clone()));
        }
        let Some(said) = was(self.taken.remove(key)?) else { return Ok(()) };
        self.event(What::Restored(parsed(&said)?))
    }

    pub(super) fn event(&mut self, what: What) -> Result<(), Error> {
        let (seq, event) = (self.next_seq(), Event { at: self.now, what });
        let said = json(&event)?;
        if event.what.database().is_some() {
            self.counts.db_events.put(&mut self.db_events, seq, self.now, &said)?;
            self.feed(seq, &event)?;
        } else {
            self.counts.events.put(&mut self.events, seq, self.now, &said)?;
        }
        if let Some(told) = &mut self.told {
            told.push((seq, event));
        }
        Ok(())
    }

    /// Adds a database event to the feed.
    pub(super) fn feed(&mut self, seq: u64, event: &Event) -> Result<(), Error> {
        let Some((change, db)) = event.what.database() else { return Ok(()) };
        self.feed.put(&mut self.counts.feed, (seq, event.at), change, db)
    }

    /// Begins an era, so that numbers assigned from now on differ from those assigned by another
    /// copy of this file.
    pub(super) fn begin_era(&mut self, id: &str) -> Result<(), Error> {
        let said = self.meta.get(META_ERAS)?.map(|said| said.value().to_vec());
        let mut eras: Vec<Era> = said.map_or_else(|| Ok(Vec::new()), |said| parsed(&said))?;
        feed::begin(&mut eras, id, self.counts.last_seq);
        self.meta(META_ERAS, &eras)
    }

    /// Removes the oldest entries that exceed their budgets. Returns whether more must be removed.
    pub(super) fn trim(&mut self, budgets: &work::Journal, at_most: usize) -> Result<bool, Error> {
        let Counts { outcomes, events, db_events, feed, .. } = &mut self.counts;
        let of = |shelf: &mut Shelf, table, keep| shelf.trim(table, keep, self.now, at_most);
        let mut more = of(outcomes, &mut self.outcomes, budgets.outcomes)?;
        more |= of(events, &mut self.events, budgets.events)?;
        more |= of(db_events, &mut self.db_events, budgets.events)?;
        Ok(self.feed.trim(feed, budgets.events, self.now, at_most)? || more)
    }

    /// Writes the counts and returns the results.
    pub(super) fn done(mut self) -> Result<Written, Error> {
        let counts = self.counts;
        self.meta(META_COUNTS, &counts)?;
        Ok(Written { counts, ended: self.ended, told: self.told.unwrap_or_default() })
    }

    const fn next_seq(&mut self) -> u64 {
        self.counts.last_seq += 1;
        self.counts.last_seq
    }
}

fn was(guard: Option<AccessGuard<'_, Bytes>>) -> Option<Vec<u8>> {
    guard.map(|guard| guard.value().to_vec())
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|why| Error::Io(why.into()))
}
