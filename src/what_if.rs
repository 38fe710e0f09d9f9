//! What-if: predicts a cluster's waste, writes and free space under any rules, days ahead.
//!
//! Owns a simulation in which every target grows as its readings show, and the same pure planner
//! that runs in the service decides what is compacted. Never sends a request and changes nothing.
//! Used by the API and the command `what-if`.
//!
//! Simplifications: sizes grow smoothly; a compaction writes its predicted bytes at the measured
//! rate, or at [`ASSUMED_RATE`]; a view's copies are spread evenly over the nodes; nothing is
//! suspended, split or being built, and nothing fails. CouchDB's smoosh does less than
//! [`Policy::smoosh`] assumes.

mod batch_slots;
mod course;
mod imagined;
mod keep_waste;
pub mod scorecard;
mod simulation;
mod volumes;

pub use crate::plan::planner::Policy;
pub use keep_waste::{KeptHorizon, KeptWaste, WasteFit};
pub use volumes::{SimulatedRules, VolumeForecasts, volume_forecast, volume_forecasts};

use crate::{
    model::{
        channel::{Channel, Channels},
        forecast::{FreedCourse, FreedPoint},
        growth::TimeAhead,
        rounding::to_bytes,
        settings::limits::{Headroom, Limits},
        target::{TargetKind, TargetState},
    },
    plan::{
        Conditions, Plan, RefusalReason, Rules,
        disk::{Volume, VolumeSpace},
    },
    table::{NodeIx, Snapshot, TargetRef},
};
use course::TargetCourse;
use imagined::{NodeBytes, nodes_of, nodes_on};
use simulation::Simulation;
use std::{
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// Bytes of new files that a compaction is assumed to write per second until a rate was measured.
pub const ASSUMED_RATE: f64 = 20e6;

/// Number of samples in an outlook.
pub const SAMPLES: usize = 57;

/// The present state of the cluster.
#[derive(Clone, Debug)]
pub struct Present {
    /// Its targets.
    pub snapshot: Arc<Snapshot>,
    /// Everything else that decisions depend on.
    pub conditions: Conditions,
    /// The present moment.
    pub now: Moment,
}

impl Policy {
    /// The policy of a plan.
    pub fn in_force(plan: &Plan) -> Self {
        Self { channels: Arc::clone(&plan.channels), rules: (*plan.rules).clone() }
    }

    /// CouchDB's own daemon with these channels: each channel's concurrency on a node is the only limit; there are no
    /// pauses and no checks of free space.
    ///
    /// This shows smoosh at its best. The real one does not look at a file that nobody writes to, and after looking at
    /// a file ignores it for `[smoosh] staleness` (five minutes by default); here it sees every file at every time. A
    /// job that a strict window would suspend is assumed to run to its end.
    pub fn smoosh(channels: &Channels) -> Self {
        let limits = Limits {
            per_node: usize::MAX,
            cluster: usize::MAX,
            bytes_per_hour: u64::MAX,
            wait: Duration::ZERO,
            duty_percent: 100.0,
            one_copy_of_a_range: false,
        };
        let headroom =
            Headroom { keep_free_percent: 0.0, blind_limit: u64::MAX, ..Headroom::default() };
        Self {
            channels: Arc::new(
                channels.map(|channel| Channel { strict_window: false, ..channel.clone() }),
            ),
            rules: Rules {
                limits,
                headroom,
                views: crate::model::settings::work::EnforceViews::All,
                ..Rules::default()
            },
        }
    }
}

/// A named policy to simulate.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// Its name.
    pub name: String,
    /// The rules; without them nothing is compacted.
    pub policy: Option<Policy>,
}

/// One sample of an outlook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Bytes that compactions would free.
    pub waste_bytes: u64,
    /// The part of `waste_bytes` that is in views.
    pub view_waste_bytes: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
}

impl Sample {
    /// Subtracts bytes that were not written, in proportion to all that was added since `before`.
    fn leave_out(&mut self, unwritten: f64, before: &Self) {
        let grown = self.file_bytes.saturating_sub(before.file_bytes) as f64;
        let share = (unwritten / grown.max(1.0)).clamp(0.0, 1.0);
        let less = |now: &mut u64, before: u64| {
            *now = now.saturating_sub(to_bytes(now.saturating_sub(before) as f64 * share));
        };
        less(&mut self.waste_bytes, before.waste_bytes);
        less(&mut self.view_waste_bytes, before.view_waste_bytes);
        less(&mut self.file_bytes, before.file_bytes);
    }

    /// The wasted bytes of targets of one kind.
    const fn waste_of(&self, kind: TargetKind) -> u64 {
        match kind {
            TargetKind::Db => self.waste_bytes.saturating_sub(self.view_waste_bytes),
            TargetKind::View => self.view_waste_bytes,
            TargetKind::Cleanup | TargetKind::Search => 0,
        }
    }
}

/// Mean over samples.
fn mean(samples: &[Sample], bytes: impl Fn(&Sample) -> u64) -> u64 {
    let sum: u128 = samples.iter().map(|sample| u128::from(bytes(sample))).sum();
    let count = u128::try_from(samples.len()).unwrap_or(1).max(1);
    u64::try_from(sum / count).unwrap_or(u64::MAX)
}

/// The free space of one volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeOutlook {
    /// Its name.
    pub name: Arc<str>,
    /// The nodes with files on it.
    pub nodes: Vec<Arc<str>>,
    /// Free bytes at each sample, zero when full.
    pub free_bytes: Vec<u64>,
    /// What compactions free on it.
    pub freed: FreedCourse,
}

/// The targets that wait at the end of an outlook for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The planner's reason.
    pub reason: RefusalReason,
    /// The setting that excludes them, if the reason is a setting.
    pub excluding_key: Option<&'static str>,
    /// Number of these targets.
    pub targets: u64,
    /// Bytes that compacting them would free.
    pub bytes: u64,
}

/// What would happen under one proposal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlook {
    /// The proposal's name.
    pub name: String,
    /// Samples at equal intervals, the first one now.
    pub samples: Vec<Sample>,
    /// Free space of each volume, if known.
    pub volumes: Vec<VolumeOutlook>,
    /// Bytes written by compactions.
    pub rewritten_bytes: u64,
    /// Bytes freed.
    pub freed_bytes: u64,
    /// Compactions started.
    pub compactions: u64,
    /// The longest time from being queued to the start, or to the end of the outlook.
    pub longest_wait: Option<Duration>,
    /// The targets that wait at the end, by reason, most bytes first.
    pub undone: Vec<Undone>,
    /// Whether there were too many compactions to decide about them one by one.
    pub is_coarse: bool,
}

impl Outlook {
    /// Mean of the wasted bytes.
    pub fn mean_waste(&self) -> u64 {
        mean(&self.samples, |sample| sample.waste_bytes)
    }

    /// Mean of the wasted bytes of databases or of views.
    pub fn mean_waste_of(&self, kind: TargetKind) -> u64 {
        mean(&self.samples, |sample| sample.waste_of(kind))
    }

    /// Number of targets that wait at the end.
    pub fn undone_targets(&self) -> u64 {
        self.undone.iter().map(|undone| undone.targets).sum()
    }

    /// Bytes that compacting the targets that wait at the end would free.
    pub fn undone_bytes(&self) -> u64 {
        self.undone.iter().map(|undone| undone.bytes).fold(0, u64::saturating_add)
    }

    /// The largest waste of any sample, in bytes.
    pub fn peak_waste(&self) -> u64 {
        self.samples.iter().map(|sample| sample.waste_bytes).max().unwrap_or_default()
    }
}

/// How well the growth that outlooks assume to continue is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Bytes of files whose growth is known.
    pub watched_bytes: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// How long files were watched, as a mean over their bytes.
    pub watched: Duration,
}

/// The answer: one outlook for each proposal, and how far to trust them.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// When the outlooks begin.
    pub from: Moment,
    /// How much time they cover.
    pub span: Duration,
    /// How much is known of the growth that the outlooks assume.
    pub evidence: Evidence,
    /// The outlooks, in the order of the proposals.
    pub outlooks: Vec<Outlook>,
}

/// The growth of the cluster is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is not enough history yet: growth rates need at least ten minutes of observation; try again later"
)]
pub struct NoRates;

/// Outlooks from one state of the cluster: the parts that those under different rules share.
#[derive(Debug)]
pub struct Outlooks<'a> {
    present: &'a Present,
    span: Duration,
    stop: &'a CancellationToken,
    samples_left: Option<&'a AtomicI64>,
    evidence: Evidence,
    unchecked: Unchecked,
}

impl<'a> Outlooks<'a> {
    /// Prepares outlooks of this time. Once `stop` is cancelled, outlooks are cut short and
    /// meaningless.
    ///
    /// # Errors
    /// While no growth is known.
    pub fn new(
        present: &'a Present,
        span: Duration,
        stop: &'a CancellationToken,
    ) -> Result<Self, NoRates> {
        let evidence = evidence(present);
        if evidence.watched_bytes == 0 {
            return Err(NoRates);
        }
        let unchecked = Unchecked::of(present, span, stop);
        Ok(Self { present, span, stop, samples_left: None, evidence, unchecked })
    }

    /// Counts down this number, by one for each sample; every simulation takes [`SAMPLES`].
    #[must_use]
    pub fn counting_down(self, samples_left: &'a AtomicI64) -> Self {
        Self { samples_left: Some(samples_left), ..self }
    }

    /// Simulates one proposal.
    pub fn outlook(&self, proposal: &Proposal) -> Outlook {
        match &proposal.policy {
            None => self.unchecked.outlook(self.present, &proposal.name, self.span),
            Some(policy) => self.simulate(&proposal.name, policy),
        }
    }

    fn simulate(&self, name: &str, policy: &Policy) -> Outlook {
        Simulation::new(self, policy).run(name)
    }

    /// The answer with these outlooks.
    pub const fn answer(&self, outlooks: Vec<Outlook>) -> Answer {
        let Self { present, span, evidence, .. } = self;
        Answer { from: present.now, span: *span, evidence: *evidence, outlooks }
    }
}

/// The files that outlooks include: orphans do not grow and are never compacted.
fn files(snapshot: &Snapshot) -> impl Iterator<Item = TargetRef<'_>> {
    snapshot.files_once().filter(|target| target.state() != TargetState::Orphan)
}

fn evidence(present: &Present) -> Evidence {
    let (mut watched_bytes, mut file_bytes, mut byte_seconds) = (0_u64, 0_u64, 0_u128);
    for target in files(&present.snapshot) {
        let bytes = target.file_bytes().unwrap_or_default();
        file_bytes = file_bytes.saturating_add(bytes);
        let growth = target.growth();
        if growth.expected(present.now).is_some() {
            watched_bytes = watched_bytes.saturating_add(bytes);
            let watched = growth.watched(present.now).unwrap_or_default();
            byte_seconds += u128::from(bytes) * u128::from(watched.as_secs());
        }
    }
    let mean = byte_seconds.checked_div(u128::from(watched_bytes)).unwrap_or_default();
    let watched = Duration::from_secs(u64::try_from(mean).unwrap_or_default());
    Evidence { watched_bytes, file_bytes, watched }
}

/// The course of the cluster without compaction, with which every proposal is compared.
#[derive(Debug)]
struct Unchecked {
    samples: Vec<Sample>,
    /// Bytes of files by sample, then by node; those of views are spread evenly over the nodes.
    by_node: Vec<NodeBytes>,
    /// The part of these bytes that compactions would free.
    waste_by_node: Vec<NodeBytes>,
}

impl Unchecked {
    fn of(present: &Present, span: Duration, stop: &CancellationToken) -> Self {
        let mut samples = vec![Sample::default(); SAMPLES];
        let mut by_node = vec![NodeBytes::none(&present.snapshot); SAMPLES];
        let mut waste_by_node = by_node.clone();
        let times: Vec<TimeAhead> =
            (0..SAMPLES).map(|at| TimeAhead::after(sample_time(span, at))).collect();
        for target in files(&present.snapshot).take_while(|_| !stop.is_cancelled()) {
            let count = u64::from(target.file_count());
            let places = nodes_of(&present.snapshot, target.node_ix());
            let course = TargetCourse::of(present, target);
            let always = course.is_idle().then(|| course.sizes_after(TimeAhead::default()));
            let rows = by_node.iter_mut().zip(&mut waste_by_node);
            for ((sample, (row, waste_row)), after) in samples.iter_mut().zip(rows).zip(&times) {
                let (file, waste) = always.unwrap_or_else(|| course.sizes_after(*after));
                sample.file_bytes = sample.file_bytes.saturating_add(file * count);
                sample.waste_bytes = sample.waste_bytes.saturating_add(waste * count);
                if target.kind() == TargetKind::View {
                    sample.view_waste_bytes = sample.view_waste_bytes.saturating_add(waste * count);
                }
                row.spread((file * count) as f64, &places);
                waste_row.spread((waste * count) as f64, &places);
            }
        }
        Self { samples, by_node, waste_by_node }
    }

    /// Bytes by which a node's files have grown after the time `after`.
    fn grown_on(&self, node: NodeIx, span: Duration, after: Duration) -> f64 {
        let place = after.as_secs_f64() / span.as_secs_f64().max(1.0) * (SAMPLES - 1) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let at = (place as usize).min(SAMPLES - 2);
        let (one, two) = (self.grown_by_sample(node, at), self.grown_by_sample(node, at + 1));
        (two - one).mul_add(place - at as f64, one)
    }

    /// Bytes by which a node's files have grown at a sample.
    fn grown_by_sample(&self, node: NodeIx, at: usize) -> f64 {
        let bytes = |at: usize| self.by_node.get(at).map_or(0.0, |row| row.on(node));
        bytes(at) - bytes(0)
    }

    /// Bytes of waste that were written to a node's files until a sample.
    fn wasted_by_sample(&self, node: NodeIx, at: usize) -> f64 {
        let bytes = |at: usize| self.waste_by_node.get(at).map_or(0.0, |row| row.on(node));
        bytes(at) - bytes(0)
    }

    fn outlook(&self, present: &Present, name: &str, span: Duration) -> Outlook {
        let mut samples = self.samples.clone();
        let volumes = self.volume_outlooks(present, span, &mut samples, |_, _| 0.0);
        Outlook { name: name.to_owned(), samples, volumes, ..Outlook::default() }
    }
}

impl Unchecked {
    /// The free space of each volume, given the bytes freed by compactions on a node until each
    /// sample. Bytes that do not fit are not written, so they are subtracted from the samples.
    fn volume_outlooks(
        &self,
        present: &Present,
        span: Duration,
        samples: &mut [Sample],
        freed: impl Fn(NodeIx, usize) -> f64,
    ) -> Vec<VolumeOutlook> {
        let measured = present.conditions.disks.volumes.iter();
        let measured = measured.filter_map(|volume| Some((volume, volume.space?)));
        let mut unwritten = [0.0; SAMPLES];
        let outlook = |(volume, space): (&Volume, VolumeSpace)| {
            let nodes: Vec<NodeIx> = nodes_on(&present.snapshot, volume).collect();
            let sum = |bytes: &dyn Fn(NodeIx) -> f64| nodes.iter().map(|node| bytes(*node)).sum();
            let point = |at: usize| FreedPoint {
                after: sample_time(span, at),
                waste: sum(&|node| self.wasted_by_sample(node, at)),
                freed: sum(&|node| freed(node, at)),
            };
            let freed: Vec<FreedPoint> = (0..SAMPLES).map(point).collect();
            let free = freed.iter().enumerate().map(|(at, point)| {
                let grown: f64 = sum(&|node| self.grown_by_sample(node, at));
                space.available as f64 - grown + point.freed
            });
            let free: Vec<f64> = free.collect();
            for (sum, free) in unwritten.iter_mut().zip(&free) {
                *sum -= free.min(0.0);
            }
            VolumeOutlook {
                name: Arc::clone(&volume.name),
                nodes: volume.nodes.clone(),
                free_bytes: free.iter().copied().map(to_bytes).collect(),
                freed: FreedCourse(freed),
            }
        };
        let volumes = measured.map(outlook).collect();
        let before = samples.first().copied().unwrap_or_default();
        for (sample, unwritten) in samples.iter_mut().zip(unwritten) {
            sample.leave_out(unwritten, &before);
        }
        volumes
    }
}

fn sample_time(span: Duration, at: usize) -> Duration {
    span.mul_f64(at as f64 / (SAMPLES - 1) as f64)
}

#[cfg(test)]
mod tests;
