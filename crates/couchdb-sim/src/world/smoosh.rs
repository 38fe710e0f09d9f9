//! The built-in compactor of a simulated node.
//!
//! A simplified smoosh: it considers only individually described databases (no fleets) that were written to,
//! because only writes make the real one look; each channel compacts one file at a time, as by default, the most bloated
//! first, and a channel whose `concurrency` is 0 none.

use super::{
    Sizes, StartedBy, World,
    keys::File,
    keys::{JobKey, JobKind},
};
use crate::config::Node;
use strum::{IntoStaticStr, VariantArray};

/// Files up to this size are not compacted.
const MIN_SIZE: u64 = 1 << 20;
/// Bytes by which a file must exceed its active size to be compacted at a low ratio.
const MIN_SLACK: u64 = 512 << 20;

/// A built-in channel; variants are in order of evaluation.
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Channel {
    IndexCleanup,
    RatioDbs,
    RatioViews,
    SlackDbs,
    SlackViews,
    UpgradeDbs,
    UpgradeViews,
}

/// The queue and the running jobs of one channel of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) size: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) active: u64,
}

/// A file or index that a channel would compact.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    channel: Channel,
    priority: f64,
    file: File,
    kind: JobKind,
}

fn score(sizes: Sizes, ratio: Channel, slack: Channel) -> Option<(Channel, f64)> {
    let Sizes { file, active, .. } = sizes;
    let by = if active == 0 { 2.0 } else { file as f64 / active as f64 };
    let over = file.saturating_sub(active);
    match () {
        () if file <= MIN_SIZE => None,
        () if active == 0 || by > 2.0 => Some((ratio, by)),
        () if over > MIN_SLACK => Some((slack, over as f64)),
        () => None,
    }
}

impl World {
    fn candidates(&self, node: usize) -> Vec<Candidate> {
        let copies = self.catalog.described().flat_map(|db| self.copies_of(db));
        let written =
            copies.filter(|file| self.node_of(*file) == node && self.writes(*file, self.now) > 0);
        written.flat_map(|file| self.candidates_of(file)).collect()
    }

    /// The candidates among a shard and its views.
    fn candidates_of(&self, file: File) -> Vec<Candidate> {
        let candidate =
            |kind| move |(channel, priority)| Candidate { channel, priority, file, kind };
        let shard = score(self.sizes_of(file), Channel::RatioDbs, Channel::SlackDbs);
        let mut candidates: Vec<_> = shard.map(candidate(JobKind::Shard)).into_iter().collect();
        let File::Copy { db, .. } = file else { return candidates };
        for place in self.views_of(db) {
            let two = self.design(file, place).is_some_and(|it| it.collators.len() > 1);
            let scored = if two {
                Some((Channel::UpgradeViews, 1.0))
            } else {
                let sizes = self.view_sizes(file, place);
                sizes.and_then(|it| score(it, Channel::RatioViews, Channel::SlackViews))
            };
            candidates.extend(scored.map(candidate(JobKind::View(place))));
        }
        candidates
    }

    /// The state of a node's channels.
    pub(crate) fn smoosh_status(&self, node: &str) -> Vec<(Channel, Waiting)> {
        let place = self.node_position(node).filter(|place| self.nodes[*place].node.smoosh);
        let candidates = place.map_or_else(Vec::new, |place| self.candidates(place));
        let waiting = |channel: &Channel| {
            let mut waiting = Waiting::default();
            for Candidate { priority, file, kind, .. } in
                candidates.iter().filter(|candidate| candidate.channel == *channel)
            {
                // A target that another client is compacting stays queued here.
                let key = JobKey { file: *file, kind: *kind };
                if self.chronicle.starter(key) == Some(StartedBy::Smoosh) {
                    waiting.active += 1;
                    continue;
                }
                let first = waiting.size == 0;
                waiting.size += 1;
                waiting.min = if first { *priority } else { waiting.min.min(*priority) };
                waiting.max = waiting.max.max(*priority);
            }
            (*channel, waiting)
        };
        Channel::VARIANTS.iter().map(waiting).collect()
    }

    fn channel_is_on(&self, node: &str, channel: Channel) -> bool {
        let section = format!("smoosh.{}", <&str>::from(channel));
        self.setting(node, &section, "concurrency") != Some("0")
    }

    /// Whether a node's built-in compactor may start anything.
    pub(super) fn smoosh_is_on(&self, place: usize) -> bool {
        let Node { name, smoosh, .. } = &self.nodes[place].node;
        *smoosh && Channel::VARIANTS.iter().any(|channel| self.channel_is_on(name, *channel))
    }

    /// Starts the best candidate of every idle channel of the built-in compactors.
    pub(super) fn smoosh(&mut self) {
        for place in 0..self.nodes.len() {
            if !(self.smoosh_is_on(place) && self.is_up(place)) {
                continue;
            }
            let candidates = self.candidates(place);
            let node = &self.nodes[place].node.name;
            let best_of = |channel: &Channel| {
                let of_channel = || candidates.iter().filter(|it| it.channel == *channel);
                // A compaction that another client started takes a slot too.
                let is_idle = !of_channel().any(|it| self.compacting(it.file, it.kind));
                let best = of_channel().max_by(|a, b| a.priority.total_cmp(&b.priority))?;
                (is_idle && self.channel_is_on(node, *channel)).then_some(*best)
            };
            let best: Vec<Candidate> = Channel::VARIANTS.iter().filter_map(best_of).collect();
            for Candidate { file, kind, .. } in best {
                match kind {
                    JobKind::View(place) => self.start_view(file, place, StartedBy::Smoosh),
                    JobKind::Shard | JobKind::Build(_) => self.start_shard(file, StartedBy::Smoosh),
                };
            }
        }
    }
}
