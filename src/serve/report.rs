//! The responses of the JSON API, and its orders: one set of types for the server, the commands and the tests.
//!
//! Owns the names of the fields, which other programs depend on, and the sentences that say why a target does not
//! start. Pure: it builds plain values from a plan and from the state that tasks publish. The server sends them and
//! describes them in its OpenAPI document; commands read them, or build them from their own scan. A type whose name
//! ends in `Line` is an element of a list.

mod advice;
mod builds;
mod changes;
pub(crate) mod columns;
mod databases;
mod deletions;
mod discovery;
mod envelope;
mod find;
mod fleet;
mod forecasts;
mod health;
mod indexes;
mod jobs;
mod journal;
mod limits;
mod lists;
mod measured_builds;
mod miss;
mod nodes;
mod ordered;
pub mod orders;
mod planned;
mod preflight;
mod rehearsal;
mod rent;
mod runs;
mod scorecard;
mod shared_limits;
mod space;
mod status;
mod summary;
mod suspension;
mod usage;
pub(crate) mod vocabulary;
mod what_if;
mod why;
mod xray;

/// The meaning of a target's state `unknown`.
pub(crate) const UNKNOWN_STATE: &str = "It is unknown whether this file belongs here: its node is not a member of the cluster, or recliner could not read the splits, a member's shard map or the file's name.";

pub use advice::{
    Advice, AdviceGain, AdviceLine, AdviceMute, AdviceRemedy, AdviceSubject, MoreAdvice,
};
pub use builds::{BuildLine, Builds};
pub use changes::{ChangeLine, Changes, GapLine, VolumeChanges, database_of};
pub use databases::{
    DatabaseLine, DatabaseSort, Databases, NewestJobs, Pace, WantedDatabases, waste_reasons,
};
pub use deletions::{DeletionAges, DeletionTime};
pub use discovery::{DbUpdates, TargetGroup, TargetLabels};
pub use envelope::{Conflict, CouchDbError, Failed, Success};
pub use find::{Found, find, no_database, no_match, selector};
pub use fleet::{FleetAnswer, MemberLine, NIGHT, overview};
pub use forecasts::{Forecasts, FreeLine, FullDates, KeptLine, RecordLine, VolumeForecastLine};
pub use health::Concern;
pub use indexes::{IndexLine, Indexes, ViewReads};
pub use jobs::{JobLine, Jobs};
pub use journal::{
    EventLine, Events, HourLine, Hours, OutcomeLine, Outcomes, event_type_in_words,
    result_in_words, short_time,
};
pub use limits::{ChannelWeek, DutyLine, LimitLine};
pub use lists::{Explanations, Queue, Queues, Targets};
pub use measured_builds::{MeasuredBuild, MeasuredBuilds};
pub use miss::{ChannelScore, MissLine, not_taken, not_taken_meaning};
pub use nodes::{DiskLine, NodeLine, PressureLine, SmooshChannelLine, VolumeLine, nodes};
pub use ordered::OrderLine;
pub use planned::{CandidatesLine, GateLine, Planned, RefusedLine, StartLine, Wanted};
pub use preflight::{
    Preflight, PreflightNode, PreflightQuestion, PreflightSample, PreflightView, QuestionError,
    ResolvedQuestion, SpreadLine,
};
pub use rehearsal::{
    LeftDocument, Rehearsal, RehearsalQuestion, RehearsalStep, RehearsedDocument,
    ResolvedRehearsal, documents_in,
};
pub use rent::RentLine;
pub use runs::{RunLine, RunList, left_out_says, requests_of_run, run_progress};
pub use scorecard::{Scorecard, ScorecardLine};
pub use shared_limits::{ClusterShare, SharedLimits, SharedMember};
pub use space::{Space, VolumeSpaceLine};
pub use status::{
    ConfigLine, Configuration, EntryLine, Feeds, PeerLine, ReadErrors, SimulatedWeek, Status,
    Sweep, TakeoverLine,
};
pub use summary::{AdviceDone, Cost, Report, WasteCourse};
pub use suspension::SuspensionLine;
pub use usage::{AttributeBy, Usage, UsageBytes, UsageLine};
pub use what_if::{
    MAX_DAYS, OutlookLine, ProposedHorizon, RentProposal, SmooshRules, UndoneLine,
    VolumeOutlookLine, WhatIf, WhatIfQuestion,
};
pub use why::why;

pub(crate) use crate::model::target::short_node;
use crate::{
    advice::AdviceView,
    model::{
        facts::{FactKind, Facts},
        target::{CLUSTER_NODE, TargetId, TargetKind, TargetState},
    },
    plan::{Decision, Plan, Refusal, RefusalClass},
    sources::inventory::InsideLine,
    table::{DbIx, Snapshot, TargetIx, TargetRef},
    text::{Label, listed},
};
use couchdb_names::Signature;
use hashbrown::{HashMap, HashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vocabulary::Word;
use wall_clock::Moment;

/// The header with the cluster's name in every answer of the API.
pub const CLUSTER_HEADER: &str = "recliner-cluster";

/// Maximum number of nodes listed in a cluster's name.
const NAMED_NODES: usize = 3;

/// The cluster's name for people: its nodes; `None` before they are known.
#[must_use]
pub fn cluster_name(snapshot: &Snapshot, is_simulated: bool) -> Option<String> {
    let nodes: Vec<String> = snapshot.members().map(|(_, node)| node.name.to_string()).collect();
    let shown = nodes.get(..NAMED_NODES).filter(|_| nodes.len() > NAMED_NODES + 1);
    let names = match shown {
        None => listed(&nodes),
        Some(shown) => format!("{} and {} more nodes", shown.join(", "), nodes.len() - shown.len()),
    };
    let simulated = if is_simulated { "simulated " } else { "" };
    (!nodes.is_empty()).then(|| match nodes.len() {
        1 => format!("the {simulated}node {names}"),
        _ => format!("the {simulated}cluster of {names}"),
    })
}

/// A place for people: what belongs to the whole cluster is on its only node, or on all nodes.
#[must_use]
pub fn place<'a>(node: &'a str, only_node: Option<&'a str>) -> &'a str {
    if node == CLUSTER_NODE { only_node.unwrap_or("all nodes") } else { node }
}

/// The nodes that do not answer.
pub fn unanswered_nodes(plan: &Plan) -> Vec<String> {
    let nodes = plan.snapshot.members().map(|(_, node)| node);
    let silent = nodes.filter(|node| node.is_served && node.is_down());
    silent.map(|node| node.name.to_string()).collect()
}

/// A sentence about nodes that do not answer; `None` if all do.
pub fn unanswered_in_words(nodes: &[String]) -> Option<String> {
    let says = || {
        format!("No answer from {}: sizes there are those last read, or unknown.", listed(nodes))
    };
    (!nodes.is_empty()).then(says)
}

/// One target. Bytes are on-disk sizes: a view of the whole cluster counts all its copies. Unknown is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// The target's id, as orders and commands accept it.
    pub id: String,
    /// `db`, `view`, `cleanup` or `search`.
    #[schemars(with = "vocabulary::Kind")]
    pub kind: Word,
    /// The node with the file, or `_cluster` for a target of the whole cluster.
    pub node: String,
    /// The name of the clustered database.
    pub db: String,
    /// The hash range of the shard, such as `00000000-7fffffff`; null if there is none.
    pub range: Option<String>,
    /// The engine of a search index, `nouveau` or `clouseau`; null for other targets.
    #[schemars(with = "Option<vocabulary::Engine>")]
    pub engine: Option<Word>,
    /// The shard file's name, or the name of a search index in its design document.
    pub name: Option<String>,
    /// The first design document that uses the index; null for other targets.
    pub ddoc: Option<String>,
    /// All design documents that share the index.
    pub ddocs: Vec<String>,
    /// The view's signature; null for other targets, and for views that no URL can name.
    pub signature: Option<String>,
    /// How the target compares with the shard map.
    #[schemars(with = "vocabulary::State")]
    pub state: Word,
    /// Number of files that one compaction rewrites.
    pub copies: u32,
    /// Whether some copies were not measured and are assumed to be as large as a measured one.
    pub estimated: bool,
    /// Size on disk.
    pub file_bytes: Option<u64>,
    /// Live bytes, as CouchDB counts them.
    pub active_bytes: Option<u64>,
    /// Uncompressed size of the contents, as CouchDB estimates it.
    pub external_bytes: Option<u64>,
    /// Predicted size after a compaction.
    pub predicted_bytes: Option<u64>,
    /// Bytes that a compaction is predicted to free.
    pub reclaimable_bytes: Option<u64>,
    /// How far the prediction can be trusted: `learned` from compactions of the target or its database,
    /// otherwise based on CouchDB's count of active bytes, which is `low` on servers that count wrongly.
    #[schemars(with = "vocabulary::Confidence")]
    pub confidence: Word,
    /// `file_bytes` divided by `active_bytes`.
    pub ratio: Option<f64>,
    /// Sequence of the last change that was written or indexed.
    pub update_seq: Option<u64>,
    /// Sequence at the last compaction.
    pub compacted_seq: Option<u64>,
    /// Number of documents that are not deleted; databases only.
    pub docs: Option<u64>,
    /// Number of deleted documents; databases only.
    pub deleted_docs: Option<u64>,
    /// Number of changes that the view has not indexed; null for other targets.
    pub updates_pending: Option<u64>,
    /// Sequence of the last purge of a shard that has any, or of the last purge that a view index has processed.
    pub purge_seq: Option<u64>,
    /// The collator versions that one copy of the view names; null for other targets.
    pub collator_versions: Option<Vec<String>>,
    /// Whether CouchDB reports a running compaction of the target.
    pub compact_running: Option<bool>,
    /// The source of each known fact, by the fact's name.
    #[schemars(with = "BTreeMap<String, vocabulary::Source>")]
    pub sources: BTreeMap<Word, Word>,
    /// When the facts were measured.
    pub measured_at: Option<String>,
    /// Why the header of the file could not be used; null if it could, or was not read.
    pub problem: Option<ProblemLine>,
    /// The channel that takes the target; null if none does.
    pub channel: Option<String>,
    /// The target's priority in that channel, per file.
    pub priority: Option<f64>,
    /// What the target's waste has cost so far; null unless a channel ranks it by rent.
    pub rent: Option<RentLine>,
    /// Why each other channel does not take the target.
    pub misses: Vec<MissLine>,
    /// Why the target does not start; null if it starts or no channel takes it.
    pub refusal: Option<RefusalLine>,
}

/// One target with the decision about it, in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explained {
    /// The target and its facts.
    #[serde(flatten)]
    pub target: Target,
    /// Why the target does not start and what would have to change, as a sentence; null if it starts or no
    /// channel takes it.
    pub why: Option<String>,
    /// Why the facts are fresh: `measured` lately, or `followed` by feeds that have reported no change since;
    /// null if they are not fresh.
    #[schemars(with = "Option<vocabulary::Fresh>")]
    pub fresh: Option<Word>,
    /// Bytes that a compaction would free if only the target's sizes counted; set where its last compaction left more
    /// than its sizes suggest, as writes during a compaction cause. Null where sizes are all that is known.
    pub reclaimable_by_sizes: Option<u64>,
    /// The last X-ray of its file; null if there was none.
    pub xray: Option<InsideLine>,
    /// The target's score in every channel for its kind, in the channels' order.
    #[serde(default)]
    pub scores: Vec<ChannelScore>,
    /// The start that would be sent; null unless the target starts.
    pub start: Option<StartLine>,
    /// The operator's order that waits for the target; null if there is none.
    pub ordered: Option<OrderLine>,
    /// For a part of a view, the view's id: no request compacts a part alone, so the decision is about the
    /// view.
    pub part_of: Option<String>,
    /// What rules found about the target, as sentences; empty without a running recliner.
    #[serde(default)]
    pub advice: Vec<String>,
}

/// Views of the whole cluster, by the key that they share with their parts.
#[derive(Clone, Debug, Default)]
pub struct WholeViews(HashMap<(DbIx, Signature), TargetId>);

impl WholeViews {
    /// The views of a plan to which some of these targets belong; goes through all targets once if
    /// any of these is a part.
    pub fn of(plan: &Plan, found: &[TargetIx]) -> Self {
        let found = found.iter().filter_map(|ix| plan.snapshot.target(*ix));
        let parts = found.filter(|target| target.is_part()).filter_map(key);
        let wanted: HashSet<(DbIx, Signature)> = parts.collect();
        if wanted.is_empty() {
            return Self::default();
        }
        let views = plan.snapshot.targets();
        let views = views.filter(|target| target.kind() == TargetKind::View && !target.is_part());
        let views = views.filter_map(|target| Some((key(target)?, target.id())));
        Self(views.filter(|(key, _)| wanted.contains(key)).collect())
    }
}

/// The key that a view and its parts share.
fn key(target: TargetRef<'_>) -> Option<(DbIx, Signature)> {
    Some((target.db(), target.view()?.signature))
}

impl Explained {
    /// Explains the decision of `plan` about `target`, which may be a part of one of `views`.
    pub fn of(plan: &Plan, target: TargetRef<'_>, views: &WholeViews) -> Self {
        let why = match plan.decision(target) {
            Decision::Refused(refusal) => {
                let why = why(plan, target, &refusal);
                let is_in_line = refusal.reason.class() == RefusalClass::InLine;
                let place = is_in_line.then(|| plan.place_in_line(target)).flatten();
                Some(match place {
                    Some((place, length)) => format!("in line, {place} of {length}: {why}"),
                    None => why,
                })
            }
            Decision::Start | Decision::NotTaken => None,
        };
        let start = plan.start(target.ix()).and_then(|start| StartLine::of(plan, start));
        let ordered = OrderLine::of(plan, target);
        let fresh = plan.freshness(target).map(|fresh| fresh.label().into());
        let part_of = key(target).filter(|_| target.is_part());
        let part_of = part_of.and_then(|key| Some(views.0.get(&key)?.to_string()));
        let scores = ChannelScore::all(plan, target);
        let learned = target.reclaimable_bytes();
        let reclaimable_by_sizes = target.reclaimable_by_sizes().filter(|it| Some(*it) > learned);
        let xray = target.inside().map(InsideLine::of);
        let target = Target::of(plan, target);
        let advice = Vec::new();
        Self {
            target,
            why,
            fresh,
            reclaimable_by_sizes,
            xray,
            scores,
            start,
            ordered,
            part_of,
            advice,
        }
    }

    /// The same with what rules found about the target.
    pub fn advised(self, target: TargetRef<'_>, advice: &AdviceView, now: Moment) -> Self {
        let advice = advice.about(target, now).into_iter().map(|it| it.says.clone()).collect();
        Self { advice, ..self }
    }
}

/// Why a file's header could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemLine {
    /// The reason, as one of a fixed set of words.
    #[schemars(with = "vocabulary::ProblemReason")]
    pub reason: Word,
    /// What is wrong and what to do next, as a sentence.
    pub says: Word,
}

/// Why a target does not start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusalLine {
    /// The reason, as one of a fixed set of words.
    #[schemars(with = "vocabulary::RefusalReason")]
    pub reason: Word,
    /// The group of the reason.
    #[serde(default)]
    #[schemars(with = "vocabulary::RefusalClass")]
    pub class: Word,
    /// The measured value; null if nothing is compared.
    pub value: Option<f64>,
    /// The limit that the value was compared with; null if nothing is compared.
    pub limit: Option<f64>,
    /// Since when this reason applies, if known; otherwise since when the target waits.
    pub since: Option<String>,
}

impl Target {
    /// Describes `target` with its facts and the decision of `plan`.
    pub fn of(plan: &Plan, target: TargetRef<'_>) -> Self {
        let facts = target.facts();
        let view = target.view();
        let placement = plan.placement(target.ix());
        let forecast = plan.forecast(target);
        let finite = |number: f64| number.is_finite().then_some(number);
        Self {
            id: target.id().to_string(),
            kind: target.kind().label().into(),
            node: target.node().to_owned(),
            db: target.db_name().db.to_owned(),
            range: target.range().map(|range| range.to_string()),
            engine: target.search().map(|search| search.engine.label().into()),
            name: target
                .search()
                .map(|search| search.index.to_string())
                .or_else(|| target.shard_name()),
            ddoc: view.and_then(|view| view.designs.first()).map(|design| design.to_string()),
            ddocs: view
                .map(|view| view.designs.iter().map(ToString::to_string).collect())
                .unwrap_or_default(),
            // No request can use the signature of a view that no URL can name.
            signature: view
                .filter(|view| {
                    target.state() != TargetState::Unaddressable && view.search_index.is_none()
                })
                .map(|view| view.signature.to_string()),
            state: target.state().label().into(),
            copies: target.file_count(),
            estimated: target.is_estimated(),
            file_bytes: target.file_bytes(),
            active_bytes: target.active_bytes(),
            external_bytes: target.external_bytes(),
            predicted_bytes: forecast.predicted_bytes,
            reclaimable_bytes: forecast.reclaimable_bytes,
            confidence: forecast.confidence.into(),
            ratio: facts.ratio().and_then(finite),
            update_seq: facts.update_seq.get(),
            compacted_seq: facts.compacted_seq.get(),
            docs: facts.docs.get(),
            deleted_docs: facts.deleted_docs.get(),
            updates_pending: facts.updates_pending.get(),
            purge_seq: facts.purge_seq.get().or_else(|| target.overhead()?.purge_seq.get()),
            collator_versions: view
                .filter(|view| facts.measured_at.is_some() && view.search_index.is_none())
                .map(|view| view.collators.iter().map(ToString::to_string).collect()),
            // A file header does not show whether a compaction runs.
            compact_running: (facts.includes_couchdb() && target.search().is_none())
                .then_some(facts.flags.compact_running),
            sources: sources(&facts),
            measured_at: facts.measured_at.map(|measured| measured.at.rfc3339()),
            problem: target.problem().map(|problem| ProblemLine {
                reason: problem.label().into(),
                says: problem.explanation().into(),
            }),
            channel: placement.map(|(channel, _)| channel.name.to_string()),
            priority: placement.and_then(|(_, placement)| finite(placement.priority)),
            rent: RentLine::of(plan, target),
            misses: plan
                .misses(target)
                .map(|(channel, miss)| MissLine::new(channel, miss))
                .collect(),
            refusal: match plan.decision(target) {
                Decision::Refused(refusal) => Some(refusal.into()),
                Decision::Start | Decision::NotTaken => None,
            },
        }
    }
}

fn sources(facts: &Facts) -> BTreeMap<Word, Word> {
    let source =
        |fact: FactKind| Some((fact.label().into(), facts.source_of(fact)?.label().into()));
    FactKind::each().filter_map(source).collect()
}

impl From<Refusal> for RefusalLine {
    fn from(refusal: Refusal) -> Self {
        Self {
            reason: refusal.reason.label().into(),
            class: refusal.reason.class().label().into(),
            value: refusal.value,
            limit: refusal.limit,
            since: refusal.since.map(Moment::rfc3339),
        }
    }
}

/// The title of a target in a sentence: its shard, its view, or its database.
pub fn title(target: TargetRef<'_>) -> String {
    let design = target.view().and_then(|view| view.designs.first());
    target.id().title(design.map(AsRef::as_ref))
}

#[cfg(test)]
mod tests;
