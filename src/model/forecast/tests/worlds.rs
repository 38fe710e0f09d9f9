//! Simulated worlds: 60 days of one volume's ledger, hour by hour.
//!
//! Sixteen shards grow by live bytes and waste. A shard with more waste than live bytes is compacted
//! within the hour, but at most two per hour. Nothing here depends on how forecasts are made.

use super::super::{BookedSpan, FreedCourse, FreedPoint, GrowthHistory};
use std::time::Duration;
use wall_clock::Moment;

pub(super) const DAYS: usize = 60;
const SHARDS: usize = 16;
const GB: f64 = 1e9;
const BEGIN: u64 = 1_700_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    OfficeHours,
    WeeklyBatch,
    BulkLoad,
    Exponential,
    SeasonalDelete,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::OfficeHours,
        Self::WeeklyBatch,
        Self::BulkLoad,
        Self::Exponential,
        Self::SeasonalDelete,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OfficeHours => "office hours",
            Self::WeeklyBatch => "weekly batch",
            Self::BulkLoad => "bulk load",
            Self::Exponential => "exponential growth",
            Self::SeasonalDelete => "seasonal delete",
        }
    }

    /// Bytes written in an hour.
    fn rate(self, at: usize, hour: usize, weekday: usize) -> f64 {
        const A_DAY: f64 = 40.0 * GB;
        let by_day = if (7..22).contains(&hour) { 1.5 } else { 0.4 };
        match self {
            Self::OfficeHours => match (weekday, hour) {
                (0..5, 8..18) => A_DAY / 11.0,
                (_, _) => A_DAY / 24.0 * 0.1,
            },
            Self::WeeklyBatch | Self::BulkLoad => A_DAY / 24.0 * 0.7,
            Self::Exponential => A_DAY / 48.0 * 1.03_f64.powf(at as f64 / 24.0) * by_day,
            Self::SeasonalDelete => A_DAY / 24.0 * by_day,
        }
    }
}

/// The ledger's entries of one hour, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct BookedHour {
    live: f64,
    waste: f64,
    freed: f64,
    new_files: f64,
}

/// Pseudo-random numbers, determined by a seed.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (one, two) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos()
    }

    /// A random factor around one.
    fn factor(&mut self, spread: f64) -> f64 {
        (self.normal() * spread).exp()
    }
}

/// The live bytes and the waste of each shard.
#[derive(Clone, Debug)]
struct Shards {
    live: [f64; SHARDS],
    waste: [f64; SHARDS],
}

impl Shards {
    fn write(&mut self, live: f64, waste: f64) {
        self.live.iter_mut().for_each(|bytes| *bytes += live / SHARDS as f64);
        self.waste.iter_mut().for_each(|bytes| *bytes += waste / SHARDS as f64);
    }

    /// Compacts the two worst shards that have more waste than live bytes; returns the freed bytes.
    fn compact(&mut self, mut share: impl FnMut() -> f64) -> f64 {
        let mut freed = 0.0;
        for _ in 0..2 {
            let ratio = |at: &usize| self.waste[*at] / self.live[*at];
            let worst = (0..SHARDS).max_by(|one, two| ratio(one).total_cmp(&ratio(two)));
            let Some(worst) = worst.filter(|at| ratio(at) > 1.0) else { break };
            let bytes = self.waste[worst] * share();
            self.waste[worst] -= bytes;
            freed += bytes;
        }
        freed
    }
}

/// The values that are drawn once per world.
struct Plan {
    kind: Kind,
    first_weekday: usize,
    bulk_hour: usize,
    bulk: f64,
    purge: f64,
}

/// A world at the start of an hour.
#[derive(Clone)]
struct State {
    random: Random,
    /// How busy the day is.
    day: f64,
    /// How large this week's batch is.
    batch: f64,
    /// Live bytes that were written since the last seasonal delete.
    week_live: f64,
    shards: Shards,
    free: f64,
}

impl State {
    /// Simulates one hour.
    fn pass(&mut self, plan: &Plan, at: usize) -> BookedHour {
        let Plan { kind, first_weekday, bulk_hour, bulk, purge } = *plan;
        let (hour, weekday) = (at % 24, (first_weekday + at / 24) % 7);
        if hour == 0 {
            // A busy day is often followed by another one.
            self.day = self.day.powf(0.5) * self.random.factor(0.13);
            self.batch = self.random.factor(0.15);
        }
        let rate = kind.rate(at, hour, weekday) * self.day * self.random.factor(0.3);
        let mut booked = BookedHour::default();
        let (mut live, mut waste) = (rate * 0.3, rate * 0.7);
        if kind == Kind::WeeklyBatch && weekday == 6 && (1..5).contains(&hour) {
            live += 6.0 * GB * self.batch;
            waste += 12.0 * GB * self.batch;
        }
        if kind == Kind::BulkLoad && (bulk_hour..bulk_hour + 10).contains(&at) {
            // The files appear first, then documents fill them.
            if at == bulk_hour {
                booked.new_files = bulk * 0.05;
            } else {
                live += bulk * 0.1;
                waste += bulk * 0.005;
            }
        }
        self.week_live += live;
        if kind == Kind::SeasonalDelete && weekday == 6 && (3..5).contains(&hour) {
            let deleted = purge * self.week_live / (5 - hour) as f64;
            live -= deleted;
            waste += deleted;
            self.week_live = if hour == 4 { 0.0 } else { self.week_live - deleted };
        }
        self.shards.write(live, waste);
        (booked.live, booked.waste) = (live, waste);
        let random = &mut self.random;
        booked.freed = self.shards.compact(|| 0.97 - 0.05 * random.uniform());
        self.free -= booked.live + booked.waste + booked.new_files - booked.freed;
        booked
    }
}

/// A world: its hours, and its state at the start of each hour and at the end.
pub(super) struct World {
    plan: Plan,
    hours: Vec<BookedHour>,
    states: Vec<State>,
}

impl World {
    pub(super) fn new(kind: Kind, seed: u64) -> Self {
        let seed = (seed * 31 + kind as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = Random(seed ^ 0xD1B5_4A32_D192_ED03);
        let waste = std::array::from_fn(|_| random.uniform() * 20.0 * GB);
        let shards = Shards { live: [20.0 * GB; SHARDS], waste };
        let plan = Plan {
            kind,
            first_weekday: (random.uniform() * 7.0) as usize,
            bulk_hour: (240.0 + random.uniform() * 960.0) as usize,
            bulk: (200.0 + random.uniform() * 200.0) * GB,
            purge: 0.6 * random.factor(0.1),
        };
        let used: f64 = shards.live.iter().chain(&shards.waste).sum();
        let free = 6_000.0 * GB - used;
        let mut state = State { random, day: 1.0, batch: 1.0, week_live: 0.0, shards, free };
        let mut world = Self { plan, hours: vec![], states: vec![state.clone()] };
        for at in 0..DAYS * 24 {
            let booked = state.pass(&world.plan, at);
            world.hours.push(booked);
            world.states.push(state.clone());
        }
        world
    }

    /// Free bytes `ahead` hours later, as predicted by an observer who knows everything about this
    /// world except its randomness: the median of other random courses from the same hour.
    pub(super) fn best_guess(&self, hour: usize, ahead: usize) -> f64 {
        let other = |seed: u64| {
            let mut state = self.states[hour].clone();
            state.random = Random(seed);
            for at in hour..hour + ahead {
                state.pass(&self.plan, at);
            }
            state.free
        };
        let mut ends: Vec<f64> = (0..31).map(other).collect();
        ends.sort_by(f64::total_cmp);
        ends[15]
    }

    pub(super) fn moment(hour: usize) -> Moment {
        Moment::from_unix(BEGIN + 3_600 * hour as u64)
    }

    /// Free bytes at the start of an hour.
    pub(super) fn free_at(&self, hour: usize) -> f64 {
        self.states[hour].free
    }

    /// Bytes of waste at the start of an hour.
    pub(super) fn waste_at(&self, hour: usize) -> f64 {
        self.states[hour].shards.waste.iter().sum()
    }

    /// The ledger's entries until an hour.
    pub(super) fn history(&self, hour: usize) -> GrowthHistory {
        let spans = self.hours.iter().take(hour).enumerate().map(|(at, booked)| BookedSpan {
            from: Self::moment(at),
            until: Self::moment(at + 1),
            live_bytes: booked.live as i64,
            waste_bytes: booked.waste as i64,
            event_bytes: booked.new_files as i64,
        });
        GrowthHistory { spans: spans.collect() }
    }

    /// A 30-day simulation of the rules, as what-if makes it: each shard keeps growing at the mean
    /// rate, here that of the last week, and the rules decide.
    pub(super) fn simulated(&self, hour: usize) -> FreedCourse {
        let last = &self.hours[hour.saturating_sub(168)..hour];
        let mean =
            |bytes: fn(&BookedHour) -> f64| last.iter().map(bytes).sum::<f64>() / last.len() as f64;
        let (live_rate, waste_rate) = (mean(|it| it.live), mean(|it| it.waste));
        let mut shards = self.states[hour].shards.clone();
        let mut point = FreedPoint::default();
        let mut course = vec![point];
        for _ in 0..30 * 24 {
            shards.write(live_rate, waste_rate);
            point.after += Duration::from_secs(3_600);
            point.waste += waste_rate;
            point.freed += shards.compact(|| 0.95);
            course.push(point);
        }
        FreedCourse(course)
    }

    /// What Prometheus' `predict_linear` predicts for `ahead` hours later, from the samples of `back` hours.
    pub(super) fn predict_linear(&self, hour: usize, back: usize, ahead: usize) -> f64 {
        let back = back.min(hour);
        let samples =
            || (0..=back).map(|at| (at as f64 - back as f64, self.free_at(hour - back + at)));
        let count = (back + 1) as f64;
        let (x, y) =
            samples().fold((0.0, 0.0), |(x, y), (at, free)| (x + at / count, y + free / count));
        let (product, square) = samples().fold((0.0, 0.0), |(product, square), (at, free)| {
            (product + (at - x) * (free - y), square + (at - x) * (at - x))
        });
        let slope = product / square;
        (y + slope * (ahead as f64 - x)).max(0.0)
    }
}
