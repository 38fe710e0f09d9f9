//! A start: the request that would be sent, and its expected result.

use super::brief::{Brief, Shape};
use crate::{
    model::{channel::Channel, facts::Confidence, memory::Ordered},
    table::{Ix, NodeIx, TargetRef},
};
use couchdb_client::{Route, Unaddressable};
use std::{fmt, sync::Arc, time::Duration};

/// The request that starts a compaction; its body is `{}`, its content type JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The HTTP method.
    pub method: http::Method,
    /// The path as sent.
    pub path: String,
}

impl Request {
    fn of(route: &Route<'_>) -> Result<Self, Unaddressable> {
        Ok(Self { method: route.method(), path: route.path()? })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.method, self.path)
    }
}

/// A reason why a start's numbers are uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caveat {
    /// Free space is unknown on a volume that the compaction writes to.
    UnknownDisk,
    /// Active bytes are known to be misleading here.
    LowConfidence,
    /// Sizes of one copy are assumed for all copies.
    Estimated,
    /// Every copy on every node is compacted at once.
    EveryCopy,
    /// The compaction rate has not been measured yet.
    UnknownRate,
}

impl Caveat {
    /// Every caveat.
    pub const ALL: [Self; 5] = [
        Self::UnknownDisk,
        Self::LowConfidence,
        Self::Estimated,
        Self::EveryCopy,
        Self::UnknownRate,
    ];

    /// The label in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::UnknownDisk => "unknown_disk",
            Self::LowConfidence => "low_confidence",
            Self::Estimated => "estimated",
            Self::EveryCopy => "every_copy",
            Self::UnknownRate => "unknown_rate",
        }
    }
}

/// One start. Bytes are totals over all files it compacts; unknown values are absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The target.
    pub ix: Ix,
    /// The node of the compacted file; the pseudo node if files on all nodes are compacted.
    pub node: NodeIx,
    /// The shard file's name, if a single file is compacted.
    pub shard: Option<Arc<str>>,
    /// A view's design document, by id.
    pub design: Option<Arc<str>>,
    /// The index of the channel that takes it.
    pub channel: usize,
    /// The operator's order, if that is the reason.
    pub ordered: Option<Ordered>,
    /// The exact request.
    pub request: Request,
    /// Bytes of the files before the compaction.
    pub file: Option<u64>,
    /// Bytes it frees, as predicted.
    pub gain: Option<u64>,
    /// Bytes it writes, as predicted.
    pub rewrite: Option<u64>,
    /// Bytes it needs on each node's volume in addition to the old file, at its peak.
    pub peak: u64,
    /// Expected duration at the measured rate.
    pub duration: Option<Duration>,
    /// Why these numbers are uncertain.
    pub caveats: Vec<Caveat>,
}

/// Inputs of a start's numbers, in addition to the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    /// Number of compacted files.
    pub(super) copies: u64,
    pub(super) peak: u64,
    pub(super) rate: Option<f64>,
    pub(super) knows_space: bool,
    pub(super) ordered: Option<&'a Ordered>,
}

impl Start {
    /// The start of a target on a node; `shard` is the target's file there.
    ///
    /// # Errors
    ///
    /// If no request can carry its name.
    pub(super) fn of(
        target: TargetRef<'_>,
        brief: &Brief,
        (node, name): (NodeIx, &str),
        (at, channel): (usize, &Channel),
        shard: Option<TargetRef<'_>>,
        expected: Expected<'_>,
    ) -> Result<Self, Unaddressable> {
        let db = target.db_name().db;
        let design = target.view().and_then(|view| {
            let taken = view.designs.iter().find(|design| channel.designs.takes(design));
            taken.or_else(|| view.designs.first()).cloned()
        });
        let ddoc = design.as_deref().unwrap_or_default();
        let file = match brief.shape {
            Shape::Shard | Shape::Copy => shard.and_then(TargetRef::shard_name),
            Shape::Whole | Shape::Cleanup | Shape::Nothing => None,
        };
        let shard = file.as_deref().unwrap_or_default();
        let request = Request::of(&match brief.shape {
            Shape::Shard => Route::NodeCompact { node: name, shard },
            Shape::Copy => Route::NodeCompactView { node: name, shard, ddoc },
            Shape::Whole | Shape::Nothing => Route::CompactView { db, ddoc },
            Shape::Cleanup => Route::ViewCleanup { db },
        })?;
        let times = |bytes: Option<u64>| Some(bytes?.saturating_mul(expected.copies));
        let per_file = brief.predicted.get();
        let seconds = per_file.zip(expected.rate).map(|(bytes, rate)| bytes as f64 / rate);
        let facts = target.facts();
        let cleanup = brief.shape == Shape::Cleanup;
        let caveats = [
            (Caveat::UnknownDisk, !cleanup && !expected.knows_space),
            (Caveat::LowConfidence, facts.confidence == Confidence::Low),
            (Caveat::Estimated, facts.flags.estimated),
            (Caveat::EveryCopy, brief.shape == Shape::Whole),
            (Caveat::UnknownRate, !cleanup && expected.rate.is_none()),
        ];
        Ok(Self {
            ix: brief.ix,
            node,
            shard: file.map(Into::into),
            design,
            channel: at,
            ordered: expected.ordered.cloned(),
            request,
            file: times(brief.file.get()),
            gain: times(brief.reclaimable()),
            rewrite: times(per_file),
            peak: expected.peak,
            duration: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            caveats: caveats.iter().filter(|(_, holds)| *holds).map(|(it, _)| *it).collect(),
        })
    }
}
