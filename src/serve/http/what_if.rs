//! `POST /api/v1/what-if`: a forecast under several sets of rules, days ahead.
//!
//! A forecast runs on its own thread, one request at a time: a million targets take many seconds. A
//! question is parsed only within its turn, and abandoned when its time is over or its client has
//! disconnected.

mod smoosh;

use super::{
    admin::{parse_object, read_body},
    answer::success,
    concurrency_limit::ConcurrencyLimit,
    error::ApiError,
    guard,
    route::{self, Route},
    state::AppState,
    turn::Turn,
};
use crate::{
    advice::AdviceView,
    config::{self, File},
    import::{self, AsRent},
    model::{
        channel::{ChannelPreset, Channels},
        settings::Settings,
    },
    plan::Plan,
    serve::report::{Conflict, MAX_DAYS, ProposedHorizon, RentProposal, WhatIf, WhatIfQuestion},
    sources::node_settings::NodeSettings,
    table::NodeIx,
    text::Label,
    what_if::{Forecast, Outlook, Policy, Present, Proposal},
};
use axum::{
    Extension,
    extract::{self, Request},
    response::{IntoResponse as _, Response},
    routing::post,
};
use serde_json::json;
use smoosh::KnownSmoosh;
use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};
use tokio::time;
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// The route, with its concurrency limit.
pub(super) fn routes(turns: Turns) -> Vec<Route> {
    const ERRORS: &[(u16, &str)] = &[
        (400, "The body or the proposed configuration is invalid."),
        route::FOREIGN,
        route::LATE_BODY,
        (409, "No file was watched for ten minutes yet, so no growth is known."),
        route::WRONG_TYPE,
        (503, "recliner is stopping, or the answer would take too long."),
    ];
    vec![
        Route::post::<WhatIfQuestion, WhatIf>(
            "/api/v1/what-if",
            "whatIf",
            post(what_if).layer(Extension(turns)),
            "A forecast under several sets of rules, days ahead.",
            json!({ "days": 7, "channels": "rent" }),
        )
        .errors(ERRORS)
        .detail("For each of `nothing` (no compaction), `smoosh` (with the cluster's settings, or CouchDB's defaults: the field `smoosh` says which), `in force`, and `proposed`: mean and peak waste, bytes written and compactions per day, the longest wait, what stays undone and why, and over time the waste, the files and each volume's free space, with the date on which it is full. Sizes continue to grow at the observed rate; 409 until a file was watched for ten minutes. With `channels` `smoosh-as-rent`, `as_rent` has channels by rent whose horizons keep the mean waste of smoosh, as `import smoosh --as rent` prints them."),
    ]
}

/// The days to look ahead, unless the question says otherwise.
const DAYS: u32 = 7;

/// The maximum size of a question, in bytes.
const MAX_BODY: usize = 1 << 16;

/// The maximum time to work on a question: twice what the slowest one takes for a million targets.
const MAX_WORK: Duration = Duration::from_secs(300);

/// The concurrency limit of this route, which is one.
#[derive(Clone, Debug)]
pub(super) struct Turns(pub(super) ConcurrencyLimit);

impl Default for Turns {
    fn default() -> Self {
        Self(ConcurrencyLimit::new(1))
    }
}

/// The names of the outlooks without compaction, under smoosh's rules, and under the current ones.
const NOTHING: &str = "nothing";
const SMOOSH: &str = "smoosh";
const IN_FORCE: &str = "in force";

/// The name of the outlook under the proposed rules.
const PROPOSED: &str = "proposed";

/// The word for channels by rent that waste as much as smoosh.
const SMOOSH_AS_RENT: &str = "smoosh-as-rent";

/// Forecasts the cluster without compaction, under smoosh's rules, under the current rules, and
/// under the proposed ones.
pub(super) async fn what_if(
    extract::State(state): extract::State<AppState>,
    Extension(Turns(turns)): Extension<Turns>,
    request: Request,
) -> Response {
    let answer = async {
        guard::check_question(&request).map_err(ApiError::from)?;
        let turn = Turn::of(&turns).await?;
        let body = read_body(request, MAX_BODY).await?;
        forecast(&state, &turn, move || parse_object(&body)).await
    };
    match answer.await {
        Ok(answer) => success(&answer),
        Err(refused) => refused.into_response(),
    }
}

/// Answers a question. The work ends early if the returned future is dropped.
pub(super) async fn forecast(
    state: &AppState,
    turn: &Turn,
    question: impl FnOnce() -> Result<WhatIfQuestion, ApiError> + Send + 'static,
) -> Result<WhatIf, ApiError> {
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let (clock, settings) = (state.clock, state.node_settings.clone());
    let advice = Arc::clone(&state.advice.borrow());
    let work = turn.work(state, move |plan| {
        let question = question()?;
        let (span, proposed) = (span(&question)?, Proposed::of(&question, &plan)?);
        let smoosh = KnownSmoosh::of(&settings.borrow());
        proposed.answer((&plan, &advice), smoosh, clock.now(), span, &stop)
    });
    time::timeout(MAX_WORK, work).await.unwrap_or_else(|_| {
        let most = MAX_WORK.as_secs() / 60;
        Err(ApiError::unavailable(format!(
            "the answer would take more than {most} minutes; ask for fewer days, or propose fewer channels, patterns and windows"
        )))
    })
}

fn span(question: &WhatIfQuestion) -> Result<Duration, ApiError> {
    let days = question.days.unwrap_or(DAYS);
    if days == 0 || days > MAX_DAYS {
        return Err(ApiError::bad(format!("days is {days}; it must be 1 to {MAX_DAYS}")));
    }
    Ok(Duration::from_secs(u64::from(days) * 86_400))
}

/// The rules that a question proposes.
#[derive(Debug)]
enum Proposed {
    Nothing,
    Rules(Policy),
    /// These rules, but with channels by rent that waste as much as smoosh.
    SmooshAsRent(Policy),
}

impl Proposed {
    fn of(question: &WhatIfQuestion, plan: &Plan) -> Result<Self, ApiError> {
        let in_force = Policy::in_force(plan);
        let config = question.config.as_deref();
        let configured = config.map(|text| configured(text, plan, &in_force)).transpose()?;
        let rules = || configured.clone().unwrap_or_else(|| in_force.clone());
        Ok(match question.channels.as_deref() {
            None => configured.map_or(Self::Nothing, Self::Rules),
            Some(SMOOSH_AS_RENT) => Self::SmooshAsRent(rules()),
            Some(word) => Self::Rules(preset(word, &rules())?),
        })
    }

    /// The forecast, starting at the moment of this plan.
    fn answer(
        self,
        (plan, advice): (&Plan, &AdviceView),
        smoosh: KnownSmoosh,
        now: Moment,
        span: Duration,
        stop: &CancellationToken,
    ) -> Result<WhatIf, ApiError> {
        let in_force = Policy::in_force(plan);
        let (snapshot, conditions) = (Arc::clone(&plan.snapshot), plan.conditions.clone());
        let present = Present { snapshot, conditions, now };
        let forecast = Forecast::new(&present, span, stop)
            .map_err(|early| ApiError::conflict(early, Conflict::Plain {}))?;
        let outlook = |name: &str, policy: Option<Policy>| {
            forecast.outlook(&Proposal { name: name.to_owned(), policy })
        };
        let of_smoosh = outlook(SMOOSH, Some(Policy::smoosh(&smoosh.channels)));
        let mut outlooks =
            vec![outlook(NOTHING, None), of_smoosh.clone(), outlook(IN_FORCE, Some(in_force))];
        let mut as_rent = None;
        match self {
            Self::Nothing => {}
            Self::Rules(policy) => outlooks.push(outlook(PROPOSED, Some(policy))),
            Self::SmooshAsRent(rules) => {
                let AsRent { channels, findings } = import::as_rent(&smoosh.channels);
                let policy = Policy { channels: Arc::new(channels), ..rules };
                let kept = forecast.keep_waste(&of_smoosh, &policy, PROPOSED);
                let channels = &kept.policy.channels;
                as_rent = Some(RentProposal {
                    horizons: ProposedHorizon::all(channels, &kept.horizons),
                    findings,
                    config: config::write::channels_yaml(channels),
                });
                outlooks.push(kept.outlook);
            }
        }
        outlooks.iter_mut().for_each(|outlook| say_known_dates(outlook, advice));
        Ok(WhatIf::new(&forecast.answer(outlooks), smoosh.rules, as_rent))
    }
}

/// Uses the dates of advice and of the overview where they have one, so that all show the same
/// date.
fn say_known_dates(outlook: &mut Outlook, advice: &AdviceView) {
    for volume in &mut outlook.volumes {
        let Some(dates) = advice.fill_dates.get(&volume.name) else { continue };
        match outlook.name.as_str() {
            NOTHING => volume.full_at = dates.uncompacted,
            SMOOSH if dates.is_simulated => volume.full_at = dates.smoosh,
            IN_FORCE if dates.is_simulated => volume.full_at = dates.compacted,
            _ => {}
        }
    }
}

/// The channels of the cluster's smoosh settings, or CouchDB's defaults.
pub(crate) fn smoosh_channels(settings: &NodeSettings) -> Channels {
    KnownSmoosh::of(settings).channels
}

/// These rules with the channels of a preset.
fn preset(word: &str, rules: &Policy) -> Result<Policy, ApiError> {
    let Some(preset) = ChannelPreset::from_label(word) else {
        let words = ChannelPreset::labels().join(", ");
        return Err(ApiError::bad(format!(
            "channels is {word:?}; it must be {words} or {SMOOSH_AS_RENT}"
        )));
    };
    let channels = Channels { list: preset.channels(), ignore: rules.channels.ignore.clone() };
    Ok(Policy { channels: Arc::new(channels), ..rules.clone() })
}

/// The error, as a sentence, if a configuration names a node that is not among the known ones.
fn unknown_node(proposed: &Settings, known: &[&str]) -> Option<String> {
    let volumes = proposed.headroom.volumes.iter().enumerate();
    let on_volumes = volumes.flat_map(|(at, volume)| {
        volume
            .nodes
            .iter()
            .map(move |node| (format!("headroom.volumes[{at}].nodes"), node.as_str()))
    });
    let served = proposed.nodes.names().map(|node| ("nodes".to_owned(), node));
    let addresses = proposed.couchdb.nodes.keys();
    let addresses = addresses.map(|node| ("couchdb.nodes".to_owned(), node.as_str()));
    let mut named = served.chain(addresses).chain(on_volumes);
    let (key, node) = named.find(|(_, node)| !known.contains(node))?;
    Some(format!(
        "{key}: {node} is not in this cluster ({}); correct `{key}`, or point --recliner.url at the recliner that serves {node}",
        known.join(", ")
    ))
}

/// The rules of a proposed configuration, which may name only nodes that are known here.
fn configured(text: &str, plan: &Plan, in_force: &Policy) -> Result<Policy, ApiError> {
    let file = File { name: Path::new("config"), bytes: text.as_bytes() };
    let proposed = config::load_policy(file).map_err(ApiError::bad)?;
    let nodes = plan.snapshot.nodes().iter().skip(NodeIx::CLUSTER.as_usize() + 1);
    // A node that has been down since recliner started is known only from the configured volumes.
    let on_volumes = in_force.rules.headroom.volumes.iter().flat_map(|volume| &volume.nodes);
    let known: BTreeSet<&str> =
        nodes.map(|node| &*node.name).chain(on_volumes.map(String::as_str)).collect();
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(why) = unknown_node(&proposed, &known) {
        return Err(ApiError::bad(why));
    }
    let rules = crate::plan::Rules {
        limits: proposed.limits,
        headroom: proposed.headroom.clone(),
        rent: proposed.rent,
        views: proposed.views.enforce,
        ..in_force.rules.clone()
    };
    Ok(Policy { channels: Arc::new(proposed.channels), rules })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::what_if::{FillDates, VolumeOutlook};

    #[test]
    fn volume_is_full_on_the_date_of_the_advice() {
        let at = |at| Some(Moment::from_unix(at));
        let full = |name: &str, is_simulated| {
            let dates =
                FillDates { uncompacted: at(1), compacted: at(2), smoosh: at(3), is_simulated };
            let mut advice = AdviceView::default();
            advice.fill_dates.insert("a".into(), dates);
            let mut outlook = Outlook {
                name: name.to_owned(),
                volumes: vec![VolumeOutlook {
                    name: "a".into(),
                    free_bytes: Vec::new(),
                    full_at: at(9),
                }],
                ..Outlook::default()
            };
            say_known_dates(&mut outlook, &advice);
            outlook.volumes[0].full_at
        };
        let names = [NOTHING, SMOOSH, IN_FORCE, PROPOSED];
        assert_eq!(names.map(|name| full(name, true)), [at(1), at(3), at(2), at(9)]);
        assert_eq!(names.map(|name| full(name, false)), [at(1), at(9), at(9), at(9)]);
    }

    fn refused(text: &str) -> Option<String> {
        let file = File { name: Path::new("x.yml"), bytes: text.as_bytes() };
        unknown_node(&config::load_policy(file).unwrap(), &["couchdb@a", "couchdb@b"])
    }

    #[test]
    fn refuses_configuration_of_another_cluster_and_names_the_key() {
        for (text, key) in [
            ("nodes: [couchdb@a, couchdb@x]\n", "nodes"),
            ("nodes: [_all]\ncouchdb: {nodes: {couchdb@x: \"http://x:5984\"}}\n", "couchdb.nodes"),
            (
                "headroom: {volumes: [{nodes: [couchdb@b], available: 1GB}, {nodes: [couchdb@a, couchdb@x], available: 1GB}]}\n",
                "headroom.volumes[1].nodes",
            ),
        ] {
            let says = format!(
                "{key}: couchdb@x is not in this cluster (couchdb@a, couchdb@b); correct `{key}`, or point --recliner.url at the recliner that serves couchdb@x"
            );
            assert_eq!(refused(text), Some(says));
        }
    }

    #[test]
    fn accepts_configuration_with_known_nodes_only() {
        for text in [
            "channels: rent\n",
            "nodes: [couchdb@a]\ncouchdb: {urls: [\"http://elsewhere:5984\"], nodes: {couchdb@b: \"http://b:5984\"}}\n",
        ] {
            assert_eq!(refused(text), None, "{text}");
        }
    }
}
