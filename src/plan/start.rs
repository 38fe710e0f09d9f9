//! A start: the request that would be sent, and its expected result.

use super::candidate_summary::{CandidateSummary, CompactionUnit};
use crate::{
    model::{channel::Channel, facts::Confidence, records::CompactionOrder},
    table::{NodeIx, TargetIx, TargetRef},
};
use couchdb_client::{Route, Unaddressable};
use std::{fmt, sync::Arc, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// The request that starts a compaction; its body is `{}`, its content type JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionRequest {
    /// The HTTP method.
    pub method: http::Method,
    /// The path as sent.
    pub path: String,
}

impl CompactionRequest {
    fn of(route: &Route<'_>) -> Result<Self, Unaddressable> {
        Ok(Self { method: route.method(), path: route.path()? })
    }
}

impl fmt::Display for CompactionRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.method, self.path)
    }
}

/// A reason for uncertainty in a start's numbers.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caveat {
    /// Free space is unknown on a volume that the compaction writes to.
    UnknownDisk,
    /// Active bytes are known to be misleading for this target.
    LowConfidence,
    /// Sizes of one copy are assumed for all copies.
    Estimated,
    /// Every copy on every node is compacted at once.
    EveryCopy,
    /// The compaction rate has not been measured yet.
    UnknownRate,
}

/// One start. Bytes are totals over all files it compacts; unknown values are `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStart {
    /// The target.
    pub ix: TargetIx,
    /// The node of the compacted file; the pseudo-node if files on all nodes are compacted.
    pub node: NodeIx,
    /// The shard file's name, if a single file is compacted.
    pub shard: Option<Arc<str>>,
    /// A view's design document, by id.
    pub design: Option<Arc<str>>,
    /// The index of the channel that takes it.
    pub channel: usize,
    /// The operator's order that caused the start, if one did.
    pub order: Option<CompactionOrder>,
    /// The exact request.
    pub request: CompactionRequest,
    /// Bytes of the files before the compaction.
    pub file_bytes: Option<u64>,
    /// Predicted bytes that it frees: what is reclaimable now, less [`Self::caught_up_bytes`].
    pub gain_bytes: Option<u64>,
    /// Predicted waste that others write while it runs, and that it leaves.
    pub caught_up_bytes: u64,
    /// Predicted bytes that it writes.
    pub rewrite_bytes: Option<u64>,
    /// Bytes it needs on each node's volume in addition to the old file, at its peak.
    pub peak_bytes: u64,
    /// Expected duration at the measured rate.
    pub duration: Option<Duration>,
    /// Reasons for uncertainty in these numbers.
    pub caveats: Vec<Caveat>,
}

/// Inputs for a start's numbers, in addition to the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartEstimate<'a> {
    /// Number of compacted files.
    pub(super) file_count: u64,
    /// Part of the candidate's predicted bytes, for one file: waste written while it is compacted.
    pub(super) caught_up_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) bytes_per_second: Option<f64>,
    pub(super) is_space_known: bool,
    pub(super) order: Option<&'a CompactionOrder>,
}

impl PlannedStart {
    /// The start of a target on a node; `shard` is the target's file there.
    ///
    /// # Errors
    ///
    /// If no request can carry the target's name.
    pub(super) fn of(
        target: TargetRef<'_>,
        candidate: &CandidateSummary,
        (node, name): (NodeIx, &str),
        (at, channel): (usize, &Channel),
        shard: Option<TargetRef<'_>>,
        estimate: StartEstimate<'_>,
    ) -> Result<Self, Unaddressable> {
        let db = target.db_name().db;
        let design = target.view().and_then(|view| {
            let accepted = view.designs.iter().find(|design| channel.designs.accepts(design));
            accepted.or_else(|| view.designs.first()).cloned()
        });
        let ddoc = design.as_deref().unwrap_or_default();
        let file = match candidate.unit {
            CompactionUnit::ShardFile | CompactionUnit::SingleCopy => {
                shard.and_then(TargetRef::shard_name)
            }
            CompactionUnit::AllCopies
            | CompactionUnit::Cleanup
            | CompactionUnit::NotCompactable => None,
        };
        let shard = file.as_deref().unwrap_or_default();
        let request = CompactionRequest::of(&match candidate.unit {
            CompactionUnit::ShardFile => Route::NodeCompact { node: name, shard },
            CompactionUnit::SingleCopy => Route::NodeCompactView { node: name, shard, ddoc },
            CompactionUnit::AllCopies | CompactionUnit::NotCompactable => {
                Route::CompactView { db, ddoc }
            }
            CompactionUnit::Cleanup => Route::ViewCleanup { db },
        })?;
        let times = |bytes: Option<u64>| Some(bytes?.saturating_mul(estimate.file_count));
        let per_file = candidate.predicted_bytes.get();
        let caught_up_bytes = estimate.caught_up_bytes.saturating_mul(estimate.file_count);
        // Copies differ, so one file times their number is not the sum that every page shows.
        let (file_bytes, gain_bytes, rewrite_bytes) = match candidate.unit {
            CompactionUnit::AllCopies => (
                target.file_bytes(),
                target.reclaimable_bytes().map(|bytes| bytes.saturating_sub(caught_up_bytes)),
                target.predicted_bytes().map(|bytes| bytes.saturating_add(caught_up_bytes)),
            ),
            CompactionUnit::ShardFile
            | CompactionUnit::SingleCopy
            | CompactionUnit::Cleanup
            | CompactionUnit::NotCompactable => (
                times(candidate.file_bytes.get()),
                times(candidate.reclaimable_bytes()),
                times(per_file),
            ),
        };
        let seconds =
            per_file.zip(estimate.bytes_per_second).map(|(bytes, rate)| bytes as f64 / rate);
        let cleanup = candidate.unit == CompactionUnit::Cleanup;
        let caveats = [
            (Caveat::UnknownDisk, !cleanup && !estimate.is_space_known),
            (Caveat::LowConfidence, target.confidence() == Confidence::Low),
            (Caveat::Estimated, target.is_estimated()),
            (Caveat::EveryCopy, candidate.unit == CompactionUnit::AllCopies),
            (Caveat::UnknownRate, !cleanup && estimate.bytes_per_second.is_none()),
        ];
        Ok(Self {
            ix: candidate.ix,
            node,
            shard: file.map(Into::into),
            design,
            channel: at,
            order: estimate.order.cloned(),
            request,
            file_bytes,
            gain_bytes,
            caught_up_bytes,
            rewrite_bytes,
            peak_bytes: estimate.peak_bytes,
            duration: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            caveats: caveats.iter().filter(|(_, holds)| *holds).map(|(it, _)| *it).collect(),
        })
    }
}
