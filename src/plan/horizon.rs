//! The price of waste on each node: the factor that channels by rent apply to their horizon.
//!
//! Scarce space makes waste expensive, so the horizon shrinks as a volume fills up. Scarce I/O
//! makes compactions expensive, so the horizon grows while a node is busy and as the hourly byte
//! budget is used up. Pure; the planner computes it for each plan, `explain` and metrics show it.

use super::{
    conditions::Conditions,
    disk::{Disks, Volume},
    rules::Rules,
    slots::is_recent,
};
use crate::{
    model::{channel::Channels, score::RentNow, settings::limits::BUDGET_PERIOD},
    table::{NodeIx, Snapshot, TargetRef},
};
use wall_clock::Moment;

/// Factor on a horizon where a node is as busy as allowed, and where the hourly budget is used up.
const DEAR_WRITING: f64 = 4.0;

/// The share of the hourly budget up to which the factor stays at 1.
const CHEAP_BUDGET_SHARE: f64 = 0.5;

/// The volume that shortens a node's horizons.
#[derive(Clone, Debug, PartialEq)]
pub struct ScarceVolume {
    /// Its name, for people.
    pub name: String,
    /// Its free share, 0 to 1.
    pub free_share: f64,
}

/// The factors on the horizons of one node, and the reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct HorizonFactor {
    /// How much the fullest volume shortens them; at most one.
    pub space: f64,
    /// The fullest volume, if it shortens them.
    pub scarce_volume: Option<ScarceVolume>,
    /// The name of a volume that cannot shorten them, because its size is unknown.
    pub unsized_volume: Option<String>,
    /// How much load lengthens them; at least one.
    pub load: f64,
    /// How much the hourly budget lengthens them; at least one.
    pub budget: f64,
}

impl Default for HorizonFactor {
    fn default() -> Self {
        Self { space: 1.0, scarce_volume: None, unsized_volume: None, load: 1.0, budget: 1.0 }
    }
}

impl HorizonFactor {
    /// The combined factor on a horizon.
    #[must_use]
    pub fn product(&self) -> f64 {
        self.space * self.load * self.budget
    }
}

/// The factors of every node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HorizonFactors {
    /// By node index; the first entry is for the pseudo-node.
    by_node: Vec<HorizonFactor>,
}

impl HorizonFactors {
    /// The factors under these conditions; empty if no channel ranks by rent.
    ///
    /// Views and cleanups of the cluster have files on every node, so the fullest volume and the
    /// busiest node apply to them.
    #[must_use]
    pub(crate) fn of(
        snapshot: &Snapshot,
        channels: &Channels,
        conditions: &Conditions,
        rules: &Rules,
        now: Moment,
    ) -> Self {
        if channels.by_rent().next().is_none() {
            return Self::default();
        }
        let spent = conditions.constraints.recent_starts.iter();
        let spent = spent.filter(|(at, _)| is_recent(*at, now, BUDGET_PERIOD));
        let spent: f64 = spent.map(|(_, bytes)| *bytes as f64).sum();
        let share = spent / (rules.limits.bytes_per_hour.max(1) as f64);
        let budget = towards(DEAR_WRITING, share, CHEAP_BUDGET_SHARE, 1.0);
        let mut by_node: Vec<_> = snapshot
            .nodes()
            .iter()
            .enumerate()
            .map(|(at, node)| {
                let (space, scarce_volume) = fullest(&conditions.disks, &node.name, rules);
                let at = NodeIx::from_usize(at).unwrap_or_default();
                let load = conditions.pressures.nodes.get(&at).map_or(0.0, |node| node.load);
                HorizonFactor {
                    space,
                    scarce_volume,
                    unsized_volume: volume_of_unknown_size(&conditions.disks, &node.name),
                    load: towards(DEAR_WRITING, load, 0.0, 1.0),
                    budget,
                }
            })
            .collect();
        if let Some((cluster, nodes)) = by_node.split_first_mut() {
            for node in nodes {
                cluster.load = cluster.load.max(node.load);
                if cluster.unsized_volume.is_none() {
                    cluster.unsized_volume.clone_from(&node.unsized_volume);
                }
                if node.space < cluster.space {
                    (cluster.space, cluster.scarce_volume) =
                        (node.space, node.scarce_volume.clone());
                }
            }
        }
        Self { by_node }
    }

    /// The factor of a node.
    #[must_use]
    pub fn of_node(&self, node: NodeIx) -> HorizonFactor {
        self.by_node.get(node.as_usize()).cloned().unwrap_or_default()
    }

    /// The combined factor on a horizon on a node.
    #[must_use]
    pub fn product_on(&self, node: NodeIx) -> f64 {
        self.by_node.get(node.as_usize()).map_or(1.0, HorizonFactor::product)
    }

    /// A target's rent at `now`, with the horizon factor of its node.
    #[must_use]
    pub fn rent_now(&self, target: TargetRef<'_>, now: Moment) -> RentNow {
        RentNow {
            rent: target.rent(),
            now,
            horizon_factor: self.product_on(target.node_ix()),
            correction: target.correction(),
        }
    }

    /// The smallest combined factor, at most 1.
    pub(super) fn smallest(&self) -> f64 {
        self.by_node.iter().map(HorizonFactor::product).fold(1.0, f64::min)
    }

    /// Whether any node's combined factor differs by more than this share.
    pub(crate) fn differ_from(&self, other: &Self, tolerance: f64) -> bool {
        let differ = |(one, two): (&HorizonFactor, &HorizonFactor)| {
            let (one, two) = (one.product(), two.product());
            (one - two).abs() > tolerance * one.max(two)
        };
        self.by_node.len() != other.by_node.len()
            || self.by_node.iter().zip(&other.by_node).any(differ)
    }
}

/// The first of a node's volumes whose free space is known but whose size is not.
fn volume_of_unknown_size(disks: &Disks, node: &str) -> Option<String> {
    let is_unsized = |volume: &&Volume| volume.space.is_some_and(|space| space.size.is_none());
    disks.of_node(node).find(is_unsized).map(Volume::title)
}

/// The factor of the fullest of a node's volumes; volumes of unknown size are ignored.
fn fullest(disks: &Disks, node: &str, rules: &Rules) -> (f64, Option<ScarceVolume>) {
    let scarce = disks.of_node(node).filter_map(|volume| {
        let space = volume.space?;
        let size = space.size.filter(|size| *size > 0)?;
        let free_share = space.available as f64 / size as f64;
        let keep_free = rules.headroom.keep_free_percent / 100.0;
        let comfortable = (rules.rent.comfortable_percent / 100.0).max(keep_free);
        let least = rules.rent.scarce_horizon_percent / 100.0;
        let factor = towards(least, free_share, comfortable, keep_free);
        let volume = ScarceVolume { name: volume.title(), free_share };
        (factor < 1.0).then_some((factor, Some(volume)))
    });
    scarce.min_by(|(one, _), (two, _)| one.total_cmp(two)).unwrap_or((1.0, None))
}

/// Exponential interpolation: 1 where `value` is at `from` or before it, `end` at `to` or beyond,
/// and equal ratios for equal steps in between.
fn towards(end: f64, value: f64, from: f64, to: f64) -> f64 {
    let progress = if from == to {
        f64::from(u8::from(value <= to))
    } else {
        ((value - from) / (to - from)).clamp(0.0, 1.0)
    };
    end.powf(progress)
}
