//! Why a queued target does not start.

use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// Why a queued target does not start: a closed set, in the order in which the reasons are checked.
/// A target has the first that applies; headroom is checked a second time before `ramp`, with what
/// starts before it.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// Settings, limits or its name keep it from ever being started.
    Excluded,
    /// Nothing indicates that there are stale index files.
    NoEvidence,
    /// It is being compacted already.
    Running,
    /// The shard is being split or moved.
    Resharding,
    /// The view is being built.
    Building,
    /// It failed repeatedly and waits for its release.
    Quarantined,
    /// It failed recently.
    CoolDown,
    /// Another compaction would free too little of the file.
    Futile,
    /// Its facts are too old to act on.
    Stale,
    /// The mode is advise.
    Mode,
    /// An operator suspended all starts.
    Suspended,
    /// The journal cannot be written.
    Journal,
    /// The node is in maintenance.
    Maintenance,
    /// No window is open.
    Window,
    /// Compactions of this process ran on the node, and it rests from them.
    Duty,
    /// The node is under pressure.
    Pressure,
    /// It would not end before the window closes.
    WouldNotFitWindow,
    /// The volume's free space is unknown and the target exceeds `headroom.blind_limit`.
    UnknownDisk,
    /// The volume has less space than the compaction's peak needs.
    Headroom,
    /// Another copy of its range is being compacted.
    OtherCopyRunning,
    /// The channel already runs its maximum of jobs on the node, or its queue is full.
    ChannelLimit,
    /// The node already runs its maximum of jobs.
    NodeLimit,
    /// The cluster already runs its maximum of jobs.
    ClusterLimit,
    /// The hourly budget of files to compact is used up.
    Budget,
    /// Starts are spread out in time, on a node and after a restart.
    Ramp,
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
            | Self::Duty
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

    /// Whether nothing starts the target as it is: neither time, nor room, nor other jobs that end.
    #[must_use]
    pub const fn is_never(self) -> bool {
        matches!(self, Self::Excluded | Self::NoEvidence | Self::Quarantined | Self::Futile)
    }

    /// Whether an operator's order waits for it too.
    #[must_use]
    pub const fn holds_orders(self) -> bool {
        !matches!(self, Self::Duty)
    }

    /// Whether a maximum number of jobs is reached.
    const fn is_job_limit(self) -> bool {
        matches!(self, Self::ChannelLimit | Self::NodeLimit | Self::ClusterLimit)
    }

    /// What the label means, for a reader who sees it for the first time.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Mode => "the channel only advises",
            Self::Suspended => "an operator suspended starts",
            Self::Journal => "recliner's journal cannot be used",
            Self::Window => "no time window of the channel is open",
            Self::WouldNotFitWindow => "it would not end before the time window closes",
            Self::ChannelLimit => {
                "its channel's maximum of jobs on the node is reached before its turn, or its queue is full"
            }
            Self::NodeLimit => "limits.per_node jobs of the node run or come first",
            Self::ClusterLimit => "limits.cluster jobs run or come first",
            Self::Budget => "limits.bytes_per_hour is used up",
            Self::Headroom => "the volume lacks the space that the compaction may need",
            Self::UnknownDisk => {
                "free space is unknown, and the file is larger than headroom.blind_limit"
            }
            Self::Pressure => "the node is busy",
            Self::Ramp => "starts on a node are spread out in time",
            Self::Duty => "the node rests after recliner's compactions (limits.duty)",
            Self::Maintenance => "the node is in maintenance",
            Self::Resharding => "the shard is being split or moved",
            Self::OtherCopyRunning => "another copy of the range goes first",
            Self::Running => "it is being compacted",
            Self::Building => "the view is being built",
            Self::CoolDown => "it failed or was cleaned up recently",
            Self::Quarantined => "it failed repeatedly and waits for recliner release",
            Self::Futile => "a compaction would free too little of the file",
            Self::Stale => "its facts are too old and must be read again first",
            Self::Excluded => {
                "it can never start: views.enforce or the limits exclude it, or its name"
            }
            Self::NoEvidence => "nothing indicates stale index files of the database",
        }
    }

    /// Why a target with this reason does not start: how "the target does not start because" goes on.
    #[must_use]
    pub const fn because(self) -> &'static str {
        match self {
            Self::Excluded => {
                "it can never start: `views.enforce` excludes it, its copies need more slots at once than `limits.per_node` or `limits.cluster`, or no request can carry its name."
            }
            Self::NoEvidence => "there is no evidence that the database has stale index files.",
            Self::Running => "it is being compacted, whatever started that.",
            Self::Resharding => "its shard is being split or moved.",
            Self::Building => {
                "the view's indexer runs, or it is behind by more than a tenth of its changes and more than 1000; a view that is compacted meanwhile is built twice and stays bloated."
            }
            Self::Quarantined => {
                "it failed `failure.quarantine_after` times in a row and waits to be released."
            }
            Self::CoolDown => {
                "it failed recently, ended without a trace, or was cleaned up and left files."
            }
            Self::Futile => {
                "a compaction would free less than 5% of the file by its sizes, or less than an eighth by what the last compaction left of it. What concurrent writes added then counts as waste once there are four times fewer."
            }
            Self::Stale => {
                "its facts are older than `scan.fresh_for`, or missing; or it was started and has not been measured since, whatever `limits.wait` is."
            }
            Self::Mode => "its channel only advises, although the process enforces.",
            Self::Suspended => "an operator suspended starts: all, on the node, or of the channel.",
            Self::Journal => {
                "the journal cannot be written, belongs to another cluster, or is not loaded yet, because CouchDB has not answered since the start."
            }
            Self::Maintenance => "the node is in maintenance.",
            Self::Window => "no window of its channel is open.",
            Self::Ramp => {
                "the last start on the node was less than `limits.wait` ago; or recliner has only just begun to start jobs, and as many run as are allowed by now: one at first, doubling every 30 seconds, or with each `limits.wait` where that is longer; or the node has not reported its running jobs yet."
            }
            Self::Duty => {
                "recliner's compactions ran on the node, and may run for no more than the share `limits.duty` of its time: after them it rests. While they run, others join only until the first of them has ended. An operator's order does not wait for this."
            }
            Self::Pressure => "the node is under pressure.",
            Self::WouldNotFitWindow => "it would not end while the window is open.",
            Self::UnknownDisk => {
                "the volume's free space is unknown and the file is larger than `headroom.blind_limit`."
            }
            Self::Headroom => {
                "the volume lacks the space for its peak in addition to `headroom.keep_free` and the reservations of running jobs; or space decreases faster than the jobs explain."
            }
            Self::OtherCopyRunning => {
                "another copy of its range is being compacted, or starts before it."
            }
            Self::ChannelLimit => {
                "the jobs of its channel that run, or start before it, already reach `concurrency` on the node; or its queue is full."
            }
            Self::NodeLimit => {
                "the jobs that run on the node, or start before it, already reach `limits.per_node`."
            }
            Self::ClusterLimit => {
                "the jobs that run, or start before it, already reach `limits.cluster`, or another view is compacted on all nodes first."
            }
            Self::Budget => {
                "with it, more than `limits.bytes_per_hour` would start within an hour. A file larger than that can start if nothing else started within the hour."
            }
        }
    }

    /// When the refusal ends: how "it ends when" goes on.
    #[must_use]
    pub const fn ends_when(self) -> &'static str {
        match self {
            Self::Excluded => "`views.enforce` or the limit allows it.",
            Self::NoEvidence => {
                "there is evidence: an index that existed before no longer exists, or a directory was read that has such files."
            }
            Self::Running => "that compaction ends.",
            Self::Resharding => "the split or the move ends.",
            Self::Building => "the index has caught up.",
            Self::Quarantined => "an operator releases it: `recliner release TARGET`.",
            Self::CoolDown => {
                "it has rested: for `failure.cool_down` after the first failure, twice as long after each further one, at most `failure.cool_down_max`."
            }
            Self::Futile => "enough of the file is new waste.",
            Self::Stale => "it is measured again.",
            Self::Mode => "the channel's `mode` is `enforce`.",
            Self::Suspended => "an operator ends the suspension: `recliner resume`.",
            Self::Journal => {
                "it can be used; `journal_problem` in `/api/v1/status` says what to do."
            }
            Self::Maintenance => "the node's maintenance mode ends.",
            Self::Window => "the next window opens.",
            Self::Ramp => "enough time has passed, and the node has reported.",
            Self::Duty => {
                "it has rested: at `50%` for as long as they ran, at `25%` for three times as long, where an hour counts at most."
            }
            Self::Pressure => {
                "every signal under `pressure` is down to its low mark, or `pressure.hold_at_most` is over."
            }
            Self::WouldNotFitWindow => {
                "a window opens that is long enough, or `strict_window` is `false`."
            }
            Self::UnknownDisk => "`headroom.volumes` or `--data-dir` says what is free.",
            Self::Headroom => "there is enough free space.",
            Self::OtherCopyRunning => "that compaction ends.",
            Self::ChannelLimit => "one of those jobs ends, or there is room in the queue.",
            Self::NodeLimit => "one of those jobs ends.",
            Self::ClusterLimit => "one of those jobs ends.",
            Self::Budget => "enough of the starts are more than an hour ago.",
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
