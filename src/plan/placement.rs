//! Which channel has a target.

use crate::{
    model::{
        channel::{Channel, Channels},
        score::{Miss, MissReason, score},
        target::State,
    },
    table::{NodeIx, TargetRef},
};
use wall_clock::Moment;

/// No channel.
const NONE: u8 = u8::MAX;

/// Where a target stands, in sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// The priority at which its channel takes it.
    pub priority: f64,
    /// Since when it waits there.
    pub since: Moment,
    pub(super) node: NodeIx,
    channel: u8,
    pub(super) running: bool,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            priority: 0.0,
            since: Moment::default(),
            node: NodeIx::CLUSTER,
            channel: NONE,
            running: false,
        }
    }
}

impl Placement {
    /// Where a target stands that waits since `since`.
    pub(super) fn of(channels: &Channels, target: TargetRef<'_>, since: Moment) -> Self {
        match first_channel(channels, target) {
            Some((channel, priority)) => Self {
                priority,
                since,
                node: target.node_ix(),
                channel: u8::try_from(channel).unwrap_or(NONE),
                running: target.facts().flags.compact_running,
            },
            None => Self::default(),
        }
    }

    /// The place of its channel in the order, if one has it.
    #[must_use]
    pub fn channel(self) -> Option<usize> {
        (self.channel != NONE).then_some(usize::from(self.channel))
    }
}

/// The first channel that takes a target, by its place, and the target's priority there
/// (`smoosh_server:find_channel/3`).
#[must_use]
pub fn first_channel(channels: &Channels, target: TargetRef<'_>) -> Option<(usize, f64)> {
    // Nothing can start a view's part alone: the view waits for all of them.
    if target.is_part() || !waits_at_all(target.state()) || ignored(channels, target) {
        return None;
    }
    channels.list.iter().enumerate().find_map(|(at, channel)| {
        let priority = score(channel, target.kind(), &target.facts()).ok()?;
        takes_names(channel, target).then_some((at, priority))
    })
}

/// Why a channel does not take a target; `None` where it does.
#[must_use]
pub fn miss_of(channels: &Channels, channel: &Channel, target: TargetRef<'_>) -> Option<Miss> {
    if channel.kind != target.kind() {
        return Some(Miss::plain(MissReason::NotThisKind));
    }
    if ignored(channels, target) {
        return Some(Miss::plain(MissReason::Ignored));
    }
    if !takes_names(channel, target) {
        return Some(Miss::plain(MissReason::Excluded));
    }
    match score(channel, target.kind(), &target.facts()) {
        Err(miss) => Some(miss),
        Ok(_) => (target.is_part() || !waits_at_all(target.state()))
            .then_some(Miss::plain(MissReason::Excluded)),
    }
}

/// Whether a channel takes a target of its kind, were it not for its size.
pub(super) fn may_take(channels: &Channels, channel: &Channel, target: TargetRef<'_>) -> bool {
    waits_at_all(target.state()) && !ignored(channels, target) && takes_names(channel, target)
}

/// A stray file wants deleting, a missing one has nothing to compact, and what cannot be
/// addressed cannot be started.
const fn waits_at_all(state: State) -> bool {
    match state {
        State::Ok | State::Resharding => true,
        State::Orphan | State::Missing | State::Unaddressable => false,
    }
}

/// The ignore list holds shard file names, as `smoosh.ignore` does, or database names.
fn ignored(channels: &Channels, target: TargetRef<'_>) -> bool {
    !channels.ignore.texts().is_empty()
        && (channels.ignore.matches(target.db_name().db)
            || target.shard_name().is_some_and(|name| channels.ignore.matches(&name)))
}

fn takes_names(channel: &Channel, target: TargetRef<'_>) -> bool {
    (channel.databases.takes_all() || channel.databases.takes(target.db_name().db))
        && (channel.designs.takes_all()
            || target
                .view()
                .is_none_or(|view| view.designs.iter().any(|design| channel.designs.takes(design))))
}
