//! The horizons with which channels by rent leave as much waste as other rules.
//!
//! A longer horizon wastes more. For a file that produces garbage at a constant rate, the mean waste grows with the
//! square root of the horizon, so a few simulations find the horizon for a given waste, by false position on
//! logarithmic scales. Databases and views are searched together: one simulation gives the waste of both, and they
//! affect each other only through limits and scarce space, which every simulation includes.

use super::{Outlook, Outlooks, Policy, mean};
use crate::model::{channel::Channel, priority::PriorityKind, target::TargetKind};
use std::{sync::Arc, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The shortest horizon that is tried, and the longest that a configuration may have.
const SHORTEST: Duration = Duration::from_secs(600);
const LONGEST: Duration = Duration::from_secs(3_650 * 86_400);

/// Maximum number of simulations of one search.
const SIMULATIONS: usize = 8;

/// A search ends once the waste is within this share of the wanted waste.
const CLOSE: f64 = 0.03;

/// Waste within this share of the wanted one counts as kept.
const NEAR: f64 = 0.1;

/// A share of all waste below which a search is not worthwhile.
const NEGLIGIBLE: f64 = 0.01;

/// If a kind of target keeps this share of the waste that it has without any compaction, it counts as hardly compacted.
const UNTOUCHED: f64 = 0.98;

/// How the waste with a horizon that was found compares with the wanted one.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WasteFit {
    /// Within a tenth of the wanted waste.
    Near,
    /// The nearest waste that was found.
    Rough,
    /// Every horizon leaves more waste, because of limits, windows or sizes.
    More,
    /// The other rules leave nearly all waste within this time, so every longer horizon is equivalent.
    Longer,
    /// There is almost no waste, so the horizon was not searched for.
    Little,
}

/// The horizon for one kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptHorizon {
    /// The kind.
    pub kind: TargetKind,
    /// The horizon.
    pub horizon: Duration,
    /// Mean of the bytes that the other rules waste in targets of this kind.
    pub wanted_bytes: u64,
    /// Mean of the bytes that are wasted with this horizon.
    pub waste_bytes: u64,
    /// How the two compare.
    pub fit: WasteFit,
}

/// Rules by rent that leave as much waste as other rules.
#[derive(Clone, Debug)]
pub struct KeptWaste {
    /// The rules.
    pub policy: Policy,
    /// For each kind of target that a channel by rent takes.
    pub horizons: Vec<KeptHorizon>,
    /// What would happen under them.
    pub outlook: Outlook,
}

impl Outlooks<'_> {
    /// Sets the horizons of a policy's channels by rent so that its mean waste equals that of
    /// `other`.
    pub fn keep_waste(&self, other: &Outlook, policy: &Policy, name: &str) -> KeptWaste {
        let kinds = [TargetKind::Db, TargetKind::View].into_iter();
        let mut searches: Vec<Search> = kinds
            .filter_map(|kind| {
                let channel = policy.channels.by_rent().find(|channel| channel.kind == kind)?;
                Some(Search::new(kind, channel.horizon, other))
            })
            .collect();
        let mut best = self.attempt(&searches, policy, name);
        let mut goes_on = Search::learn_all(&mut searches, &best.outlook);
        for _ in 1..SIMULATIONS {
            if !goes_on {
                break;
            }
            let attempt = self.attempt(&searches, policy, name);
            goes_on = Search::learn_all(&mut searches, &attempt.outlook);
            if attempt.off < best.off {
                best = attempt;
            }
        }
        let horizons = searches.iter().map(|search| self.kept(search, other, &best)).collect();
        KeptWaste { horizons, policy: best.policy, outlook: best.outlook }
    }

    fn attempt(&self, searches: &[Search], policy: &Policy, name: &str) -> Attempt {
        let policy = with_horizons(policy, searches);
        let outlook = self.simulate(name, &policy);
        let off = searches.iter().map(|search| search.off(&outlook).abs()).sum();
        Attempt { policy, outlook, off }
    }

    fn kept(&self, search: &Search, other: &Outlook, best: &Attempt) -> KeptHorizon {
        let kind = search.kind;
        let channel = best.policy.channels.by_rent().find(|channel| channel.kind == kind);
        let wanted_bytes = other.mean_waste_of(kind);
        let off = search.off(&best.outlook);
        let untouched = mean(&self.unchecked.samples, |sample| sample.waste_of(kind));
        let is_untouched = wanted_bytes as f64 >= UNTOUCHED * untouched as f64;
        let fit = if search.is_negligible {
            WasteFit::Little
        } else if off.abs() <= NEAR.ln_1p() {
            if is_untouched { WasteFit::Longer } else { WasteFit::Near }
        } else if off > 0.0 && search.too_short.is_none() {
            WasteFit::More
        } else {
            WasteFit::Rough
        };
        KeptHorizon {
            kind,
            horizon: channel.map_or(search.horizon, |channel| channel.horizon),
            wanted_bytes,
            waste_bytes: best.outlook.mean_waste_of(kind),
            fit,
        }
    }
}

/// The result of trying some horizons.
#[derive(Debug)]
struct Attempt {
    policy: Policy,
    outlook: Outlook,
    /// Deviation of the waste of all kinds of target together, on a logarithmic scale.
    off: f64,
}

/// The policy with the horizons to try.
fn with_horizons(policy: &Policy, searches: &[Search]) -> Policy {
    let set = |channel: &Channel| {
        let by_rent = channel.priority == PriorityKind::Rent;
        let search = searches.iter().find(|search| by_rent && search.kind == channel.kind);
        let horizon = search.map_or(channel.horizon, |search| search.horizon);
        Channel { horizon, ..channel.clone() }
    };
    Policy { channels: Arc::new(policy.channels.map(set)), rules: policy.rules.clone() }
}

/// A horizon that was tried.
#[derive(Clone, Copy, Debug)]
struct Tried {
    horizon: Duration,
    /// Logarithm of the ratio of this waste to the wanted one.
    off: f64,
}

/// The search for the horizon of one kind of target.
#[derive(Debug)]
struct Search {
    kind: TargetKind,
    wanted: f64,
    /// Whether the wanted waste is too small to search for.
    is_negligible: bool,
    /// The horizon to try next, or the one that was found.
    horizon: Duration,
    /// The longest horizon that wasted too little, and the shortest that wasted too much.
    too_short: Option<Tried>,
    too_long: Option<Tried>,
    /// The longest horizon that wasted more than a longer one, because of more compactions than
    /// limits allow.
    too_many: Option<Duration>,
    /// Number of steps while all horizons tried are on one side; each step goes twice as far as the previous one.
    steps: i32,
    is_settled: bool,
}

impl Search {
    fn new(kind: TargetKind, horizon: Duration, other: &Outlook) -> Self {
        let wanted = other.mean_waste_of(kind) as f64;
        let is_negligible = wanted <= NEGLIGIBLE * other.mean_waste() as f64;
        Self {
            kind,
            wanted,
            is_negligible,
            horizon,
            too_short: None,
            too_long: None,
            too_many: None,
            steps: 0,
            is_settled: is_negligible,
        }
    }

    /// Logarithm of the ratio of an outlook's waste to the wanted one; zero if nothing is searched
    /// for.
    fn off(&self, outlook: &Outlook) -> f64 {
        if self.is_negligible {
            return 0.0;
        }
        let waste = outlook.mean_waste_of(self.kind) as f64;
        (waste.max(self.wanted * 1e-3) / self.wanted).ln()
    }

    /// Updates all searches with an outlook; returns whether any has another horizon to try.
    fn learn_all(searches: &mut [Self], outlook: &Outlook) -> bool {
        let mut next = false;
        for search in searches {
            let tried = search.horizon;
            search.learn(outlook);
            next |= search.horizon != tried;
        }
        next
    }

    /// Records the waste that the horizon left, and sets the next horizon to try, or the one that
    /// was found.
    fn learn(&mut self, outlook: &Outlook) {
        if self.is_settled {
            return;
        }
        let tried = Tried { horizon: self.horizon, off: self.off(outlook) };
        if tried.off.abs() <= CLOSE {
            self.is_settled = true;
            return;
        }
        let longer = self.too_long.filter(|longer| longer.horizon > tried.horizon);
        if tried.off < 0.0 {
            self.too_short = Some(tried);
        } else if longer.is_some_and(|longer| longer.off < tried.off) {
            self.too_many = self.too_many.max(Some(tried.horizon));
        } else {
            self.too_long = Some(tried);
        }
        let next = self.next(tried);
        let ends = [self.too_short, self.too_long];
        let horizons = ends.iter().flatten().map(|end| end.horizon).chain(self.too_many);
        let is_known = horizons.into_iter().any(|horizon| horizon == next);
        if !is_known {
            self.horizon = next;
            return;
        }
        self.is_settled = true;
        let nearest = ends.into_iter().flatten().min_by(|one, two| {
            let off = |tried: &Tried| tried.off.abs();
            off(one).total_cmp(&off(two))
        });
        self.horizon = nearest.map_or(next, |nearest| nearest.horizon);
    }

    fn next(&mut self, tried: Tried) -> Duration {
        let log = |span: Duration| span.as_secs_f64().ln();
        let next = if let (Some(short), Some(long)) = (self.too_short, self.too_long) {
            let (from, to) = (log(short.horizon), log(long.horizon));
            let share = short.off / (short.off - long.off);
            (to - from).mul_add(share.clamp(0.1, 0.9), from)
        } else {
            // At first by the square-root law.
            let far = 2.0_f64.powi(self.steps.min(4));
            self.steps += 1;
            let by_law = log(tried.horizon) - 2.0 * far * tried.off;
            match (self.too_many, self.too_long) {
                (Some(many), Some(long)) => f64::midpoint(log(many), log(long.horizon)),
                _ => by_law,
            }
        };
        let seconds = next.clamp(log(SHORTEST), log(LONGEST)).exp();
        rounded(Duration::from_secs_f64(seconds.round())).clamp(SHORTEST, LONGEST)
    }
}

/// Rounds a horizon as people would write it, by at most a sixteenth.
fn rounded(horizon: Duration) -> Duration {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const GRAINS: [u64; 12] = [
        30 * DAY,
        10 * DAY,
        5 * DAY,
        2 * DAY,
        DAY,
        12 * HOUR,
        6 * HOUR,
        3 * HOUR,
        HOUR,
        30 * MINUTE,
        10 * MINUTE,
        5 * MINUTE,
    ];
    let seconds = horizon.as_secs();
    let grain = GRAINS.into_iter().find(|grain| *grain * 8 <= seconds).unwrap_or(MINUTE);
    Duration::from_secs((seconds + grain / 2) / grain * grain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn horizon_is_rounded_to_a_duration_that_is_easy_to_write() {
        use crate::text::duration::format_exact;
        for (seconds, expected) in [
            (127_341, "1d 12h"),
            (600, "10m"),
            (5_000, "1h 20m"),
            (86_400, "1d"),
            (8_000_000, "90d"),
        ] {
            assert_eq!(format_exact(rounded(Duration::from_secs(seconds))), expected);
        }
    }

    proptest! {
        #[test]
        fn rounded_horizon_differs_by_at_most_a_sixteenth(seconds in 600_u64..400_000_000) {
            let off = rounded(Duration::from_secs(seconds)).as_secs().abs_diff(seconds);
            prop_assert!(off * 16 <= seconds, "{off} of {seconds}");
        }
    }
}
