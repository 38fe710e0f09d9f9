//! What to do about the cluster, as the API and the command `advise` show it.

use super::{
    unanswered_in_words, unanswered_nodes,
    vocabulary::{self, Word},
};
use crate::{
    advice::{AdviceView, Piece, Remedy, rules},
    model::{
        channel::Mode,
        records::{Mute, SuspensionScope},
    },
    plan::Plan,
    table::Waste,
    text::{
        Label, capital, counted,
        size::{bound_in_words, format_size_short},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// What to do about the cluster, the worst first, then the most valuable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// When the rules were last evaluated; null before the first sweep has ended.
    pub checked_at: Option<String>,
    /// A summary in one sentence.
    pub says: String,
    /// Bytes of all files; null if unknown.
    pub file_bytes: Option<u64>,
    /// Bytes of these that nothing needs: what compactions would free, and unused files; null if unknown.
    pub waste_bytes: Option<u64>,
    /// Sum of the bytes that each unmuted piece of advice would free by itself; pieces may overlap, or count live data.
    pub gain_bytes: u64,
    /// The pieces of advice: for each code the most valuable ones.
    pub advice: Vec<AdviceLine>,
    /// Advice that is not listed, by code.
    pub more: Vec<MoreAdvice>,
}

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceLine {
    /// The kind of advice.
    #[schemars(with = "vocabulary::AdviceCode")]
    pub code: Word,
    /// How much the advice matters.
    #[schemars(with = "vocabulary::Severity")]
    pub severity: Word,
    /// What the advice is about.
    pub subject: AdviceSubject,
    /// The advice in one sentence.
    pub says: String,
    /// The numbers that the advice is based on; each name ends with its unit.
    pub evidence: BTreeMap<String, serde_json::Value>,
    /// What following it is worth.
    pub gain: AdviceGain,
    /// What to do, step by step.
    pub remedy: Vec<AdviceRemedy>,
    /// The page of the book that explains the advice, as a path on this server.
    pub learn: String,
    /// When the advice was first given; null if no running recliner remembers.
    pub since: Option<String>,
    /// The operator's order that mutes the advice; null if there is none.
    pub muted: Option<AdviceMute>,
}

/// What a piece of advice is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceSubject {
    /// The kind of thing.
    #[schemars(with = "vocabulary::AdviceSubjectKind")]
    pub kind: Word,
    /// The thing's name, by which the advice can be muted.
    pub name: String,
}

/// What following a piece of advice is worth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceGain {
    /// What is gained: free bytes, seconds of a node's work, safety for bytes of data at risk, or something
    /// unknown.
    #[schemars(with = "vocabulary::AdviceGainKind")]
    pub kind: Word,
    /// Bytes or seconds, depending on `kind`; null if unknown.
    pub value: Option<u64>,
}

/// One step of a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceRemedy {
    /// A shell command, lines of a configuration file, or a choice that a person makes.
    #[schemars(with = "vocabulary::RemedyKind")]
    pub kind: Word,
    /// What the step does, or what has to be decided.
    pub says: String,
    /// The text to paste; null for a choice. The reader sets `$COUCHDB_URL` and `$COUCHDB_USER`.
    pub text: Option<String>,
}

/// An order that mutes advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceMute {
    /// When the order was given.
    pub since: String,
    /// When the mute ends.
    pub until: String,
    /// Who gave the order, and from which address; null if unknown.
    pub by: Option<String>,
    /// The reason that was given; null if none was.
    pub why: Option<String>,
}

/// Advice of one code that is not listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoreAdvice {
    /// The kind of advice.
    #[schemars(with = "vocabulary::AdviceCode")]
    pub code: Word,
    /// Number of pieces that are not listed.
    pub count: u64,
    /// Bytes that following them would free.
    pub gain_bytes: u64,
}

impl AdviceMute {
    pub(crate) fn of(mute: &Mute) -> Self {
        Self {
            since: mute.since.rfc3339(),
            until: mute.until.rfc3339(),
            by: mute.by.clone(),
            why: mute.why.clone(),
        }
    }
}

impl AdviceRemedy {
    pub(crate) fn of(remedy: &Remedy) -> Self {
        Self {
            kind: remedy.kind.label().into(),
            says: remedy.says.clone(),
            text: remedy.text.clone(),
        }
    }
}

impl AdviceLine {
    fn of(piece: &Piece<'_>) -> Self {
        let Piece { result, finding, since, muted } = piece;
        let evidence = finding.evidence.iter();
        let evidence = evidence.map(|(name, value)| ((*name).to_owned(), value.clone()));
        Self {
            code: result.rule.code.into(),
            severity: finding.severity.label().into(),
            subject: AdviceSubject {
                kind: finding.subject.kind().into(),
                name: finding.subject.to_string(),
            },
            says: finding.says.clone(),
            evidence: evidence.collect(),
            gain: AdviceGain { kind: finding.gain.kind().into(), value: finding.gain.value() },
            remedy: finding.remedy.iter().map(AdviceRemedy::of).collect(),
            learn: result.rule.learn(),
            since: since.map(Moment::rfc3339),
            muted: muted.map(AdviceMute::of),
        }
    }
}

impl Advice {
    /// The advice of a view, with the waste of the plan's snapshot.
    pub fn of(view: &AdviceView, plan: &Plan, now: Moment) -> Self {
        let waste = Waste::of(&plan.snapshot);
        let gain_bytes = rules().map(|rule| view.open_of(rule.code, now).1);
        let more = view.results.iter().filter(|result| result.surplus.count() > 0);
        let mut advice = Self {
            checked_at: view.checked_at.map(Moment::rfc3339),
            says: String::new(),
            file_bytes: waste.file_bytes(),
            waste_bytes: waste.wasted_bytes(),
            gain_bytes: gain_bytes.fold(0, u64::saturating_add),
            advice: view.pieces(now).iter().map(AdviceLine::of).collect(),
            more: more
                .map(|result| MoreAdvice {
                    code: result.rule.code.into(),
                    count: result.surplus.count(),
                    gain_bytes: result.surplus.freed_bytes,
                })
                .collect(),
        };
        let is_alone = plan.snapshot.only_node().is_some();
        let suspensions = &plan.conditions.constraints.suspensions.0;
        let starts =
            plan.rules.mode == Mode::Enforce && !suspensions.contains_key(&SuspensionScope::All);
        advice.says = advice.summary(waste, starts, is_alone);
        if let Some(says) = unanswered_in_words(&unanswered_nodes(plan)) {
            advice.says.push_str(&format!(" {says}"));
        }
        advice
    }

    /// The pieces of advice that are not muted.
    pub fn open(&self) -> impl Iterator<Item = &AdviceLine> {
        self.advice.iter().filter(|line| line.muted.is_none())
    }

    fn summary(&self, waste: Waste, starts: bool, is_alone: bool) -> String {
        if self.checked_at.is_none() {
            return "No recommendations yet: recliner has not read the whole cluster. `recliner plan` shows why nothing starts."
                .to_owned();
        }
        let more: u64 = self.more.iter().map(|more| more.count).sum();
        let open = self.open().count() as u64 + more;
        let muted = self.advice.len() as u64 + more - open;
        let mut says = in_words(waste, starts);
        says.push_str(&match (open, waste.unmeasured()) {
            (0, 0) => "No recommendations.".to_owned(),
            (0, _) => "No recommendations for the part that was read.".to_owned(),
            _ => format!("{}.", counted(open, "recommendation", "recommendations")),
        });
        if muted > 0 {
            says.push_str(&format!(" {muted} muted."));
        }
        says.push_str(&not_looked_at(waste, is_alone));
        says
    }
}

/// A sentence about what no rule could check; empty if everything was checked. `is_alone`: there is only one node.
fn not_looked_at(waste: Waste, is_alone: bool) -> String {
    let shards = match waste.unmeasured() {
        0 => String::new(),
        some => format!(
            " {} not measured: sizes are unknown.",
            counted(some, "shard or view was", "shards and views were")
        ),
    };
    let sidecars = waste.measured_by_sidecars();
    let beside = match sidecars {
        0 => String::new(),
        some => format!(
            " Leftovers and trash on {} are known only to the sidecars there: `recliner advise --recliner.url URL` with each sidecar's URL shows them.",
            counted(some, "node", "nodes")
        ),
    };
    let directories = match waste.unread_directories() - sidecars {
        0 => String::new(),
        _ if is_alone => " Leftovers, trash and the sizes of stale indexes are unknown; to read them from CouchDB's directory, add `--data-dir /opt/couchdb/data`.".to_owned(),
        some => format!(
            " The directories of {} are not read: leftovers, trash and the sizes of stale indexes are unknown there.",
            counted(some, "node", "nodes")
        ),
    };
    shards + &beside + &directories
}

/// A sentence about the waste and, if recliner starts compactions now, that it does; empty while no size is known.
fn in_words(waste: Waste, starts: bool) -> String {
    let (Some(all), Some(reclaimable)) = (waste.file_bytes(), waste.reclaimable_bytes()) else {
        return String::new();
    };
    let (unmeasured, estimated) = (waste.unmeasured(), waste.estimated());
    let bounded = |unknown, estimated, bytes| {
        bound_in_words(unknown, estimated).to_owned() + &format_size_short(bytes)
    };
    let unread = unmeasured + waste.unread_directories();
    let unused = match waste.unused_bytes() {
        None | Some(0) => String::new(),
        Some(unused) => format!(" and {} in unused files", bounded(unread, 0, unused)),
    };
    let compacts = if starts { "; recliner compacts what its rules and limits allow" } else { "" };
    let all_unread = if waste.unused_bytes().is_some() { unread } else { unmeasured };
    let all = bounded(all_unread, estimated, all);
    let reclaimable = bounded(unmeasured, estimated, reclaimable);
    format!("{} reclaimable{unused}, of {all} on disk{compacts}. ", capital(&reclaimable))
}
