//! The plan as JSON: the starts with their exact requests, and why other targets wait.

use super::{
    Builds, OrderLine, RefusalLine, SuspensionLine,
    columns::{Cell, Table, rest, wide},
    place, unanswered_nodes, vocabulary,
    vocabulary::Word,
    why,
    why::why_gate,
};
use crate::{
    model::target::CLUSTER_NODE,
    plan::{Decision, Plan, PlannedStart, Refusal, RefusalClass, RefusalReason},
    table::{NodeIx, TargetIx, TargetRef},
    text::{Label, size::format_size},
};
use couchdb_client::Address;
use hashbrown::HashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// A filter and page for a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Only queues of this node.
    pub node: Option<&'a str>,
    /// Only queues of this channel.
    pub channel: Option<&'a str>,
    /// The number of refused targets to skip.
    pub offset: usize,
    /// The maximum number of refused targets.
    pub limit: usize,
}

/// What starts now, and what does not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Planned {
    /// When the facts that the plan is based on were read.
    pub generated_at: String,
    /// When the plan was made.
    pub made_at: String,
    /// Whether the starts are sent (`enforce`) or only shown (`advise`).
    #[schemars(with = "vocabulary::Mode")]
    pub mode: Word,
    /// The URL of a CouchDB node; null if none is known.
    pub address: Option<String>,
    /// The starts, in order.
    pub starts: Vec<StartLine>,
    /// Orders to compact that have not started yet, of all nodes and channels.
    pub orders: Vec<OrderLine>,
    /// Number of starts and refusals in each queue.
    pub candidates: Vec<CandidatesLine>,
    /// Closed gates.
    pub gates: Vec<GateLine>,
    /// Suspensions, of all nodes and channels.
    pub suspensions: Vec<SuspensionLine>,
    /// Indexes that lag, and what is done about them; absent if a command read the cluster itself, without a
    /// memory of builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builds: Option<Builds>,
    /// Whether the cluster is simulated; absent if a command read the cluster itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<bool>,
    /// The cluster's only node; null if it has several.
    pub only_node: Option<String>,
    /// The nodes that do not answer: sizes there are as they were last read, or unknown.
    #[serde(default)]
    pub unanswered: Vec<String>,
    /// Number of waiting targets that do not start.
    pub total: usize,
    /// Number of these targets before this page.
    pub offset: usize,
    /// Maximum number of these targets on a page.
    pub limit: usize,
    /// The waiting targets that do not start, in the order of the queues.
    pub refused: Vec<RefusedLine>,
}

/// One start. Bytes are those of all files that it compacts; unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartLine {
    /// The target's id.
    pub id: String,
    /// `db`, `view` or `cleanup`.
    #[schemars(with = "vocabulary::Kind")]
    pub kind: Word,
    /// The node whose file is compacted, or `_cluster` if the request concerns all nodes.
    pub node: String,
    /// The database.
    pub db: String,
    /// The hash range of the shard.
    pub range: Option<String>,
    /// The shard file's name; null unless exactly one file is compacted.
    pub name: Option<String>,
    /// Number of files that the target has; a request may be for one copy of a view.
    #[serde(default)]
    pub copies: u32,
    /// The design document that the request names; null for other requests.
    pub ddoc: Option<String>,
    /// The channel that takes it.
    pub channel: String,
    /// The operator who ordered it; null if none did.
    pub ordered_by: Option<String>,
    /// The target's priority in that channel, per file.
    pub priority: Option<f64>,
    /// Since when the target has waited.
    pub since: Option<String>,
    /// The request exactly as it is sent, with the body `{}`.
    pub request: String,
    /// The URL of the request; null if no address of CouchDB is known.
    pub url: Option<String>,
    /// Bytes on disk before the compaction.
    pub file_bytes: Option<u64>,
    /// Bytes that the compaction is predicted to free.
    pub gain_bytes: Option<u64>,
    /// Bytes of waste that others are predicted to write while it runs, and that it leaves; `gain_bytes` is
    /// what is reclaimable now, less these.
    #[serde(default)]
    pub caught_up_bytes: u64,
    /// Bytes that the compaction is predicted to write.
    pub rewrite_bytes: Option<u64>,
    /// Bytes that the compaction needs at its peak, besides the old files.
    pub peak_bytes: u64,
    /// Predicted duration at the measured rate.
    pub duration_seconds: Option<f64>,
    /// How far the predicted sizes can be trusted.
    #[schemars(with = "vocabulary::Confidence")]
    pub confidence: Word,
    /// What makes these numbers uncertain.
    #[schemars(with = "Vec<vocabulary::Caveat>")]
    pub caveats: Vec<Word>,
}

/// Number of starts and refusals in one queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CandidatesLine {
    /// The node, or `_cluster`.
    pub node: String,
    /// The channel.
    pub channel: String,
    /// Number of targets that start.
    pub starts: u64,
    /// Number of targets that do not start, by reason.
    pub refused: BTreeMap<Word, u64>,
}

/// A closed gate, which holds back all starts of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateLine {
    /// The node, or `_cluster`.
    pub node: String,
    /// The gate.
    #[schemars(with = "vocabulary::Gate")]
    pub gate: Word,
    /// The measured value; null if the gate compares nothing.
    pub value: Option<f64>,
    /// The limit that the value was compared with; null if the gate compares nothing.
    pub limit: Option<f64>,
    /// Since when the gate is closed; null if unknown.
    pub since: Option<String>,
    /// The comparison in a sentence; null if the gate's meaning already says it.
    pub says: Option<String>,
}

/// A waiting target that does not start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedLine {
    /// The target's id.
    pub id: String,
    /// The target's name in a sentence: its shard, view or database.
    #[serde(default)]
    pub title: String,
    /// The title without the node.
    #[serde(default)]
    pub name: String,
    /// The node, or `_cluster`.
    pub node: String,
    /// The channel that takes it.
    pub channel: String,
    /// The target's priority in that channel, per file.
    pub priority: Option<f64>,
    /// Bytes that a compaction is predicted to free.
    pub reclaimable_bytes: Option<u64>,
    /// Why the target does not start.
    pub refusal: RefusalLine,
    /// The reason as a sentence.
    pub why: String,
}

/// Waiting targets whose reasons belong to one group.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingGroup<'a> {
    /// The group.
    pub class: RefusalClass,
    /// Number of targets.
    pub targets: u64,
    /// Number of targets by reason, the most frequent reason first.
    pub reasons: Vec<(&'a str, u64)>,
}

impl Planned {
    /// The first `shown` starts.
    pub(crate) fn starts_table(&self, shown: usize) -> Table<&StartLine> {
        let sized = |start: &StartLine, size: Option<u64>| match &*start.kind {
            "cleanup" => Cell::words("-"),
            _ => Cell::bytes(size),
        };
        let node = |start: &StartLine| place(&start.node, self.only_node.as_deref()).to_owned();
        let name = |start: &StartLine| {
            let by = start.ordered_by.as_ref().map(|by| format!(" ordered by {by}"));
            let name = Cell::id(&start.id, start.ddoc.as_deref());
            name.and(Cell::from(by.unwrap_or_default()).quiet()).below(&node(start))
        };
        let acts = self.mode == "enforce";
        Table::of(self.starts.iter().take(shown))
            .text(if acts { "starts now" } else { "would start" }, name)
            .text(rest("node"), |it| Cell::node(&node(it)))
            .text(wide("channel"), |it| &*it.channel)
            .number(rest("on disk"), |it| sized(it, it.file_bytes))
            .number("reclaimable", |it| sized(it, it.gain_bytes))
            .number(rest("writes"), |it| sized(it, it.rewrite_bytes))
            .number(rest("takes"), |it| Cell::seconds(it.duration_seconds))
            .text(wide("waits since"), |it| {
                it.since.as_deref().map_or_else(Cell::none, |at| Cell::time(Some(at)))
            })
    }

    /// The waiting targets by group of reasons, the largest group first.
    pub fn waiting_groups(&self) -> Vec<WaitingGroup<'_>> {
        let mut by_reason: BTreeMap<&str, u64> = BTreeMap::new();
        for (reason, refused) in self.candidates.iter().flat_map(|line| &line.refused) {
            *by_reason.entry(reason).or_default() += refused;
        }
        let mut groups: BTreeMap<RefusalClass, Vec<(&str, u64)>> = BTreeMap::new();
        for (reason, targets) in by_reason {
            if let Some(known) = RefusalReason::from_label(reason) {
                groups.entry(known.class()).or_default().push((reason, targets));
            }
        }
        let groups = groups.into_iter().map(|(class, mut reasons)| {
            reasons.sort_by_key(|(_, targets)| std::cmp::Reverse(*targets));
            let targets = reasons.iter().map(|(_, targets)| targets).sum();
            WaitingGroup { class, targets, reasons }
        });
        let mut groups: Vec<WaitingGroup<'_>> = groups.collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.targets));
        groups
    }

    /// The requested part of a plan.
    pub fn of(plan: &Plan, wanted: Wanted<'_>) -> Self {
        let (outline, refused) = Self::outline(plan, wanted);
        let lines = refused.into_iter();
        let lines = lines.filter_map(|ix| RefusedLine::of(plan, plan.snapshot.target(ix)?));
        Self { refused: lines.collect(), ..outline }
    }

    /// The plan without the lines of refused targets, which may be many, and these targets.
    pub fn outline(plan: &Plan, wanted: Wanted<'_>) -> (Self, Vec<TargetIx>) {
        let node_name = |at: NodeIx| plan.snapshot.node(at).map_or("", |node| &node.name);
        let fits = |node: &str, channel: &str| {
            wanted.node.is_none_or(|name| name == node)
                && wanted.channel.is_none_or(|name| name == channel)
        };
        let starts: Vec<StartLine> = plan
            .starts
            .iter()
            .filter_map(|start| StartLine::of(plan, start))
            .filter(|line| fits(&line.node, &line.channel))
            .collect();
        let mut candidates = Vec::new();
        let mut waiting: Vec<TargetIx> = Vec::new();
        for (queue, counts) in plan.queues.iter().zip(plan.decision_counts.iter()) {
            let Some(channel) = plan.channels.list.get(queue.channel_index) else { continue };
            let node = node_name(queue.node);
            if !fits(node, &channel.name) {
                continue;
            }
            waiting.extend(queue.queued().filter(|ix| plan.start(*ix).is_none()));
            if counts.starts > 0 || counts.refusals_by_reason().next().is_some() {
                candidates.push(CandidatesLine {
                    node: node.to_owned(),
                    channel: channel.name.to_string(),
                    starts: counts.starts,
                    refused: counts
                        .refusals_by_reason()
                        .map(|(it, count)| (it.label().into(), count))
                        .collect(),
                });
            }
        }
        let nodes = plan.snapshot.nodes().iter().enumerate();
        let gates = nodes
            .filter(|(at, node)| *at == 0 || node.is_member)
            .filter(|(_, node)| wanted.node.is_none_or(|name| name == &*node.name))
            .filter_map(|(at, node)| Some((NodeIx::from_usize(at)?, &node.name)))
            .flat_map(|(at, name)| closed_gates(plan, at, name))
            .collect();
        let outline = Self {
            generated_at: plan.snapshot.generated_at().rfc3339(),
            made_at: plan.planned_at.rfc3339(),
            mode: plan.rules.mode.label().into(),
            address: address(plan, NodeIx::CLUSTER).map(str::to_owned),
            starts,
            orders: OrderLine::all(plan),
            candidates,
            gates,
            suspensions: SuspensionLine::all(plan),
            builds: None,
            simulated: None,
            only_node: plan.snapshot.only_node().map(|node| node.name.to_string()),
            unanswered: unanswered_nodes(plan),
            total: waiting.len(),
            offset: wanted.offset,
            limit: wanted.limit,
            refused: Vec::new(),
        };
        let page = waiting.into_iter().skip(wanted.offset).take(wanted.limit);
        (outline, page.collect())
    }
}

impl Planned {
    /// The closed gates by node; with a single node, gates of the whole cluster are left out.
    pub fn gates_of_nodes(&self) -> impl Iterator<Item = &GateLine> {
        let is_shown = |gate: &&GateLine| self.only_node.is_none() || gate.node != CLUSTER_NODE;
        self.gates.iter().filter(is_shown)
    }
}

fn closed_gates(plan: &Plan, at: NodeIx, name: &str) -> impl Iterator<Item = GateLine> {
    RefusalReason::gates().filter_map(move |gate| {
        let refusal = plan.gate_refusal(gate, at)?;
        Some(GateLine {
            node: name.to_owned(),
            gate: gate.label().into(),
            value: refusal.value,
            limit: refusal.limit,
            since: refusal.since.map(Moment::rfc3339),
            says: why_gate(plan, name, &refusal),
        })
    })
}

/// The address to which a person would send a request about a node: its own, or any known one.
fn address(plan: &Plan, node: NodeIx) -> Option<&str> {
    let nodes = plan.snapshot.nodes().iter();
    let answer = nodes.filter(|node| node.is_member && node.answers());
    let own = plan.snapshot.node(node).into_iter().chain(answer.map(AsRef::as_ref));
    own.filter_map(|node| node.own_address.found()).map(Address::as_str).next()
}

impl StartLine {
    /// What it frees and what it costs.
    pub(crate) fn effect(&self) -> [(&'static str, Cell); 4] {
        // The numbers of a view with one range are those of one copy, whereas its page has all.
        let is_one_copy = self.copies > 1 && self.name.is_some();
        let place =
            if is_one_copy { format!(" in the copy on {}", self.node) } else { String::new() };
        let (caught_up, size) = (self.caught_up_bytes, |bytes| format_size(bytes).to_string());
        let differs = |bytes: Option<u64>, other: fn(u64, u64) -> u64| {
            bytes.is_some_and(|it| size(it) != size(other(it, caught_up)))
        };
        // Pages show what is reclaimable now, so a number that differs says why.
        let [less, with] = if differs(self.gain_bytes, u64::saturating_add)
            || differs(self.rewrite_bytes, u64::saturating_sub)
        {
            let now = self.gain_bytes.map_or(0, |it| it.saturating_add(caught_up));
            [
                format!(
                    ": {} reclaimable, less {} of waste written while it runs",
                    size(now),
                    size(caught_up)
                ),
                ", with that waste".to_owned(),
            ]
        } else {
            [String::new(), String::new()]
        };
        let cell = |bytes: Option<u64>, note: &str| match [&*place, note].concat() {
            note if note.is_empty() => Cell::bytes(bytes),
            note => Cell::bytes(bytes).and(Cell::from(note)),
        };
        [
            ("frees", cell(self.gain_bytes, &less)),
            ("writes", cell(self.rewrite_bytes, &with)),
            ("needs", Cell::bytes(self.peak_bytes).and(Cell::words(" more at its peak"))),
            ("takes", Cell::seconds(self.duration_seconds)),
        ]
    }

    /// The line of a planned start.
    pub fn of(plan: &Plan, start: &PlannedStart) -> Option<Self> {
        let target = plan.snapshot.target(start.ix)?;
        let channel = plan.channels.list.get(start.channel)?;
        let placed = plan.placement(start.ix).map(|(_, placement)| placement);
        Some(Self {
            id: target.id().to_string(),
            kind: target.kind().label().into(),
            node: plan.snapshot.node(start.node)?.name.to_string(),
            db: target.db_name().db.to_owned(),
            range: target.range().map(|range| range.to_string()),
            name: start.shard.as_deref().map(str::to_owned),
            copies: target.file_count(),
            ddoc: start.design.as_deref().map(str::to_owned),
            channel: channel.name.to_string(),
            ordered_by: start.order.as_ref().map(|ordered| ordered.by.clone()),
            priority: placed.map(|placed| placed.priority).filter(|it| it.is_finite()),
            since: placed.map(|placed| placed.queued_since.rfc3339()),
            request: start.request.to_string(),
            url: address(plan, start.node).map(|at| [at, &start.request.path].concat()),
            file_bytes: start.file_bytes,
            gain_bytes: start.gain_bytes,
            caught_up_bytes: start.caught_up_bytes,
            rewrite_bytes: start.rewrite_bytes,
            peak_bytes: start.peak_bytes,
            duration_seconds: start.duration.map(|span| span.as_secs_f64()),
            confidence: plan.forecast(target).confidence.into(),
            caveats: start.caveats.iter().map(|caveat| caveat.label().into()).collect(),
        })
    }
}

impl RefusedLine {
    /// Up to `limit` waiting targets, those that would free most first. Only the best `limit` of
    /// each queue are considered, because priorities of different channels cannot be compared.
    pub fn best(plan: &Plan, limit: usize) -> Vec<Self> {
        let starting: HashSet<TargetIx> = plan.starts.iter().map(|start| start.ix).collect();
        let waiting = plan
            .queues
            .iter()
            .flat_map(|queue| queue.queued().filter(|ix| !starting.contains(ix)).take(limit));
        let runs = |refusal: &Refusal| refusal.reason == RefusalReason::Running;
        let frees = |ix: TargetIx| {
            let target = plan.snapshot.target(ix)?;
            if matches!(plan.decision(target), Decision::Refused(refusal) if runs(&refusal)) {
                return None;
            }
            Some((plan.forecast(target).reclaimable_bytes, ix))
        };
        let mut ranked: Vec<(Option<u64>, TargetIx)> = waiting.filter_map(frees).collect();
        ranked.sort_by_key(|(frees, ix)| (std::cmp::Reverse(*frees), *ix));
        let best = ranked.into_iter().take(limit);
        best.filter_map(|(_, ix)| Self::of(plan, plan.snapshot.target(ix)?)).collect()
    }

    /// The line of a target that waits and does not start; `None` for any other target.
    pub fn of(plan: &Plan, target: TargetRef<'_>) -> Option<Self> {
        let (channel, placed) = plan.placement(target.ix())?;
        let Decision::Refused(refusal) = plan.decision(target) else { return None };
        let design = target.view().and_then(|view| view.designs.first());
        Some(Self {
            id: target.id().to_string(),
            title: super::title(target),
            name: target.id().name(design.map(AsRef::as_ref)),
            node: target.node().to_owned(),
            channel: channel.name.to_string(),
            priority: Some(placed.priority).filter(|it| it.is_finite()),
            reclaimable_bytes: plan.forecast(target).reclaimable_bytes,
            why: why(plan, target, &refusal),
            refusal: refusal.into(),
        })
    }
}
