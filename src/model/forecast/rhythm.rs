//! The rhythm of a series of days: the bytes expected on each of the next seven days, the trend
//! from week to week, and the deviations of past days.

/// Days of a week.
pub(super) const WEEK: usize = 7;

/// Weeks from which the rhythm is learned.
const MAX_WEEKS: usize = 4;

/// Days from which the rhythm is learned.
pub(super) const MAX_DAYS: usize = WEEK * MAX_WEEKS;

/// The weight of a week relative to that of the week after it.
const WEEK_WEIGHT: f64 = 0.7;

/// Factor by which a trend weakens each week, because no growth continues for ever.
const DAMPING: f64 = 0.9;

/// The largest trend, and the largest error of a trend: a doubling within a week.
const MAX_TREND: f64 = std::f64::consts::LN_2;

/// A day that differs from the median by more than this many standard deviations is an event.
const EVENT_DEVIATIONS: f64 = 4.0;

/// The standard deviation of a normal distribution, in median absolute deviations.
const DEVIATION_PER_MAD: f64 = 1.4826;

/// The variance of a week's sum, compared with that of seven independent days.
const WEEK_VARIANCE: f64 = 2.0;

/// The rhythm of one series, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Rhythm {
    /// Expected bytes of each of the next seven days, at the level of the last week.
    week: [f64; WEEK],
    /// By how much the logarithm of a week's sum exceeds that of the week before, and its standard
    /// error.
    trend: (f64, f64),
    /// By how much past days deviated from the expectation, at the level of the last week, latest first.
    pub(super) deviations: Vec<f64>,
}

/// The position in the week of a past day, as the day ahead that repeats it, and the number of weeks back.
const fn place(back: usize) -> (usize, usize) {
    (WEEK - 1 - back % WEEK, back / WEEK)
}

impl Rhythm {
    /// The rhythm of these days and events, the latest first.
    pub(super) fn of(days: &[f64], events: &[f64]) -> Self {
        let middle = median(days);
        let distances: Vec<f64> = days.iter().map(|it| (it - middle).abs()).collect();
        let far = EVENT_DEVIATIONS * DEVIATION_PER_MAD * median(&distances);
        let usual: Vec<f64> =
            days.iter().map(|it| it.clamp((middle - far).min(0.0), middle + far)).collect();
        let unusual = days.iter().zip(&usual).zip(events);
        let events: Vec<f64> = unusual.map(|((all, usual), new)| all - usual + new).collect();
        let weeks = days.len() / WEEK;
        if weeks == 0 {
            let level = mean(usual.iter().copied());
            let deviations = usual.iter().zip(&events).map(|(it, event)| it - level + event);
            return Self {
                week: [level; WEEK],
                trend: (0.0, 0.0),
                deviations: deviations.collect(),
            };
        }
        let usual = &usual[..weeks * WEEK];
        let trend = trend_of(usual);
        let mut week = week_of(usual, trend.0);
        // A single week does not show which of its days are usual.
        let level = mean(week.into_iter());
        let mut deviations: Vec<f64> = Vec::with_capacity(usual.len());
        for (back, (bytes, event)) in usual.iter().zip(&events).enumerate() {
            let (day, weeks_back) = place(back);
            let expected = if weeks == 1 { level } else { week[day] };
            let deviation = (bytes * grown(trend.0, weeks_back) - expected) * unbiased(weeks);
            deviations.push(deviation + event);
        }
        if weeks > 1 {
            for back in 0..WEEK {
                let (last, before) = (events[back], events[back + WEEK]);
                let is_again = last * before > 0.0;
                let again =
                    if is_again { last.signum() * last.abs().min(before.abs()) } else { 0.0 };
                week[place(back).0] += again;
                deviations.iter_mut().skip(back).step_by(WEEK).for_each(|it| *it -= again);
            }
        }
        Self { week, trend, deviations }
    }

    /// The factors of the trend on the level in each week ahead, if the trend is wrong by `wrong_by`
    /// standard errors.
    pub(super) fn factors(&self, wrong_by: f64, days: usize) -> Vec<f64> {
        let (trend, error) = self.trend;
        let (mut grown, mut step) = (0.0, error.mul_add(wrong_by, trend));
        let factor = |_| {
            grown += step;
            step *= DAMPING;
            f64::exp(grown)
        };
        (0..days.div_ceil(WEEK)).map(factor).collect()
    }

    /// Bytes of a day ahead that deviates like the past day `like`, if the level is wrong by `wrong_by`
    /// bytes, with these factors of the trend.
    pub(super) fn on(&self, day: usize, like: usize, wrong_by: f64, factors: &[f64]) -> f64 {
        let deviation = self.deviations.get(like).copied().unwrap_or_default();
        let factor = factors.get(day / WEEK).copied().unwrap_or(1.0);
        (self.week[day % WEEK] + wrong_by + deviation) * factor
    }

    /// By how much the mean deviation of these days differs from the mean of all.
    pub(super) fn mean_deviation(&self, days: &[usize]) -> f64 {
        let some = mean(days.iter().filter_map(|day| self.deviations.get(*day).copied()));
        some - mean(self.deviations.iter().copied())
    }
}

/// The factor by which a level grows within this many weeks.
fn grown(trend: f64, weeks: usize) -> f64 {
    (trend * weeks as f64).exp()
}

/// Corrects deviations: those from the mean of a few weeks are smaller than those from the true mean.
fn unbiased(weeks: usize) -> f64 {
    if weeks > 1 { (weeks as f64 / (weeks - 1) as f64).sqrt() } else { 1.0 }
}

/// The mean of each day of the week, at the level of the last week.
fn week_of(usual: &[f64], trend: f64) -> [f64; WEEK] {
    std::array::from_fn(|day| {
        let (mut sum, mut weights, mut weight) = (0.0, 0.0, 1.0);
        for (weeks_back, bytes) in usual.iter().skip(WEEK - 1 - day).step_by(WEEK).enumerate() {
            sum += weight * bytes * grown(trend, weeks_back);
            weights += weight;
            weight *= WEEK_WEIGHT;
        }
        sum / weights
    })
}

/// The trend, as far as it exceeds its own standard error, and that error; both zero unless there
/// are two weeks or more and each grew.
fn trend_of(usual: &[f64]) -> (f64, f64) {
    let sums: Vec<f64> = usual.chunks(WEEK).map(|week| week.iter().sum()).collect();
    if sums.len() < 2 || sums.iter().any(|sum| *sum <= 0.0) {
        return (0.0, 0.0);
    }
    let middle = (sums.len() - 1) as f64 / 2.0;
    let places = || (0..sums.len()).map(|week| middle - week as f64);
    let spread: f64 = places().map(|place| place * place).sum();
    let slope = places().zip(&sums).map(|(place, sum)| place * sum.ln()).sum::<f64>() / spread;
    let slope = slope.clamp(-MAX_TREND, MAX_TREND);
    let week = week_of(usual, slope);
    let squares = usual.iter().enumerate().map(|(back, bytes)| {
        let (day, weeks_back) = place(back);
        ((bytes * grown(slope, weeks_back) - week[day]) * unbiased(sums.len())).powi(2)
    });
    let sum: f64 = week.iter().sum();
    let variance = WEEK_VARIANCE * WEEK as f64 * mean(squares) / (sum * sum).max(1.0);
    let error = (variance / spread).sqrt().min(MAX_TREND);
    let certain = 1.0 - (error / slope).powi(2);
    if certain > 0.0 { (slope * certain, error) } else { (0.0, error) }
}

pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0_f64), |(sum, count), it| (sum + it, count + 1.0));
    sum / count.max(1.0)
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// The quantile of sorted values; zero if there are none.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let whole = place.floor();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let at = whole as usize;
    let Some(low) = sorted.get(at) else { return 0.0 };
    match sorted.get(at + 1) {
        Some(high) if high.is_finite() => (high - low).mul_add(place - whole, *low),
        Some(high) if place > whole => *high,
        Some(_) | None => *low,
    }
}
