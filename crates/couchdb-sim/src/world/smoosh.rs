//! The built-in compactor of a simulated node.
//!
//! A simplified smoosh: it considers only individually described databases (no fleets) that were written to,
//! because only writes make the real one look; each channel compacts as many files at a time as its `concurrency` says,
//! by default one, the most bloated first.

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

    /// How many compactions a channel runs at a time: one by default.
    fn concurrency(&self, node: &str, channel: Channel) -> usize {
        let section = format!("smoosh.{}", <&str>::from(channel));
        let set = self.setting(node, &section, "concurrency");
        set.and_then(|value| value.parse().ok()).unwrap_or(1)
    }

    /// Whether a node's built-in compactor may start anything.
    pub(super) fn smoosh_is_on(&self, place: usize) -> bool {
        let Node { name, smoosh, .. } = &self.nodes[place].node;
        *smoosh && Channel::VARIANTS.iter().any(|channel| self.concurrency(name, *channel) > 0)
    }

    /// Starts the best candidates of every channel of the built-in compactors that has idle slots.
    pub(super) fn smoosh(&mut self) {
        for place in 0..self.nodes.len() {
            if !(self.smoosh_is_on(place) && self.is_up(place)) {
                continue;
            }
            let candidates = self.candidates(place);
            for channel in Channel::VARIANTS {
                let of_channel = candidates.iter().filter(|it| it.channel == *channel).copied();
                // A compaction that another client started takes a slot too.
                let (running, mut waiting): (Vec<_>, Vec<_>) =
                    of_channel.partition(|it| self.compacting(it.file, it.kind));
                let slots = self.concurrency(&self.nodes[place].node.name, *channel);
                waiting.sort_by(|a, b| b.priority.total_cmp(&a.priority));
                for it in waiting.into_iter().take(slots.saturating_sub(running.len())) {
                    match it.kind {
                        JobKind::View(place) => {
                            self.start_view(it.file, place, StartedBy::Smoosh);
                        }
                        JobKind::Shard | JobKind::Build(_) => {
                            self.start_shard(it.file, StartedBy::Smoosh);
                        }
                    }
                }
            }
        }
    }
}
