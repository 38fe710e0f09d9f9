//! Why a queued target does not start.

use wall_clock::Moment;

/// Why a queued target does not start: a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// The mode is advise.
    Mode,
    /// An operator suspended all starts.
    Suspended,
    /// The journal cannot be written.
    Journal,
    /// No window is open.
    Window,
    /// It would not end before the window closes.
    WouldNotFitWindow,
    /// The channel already runs its maximum of jobs on the node, or its queue is full.
    ChannelLimit,
    /// The node already runs its maximum of jobs.
    NodeLimit,
    /// The cluster already runs its maximum of jobs.
    ClusterLimit,
    /// The hourly budget of rewritten bytes is used up.
    Budget,
    /// The volume has less space than the compaction's peak needs.
    Headroom,
    /// The volume's free space is unknown and the target exceeds `headroom.blind_limit`.
    UnknownDisk,
    /// The node is under pressure.
    Pressure,
    /// Starts are spread out in time, on a node and after a restart.
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
    /// It failed recently.
    CoolDown,
    /// It failed repeatedly and waits for its release.
    Quarantined,
    /// Its last compaction freed far less than predicted and too little has changed since.
    Futile,
    /// Its facts are too old to act on.
    Stale,
    /// Settings or its name keep it from being started.
    Excluded,
    /// Nothing indicates that there are stale index files.
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

    /// The label in JSON and metric labels.
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

/// What ends a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalEnd {
    /// The target's turn comes: running jobs end, or starts are far enough apart.
    Turn,
    /// The target is measured again.
    Measurement,
    /// An operator, the time of day, or a change of the node or the target.
    Change,
}

impl RefusalReason {
    /// What ends the refusal.
    #[must_use]
    pub const fn ends_with(self) -> RefusalEnd {
        match self {
            Self::ChannelLimit
            | Self::NodeLimit
            | Self::ClusterLimit
            | Self::Budget
            | Self::Ramp
            | Self::OtherCopyRunning => RefusalEnd::Turn,
            Self::Stale => RefusalEnd::Measurement,
            Self::Mode
            | Self::Suspended
            | Self::Journal
            | Self::Window
            | Self::WouldNotFitWindow
            | Self::Headroom
            | Self::UnknownDisk
            | Self::Pressure
            | Self::Maintenance
            | Self::Resharding
            | Self::Running
            | Self::Building
            | Self::CoolDown
            | Self::Quarantined
            | Self::Futile
            | Self::Excluded
            | Self::NoEvidence => RefusalEnd::Change,
        }
    }

    /// Whether a maximum number of jobs is reached.
    const fn is_job_limit(self) -> bool {
        matches!(self, Self::ChannelLimit | Self::NodeLimit | Self::ClusterLimit)
    }

    /// The reason with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.label() == label)
    }

    /// What the label means, for a reader who sees it for the first time.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Mode => "the channel only advises",
            Self::Suspended => "an operator suspended starts",
            Self::Journal => "recliner's journal cannot be written",
            Self::Window => "no time window of the channel is open",
            Self::WouldNotFitWindow => "it would not end before the time window closes",
            Self::ChannelLimit => {
                "the channel already runs its maximum of jobs on the node, or its queue is full"
            }
            Self::NodeLimit => "the node already runs limits.per_node jobs",
            Self::ClusterLimit => "the cluster already runs limits.cluster jobs",
            Self::Budget => "limits.bytes_per_hour is used up",
            Self::Headroom => "the volume lacks the space that the compaction may need",
            Self::UnknownDisk => {
                "free space is unknown, and the file is larger than headroom.blind_limit"
            }
            Self::Pressure => "the node is busy",
            Self::Ramp => "starts on a node are spread out in time",
            Self::Maintenance => "the node is in maintenance",
            Self::Resharding => "the shard is being split or moved",
            Self::OtherCopyRunning => "another copy of the range is being compacted",
            Self::Running => "it is being compacted",
            Self::Building => "the view is being built",
            Self::CoolDown => "it failed recently",
            Self::Quarantined => "it failed repeatedly and waits for recliner release",
            Self::Futile => "its last compaction freed far less than predicted",
            Self::Stale => "its facts are too old and must be read again first",
            Self::Excluded => "views.enforce excludes it, or no request can carry its name",
            Self::NoEvidence => "nothing indicates stale index files of the database",
        }
    }
}

/// Why a queued target does not start, with the numbers that decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The measured value, if the reason compares one; ages are in seconds.
    pub value: Option<f64>,
    /// The limit it was compared with.
    pub limit: Option<f64>,
    /// When this reason began to apply, if known; otherwise when the target was queued.
    pub since: Option<Moment>,
}

impl Refusal {
    /// A refusal without numbers.
    #[must_use]
    pub const fn without_numbers(reason: RefusalReason) -> Self {
        Self { reason, value: None, limit: None, since: None }
    }

    /// Whether it passes without anyone's action, as other jobs end and facts are read again, so
    /// that an order can wait. A limit of zero jobs never frees a slot.
    pub(super) fn is_transient(&self) -> bool {
        match self.reason.ends_with() {
            RefusalEnd::Turn => self.limit != Some(0.0) || !self.reason.is_job_limit(),
            RefusalEnd::Measurement => true,
            RefusalEnd::Change => false,
        }
    }

    /// Whether a limit refuses although it is not reached, because the rest is reserved for
    /// another target.
    pub(super) fn is_caused_by_reservation(&self) -> bool {
        let is_limit = self.reason.is_job_limit() || self.reason == RefusalReason::Budget;
        is_limit && self.value < self.limit
    }

    /// A refusal with a value and a limit.
    pub(super) const fn with_numbers(reason: RefusalReason, value: f64, limit: f64) -> Self {
        Self { value: Some(value), limit: Some(limit), ..Self::without_numbers(reason) }
    }
}
