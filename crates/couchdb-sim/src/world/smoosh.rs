//! The built-in compactor of a simulated node.
//!
//! A simplified smoosh: it only considers individually described databases, not fleets, that were written to, as
//! nothing else makes the real one look; compacts one file at a time, the most bloated first, and skips channels
//! whose `concurrency` is 0.

use super::{
    Sizes, StartedBy, World,
    files::File,
    jobs::{JobKey, JobKind},
};
use std::time::Duration;

/// How often a node looks for something to compact.
pub(super) const PERIOD: Duration = Duration::from_secs(5);

/// Files up to this size are not compacted.
const MIN_SIZE: u64 = 1 << 20;
/// The file size over the active size, in bytes, above which a file is compacted at a low ratio.
const MIN_SLACK: u64 = 512 << 20;

/// A built-in channel, in the order of evaluation.
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

impl Channel {
    pub(crate) const ALL: [Self; 7] = [
        Self::IndexCleanup,
        Self::RatioDbs,
        Self::RatioViews,
        Self::SlackDbs,
        Self::SlackViews,
        Self::UpgradeDbs,
        Self::UpgradeViews,
    ];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::IndexCleanup => "index_cleanup",
            Self::RatioDbs => "ratio_dbs",
            Self::RatioViews => "ratio_views",
            Self::SlackDbs => "slack_dbs",
            Self::SlackViews => "slack_views",
            Self::UpgradeDbs => "upgrade_dbs",
            Self::UpgradeViews => "upgrade_views",
        }
    }
}

/// The queue and jobs of one of a node's channels.
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
    place: Option<usize>,
}

fn score(sizes: Sizes, ratio: Channel, slack: Channel) -> Option<(Channel, f64)> {
    let Sizes { file, active, .. } = sizes;
    if file <= MIN_SIZE {
        return None;
    }
    let by = if active == 0 { 2.0 } else { file as f64 / active as f64 };
    let over = file.saturating_sub(active);
    match () {
        () if active == 0 || by > 2.0 => Some((ratio, by)),
        () if over > MIN_SLACK => Some((slack, over as f64)),
        () => None,
    }
}

impl World {
    fn candidates(&self, node: u32) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for db in self.catalog.described() {
            for range in 0..self.catalog.ranges(db) {
                if !self.catalog.maps(db, range, node) || self.catalog.is_missing(db, range, node) {
                    continue;
                }
                let file = File::Copy { db, range, node };
                if self.writes(file, self.now) == 0 {
                    continue;
                }
                let scores = self
                    .sizes_of(file)
                    .and_then(|sizes| score(sizes, Channel::RatioDbs, Channel::SlackDbs));
                if let Some((channel, priority)) = scores {
                    candidates.push(Candidate { channel, priority, file, place: None });
                }
                for place in self.indexes(db) {
                    let two = self.design(file, place).is_some_and(|it| it.collators.len() > 1);
                    let sizes = self.index_sizes(file, place);
                    let scores = if two {
                        Some((Channel::UpgradeViews, 1.0))
                    } else {
                        sizes.and_then(|it| score(it, Channel::RatioViews, Channel::SlackViews))
                    };
                    if let Some((channel, priority)) = scores {
                        candidates.push(Candidate { channel, priority, file, place: Some(place) });
                    }
                }
            }
        }
        candidates
    }

    /// The current channels of a node.
    pub(crate) fn smoosh_status(&self, node: &str) -> Vec<(Channel, Waiting)> {
        let mut channels = Channel::ALL.map(|channel| (channel, Waiting::default()));
        let place = self.node_position(node).filter(|place| self.has_smoosh(*place));
        for candidate in place.map_or_else(Vec::new, |place| self.candidates(place)) {
            let Some((_, waiting)) =
                channels.iter_mut().find(|(channel, _)| *channel == candidate.channel)
            else {
                continue;
            };
            // A target that another client compacts is still queued here.
            if self.runs_for_smoosh(candidate) {
                waiting.active += 1;
                continue;
            }
            let first = waiting.size == 0;
            waiting.size += 1;
            waiting.min =
                if first { candidate.priority } else { waiting.min.min(candidate.priority) };
            waiting.max = waiting.max.max(candidate.priority);
        }
        channels.to_vec()
    }

    fn runs(&self, candidate: Candidate) -> bool {
        match candidate.place {
            None => self.compacting(candidate.file),
            Some(place) => self.compacting_index(candidate.file, place),
        }
    }

    fn runs_for_smoosh(&self, candidate: Candidate) -> bool {
        let what = candidate.place.map_or(JobKind::Shard, JobKind::Index);
        self.chronicle.starter(JobKey { file: candidate.file, kind: what })
            == Some(StartedBy::Smoosh)
    }

    fn has_smoosh(&self, node: u32) -> bool {
        self.nodes.get(node as usize).is_some_and(|state| state.node.smoosh)
    }

    /// Starts the best candidate of every idle built-in compactor.
    pub(super) fn smoosh(&mut self) {
        for place in 0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX) {
            if !(self.has_smoosh(place) && self.is_up(place)) {
                continue;
            }
            let candidates = self.candidates(place);
            if candidates.iter().any(|candidate| self.runs(*candidate)) {
                continue;
            }
            let Some(state) = self.nodes.get(place as usize) else { continue };
            let node = &state.node.name;
            let off = |channel: Channel| {
                let section = format!("smoosh.{}", channel.label());
                self.setting(node, &section, "concurrency") == Some("0")
            };
            // Ratio channels first, because their names sort first.
            let best = candidates
                .into_iter()
                .filter(|candidate| !off(candidate.channel))
                .max_by(|a, b| b.channel.cmp(&a.channel).then(a.priority.total_cmp(&b.priority)));
            match best {
                Some(Candidate { file, place: None, .. }) => {
                    self.start_shard(file, StartedBy::Smoosh)
                }
                Some(Candidate { file, place: Some(place), .. }) => {
                    self.start_index(file, place, StartedBy::Smoosh)
                }
                None => false,
            };
        }
    }
}
