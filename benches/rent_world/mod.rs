//! Simulated databases, and what a rule for compactions costs them: bytes wasted, bytes rewritten.
//!
//! Owns the made-up databases and the time that passes for them. The rules are recliner's own:
//! [`score`] decides, [`Rent`] adds up, and a new file has the size that recliner predicts. There
//! are no limits on concurrency, so databases do not depend on each other and are simulated one
//! after the other. The bench `rent` draws a picture of it, and a test keeps the rule's advantage.

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

/// A Monday, at midnight.
const START: Moment = Moment::from_unix(1_795_392_000);
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
/// Files are read this often at most.
const MIN_STEP: u64 = 300;
/// Files are read this often at least.
const MAX_STEP: u64 = 6 * HOUR;
/// In between, after this share of the time since their last compaction.
const STEPS_OF_AGE: u64 = 8;

/// Bytes in a document, in memory and on disk.
const DOCUMENT: f64 = 65_536.0;
/// The median size of a database, and of what is written to it in a day.
const MEDIAN_BYTES: f64 = 350e6;
/// Databases are written to in these hours of working days, where they are at all.
const OFFICE: (u64, u64) = (8 * HOUR, 18 * HOUR);
const OFFICE_HOURS_A_WEEK: f64 = 50.0;
const HOURS_A_WEEK: f64 = 168.0;

/// What databases there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// All are written to at a constant rate.
    Uniform,
    /// A third of them is written to in office hours only.
    OfficeHours,
    /// As in office hours, and a fifth is an idle archive, a tenth is emptied by deletions for two
    /// weeks, and a twentieth takes a bulk load of an hour to a day.
    Mixed,
}

/// Databases to simulate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    pub(crate) databases: u32,
    pub(crate) days: u64,
    pub(crate) writers: Writers,
    /// The standard deviation of the natural logarithm of sizes, and of that of write rates.
    pub(crate) spread: f64,
    pub(crate) seed: u64,
}

/// When to compact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// smoosh's, by a ratio alone.
    Ratio(f64),
    /// smoosh's, by this many bytes of slack alone.
    Slack(u64),
    /// smoosh's, by both, at its defaults.
    SmooshDefaults,
    /// By rent, with this horizon.
    Rent(Duration),
}

impl Rule {
    /// The channels of databases that follow it.
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

/// What a rule cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Bytes that compactions would have freed, on average over time.
    pub(crate) mean_waste: f64,
    /// Bytes of new files in a day.
    pub(crate) rewritten_a_day: f64,
    /// Compactions in a day.
    pub(crate) compactions_a_day: f64,
}

/// Writes at a constant rate.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// Seconds from the start of the simulation.
    until: u64,
    /// Bytes added to the file, a second.
    file: f64,
    /// Bytes added to live data, a second; negative for deletions.
    live: f64,
}

/// One database of one shard and one copy.
#[derive(Clone, Debug)]
struct Database {
    live: f64,
    file: f64,
    phases: Vec<Phase>,
}

/// What a database is at one moment.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Seconds from the start of the simulation.
    at: u64,
    file: f64,
    live: f64,
    /// Documents that were ever there.
    documents: f64,
    /// Changes of documents.
    update_seq: f64,
    /// The sequence at the last compaction.
    compacted_seq: f64,
}

impl World {
    /// What a rule costs all databases together.
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

    /// The next database: always the same for the same numbers.
    fn database(&self, number: u32, random: &mut impl FnMut() -> u64) -> Database {
        let mut uniform = || (random() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut log_normal = |median: f64| {
            // Box and Muller; the logarithm of zero has no place in it.
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

/// That share of a time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of seconds is one too"
)]
fn share_of(seconds: u64, share: f64) -> u64 {
    (seconds as f64 * share) as u64
}

/// The same bytes a week as at this constant rate, all of them in office hours.
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

/// Lets a phase end at this moment.
fn split(phases: &mut Vec<Phase>, moment: u64) {
    let Some(at) = phases.iter().position(|phase| phase.until >= moment) else { return };
    if phases[at].until != moment {
        phases.insert(at, Phase { until: moment, ..phases[at] });
    }
}

/// Changes the writes between two moments.
fn change(phases: &mut Vec<Phase>, (from, until): (u64, u64), change: impl Fn(&mut Phase)) {
    split(phases, from);
    split(phases, until);
    let within = |phase: &&mut Phase| from < phase.until && phase.until <= until;
    phases.iter_mut().filter(within).for_each(change);
}

impl Database {
    /// What it costs when any of these channels has it compacted as soon as it takes it.
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

    /// Frees what was predicted.
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

/// A number of bytes or documents.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes and counts are positive"
)]
fn bytes(number: f64) -> OptionalU64 {
    OptionalU64::new(number as u64)
}
