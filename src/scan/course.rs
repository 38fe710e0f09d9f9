//! How a sweep takes its course: what begins when, and what follows what was read.
//!
//! The nodes first, in stages; beside them what is being split; then the views. A sweep that is
//! held up, by a node that does not answer or by what needs it, does not hold up the next one.

use super::{
    Seen, Settings, Task,
    readings::{Reading, Readings, Slot},
};
use crate::sources::inventory::{Observation, Stage};
use wall_clock::Moment;

impl Task {
    /// Whether a sweep may begin when it is due.
    pub(super) fn may_sweep(&self, readings: &Readings) -> bool {
        let held_up = readings.late.is_some() || self.tables.is_held_up();
        readings.sweep.is_none() && (held_up || !self.tables.sweeps())
    }

    /// Asks the nodes that did not answer whether they do again.
    pub(super) fn ask_for_the_away(&self, readings: &mut Readings, settings: &Settings) {
        if readings.away.is_none() && !self.tables.sweeps() {
            readings.away = self.tables.away(settings).map(|stage| self.reading(stage));
        }
    }

    /// Begins a sweep; the one that was held up has ended.
    pub(super) fn begin_sweep(&mut self, readings: &mut Readings, now: Moment) {
        if self.tables.sweeps() {
            self.tables.finish(now);
        }
        if self.source.has_changed().unwrap_or_default() {
            self.source.mark_unchanged();
            self.tables.views.ask_again();
        }
        let stage = self.tables.begin(now);
        readings.sweep = Some(self.reading(stage));
        if readings.splits.is_none() {
            readings.splits = Some(self.reading(Stage::Splits));
        }
    }

    /// Goes on with the nodes that have answered; the others have been waited for since the sweep
    /// before, or are from now on.
    pub(super) fn go_on(&mut self, readings: &mut Readings, settings: &Settings) {
        let asked = readings.sweep.take();
        if readings.late.is_none() {
            readings.late = asked;
        }
        let stage = self.tables.go_on(settings);
        readings.sweep = Some(self.reading(stage));
    }

    /// Applies what was seen.
    pub(super) fn apply(
        &mut self,
        slot: Slot,
        seen: Vec<Observation>,
        readings: &mut Readings,
        settings: &Settings,
    ) -> Seen {
        let now = self.clock.now();
        for seen in seen {
            let Some(reading) = readings.slot(slot) else { return Seen::Part };
            let mut awaited = matches!(slot, Slot::Sweep | Slot::Late | Slot::Views);
            let ended = seen == Observation::StageEnded;
            let all_heard = ended && slot == Slot::Sweep && readings.asks_nodes();
            let next = match slot {
                Slot::Late if ended => {
                    self.tables.all_heard();
                    let rests = readings.sweep.is_none();
                    rests.then(|| self.tables.round_ended(settings, now)).flatten()
                }
                Slot::Shards(_) if ended => {
                    awaited = self.tables.touched_ended(&reading.stage, settings);
                    None
                }
                Slot::Poll | Slot::Away | Slot::Views | Slot::Entries if ended => None,
                Slot::Away => {
                    readings.came_back |= matches!(seen, Observation::Back { .. });
                    None
                }
                Slot::Entries => {
                    if let Observation::Stray { db, entry } = seen {
                        self.tables.entry(&db, entry, settings);
                    }
                    None
                }
                Slot::Sweep
                | Slot::Late
                | Slot::Splits
                | Slot::Cluster
                | Slot::Poll
                | Slot::Shards(_)
                | Slot::Views => self.take_in(slot, seen, reading, settings, now),
            };
            if ended {
                // What a stage left behind may hold a whole table: the next begins without.
                readings.end(slot);
                if all_heard {
                    // Whom an earlier sweep still waits for has been asked anew.
                    readings.late = None;
                }
                if let Some(stage) = next {
                    readings.sweep = Some(self.reading(stage));
                    return Seen::Part;
                }
                let is_of_sweep =
                    matches!(slot, Slot::Sweep | Slot::Late | Slot::Splits | Slot::Cluster);
                awaited |= is_of_sweep && self.end_sweep(readings, settings, now);
                return if awaited { Seen::Awaited } else { Seen::Whole };
            }
        }
        Seen::Part
    }

    /// Takes one observation into the tables; at the end of a stage answers with the next one.
    fn take_in(
        &mut self,
        slot: Slot,
        seen: Observation,
        reading: &Reading,
        settings: &Settings,
        now: Moment,
    ) -> Option<Stage> {
        let shard = if let Observation::Shard { ix, facts } = &seen {
            Some((*ix, matches!(facts, Ok(Some(_)))))
        } else {
            None
        };
        let next = self.tables.apply(seen, (&reading.stage, reading.began), settings, now);
        match shard {
            Some((ix, well)) if matches!(slot, Slot::Shards(_)) => {
                self.tables.touched_read(ix, well, settings);
            }
            Some((ix, well)) => {
                if well {
                    self.tables.swept(ix);
                }
                self.tables.lane_read(ix, &reading.stage, now);
            }
            None => {}
        }
        next
    }

    /// Once its nodes were read, reads what a sweep needs the whole cluster for, and ends it;
    /// answers whether it has ended.
    fn end_sweep(&mut self, readings: &mut Readings, settings: &Settings, now: Moment) -> bool {
        let busy = readings.sweep.is_some() || readings.late.is_some();
        if busy || readings.cluster.is_some() || !self.tables.sweeps() {
            return false;
        }
        if let Some(stage) = self.tables.views_to_read(settings) {
            readings.cluster = Some(self.reading(stage));
            return false;
        }
        // What is being split is told by all nodes together or not at all.
        let ends = readings.splits.is_none() || self.tables.is_held_up();
        if ends {
            self.tables.finish(now);
        }
        ends
    }
}
