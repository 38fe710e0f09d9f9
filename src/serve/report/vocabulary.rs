//! The closed sets of words in the JSON API, as the OpenAPI document lists them.
//!
//! A field with such a word is a [`Word`]: a client that is older than the service can still read a
//! word that it does not know.

use crate::{
    act::warmer,
    advice,
    datadir::ReadProblem as HeaderProblem,
    fleet,
    model::{
        cause, channel,
        facts::FactSource,
        priority::{PriorityKind, PriorityUnit},
        records::{JobOwner, JobResult, RunEnding},
        score,
        target::{self, TargetState},
    },
    plan,
    store::journal,
    text::Label,
    what_if::{self, scorecard},
};
use couchdb_names::Engine as SearchEngine;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

/// One word of a closed set.
pub(crate) type Word = Cow<'static, str>;

/// Declares the schema of each set: a string that is one of its words.
macro_rules! vocabularies {
    ($($(#[doc = $meaning:literal])+ $name:ident: $words:expr;)+) => {$(
        $(#[doc = $meaning])+
        #[derive(Debug)]
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let meaning = concat!($($meaning),+).trim();
                json_schema!({ "type": "string", "description": meaning, "enum": $words })
            }
        }
    )+};
}

vocabularies! {
    /// The kind of a target.
    Kind: target::TargetKind::labels();
    /// How a target compares with the shard map.
    State: TargetState::labels();
    /// The engine of a search index.
    Engine: SearchEngine::ALL.map(SearchEngine::label);
    /// The source of a fact: CouchDB over HTTP, or the headers of its files.
    Source: FactSource::labels();
    /// How far a predicted size can be trusted.
    Confidence: ["high", "low", "learned", "xray", "estimated"];
    /// Why facts count as fresh.
    Fresh: [plan::Freshness::RecentlyMeasured.label(), plan::Freshness::ConfirmedByFeeds.label()];
    /// Why a target does not start.
    RefusalReason: plan::RefusalReason::labels();
    /// The kind of obstacle that keeps a target from starting.
    RefusalClass: plan::RefusalClass::labels();
    /// Why a channel does not take a target.
    MissReason: score::MissReason::labels();
    /// The unit of the values of a miss.
    MissUnit: [PriorityUnit::Ratio.label(), PriorityUnit::Bytes.label(), "changes"];
    /// How a channel ranks targets.
    Priority: PriorityKind::labels();
    /// Why the header of a file could not be used.
    ProblemReason: HeaderProblem::labels();
    /// Whether recliner starts compactions, or only says which it would start.
    Mode: channel::Mode::labels();
    /// A gate that can hold back all starts on a node.
    Gate: plan::RefusalReason::gates().map(Label::label).collect::<Vec<_>>();
    /// A signal of load on a node.
    Signal: plan::pressure::Signal::labels();
    /// The unit of a signal's values.
    SignalUnit: plan::pressure::Signal::each().map(plan::pressure::Signal::unit).collect::<Vec<_>>();
    /// What makes the numbers of a start uncertain.
    Caveat: plan::Caveat::labels();
    /// What is known of CouchDB's own compaction daemon on a node.
    Smoosh: ["not_read", "no_direct_address", "not_offered", "failed", "up"];
    /// Whose settings are used: the cluster's, or the defaults of CouchDB's code.
    SmooshSettings: ["cluster", "defaults"];
    /// How the waste compares with smoosh's: within a tenth, the nearest found, more with every horizon,
    /// the same with any longer horizon, or too little to choose a horizon.
    WasteFit: what_if::WasteFit::labels();
    /// Who started a job.
    Owner: JobOwner::labels();
    /// Why bytes on a disk changed; `rest` is the sum of what was not asked for.
    Cause: cause::Cause::labels().into_iter().chain(["rest"]).collect::<Vec<_>>();
    /// What a job does.
    Work: ["compaction", "build"];
    /// The phase of a job.
    Phase: ["starting", "running", "suspended", "ending", "node_down"];
    /// How a job ended.
    Ended: JobResult::labels();
    /// Whether a run goes on.
    RunState: ["running", "paused"].into_iter().chain(RunEnding::each().map(Label::label)).collect::<Vec<_>>();
    /// The type of an event.
    EventType: journal::EventType::labels();
    /// How far an index lags: far behind, or a little.
    BuildClass: warmer::BuildClass::labels();
    /// What is done about a lagging index.
    BuildDecision: ["starts", "builds", "waits"];
    /// Why a lagging index waits.
    BuildReason: warmer::BuildRefusal::labels();
    /// The state of the scorecard.
    ScorecardState: scorecard::ScorecardState::labels();
    /// The kind of a piece of advice.
    AdviceCode: advice::rules().map(|rule| rule.code).collect::<Vec<_>>();
    /// Why a recliner of the fleet needs a person, the most urgent first.
    Attention: fleet::Attention::labels();
    /// What bytes are attributed to.
    AttributeBy: super::AttributeBy::labels();
    /// How much advice matters.
    Severity: advice::Severity::labels();
    /// The kind of thing that advice is about.
    AdviceSubjectKind: advice::Subject::KINDS;
    /// The kind of gain from following advice.
    AdviceGainKind: advice::Gain::KINDS;
    /// The kind of a step of a remedy.
    RemedyKind: advice::RemedyKind::labels();
    /// What deploying a design document builds.
    PreflightBuild: advice::preflight::BuildKind::labels();
    /// What a deployment does to a design document.
    DeploymentChange: advice::preflight::Change::labels();
    /// What the predicted size of a new index is based on.
    PreflightBasis: advice::preflight::SizeBasis::labels();
    /// Why reading a sample of documents ended.
    SampleEnd: crate::sources::doc_sample::SampleEnd::labels();
    /// How a view differs from that of the current document.
    ViewChange: advice::preflight::ViewChange::LABELS;
    /// Whether a new index fits on a node.
    SpaceVerdict: advice::preflight::SpaceVerdict::labels();
    /// The kind of an error.
    ErrorType: ["bad_data", "not_found", "method_not_allowed", "forbidden", "conflict", "not_a_member", "timeout", "execution", "unavailable"];
}
