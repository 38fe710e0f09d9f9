//! Why a queued target does not start.

use super::rules::Rules;
use crate::{table::TargetRef, text::Label as _};
use strum::{EnumMessage, EnumProperty, EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// Why a queued target does not start: a closed set, in the order in which the reasons are checked.
/// A target is refused for the first reason that applies; `headroom` is checked a second time before
/// `ramp`, after subtracting this plan's earlier starts. Temporary reasons are checked last, so that
/// they never hide lasting ones.
///
/// Each variant says what its label means, why it holds a target back, and what ends it; `short` is
/// what tables show beside the group of the reason.
#[derive(EnumMessage, EnumProperty, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// Settings, limits or the target's name prevent it from ever being started.
    #[strum(message = "it can never start: views.enforce, the limits or its name exclude it")]
    #[strum(
        detailed_message = "it can never start: `views.enforce` excludes it, its copies need more slots at once than `limits.per_node` or `limits.cluster` allows, or no request can carry its name."
    )]
    #[strum(props(short = "excluded", ends_when = "`views.enforce` or the limit allows it."))]
    Excluded,
    /// Nothing indicates that there are stale index files.
    #[strum(message = "nothing indicates stale index files of the database")]
    #[strum(detailed_message = "nothing shows that the database has stale index files.")]
    #[strum(props(
        short = "no stale files known",
        ends_when = "there are signs of them: an index no longer exists, or a directory that was read has such files."
    ))]
    NoEvidence,
    /// It is being compacted already.
    #[strum(message = "it is being compacted")]
    #[strum(detailed_message = "it is being compacted, whatever started that.")]
    #[strum(props(short = "being compacted", ends_when = "that compaction ends."))]
    Running,
    /// The shard is being split or moved.
    #[strum(message = "the shard is being split or moved")]
    #[strum(detailed_message = "its shard is being split or moved.")]
    #[strum(props(short = "being split", ends_when = "the split or the move ends."))]
    Resharding,
    /// The view is being built.
    #[strum(message = "the view is being built")]
    #[strum(
        detailed_message = "the view's indexer runs, or the view is behind by more than a tenth of its changes and more than 1000; compacting it meanwhile would build it twice and leave it bloated."
    )]
    #[strum(props(short = "being built", ends_when = "the index has caught up."))]
    Building,
    /// It failed repeatedly and is not retried until it is released.
    #[strum(message = "it failed repeatedly and waits for recliner release")]
    #[strum(
        detailed_message = "it failed `failure.quarantine_after` times in a row and waits to be released."
    )]
    #[strum(props(
        short = "quarantined",
        ends_when = "an operator releases it: `recliner release TARGET`."
    ))]
    Quarantined,
    /// It failed recently.
    #[strum(message = "it failed or was cleaned up recently")]
    #[strum(
        detailed_message = "it failed recently, ended without a trace, was cleaned up but left files, or was compacted while much was written."
    )]
    #[strum(props(
        short = "pause",
        ends_when = "its pause is over: `failure.cool_down` after the first failure, twice as long after each further one, at most `failure.cool_down_max`. After writes, once they have ceased for several times as long as the compaction took."
    ))]
    CoolDown,
    /// Another compaction would free too little of the file.
    #[strum(message = "a compaction would free too little of the file")]
    #[strum(
        detailed_message = "a compaction would free less than 5% of the file by its sizes, or less than an eighth compared with what the last compaction left. What was written during that compaction counts as waste once the writes have ceased."
    )]
    #[strum(props(short = "frees too little", ends_when = "the file has enough new waste."))]
    Futile,
    /// Its facts are too old to act on.
    #[strum(message = "its facts are too old and must be read again first")]
    #[strum(
        detailed_message = "its facts are older than `scan.fresh_for`, or missing; or it was started and has not been measured since, regardless of `limits.wait`."
    )]
    #[strum(props(ends_when = "it is measured again."))]
    Stale,
    /// The mode is advise.
    #[strum(message = "the channel only advises")]
    #[strum(detailed_message = "its channel only advises, although the process enforces.")]
    #[strum(props(short = "channel advises", ends_when = "the channel's `mode` is `enforce`."))]
    Mode,
    /// An operator suspended all starts.
    #[strum(message = "an operator suspended starts")]
    #[strum(
        detailed_message = "an operator suspended all starts, or those of the node or channel."
    )]
    #[strum(props(
        short = "suspended",
        ends_when = "an operator ends the suspension: `recliner resume`."
    ))]
    Suspended,
    /// The journal cannot be written.
    #[strum(message = "recliner's journal cannot be used")]
    #[strum(
        detailed_message = "the journal cannot be written, belongs to another cluster, or is not loaded yet, because CouchDB has not answered since the start."
    )]
    #[strum(props(
        short = "journal",
        ends_when = "the journal can be used; `journal_problem` in `/api/v1/status` says what to do."
    ))]
    Journal,
    /// The node does not answer.
    #[strum(message = "the node does not answer")]
    #[strum(detailed_message = "the node does not answer.")]
    #[strum(props(short = "node down", ends_when = "the node answers again."))]
    NodeDown,
    /// The node is in maintenance.
    #[strum(message = "the node is in maintenance")]
    #[strum(detailed_message = "the node is in maintenance.")]
    #[strum(props(short = "maintenance", ends_when = "the node's maintenance mode ends."))]
    Maintenance,
    /// The node is marked as being upgraded.
    #[strum(message = "the node is being upgraded")]
    #[strum(
        detailed_message = "CouchDB's setting `[couchdb] upgrade_in_progress` is set on the node."
    )]
    #[strum(props(short = "upgrade", ends_when = "`upgrade_in_progress` is no longer set."))]
    Upgrade,
    /// No window is open.
    #[strum(message = "no time window of the channel is open")]
    #[strum(detailed_message = "no window of its channel is open.")]
    #[strum(props(short = "window", ends_when = "the next window opens."))]
    Window,
    /// The node is under pressure.
    #[strum(message = "the node is busy")]
    #[strum(detailed_message = "the node is under pressure.")]
    #[strum(props(
        short = "load",
        ends_when = "every signal under `pressure` is down to its low mark, or `pressure.hold_at_most` is over."
    ))]
    Pressure,
    /// It would not end before the window closes.
    #[strum(message = "it would not end before the time window closes")]
    #[strum(detailed_message = "it would not end while the window is open.")]
    #[strum(props(
        short = "longer window",
        ends_when = "a window opens that is long enough, or `strict_window` is `false`."
    ))]
    WouldNotFitWindow,
    /// The volume's free space is unknown and the target exceeds `headroom.blind_limit`.
    #[strum(message = "free space is unknown, and the file is larger than headroom.blind_limit")]
    #[strum(
        detailed_message = "the volume's free space is unknown and the file is larger than `headroom.blind_limit`."
    )]
    #[strum(props(
        short = "known space",
        ends_when = "recliner can read the free space, through `headroom.volumes` or `--data-dir`."
    ))]
    UnknownDisk,
    /// The volume has less space than the compaction's peak needs.
    #[strum(message = "the volume lacks the space that the compaction may need")]
    #[strum(
        detailed_message = "the volume lacks the space for its peak in addition to `headroom.keep_free` and the reservations of running jobs; or free space falls faster than the jobs explain."
    )]
    #[strum(props(short = "space", ends_when = "there is enough free space."))]
    Headroom,
    /// Another copy of its range is being compacted, or starts first.
    #[strum(message = "another copy of the range goes first")]
    #[strum(detailed_message = "another copy of its range is being compacted, or goes first.")]
    #[strum(props(ends_when = "that compaction ends."))]
    OtherCopyRunning,
    /// The channel already runs its maximum of jobs on the node, or its queue is full.
    #[strum(
        message = "its channel's job limit on the node is used up before its turn, or its queue is full"
    )]
    #[strum(
        detailed_message = "its channel's jobs that run or start before it already reach `concurrency` on the node; or its queue is full."
    )]
    #[strum(props(ends_when = "one of those jobs ends, or there is room in the queue."))]
    ChannelLimit,
    /// The node already runs its maximum of jobs.
    #[strum(message = "the jobs that run or come first reach limits.per_node")]
    #[strum(
        detailed_message = "the node's jobs that run or start before it already reach `limits.per_node`."
    )]
    #[strum(props(ends_when = "one of those jobs ends."))]
    NodeLimit,
    /// The cluster already runs its maximum of jobs.
    #[strum(message = "jobs that run or come first reach the cluster's limit")]
    #[strum(
        detailed_message = "the jobs that run or start before it already reach `limits.cluster` or this cluster's share of shared limits, or another view is compacted on all nodes first."
    )]
    #[strum(props(ends_when = "one of those jobs ends."))]
    ClusterLimit,
    /// The hourly budget of files to compact is used up.
    #[strum(message = "the cluster's budget of bytes per hour is used up")]
    #[strum(
        detailed_message = "starting it would exceed `limits.bytes_per_hour` or this cluster's share of shared limits. A file larger than that can start if nothing else started within the hour."
    )]
    #[strum(props(ends_when = "enough of the starts are more than an hour ago."))]
    Budget,
    /// Starts are spread out in time, on a node and after a restart.
    #[strum(message = "starts on a node are spread out in time")]
    #[strum(
        detailed_message = "the last start on the node was less than `limits.wait` ago; or recliner is ramping up and the present maximum is running: one job at first, doubling every 30 seconds, or every `limits.wait` if that is longer; or the node has not reported its running jobs yet."
    )]
    #[strum(props(ends_when = "enough time has passed, and the node has reported."))]
    Ramp,
    /// Compactions of this process ran on the node, and the node rests after them.
    #[strum(message = "the node rests after recliner's compactions (limits.duty)")]
    #[strum(
        detailed_message = "recliner's compactions may run only for the share `limits.duty` of the node's time, so it rests after them. While they run, others join only until the first has ended. An operator's order does not wait for this."
    )]
    #[strum(props(
        ends_when = "it has rested: at `50%` as long as they ran, at `25%` three times as long; more than an hour counts as an hour."
    ))]
    Duty,
}

/// The kind of obstacle: one of six groups. Pages and tables show the group, because among the
/// reasons of a target that waits for its turn the exact one changes whenever a job starts or ends.
#[derive(EnumMessage, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalClass {
    /// Nothing ends it but a change of the target or its settings, or a person.
    #[strum(
        message = "it never starts unless the settings, the limits or its waste change, or a person releases it"
    )]
    Never,
    /// A person, the mode or the state of the node or of recliner holds all starts back.
    #[strum(message = "all starts of the channel, or on the node, are held back")]
    Held,
    /// A time must come, or the node must become calmer.
    #[strum(message = "it starts at a later time: a window opens, a pause ends, or load falls")]
    NotBefore,
    /// There is not enough free space, or the free space is unknown.
    #[strum(message = "the volume lacks free space, or its free space is unknown")]
    Lacks,
    /// CouchDB is at work on the same files.
    #[strum(message = "CouchDB is compacting, building or splitting it right now")]
    Busy,
    /// Its turn comes without any action, as jobs end and facts are read again.
    #[strum(message = "its turn comes as other jobs end")]
    InLine,
}

impl RefusalClass {
    /// The group in a few words.
    pub fn words(self) -> String {
        self.label().replace('_', " ")
    }

    /// The meaning of the group, for a reader who sees it for the first time.
    pub fn meaning(self) -> &'static str {
        self.get_message().unwrap_or_default()
    }
}

impl RefusalReason {
    /// The group of the reason.
    pub const fn class(self) -> RefusalClass {
        match self {
            Self::Excluded | Self::NoEvidence | Self::Quarantined | Self::Futile => {
                RefusalClass::Never
            }
            Self::Mode
            | Self::Suspended
            | Self::Journal
            | Self::NodeDown
            | Self::Maintenance
            | Self::Upgrade => RefusalClass::Held,
            Self::Window | Self::WouldNotFitWindow | Self::CoolDown | Self::Pressure => {
                RefusalClass::NotBefore
            }
            Self::UnknownDisk | Self::Headroom => RefusalClass::Lacks,
            Self::Running | Self::Resharding | Self::Building => RefusalClass::Busy,
            Self::Stale
            | Self::OtherCopyRunning
            | Self::ChannelLimit
            | Self::NodeLimit
            | Self::ClusterLimit
            | Self::Budget
            | Self::Ramp
            | Self::Duty => RefusalClass::InLine,
        }
    }

    /// Whether the target can never start in its present state.
    pub const fn is_never(self) -> bool {
        matches!(self.class(), RefusalClass::Never)
    }

    /// Whether the target only waits for its turn. The limit that applies first changes whenever a
    /// job starts or ends.
    pub const fn is_of_turn(self) -> bool {
        matches!(self.class(), RefusalClass::InLine) && !matches!(self, Self::Stale)
    }

    /// Whether a maximum number of jobs is reached, so that the end of a job ends the refusal.
    const fn is_of_slots(self) -> bool {
        matches!(self, Self::ChannelLimit | Self::NodeLimit | Self::ClusterLimit)
    }

    /// A short label for tables: the group, and what to change if someone can change it.
    pub fn words_of(label: &str) -> String {
        let Some(reason) = Self::from_label(label) else { return label.replace('_', " ") };
        let group = reason.class().words();
        // For a target that waits for its turn, the first reason that applies changes too often to
        // show.
        reason.get_str("short").map_or_else(|| group.clone(), |short| format!("{group}: {short}"))
    }

    /// The meaning of the label, for a reader who sees it for the first time.
    pub fn meaning(self) -> &'static str {
        self.get_message().unwrap_or_default()
    }

    /// The reason as the end of the sentence "the target does not start because …".
    pub fn because(self) -> &'static str {
        self.get_detailed_message().unwrap_or_default()
    }

    /// The end of the refusal as the end of the sentence "it ends when …".
    pub fn ends_when(self) -> &'static str {
        self.get_str("ends_when").unwrap_or_default()
    }
}

/// Why a queued target does not start, with the numbers compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
    /// The measured value, if the reason compares one; ages are in seconds.
    pub value: Option<f64>,
    /// The limit it was compared with.
    pub limit: Option<f64>,
    /// When this reason began to apply; if unknown, when the target was queued.
    pub since: Option<Moment>,
}

impl Refusal {
    /// A refusal without numbers.
    pub const fn without_numbers(reason: RefusalReason) -> Self {
        Self { reason, value: None, limit: None, since: None }
    }

    /// The setting that excludes a target; `None` if its name does, or for another reason.
    #[must_use]
    pub fn excluding_key(&self, rules: &Rules, target: TargetRef<'_>) -> Option<&'static str> {
        match self.limit {
            _ if self.reason != RefusalReason::Excluded => None,
            Some(limit) if limit == rules.limits.per_node as f64 => Some("limits.per_node"),
            Some(_) if rules.shared.is_some() => Some("shared_limits"),
            Some(_) => Some("limits.cluster"),
            None => target.view().map(|_| "views.enforce"),
        }
    }

    /// Whether the refusal passes without any action, as other jobs end and facts are read again,
    /// so that an order can wait for it. A limit of zero jobs never frees a slot.
    pub(super) fn is_transient(&self) -> bool {
        let passes = self.reason.class() == RefusalClass::InLine;
        passes && !(self.reason.is_of_slots() && self.limit == Some(0.0))
    }

    /// Whether a limit refuses although it is not reached, because the remaining slots or bytes are
    /// reserved for another target.
    pub(super) fn is_caused_by_reservation(&self) -> bool {
        let is_limit = self.reason.is_of_slots() || self.reason == RefusalReason::Budget;
        is_limit && self.value < self.limit
    }

    pub(super) const fn with_numbers(reason: RefusalReason, value: f64, limit: f64) -> Self {
        Self { value: Some(value), limit: Some(limit), ..Self::without_numbers(reason) }
    }
    /// The same refusal with the time at which it began to apply.
    pub(super) fn since(self, since: impl Into<Option<Moment>>) -> Self {
        Self { since: since.into(), ..self }
    }
}
