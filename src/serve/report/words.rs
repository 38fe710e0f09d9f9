//! The closed sets of words in the JSON API, as the OpenAPI document lists them.
//!
//! A field with such a word is a [`Word`]: a client that is older than the service can still read a
//! word that it does not know.

use crate::{
    act::warmer,
    advice,
    datadir::ReadProblem as HeaderProblem,
    model::{
        channel,
        facts::FactSource,
        priority::{PriorityKind, PriorityUnit},
        records::{JobOwner, JobResult},
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
    /// What is compacted, or built.
    Kind: target::TargetKind::labels();
    /// How a target compares with the shard map.
    State: TargetState::labels();
    /// What builds a search index.
    Engine: SearchEngine::ALL.map(SearchEngine::label);
    /// Who measured a fact: CouchDB over HTTP, or the headers of its files.
    Source: FactSource::labels();
    /// How far the prediction can be trusted.
    Confidence: ["high", "low", "learned"];
    /// Why facts count as fresh.
    Fresh: [plan::Freshness::RecentlyMeasured.label(), plan::Freshness::ConfirmedByFeeds.label()];
    /// Why a target does not start.
    RefusalReason: plan::RefusalReason::labels();
    /// Why a channel does not take a target.
    MissReason: score::MissReason::labels();
    /// What the numbers of a miss count.
    MissUnit: [PriorityUnit::Ratio.label(), PriorityUnit::Bytes.label(), "changes"];
    /// How a channel ranks targets.
    Priority: PriorityKind::labels();
    /// Why the header of a file could not be used.
    ProblemReason: HeaderProblem::labels();
    /// What recliner does: start compactions, or only say which it would start.
    Mode: channel::Mode::labels();
    /// A gate that can hold back all starts on a node.
    Gate: plan::RefusalReason::gates().map(Label::label).collect::<Vec<_>>();
    /// A signal of pressure on a node.
    Signal: plan::pressure::Signal::labels();
    /// What the numbers of a signal count.
    SignalUnit: plan::pressure::Signal::each().map(plan::pressure::Signal::unit).collect::<Vec<_>>();
    /// What makes the numbers of a start less certain.
    Caveat: plan::Caveat::labels();
    /// What is known of CouchDB's own compaction daemon on a node.
    Smoosh: ["no_direct_address", "not_offered", "failed", "up"];
    /// Whose settings are shown: the cluster's, or the defaults of CouchDB's code.
    SmooshSettings: ["cluster", "defaults"];
    /// How waste compares with smoosh's: within a tenth, the nearest found, more with every horizon, the
    /// same with any longer horizon, or too little to choose a horizon by.
    WasteFit: what_if::WasteFit::labels();
    /// Who started a job.
    Owner: JobOwner::labels();
    /// What a job does.
    Work: ["compaction", "build"];
    /// How far a job is.
    Phase: ["starting", "running", "suspended", "ending"];
    /// How a job ended.
    Ended: JobResult::labels();
    /// What kind of event this is.
    EventType: journal::EventType::labels();
    /// Why an index is built: it lags far behind, or a little.
    BuildClass: warmer::BuildClass::labels();
    /// What is done about an index that lags.
    BuildDecision: ["starts", "builds", "waits"];
    /// Why an index that lags waits.
    BuildReason: warmer::BuildRefusal::labels();
    /// What the scorecard of advice does.
    ScorecardState: scorecard::ScorecardState::labels();
    /// What kind of advice this is.
    AdviceCode: advice::rules().map(|rule| rule.code).collect::<Vec<_>>();
    /// What bytes are attributed to.
    AttributeBy: advice::AttributeBy::labels();
    /// How much advice matters.
    Severity: advice::Severity::labels();
    /// What advice is about.
    AdviceSubjectKind: advice::Subject::KINDS;
    /// What following advice is worth.
    AdviceGainKind: advice::Gain::KINDS;
    /// What kind of remedy this is.
    RemedyKind: advice::RemedyKind::labels();
    /// What deploying a design document builds.
    PreflightBuild: advice::preflight::BuildKind::labels();
    /// What the size of a new index rests on.
    PreflightBasis: advice::preflight::SizeBasis::labels();
    /// How a view differs from the present document.
    ViewChange: advice::preflight::ViewChange::LABELS;
    /// Whether a new index fits on a node.
    SpaceVerdict: advice::preflight::SpaceVerdict::labels();
    /// What kind of error this is.
    ErrorType: ["bad_data", "not_found", "method_not_allowed", "forbidden", "conflict", "timeout", "execution", "unavailable"];
}
