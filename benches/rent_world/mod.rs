//! Simulated databases, and the cost of a compaction rule for them: bytes wasted, bytes rewritten.
//!
//! Owns the made-up databases and the time that passes for them. The rules are recliner's own:
//! [`score`] decides, [`Rent`] adds up, and a new file has the size that recliner predicts. There
//! are no limits on concurrency, so databases do not depend on each other and are simulated one
//! after the other. The bench `rent` charts the results, and a test checks that rent stays better
//! than thresholds.

use crate::seeded::random_numbers;
use recliner::model::{
    channel::{Channel, ChannelPreset},
    correction::Correction,
    facts::{FactSource, Facts, Measurement, OptionalU64},
    rent::{Rent, WasteReading},
    score::{RentNow, score},
    target::TargetKind,
};
use std::{f64::consts::TAU, time::Duration};
use wall_clock::Moment;

/// A Monday at midnight.
const START: Moment = Moment::from_unix(1_795_392_000);
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
/// The minimum interval between two readings of a file, in seconds.
const MIN_STEP: u64 = 300;
/// The maximum interval between two readings of a file, in seconds.
const MAX_STEP: u64 = 6 * HOUR;
/// Between these limits, the interval is the time since the last compaction divided by this.
const STEPS_OF_AGE: u64 = 8;

/// Bytes of a document, in memory and on disk.
const DOCUMENT: f64 = 65_536.0;
/// The median size of a database, and of the bytes written to it per day.
const MEDIAN_BYTES: f64 = 350e6;
/// The hours of working days in which databases with office hours get their writes.
const OFFICE: (u64, u64) = (8 * HOUR, 18 * HOUR);
const OFFICE_HOURS_A_WEEK: f64 = 50.0;
const HOURS_A_WEEK: f64 = 168.0;

/// How databases are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// All databases get writes at a constant rate.
    Uniform,
    /// A third of the databases get writes only in office hours.
    OfficeHours,
    /// As with office hours, and in addition a fifth are idle archives, a tenth are emptied by
    /// deletions over two weeks, and a twentieth get a bulk load of an hour to a day.
    Mixed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    pub(crate) databases: u32,
    pub(crate) days: u64,
    pub(crate) writers: Writers,
    /// The standard deviation of the natural logarithm of sizes and of write rates.
    pub(crate) spread: f64,
    pub(crate) seed: u64,
}

/// A rule that decides when to compact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// smoosh's rule by this ratio alone.
    Ratio(f64),
    /// smoosh's rule by this many bytes of slack alone.
    Slack(u64),
    /// smoosh's rules by both, at their defaults.
    SmooshDefaults,
    /// The rule by rent, with this horizon.
    Rent(Duration),
}

impl Rule {
    /// The channels of databases that follow this rule.
    fn channels(self) -> Vec<Channel> {
        let preset = match self {
            Self::Ratio(_) | Self::Slack(_) | Self::SmooshDefaults => ChannelPreset::Smoosh,
            Self::Rent(_) => ChannelPreset::Rent,
        };
        let used = |channel: &Channel| match self {
            Self::Ratio(_) => &*channel.name == "ratio_dbs",
            Self::Slack(_) => &*channel.name == "slack_dbs",
            Self::SmooshDefaults | Self::Rent(_) => channel.kind == TargetKind::Db,
        };
        let adjusted = |channel: Channel| match self {
            Self::Ratio(ratio) => Channel { min_priority: ratio, ..channel },
            Self::Slack(bytes) => Channel { min_priority: bytes as f64, ..channel },
            Self::SmooshDefaults => channel,
            Self::Rent(horizon) => Channel { horizon, ..channel },
        };
        preset.channels().into_iter().filter(used).map(adjusted).collect()
    }
}

/// The cost of a rule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Bytes that a compaction would have freed, averaged over time.
    pub(crate) mean_waste: f64,
    /// Bytes of new files per day.
    pub(crate) rewritten_a_day: f64,
    /// Compactions per day.
    pub(crate) compactions_a_day: f64,
}

/// A phase of writes at a constant rate.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// Seconds from the start of the simulation.
    until: u64,
    /// Bytes added to the file per second.
    file: f64,
    /// Bytes added to live data per second; negative for deletions.
    live: f64,
}

/// A database with one shard in one copy.
#[derive(Clone, Debug)]
struct Database {
    live: f64,
    file: f64,
    phases: Vec<Phase>,
}

/// The state of a database at one moment.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Seconds from the start of the simulation.
    at: u64,
    file: f64,
    live: f64,
    /// Documents that ever existed.
    documents: f64,
    /// The number of changes to documents.
    update_seq: f64,
    /// The sequence at the last compaction.
    compacted_seq: f64,
}

impl World {
    /// The cost of a rule for all databases together.
    pub(crate) fn cost(&self, rule: Rule) -> Cost {
        let channels = rule.channels();
        let mut sum = Cost::default();
        let mut random = random_numbers(self.seed);
        for number in 0..self.databases {
            let database = self.database(number, &mut random);
            let cost = database.cost(&channels, self.days * DAY);
            sum.mean_waste += cost.mean_waste;
            sum.rewritten_a_day += cost.rewritten_a_day;
            sum.compactions_a_day += cost.compactions_a_day;
        }
        sum
    }

    /// The next database, which depends only on its number and the random numbers.
    fn database(&self, number: u32, random: &mut impl FnMut() -> u64) -> Database {
        let mut uniform = || (random() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut log_normal = |median: f64| {
            // The Box-Muller transform, which must avoid the logarithm of zero.
            let (radius, angle) = ((1.0 - uniform()).ln(), TAU * uniform());
            median * (self.spread * (-2.0 * radius).sqrt() * angle.cos()).exp()
        };
        let (live, garbage) = (log_normal(MEDIAN_BYTES), log_normal(MEDIAN_BYTES / DAY as f64));
        let (wasted, when, size) = (uniform(), uniform(), uniform());
        let end = self.days * DAY;
        let in_office = self.writers != Writers::Uniform && number.is_multiple_of(3);
        let mut phases = match in_office {
            true => office_hours(garbage, end),
            false => vec![Phase { until: end, file: garbage, live: 0.0 }],
        };
        if self.writers == Writers::Mixed {
            let half = end / 2;
            let at = share_of(half, when);
            match number % 20 {
                0..4 => change(&mut phases, (0, end), |phase| phase.file = 0.0),
                4..6 => {
                    let lost = live * (0.3 + 0.5 * size) / half as f64;
                    // A deleted document leaves a few hundred bytes.
                    let add = |phase: &mut Phase| {
                        phase.file += lost / 100.0;
                        phase.live -= lost;
                    };
                    change(&mut phases, (at, at + half), add);
                }
                6 => {
                    let took = HOUR + share_of(DAY - HOUR, when);
                    let gained = live * (0.5 + 2.0 * size) / took as f64;
                    let add = |phase: &mut Phase| {
                        phase.file += 1.3 * gained;
                        phase.live += gained;
                    };
                    change(&mut phases, (at, at + took), add);
                }
                _ => {}
            }
        }
        Database { live, file: live * (1.0 + wasted), phases }
    }
}

/// This share of a time, in seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of seconds is one too"
)]
fn share_of(seconds: u64, share: f64) -> u64 {
    (seconds as f64 * share) as u64
}

/// Phases with the same bytes per week as this constant rate, all of them written in office hours.
fn office_hours(garbage: f64, end: u64) -> Vec<Phase> {
    let busy = garbage * HOURS_A_WEEK / OFFICE_HOURS_A_WEEK;
    let mut phases = Vec::new();
    for day in (0..end / DAY).filter(|day| day % 7 < 5) {
        phases.push(Phase { until: day * DAY + OFFICE.0, file: 0.0, live: 0.0 });
        phases.push(Phase { until: day * DAY + OFFICE.1, file: busy, live: 0.0 });
    }
    phases.push(Phase { until: end, file: 0.0, live: 0.0 });
    phases
}

/// Splits the phase at this moment, so that one ends there.
fn split(phases: &mut Vec<Phase>, moment: u64) {
    let Some(at) = phases.iter().position(|phase| phase.until >= moment) else { return };
    if phases[at].until != moment {
        phases.insert(at, Phase { until: moment, ..phases[at] });
    }
}

/// Changes the phases between two moments.
fn change(phases: &mut Vec<Phase>, (from, until): (u64, u64), change: impl Fn(&mut Phase)) {
    split(phases, from);
    split(phases, until);
    let within = |phase: &&mut Phase| from < phase.until && phase.until <= until;
    phases.iter_mut().filter(within).for_each(change);
}

impl Database {
    /// The cost if the database is compacted as soon as one of these channels takes it.
    fn cost(&self, channels: &[Channel], end: u64) -> Cost {
        let mut state = State {
            at: 0,
            file: self.file,
            live: self.live,
            documents: self.live / DOCUMENT,
            update_seq: self.file / DOCUMENT,
            compacted_seq: self.live / DOCUMENT,
        };
        let (mut wasted, mut rewritten, mut compactions) = (0.0, 0.0, 0.0);
        let mut last = WasteReading::of(TargetKind::Db, &state.facts(), Correction::NONE);
        let mut rent = Rent::UNKNOWN.after_reading(None, last.as_ref());
        let mut compacted_at = 0;
        for phase in &self.phases {
            while state.at < phase.until {
                let step = ((state.at - compacted_at) / STEPS_OF_AGE).clamp(MIN_STEP, MAX_STEP);
                let step = step.min(phase.until - state.at);
                state.write(phase, step);
                let facts = state.facts();
                let reading = WasteReading::of(TargetKind::Db, &facts, Correction::NONE);
                rent = rent.after_reading(last.as_ref(), reading.as_ref());
                wasted += (waste(last) + waste(reading)) / 2.0 * step as f64;
                last = reading;
                let now = RentNow { rent, now: state.moment(), ..RentNow::UNKNOWN };
                let taken = |it: &Channel| score(it, TargetKind::Db, &facts, now).is_ok();
                if channels.iter().any(taken) {
                    state.compact(waste(reading));
                    rewritten += state.file;
                    compactions += 1.0;
                    compacted_at = state.at;
                    last = WasteReading::of(TargetKind::Db, &state.facts(), Correction::NONE);
                    rent = rent.after_reading(reading.as_ref(), last.as_ref());
                }
            }
        }
        let days = end as f64 / DAY as f64;
        Cost {
            mean_waste: wasted / end as f64,
            rewritten_a_day: rewritten / days,
            compactions_a_day: compactions / days,
        }
    }
}

fn waste(reading: Option<WasteReading>) -> f64 {
    reading.map_or(0.0, |reading| reading.reclaimable_bytes as f64)
}

impl State {
    fn moment(&self) -> Moment {
        START.plus(Duration::from_secs(self.at))
    }

    fn write(&mut self, phase: &Phase, seconds: u64) {
        self.at += seconds;
        self.file += phase.file * seconds as f64;
        self.live += phase.live * seconds as f64;
        self.documents += phase.live.max(0.0) * seconds as f64 / DOCUMENT;
        self.update_seq += phase.file * seconds as f64 / DOCUMENT;
    }

    /// Frees the predicted bytes.
    fn compact(&mut self, freed: f64) {
        self.file -= freed;
        self.compacted_seq = self.update_seq;
    }

    fn facts(&self) -> Facts {
        let documents = self.live / DOCUMENT;
        Facts {
            file_bytes: bytes(self.file),
            active_bytes: bytes(self.live),
            update_seq: bytes(self.update_seq),
            compacted_seq: bytes(self.compacted_seq),
            docs: bytes(documents),
            deleted_docs: bytes(self.documents - documents),
            measured_at: Some(Measurement { at: self.moment(), source: FactSource::Http }),
            ..Facts::default()
        }
    }
}

/// Rounds a number of bytes or documents.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes and counts are positive"
)]
fn bytes(number: f64) -> OptionalU64 {
    OptionalU64::new(number as u64)
}
