//! An operator's orders, their effects, and their answers: one type for pages, the API, the admin
//! socket and commands.

use super::{AdviceMute, RefusalLine, RunLine, vocabulary, vocabulary::Word};
use crate::{model::records::RunScope, text::Label as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use strum::{EnumDiscriminants, EnumString, IntoStaticStr, VariantArray};

/// An order as its sender writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, EnumDiscriminants)]
#[serde(untagged)]
#[strum_discriminants(
    name(OrderName),
    doc = "The orders; their names are those of their routes below `/api/v1/`.",
    derive(EnumString, IntoStaticStr, VariantArray),
    strum(serialize_all = "snake_case")
)]
pub enum OrderRequest {
    /// Start nothing in a scope.
    Suspend(SuspendOrder),
    /// End suspensions.
    Resume(ResumeOrder),
    /// Compact a target before all others.
    Compact(CompactOrder),
    /// Compact everything worth compacting in a database, on a node, or everywhere.
    #[strum_discriminants(strum(serialize = "runs"))]
    Run(RunOrder),
    /// Pause, resume or cancel a run.
    #[strum_discriminants(strum(serialize = "runs/change"))]
    ChangeRun(ChangeRunOrder),
    /// Take targets out of quarantine.
    Release(ReleaseOrder),
    /// Begin a sweep.
    Rescan(RescanOrder),
    /// Clear queues.
    Flush(FlushOrder),
    /// Mute advice for a time.
    #[strum_discriminants(strum(serialize = "advice/mute"))]
    Mute(MuteOrder),
    /// Unmute advice.
    #[strum_discriminants(strum(serialize = "advice/unmute"))]
    Unmute(UnmuteOrder),
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OrderAnswer {
    /// The answer to [`SuspendOrder`].
    Suspended(Suspended),
    /// The answer to [`ResumeOrder`].
    Resumed(Resumed),
    /// The answer to [`CompactOrder`].
    Compacting(Compacting),
    /// The answer to [`RunOrder`] and [`ChangeRunOrder`].
    Run(Box<RunLine>),
    /// The answer to [`ReleaseOrder`].
    Released(Released),
    /// The answer to [`RescanOrder`].
    Rescanning(Rescanning),
    /// The answer to [`FlushOrder`].
    Flushed(Flushed),
    /// The answer to [`MuteOrder`] and [`UnmuteOrder`].
    Muted(Muted),
}

impl OrderName {
    /// Parses the body of this order.
    ///
    /// # Errors
    /// If the body has another form.
    pub fn read_request(self, body: &[u8]) -> serde_json::Result<OrderRequest> {
        Ok(match self {
            Self::Suspend => OrderRequest::Suspend(serde_json::from_slice(body)?),
            Self::Resume => OrderRequest::Resume(serde_json::from_slice(body)?),
            Self::Compact => OrderRequest::Compact(serde_json::from_slice(body)?),
            Self::Run => OrderRequest::Run(serde_json::from_slice(body)?),
            Self::ChangeRun => OrderRequest::ChangeRun(serde_json::from_slice(body)?),
            Self::Release => OrderRequest::Release(serde_json::from_slice(body)?),
            Self::Rescan => OrderRequest::Rescan(serde_json::from_slice(body)?),
            Self::Flush => OrderRequest::Flush(serde_json::from_slice(body)?),
            Self::Mute => OrderRequest::Mute(serde_json::from_slice(body)?),
            Self::Unmute => OrderRequest::Unmute(serde_json::from_slice(body)?),
        })
    }

    /// Parses the answer to this order.
    ///
    /// # Errors
    /// If the answer has another form.
    pub fn read_answer(self, answer: Value) -> serde_json::Result<OrderAnswer> {
        Ok(match self {
            Self::Suspend => OrderAnswer::Suspended(serde_json::from_value(answer)?),
            Self::Resume => OrderAnswer::Resumed(serde_json::from_value(answer)?),
            Self::Compact => OrderAnswer::Compacting(serde_json::from_value(answer)?),
            Self::Run | Self::ChangeRun => OrderAnswer::Run(serde_json::from_value(answer)?),
            Self::Release => OrderAnswer::Released(serde_json::from_value(answer)?),
            Self::Rescan => OrderAnswer::Rescanning(serde_json::from_value(answer)?),
            Self::Flush => OrderAnswer::Flushed(serde_json::from_value(answer)?),
            Self::Mute | Self::Unmute => OrderAnswer::Muted(serde_json::from_value(answer)?),
        })
    }

    /// The question that a person must confirm first, and the verb that confirms it.
    pub const fn question(self) -> (&'static str, &'static str) {
        match self {
            Self::Suspend => ("Suspend starts?", "Suspend"),
            Self::Resume => ("Resume starts?", "Resume"),
            Self::Compact | Self::Run => ("Compact now?", "Compact"),
            Self::ChangeRun => ("Change this run?", "Change"),
            Self::Release => ("Release from quarantine?", "Release"),
            Self::Rescan => ("Rescan now?", "Rescan"),
            Self::Flush => ("Clear queues?", "Clear queues"),
            Self::Mute => ("Mute this advice?", "Mute"),
            Self::Unmute => ("Unmute this advice?", "Unmute"),
        }
    }
}

impl OrderRequest {
    /// The name of the order.
    pub fn name(&self) -> OrderName {
        self.into()
    }

    /// The fields of its body, without those that have their default value.
    pub fn fields(&self) -> Map<String, Value> {
        let body = serde_json::to_value(self).unwrap_or_default();
        let Value::Object(mut fields) = body else { return Map::new() };
        fields.retain(|_, value| !value.is_null() && *value != false);
        fields
    }

    /// The order as a request to the API.
    pub fn http_request(&self) -> String {
        format!("POST /api/v1/{} {}", self.name().label(), Value::Object(self.fields()))
    }

    /// What the order will do, as a sentence.
    pub fn does(&self) -> String {
        match self {
            Self::Suspend(SuspendOrder { scope, .. }) => {
                let of = of_scope(scope.as_deref());
                format!(
                    "No compaction{of} starts until someone resumes. Running compactions continue."
                )
            }
            Self::Resume(ResumeOrder { scope }) => {
                format!("Compactions{} may start again.", of_scope(scope.as_deref()))
            }
            Self::Compact(CompactOrder { target, .. }) => format!(
                "{target} goes to the front of the queue and starts once limits and free space allow."
            ),
            Self::Run(order) => format!(
                "Everything in {} that is worth compacting goes before all other targets, within limits, windows and free space.",
                order.scope().map_or_else(|_| "nothing".to_owned(), |scope| scope.to_string())
            ),
            Self::ChangeRun(ChangeRunOrder { run, to }) => match to {
                RunChange::Paused => format!(
                    "The targets of run {run} no longer go first. Running compactions continue."
                ),
                RunChange::Running => format!("Run {run} continues."),
                RunChange::Cancelled => format!("Run {run} ends. Running compactions continue."),
            },
            Self::Release(ReleaseOrder { target: Some(target), .. }) => {
                format!("{target} may start again.")
            }
            Self::Release(_) => "All quarantined targets may start again.".to_owned(),
            Self::Rescan(_) => "A sweep over all targets begins now.".to_owned(),
            Self::Flush(_) => {
                "The queues are cleared; targets are queued again at the next sweep.".to_owned()
            }
            Self::Mute(MuteOrder { code, subject, .. }) => {
                format!("Mutes advice {} for that time.", advice_about(code, subject.as_deref()))
            }
            Self::Unmute(UnmuteOrder { code, subject }) => {
                format!("Unmutes advice {}.", advice_about(code, subject.as_deref()))
            }
        }
    }

    /// What the order did, in lines.
    pub fn says(&self, answer: &OrderAnswer) -> Vec<String> {
        match (self, answer) {
            (Self::Suspend(order), OrderAnswer::Suspended(done)) => done.says(order),
            (Self::Resume(order), OrderAnswer::Resumed(done)) => done.says(order),
            (Self::Compact(order), OrderAnswer::Compacting(done)) => done.says(order),
            (order, OrderAnswer::Run(run)) => run.says_of_order(order.name() == OrderName::Run),
            (_, OrderAnswer::Released(done)) => done.says(),
            (_, OrderAnswer::Rescanning(Rescanning { begins: true })) => {
                vec!["A sweep starts now.".to_owned()]
            }
            (_, OrderAnswer::Rescanning(_)) => {
                vec!["A sweep is running; another one follows.".to_owned()]
            }
            (_, OrderAnswer::Flushed(Flushed { targets: 1 })) => {
                vec!["Removed 1 target from its queue.".to_owned()]
            }
            (_, OrderAnswer::Flushed(Flushed { targets })) => {
                vec![format!("Removed {targets} targets from their queues.")]
            }
            (Self::Mute(order), OrderAnswer::Muted(Muted { muted: Some(mute) })) => {
                let advice = advice_about(&order.code, order.subject.as_deref());
                vec![format!("Muted {advice} until {}.", mute.until)]
            }
            (Self::Unmute(order), _) => {
                vec![format!("Unmuted {}.", advice_about(&order.code, order.subject.as_deref()))]
            }
            (order, _) => vec![order.does()],
        }
    }
}

/// A piece of advice as part of a sentence.
fn advice_about(code: &str, subject: Option<&str>) -> String {
    let about = subject.map(|subject| format!(" about {subject}"));
    [code, about.as_deref().unwrap_or_default()].concat()
}

/// A scope as the subject of a sentence.
fn scope_subject(scope: Option<&str>) -> String {
    match scope.and_then(|scope| scope.split_once(':')) {
        Some(("node", node)) => format!("Node {node}"),
        Some((_, channel)) => format!("Channel {channel}"),
        None => "Everything".to_owned(),
    }
}

/// Which orders the sender of a request may give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Permissions {
    /// All orders.
    pub orders: Vec<OrderPermission>,
}

impl Permissions {
    /// Why an order would be refused; `None` if it is allowed.
    pub fn refused(&self, order: &str) -> Option<&str> {
        self.orders.iter().find(|line| line.order == order)?.refused.as_deref()
    }
}

/// Whether the sender may give one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderPermission {
    /// The order's path below `/api/v1/`.
    pub order: Word,
    /// Why the order would be refused and what to set; null if it is allowed.
    pub refused: Option<String>,
}

/// Start nothing in a scope until it is resumed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuspendOrder {
    /// What to suspend: `all`, `node:<name>` or `channel:<name>`; default `all`.
    #[schemars(extend("pattern" = SCOPE))]
    pub scope: Option<String>,
    /// The reason, shown wherever the suspension is.
    #[schemars(length(max = 1000))]
    pub why: Option<String>,
}

/// The pattern of a suspension's scope.
const SCOPE: &str = "^(all|(node|channel):[^\\n]+)$";

/// A scope as part of a sentence; empty for everything.
fn of_scope(scope: Option<&str>) -> String {
    match scope.and_then(|scope| scope.split_once(':')) {
        Some(("node", node)) => format!(" on {node}"),
        Some(("channel", channel)) => format!(" of channel {channel}"),
        _ => String::new(),
    }
}

/// End suspensions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeOrder {
    /// What to resume: `node:<name>`, `channel:<name>`, or `all`, the default, for every suspension.
    #[schemars(extend("pattern" = SCOPE))]
    pub scope: Option<String>,
}

/// Compact one target now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompactOrder {
    /// An id, a shard file's name, a database with one file, or `<db>/_design/<name>`.
    pub target: String,
    /// Whether to start the target even if no channel takes it, or while it is paused.
    #[serde(default)]
    pub force: bool,
}

/// Compact everything that is worth it: give one of `db`, `node` and `all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunOrder {
    /// The database to compact.
    pub db: Option<String>,
    /// The node to compact, except views.
    pub node: Option<String>,
    /// Whether everything is compacted.
    pub all: bool,
    /// As `force` for one target; only with `db`.
    pub force: bool,
}

impl RunOrder {
    /// The scope of the run.
    ///
    /// # Errors
    /// If the fields contradict each other.
    pub fn scope(&self) -> Result<RunScope, &'static str> {
        match (&self.db, &self.node, self.all, self.force) {
            (Some(db), None, false, _) => Ok(RunScope::Database(db.clone())),
            (None, Some(node), false, false) => Ok(RunScope::Node(node.clone())),
            (None, None, true, false) => Ok(RunScope::All),
            (None, _, _, true) => Err("force needs db: only a run over one database can be forced"),
            _ => Err("give exactly one of db, node and all"),
        }
    }
}

/// The requested state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunChange {
    /// Its members no longer go first.
    Paused,
    /// The run continues.
    Running,
    /// It ends.
    Cancelled,
}

/// Pause, resume or cancel a run. Running compactions continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRunOrder {
    /// The run's number.
    pub run: u64,
    /// The requested state.
    pub to: RunChange,
}

/// Take targets out of quarantine: those that `target` matches, or `all` of them.
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
    /// Whether to release every target in quarantine.
    #[serde(default)]
    pub all: bool,
}

/// Clear the queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlushOrder {
    /// Only queues of this node.
    pub node: Option<String>,
    /// Only queues of this channel.
    pub channel: Option<String>,
}

/// Mute advice: it stays in the list, marked, but no metric counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MuteOrder {
    /// The kind of advice.
    #[schemars(with = "vocabulary::AdviceCode")]
    pub code: String,
    /// The name of what the advice is about; without it, all advice of this code.
    pub subject: Option<String>,
    /// How long to mute it, such as `30d`, the default; at most two years.
    #[serde(rename = "for")]
    pub span: Option<String>,
    /// The reason, shown wherever the advice is.
    #[schemars(length(max = 1000))]
    pub why: Option<String>,
}

/// End the mute of advice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnmuteOrder {
    /// The kind of advice.
    #[schemars(with = "vocabulary::AdviceCode")]
    pub code: String,
    /// The subject that was muted; without it, the mute of the whole code.
    pub subject: Option<String>,
}

/// The order is recorded in the journal and in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Muted {
    /// The mute in force; null if there is none.
    pub muted: Option<AdviceMute>,
}

/// Begin a sweep now. The body has no fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RescanOrder {}

/// The suspension is recorded in the journal and in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Suspended {
    /// Since when starts are suspended.
    pub since: String,
    /// Who ordered it, and from where; null if unknown.
    pub by: Option<String>,
    /// The reason that was given; null if none was.
    pub why: Option<String>,
    /// Whether the scope was already suspended.
    pub already: bool,
    /// Number of compactions that still run in the scope, whatever started them; null if unknown.
    pub running: Option<u64>,
}

impl Suspended {
    fn says(&self, order: &SuspendOrder) -> Vec<String> {
        const GO_ON: &str = "CouchDB offers no way to stop a running compaction.";
        let (scope, since) = (scope_subject(order.scope.as_deref()), &self.since);
        let by = self.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
        let mut lines = vec![if self.already {
            let why = self.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            format!("{scope} was already suspended, since {since}{by}{why}.")
        } else {
            format!("{scope} is suspended since {since}{by}: recliner starts nothing new.")
        }];
        lines.extend(match self.running {
            Some(0) => None,
            Some(1) => Some(format!("One compaction is still running: {GO_ON}")),
            Some(many) => Some(format!("{many} compactions are still running: {GO_ON}")),
            None => Some(format!("Running jobs continue: {GO_ON}")),
        });
        lines
    }
}

/// Suspensions were ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resumed {
    /// The scopes whose suspensions ended.
    pub lifted: Vec<String>,
    /// The scopes that are still suspended.
    pub remaining: Vec<String>,
}

impl Resumed {
    fn says(&self, order: &ResumeOrder) -> Vec<String> {
        let of_all = order.scope.as_deref().is_none_or(|scope| scope == "all");
        let mut lines = vec![match self.lifted.as_slice() {
            [] if of_all => "Nothing is suspended.".to_owned(),
            [] => format!("{} is not suspended.", scope_subject(order.scope.as_deref())),
            lifted => format!("Resumed: {}.", lifted.join(", ")),
        }];
        if !self.remaining.is_empty() {
            lines.push(format!("Still suspended: {}.", self.remaining.join(", ")));
        }
        lines
    }
}

/// A compaction starts, or waits to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compacting {
    /// The requests that will be sent; only the first if a view is compacted copy by copy.
    pub requests: Vec<String>,
    /// What the order waits for; null if it starts at once.
    pub waits: Option<Waits>,
    /// When the order expires if it has not started.
    pub until: String,
}

impl Compacting {
    fn says(&self, CompactOrder { target, .. }: &CompactOrder) -> Vec<String> {
        let mut lines = vec![match &self.waits {
            None => format!("Ordered: {target} starts now."),
            Some(Waits { why, .. }) => format!(
                "Ordered: {target} waits ahead of all others, until {} at most: {why}.",
                self.until
            ),
        }];
        lines.extend(self.requests.iter().map(|request| format!("  {request}")));
        lines
    }
}

/// What an order waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// Why the target does not start now.
    pub refusal: RefusalLine,
    /// The reason as a sentence.
    pub why: String,
}

/// A sweep was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rescanning {
    /// Whether the sweep begins at once; otherwise it begins after the running one.
    pub begins: bool,
}

/// Queues were cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flushed {
    /// Number of targets that were removed from queues.
    pub targets: u64,
}

/// Targets were released from quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Released {
    /// The ids of the released targets.
    pub targets: Vec<String>,
}

impl Released {
    fn says(&self) -> Vec<String> {
        if self.targets.is_empty() {
            return vec!["Nothing was quarantined.".to_owned()];
        }
        let targets = self.targets.iter().map(|target| format!("  {target}"));
        std::iter::once("Released:".to_owned()).chain(targets).collect()
    }
}
