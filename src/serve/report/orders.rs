//! Orders of an operator, and what they are answered with.

use super::{AdviceMute, RefusalLine, words, words::Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which orders the sender of a request may give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Permissions {
    /// Every order.
    pub orders: Vec<OrderPermission>,
}

impl Permissions {
    /// Why an order would be refused, if it would be.
    #[must_use]
    pub fn refused(&self, order: &str) -> Option<&str> {
        self.orders.iter().find(|line| line.order == order)?.refused.as_deref()
    }
}

/// Whether one order may be given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderPermission {
    /// Its route below `/api/v1/`.
    pub order: Word,
    /// Why it would be refused and what to set; null where it is allowed.
    pub refused: Option<String>,
}

/// Start nothing in a scope until it is resumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuspendOrder {
    /// `all`, `node:<name>` or `channel:<name>`; `all` where it is not given.
    #[schemars(extend("pattern" = SCOPE))]
    pub scope: Option<String>,
    /// The reason, which is shown wherever the suspension is.
    #[schemars(length(max = 1000))]
    pub why: Option<String>,
}

/// The scopes that a suspension can have.
const SCOPE: &str = "^(all|(node|channel):[^\\n]+)$";

impl SuspendOrder {
    /// What it does, as a sentence.
    #[must_use]
    pub fn does(&self) -> String {
        let of = scope_words(self.scope.as_deref());
        format!("No compaction{of} starts until someone resumes. Running compactions go on.")
    }
}

/// A scope as a part of a sentence; empty for everything.
fn scope_words(scope: Option<&str>) -> String {
    match scope.and_then(|scope| scope.split_once(':')) {
        Some(("node", node)) => format!(" on {node}"),
        Some(("channel", channel)) => format!(" of channel {channel}"),
        _ => String::new(),
    }
}

/// Take suspensions back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeOrder {
    /// `all`, `node:<name>` or `channel:<name>`; everything that is suspended where it is not
    /// given.
    #[schemars(extend("pattern" = SCOPE))]
    pub scope: Option<String>,
}

impl ResumeOrder {
    /// What it does, as a sentence.
    #[must_use]
    pub fn does(&self) -> String {
        format!("Compactions{} may start again.", scope_words(self.scope.as_deref()))
    }
}

/// Compact one target now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompactOrder {
    /// An id, a shard file's name, a database with one file, or `<db>/_design/<name>`.
    pub target: String,
    /// Whether the target may start although no channel takes it, or although it rests.
    #[serde(default)]
    pub force: bool,
}

impl CompactOrder {
    /// What it does, as a sentence.
    #[must_use]
    pub fn does(&self) -> String {
        format!(
            "{} goes to the front of the queue and starts once limits and free space allow.",
            self.target
        )
    }
}

/// Take targets out of quarantine: the ones that `target` means, or `all` of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    {
        "required": ["target"],
        "properties": { "target": { "type": "string" }, "all": { "const": false } },
    },
    {
        "required": ["all"],
        "properties": { "target": { "type": "null" }, "all": { "const": true } },
    },
]))]
pub struct ReleaseOrder {
    /// An id, a shard file's name, a database, or `<db>/_design/<name>`.
    pub target: Option<String>,
    /// Whether to release everything.
    #[serde(default)]
    pub all: bool,
}

/// Empty queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlushOrder {
    /// Only queues of this node.
    pub node: Option<String>,
    /// Only queues of this channel.
    pub channel: Option<String>,
}

/// Mute advice: it stays in the list, marked, and counts in no metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MuteOrder {
    /// What kind of advice.
    #[schemars(with = "words::AdviceCode")]
    pub code: String,
    /// What it is about, by name; everything of this code where it is not given.
    pub subject: Option<String>,
    /// For how long, such as `30d`, which is the default; at most two years.
    #[serde(rename = "for")]
    pub span: Option<String>,
    /// The reason, which is shown wherever the advice is.
    #[schemars(length(max = 1000))]
    pub why: Option<String>,
}

/// Count muted advice again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnmuteOrder {
    /// What kind of advice.
    #[schemars(with = "words::AdviceCode")]
    pub code: String,
    /// What it is about, as it was muted.
    pub subject: Option<String>,
}

/// What was ordered is in the journal and in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Muted {
    /// The mute in force; null if there is none any more.
    pub muted: Option<AdviceMute>,
}

/// Begin a sweep now. There is nothing to say about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RescanOrder {}

/// A suspension is in the journal and in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Suspended {
    /// Since when.
    pub since: String,
    /// Who ordered it, and from where.
    pub by: Option<String>,
    /// The reason that was given.
    pub why: Option<String>,
    /// Whether it was suspended already.
    pub already: bool,
    /// Compactions that still run in the scope, whoever started them; null if unknown.
    pub running: Option<u64>,
}

/// Suspensions were taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resumed {
    /// The scopes that were suspended and are not any more.
    pub lifted: Vec<String>,
    /// The scopes that still are.
    pub remaining: Vec<String>,
}

/// A compaction starts, or waits to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compacting {
    /// The requests that will be sent; of a view that is compacted copy by copy, the first.
    pub requests: Vec<String>,
    /// What it waits for; null where it starts at once.
    pub waits: Option<Waits>,
    /// Until when it waits.
    pub until: String,
}

/// What an order waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// What keeps the target from starting now.
    pub refusal: RefusalLine,
    /// The same in a sentence.
    pub why: String,
}

/// A sweep was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rescanning {
    /// Whether it begins at once; else it begins when the one that runs has ended.
    pub begins: bool,
}

/// Queues were emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flushed {
    /// How many targets left them.
    pub targets: u64,
}

/// Targets were released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Released {
    /// Their ids.
    pub targets: Vec<String>,
}
