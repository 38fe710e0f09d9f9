//! Why a waiting target does not start.

use wall_clock::Moment;

/// Why a waiting target does not start: a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// Only advice is given.
    Mode,
    /// An operator suspended all starts.
    Suspended,
    /// The journal cannot be written.
    Journal,
    /// No window is open.
    Window,
    /// It would not end while the window is open.
    WouldNotFitWindow,
    /// The channel runs as many jobs on the node as it may, or its queue has no room.
    ChannelLimit,
    /// The node runs as many jobs as it may.
    NodeLimit,
    /// The cluster runs as many jobs as it may.
    ClusterLimit,
    /// The bytes that may be rewritten an hour are spent.
    Budget,
    /// The volume has not the space its peak needs.
    Headroom,
    /// The volume's free space is unknown and the target too large to start blind.
    UnknownDisk,
    /// The node is under pressure.
    Pressure,
    /// Starts are spread out after a restart.
    Ramp,
    /// The node is in maintenance.
    Maintenance,
    /// The shard is being split or moved.
    Resharding,
    /// Another copy of its range is being compacted.
    OtherCopyRunning,
    /// It is being compacted already.
    Running,
    /// The view is being built.
    Building,
    /// It failed not long ago.
    CoolDown,
    /// It failed repeatedly and waits to be released.
    Quarantined,
    /// Its last compaction freed far less than promised and too little changed since.
    Futile,
    /// Its facts are too old to act upon.
    Stale,
    /// It may be shown but not started.
    Excluded,
    /// Nothing says there are stale index files.
    NoEvidence,
}

impl RefusalReason {
    /// Every reason.
    pub const ALL: [Self; 24] = [
        Self::Mode,
        Self::Suspended,
        Self::Journal,
        Self::Window,
        Self::WouldNotFitWindow,
        Self::ChannelLimit,
        Self::NodeLimit,
        Self::ClusterLimit,
        Self::Budget,
        Self::Headroom,
        Self::UnknownDisk,
        Self::Pressure,
        Self::Ramp,
        Self::Maintenance,
        Self::Resharding,
        Self::OtherCopyRunning,
        Self::Running,
        Self::Building,
        Self::CoolDown,
        Self::Quarantined,
        Self::Futile,
        Self::Stale,
        Self::Excluded,
        Self::NoEvidence,
    ];

    /// The word in JSON and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Suspended => "suspended",
            Self::Journal => "journal",
            Self::Window => "window",
            Self::WouldNotFitWindow => "would_not_fit_window",
            Self::ChannelLimit => "channel_limit",
            Self::NodeLimit => "node_limit",
            Self::ClusterLimit => "cluster_limit",
            Self::Budget => "budget",
            Self::Headroom => "headroom",
            Self::UnknownDisk => "unknown_disk",
            Self::Pressure => "pressure",
            Self::Ramp => "ramp",
            Self::Maintenance => "maintenance",
            Self::Resharding => "resharding",
            Self::OtherCopyRunning => "other_copy_running",
            Self::Running => "running",
            Self::Building => "building",
            Self::CoolDown => "cool_down",
            Self::Quarantined => "quarantined",
            Self::Futile => "futile",
            Self::Stale => "stale",
            Self::Excluded => "excluded",
            Self::NoEvidence => "no_evidence",
        }
    }
}

impl RefusalReason {
    /// The reason with this word.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.label() == label)
    }

    /// What the word means, for whoever reads it for the first time.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Mode => "the channel only advises",
            Self::Suspended => "an operator suspended starts",
            Self::Journal => "recliner's journal cannot be written",
            Self::Window => "no time window of the channel is open",
            Self::WouldNotFitWindow => "it would not end before the time window closes",
            Self::ChannelLimit => {
                "the channel has as many jobs on the node as it may, or its queue is full"
            }
            Self::NodeLimit => "the node has as many jobs as limits.per_node allows",
            Self::ClusterLimit => "the cluster has as many jobs as it may",
            Self::Budget => "limits.bytes_per_hour is used up",
            Self::Headroom => "the volume lacks the space that the compaction may need",
            Self::UnknownDisk => {
                "free space is unknown, and the file is too large to start without"
            }
            Self::Pressure => "the node is busy",
            Self::Ramp => "starts on a node are spread out in time",
            Self::Maintenance => "the node is in maintenance",
            Self::Resharding => "the shard is being split or moved",
            Self::OtherCopyRunning => "another copy of the range is being compacted",
            Self::Running => "it is being compacted",
            Self::Building => "the view is being built",
            Self::CoolDown => "it failed not long ago",
            Self::Quarantined => "it failed repeatedly, and waits for recliner release",
            Self::Futile => "its last compaction freed far less than predicted",
            Self::Stale => "its facts are too old, and are read again first",
            Self::Excluded => "views.enforce leaves it out, or no request can carry its name",
            Self::NoEvidence => "nothing says that the database has stale index files",
        }
    }
}

/// Why a waiting target does not start, with the numbers that decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// What was measured, where the reason compares; seconds for ages.
    pub value: Option<f64>,
    /// What it was compared with.
    pub limit: Option<f64>,
    /// Since when that keeps it, where something says so; else since when it waits.
    pub since: Option<Moment>,
}

impl Refusal {
    /// A refusal that compares nothing.
    #[must_use]
    pub const fn plain(reason: RefusalReason) -> Self {
        Self { reason, value: None, limit: None, since: None }
    }

    /// Whether a limit refuses that is not reached: what is left is kept for another.
    pub(super) fn below_its_limit(&self) -> bool {
        let limits = [
            RefusalReason::ChannelLimit,
            RefusalReason::NodeLimit,
            RefusalReason::ClusterLimit,
            RefusalReason::Budget,
        ];
        limits.contains(&self.reason) && self.value < self.limit
    }

    /// A refusal that compares two numbers.
    pub(super) const fn compared(reason: RefusalReason, value: f64, limit: f64) -> Self {
        Self { value: Some(value), limit: Some(limit), ..Self::plain(reason) }
    }
}
