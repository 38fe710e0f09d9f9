//! The channel that each target belongs to.

use crate::{
    model::{
        channel::{Channel, Channels},
        facts::Facts,
        score::{Miss, MissReason, RentNow, score},
        target::TargetState,
    },
    table::{NodeIx, TargetRef},
};
use wall_clock::Moment;

/// The value of `channel` for a target that no channel takes.
const NO_CHANNEL: u8 = u8::MAX;

/// A target's channel and queue position, in sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// The target's priority in its channel.
    pub priority: f64,
    /// When the target was queued there.
    pub queued_since: Moment,
    pub(super) node: NodeIx,
    channel: u8,
    pub(super) compact_running: bool,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            priority: 0.0,
            queued_since: Moment::default(),
            node: NodeIx::CLUSTER,
            channel: NO_CHANNEL,
            compact_running: false,
        }
    }
}

impl Placement {
    /// The placement of a target that was queued at `since`.
    pub(super) fn of(
        channels: &Channels,
        target: TargetRef<'_>,
        rent: RentNow,
        since: Moment,
    ) -> Self {
        Self::with_facts(channels, target, &target.facts(), rent, since)
    }

    /// The placement of a target as if it had other facts.
    pub(super) fn with_facts(
        channels: &Channels,
        target: TargetRef<'_>,
        facts: &Facts,
        rent: RentNow,
        since: Moment,
    ) -> Self {
        match first_channel(channels, target, facts, rent) {
            Some((channel, priority)) => Self {
                priority,
                queued_since: since,
                node: target.node_ix(),
                channel: u8::try_from(channel).unwrap_or(NO_CHANNEL),
                compact_running: facts.flags.compact_running,
            },
            None => Self::default(),
        }
    }

    /// The index of its channel, if a channel takes it.
    #[must_use]
    pub fn channel_index(self) -> Option<usize> {
        (self.channel != NO_CHANNEL).then_some(usize::from(self.channel))
    }
}

/// The index of the first channel that takes a target with these facts, and its priority there
/// (`smoosh_server:find_channel/3`).
#[must_use]
pub fn first_channel(
    channels: &Channels,
    target: TargetRef<'_>,
    facts: &Facts,
    rent: RentNow,
) -> Option<(usize, f64)> {
    // No request starts a single part of a view; the view itself is queued for all its parts.
    if target.is_part() || !is_compactable(target.state()) || is_ignored(channels, target) {
        return None;
    }
    channels.list.iter().enumerate().find_map(|(at, channel)| {
        let priority = score(channel, target.kind(), facts, rent).ok()?;
        accepts_names(channel, target).then_some((at, priority))
    })
}

/// Why a channel does not take a target; `None` if it does.
#[must_use]
pub fn miss_of(
    channels: &Channels,
    channel: &Channel,
    target: TargetRef<'_>,
    rent: RentNow,
) -> Option<Miss> {
    if channel.kind != target.kind() {
        return Some(Miss::without_numbers(MissReason::NotThisKind));
    }
    if is_ignored(channels, target) {
        return Some(Miss::without_numbers(MissReason::Ignored));
    }
    if !accepts_names(channel, target) {
        return Some(Miss::without_numbers(MissReason::Excluded));
    }
    match score(channel, target.kind(), &target.facts(), rent) {
        Err(miss) => Some(miss),
        Ok(_) => (target.is_part() || !is_compactable(target.state()))
            .then_some(Miss::without_numbers(MissReason::Excluded)),
    }
}

/// Whether a channel accepts a target of its kind by names and state, regardless of sizes.
pub(super) fn accepts_names_and_state(
    channels: &Channels,
    channel: &Channel,
    target: TargetRef<'_>,
) -> bool {
    is_compactable(target.state())
        && !is_ignored(channels, target)
        && accepts_names(channel, target)
}

/// A stray file serves no requests, a missing file leaves nothing to compact, and an unaddressable
/// file cannot be started.
const fn is_compactable(state: TargetState) -> bool {
    match state {
        TargetState::Ok | TargetState::Resharding => true,
        TargetState::Orphan
        | TargetState::Missing
        | TargetState::Unaddressable
        | TargetState::Unknown => false,
    }
}

/// Whether the ignore list matches. It holds shard file names, like `smoosh.ignore`, or database
/// names.
fn is_ignored(channels: &Channels, target: TargetRef<'_>) -> bool {
    !channels.ignore.texts().is_empty()
        && (channels.ignore.matches(target.db_name().db)
            || target.shard_name().is_some_and(|name| channels.ignore.matches(&name)))
}

fn accepts_names(channel: &Channel, target: TargetRef<'_>) -> bool {
    (channel.databases.accepts_all() || channel.databases.accepts(target.db_name().db))
        && (channel.designs.accepts_all()
            || target.view().is_none_or(|view| {
                view.designs.iter().any(|design| channel.designs.accepts(design))
            }))
}
