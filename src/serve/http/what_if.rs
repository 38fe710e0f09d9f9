//! `POST /api/v1/what-if`: a forecast under several sets of rules, days ahead.
//!
//! A forecast runs on its own thread, one request at a time: a million targets take many seconds. A
//! question is read before its turn and parsed only within it, and abandoned when its time is over or
//! will not suffice, or when its client has disconnected.

mod smoosh;

use super::{
    admin::parse_object,
    error::ApiError,
    route::{self, Route},
    state::AppState,
    turn::Turn,
};
use crate::{
    advice::{AdviceView, ForecastView},
    config::{self, File},
    import::{self, AsRent},
    model::{
        channel::{ChannelPreset, Channels},
        forecast::{Forecast, Withheld},
        records::ForecastRecord,
        settings::Settings,
    },
    plan::Plan,
    serve::report::{Conflict, MAX_DAYS, ProposedHorizon, RentProposal, WhatIf, WhatIfQuestion},
    sources::node_settings::NodeSettings,
    table::NodeIx,
    text::Label,
    what_if::{Outlook, Outlooks, Policy, Present, Proposal, SAMPLES, volume_forecast},
};
use axum::body::Bytes;
use serde_json::json;
use smoosh::KnownSmoosh;
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

pub(super) fn routes() -> Vec<Route> {
    const ERRORS: &[(u16, &str)] = &[
        (400, "The body or the proposed configuration is invalid."),
        route::FOREIGN,
        route::LATE_BODY,
        (409, "No file has been watched for ten minutes yet, so growth is unknown."),
        route::WRONG_TYPE,
        (
            503,
            "recliner is stopping, there are too many requests, or the answer would take too long.",
        ),
    ];
    vec![
        Route::question::<WhatIfQuestion, _, _>(
            ("/api/v1/what-if", "whatIf"),
            (|limits| &limits.forecasts, MAX_BODY),
            what_if,
            "A forecast of the next days under several sets of rules.",
            json!({ "days": 7, "channels": "rent" }),
        )
        .errors(ERRORS)
        .detail("For each of `nothing` (no compaction), `smoosh` (with the cluster's settings, or CouchDB's defaults: the field `smoosh` says which), `in force`, and `proposed`: mean and peak waste, bytes written and compactions per day, the longest wait, what is not compacted and why, and over time the waste, the files and each volume's free space, with the date on which the forecast says it will be full, and its range. Sizes continue to grow at the observed rate; 409 until a file has been watched for ten minutes. A million targets take many seconds, and requests run one at a time: one that waits longer than 30 seconds is refused with `Retry-After`. A forecast ends after five minutes, or when its client disconnects. With `channels` `smoosh-as-rent`, `as_rent` has channels by rent whose horizons keep the mean waste of smoosh, as `import smoosh --as rent` prints them."),
    ]
}

/// The days to look ahead, unless the question says otherwise.
const DAYS: u32 = 7;

/// The maximum size of a question, in bytes.
const MAX_BODY: usize = 1 << 16;

/// The maximum time to work on a question: twice what the slowest one takes for a million targets.
const MAX_WORK: Duration = Duration::from_secs(300);

/// How often it is checked whether a question can still be answered in time.
const CHECK: Duration = Duration::from_secs(60);

/// Work that would take this many times the time that is left, at the pace since the last check, is given up: one
/// sample may take far longer than another.
const MARGIN: f64 = 3.0;

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
async fn what_if(state: AppState, turn: Turn, body: Bytes) -> Result<WhatIf, ApiError> {
    forecast(&state, &turn, move || parse_object(&body)).await
}

/// Answers a question. The work ends early if the returned future is dropped.
pub(super) async fn forecast(
    state: &AppState,
    turn: &Turn,
    question: impl FnOnce() -> Result<WhatIfQuestion, ApiError> + Send + 'static,
) -> Result<WhatIf, ApiError> {
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let samples_left = Arc::new(AtomicI64::new(i64::MAX));
    let counted = Arc::clone(&samples_left);
    let (clock, settings) = (state.clock, state.node_settings.clone());
    let advice = Arc::clone(&state.advice.borrow());
    let work = turn.work(state, move |plan| {
        let question = question()?;
        let (span, proposed) = (span(&question)?, Proposed::of(&question, &plan)?);
        let smoosh = KnownSmoosh::of(&settings.borrow());
        proposed.answer((&plan, &advice), smoosh, clock.now(), span, (&stop, &counted))
    });
    tokio::select! {
        answer = work => answer,
        () = until_too_late(&samples_left) => {
            let most = MAX_WORK.as_secs() / 60;
            Err(ApiError::unavailable(format!(
                "the answer would take more than {most} minutes; ask for fewer days, or propose fewer channels, patterns and windows"
            )))
        }
    }
}

/// Waits until the time for work is over, or will not suffice for the samples that are left.
async fn until_too_late(samples_left: &AtomicI64) {
    let (begun, mut before) = (Instant::now(), None);
    loop {
        time::sleep(CHECK).await;
        let left = samples_left.load(Ordering::Relaxed);
        let time_left = MAX_WORK.saturating_sub(begun.elapsed());
        if time_left.is_zero() || before.is_some_and(|before| is_hopeless(before, left, time_left))
        {
            return;
        }
        before = Some(left);
    }
}

/// Whether work is too slow: the samples that were left at the last check, and those that are left now.
fn is_hopeless(before: i64, left: i64, time_left: Duration) -> bool {
    let pace = before.saturating_sub(left) as f64 / CHECK.as_secs_f64();
    left as f64 > MARGIN * pace * time_left.as_secs_f64()
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
        (stop, samples_left): (&CancellationToken, &AtomicI64),
    ) -> Result<WhatIf, ApiError> {
        let in_force = Policy::in_force(plan);
        let (snapshot, conditions) = (Arc::clone(&plan.snapshot), plan.conditions.clone());
        let present = Present { snapshot, conditions, now };
        let forecast = Outlooks::new(&present, span, stop)
            .map_err(|early| ApiError::conflict(early, Conflict::Plain {}))?
            .counting_down(samples_left);
        let simulations = match self {
            Self::Nothing => 2,
            // The search for horizons may end after its first attempt.
            Self::Rules(_) | Self::SmooshAsRent(_) => 3,
        };
        samples_left.store(simulations * SAMPLES as i64, Ordering::Relaxed);
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
        let answer = forecast.answer(outlooks);
        let volume = |outlook: &Outlook, at| forecast_of(plan, advice, outlook, at, now);
        Ok(WhatIf::new(&answer, volume, smoosh.rules, as_rent))
    }
}

/// The forecast of an outlook's volume: that of advice and of the overview where they have one, so that all say the
/// same; otherwise one with the compactions of the outlook. None if the volume is gone.
fn forecast_of(
    plan: &Plan,
    advice: &AdviceView,
    outlook: &Outlook,
    at: usize,
    now: Moment,
) -> Option<Result<Forecast, Withheld>> {
    let ForecastView { by_volume, histories, records } = &*advice.forecasts;
    let of_outlook = outlook.volumes.get(at)?;
    if let Some(Ok(known)) = by_volume.get(&of_outlook.name) {
        match outlook.name.as_str() {
            NOTHING => return Some(Ok(known.uncompacted.clone())),
            SMOOSH => return Some(Ok(known.smoosh.clone())),
            IN_FORCE => return Some(Ok(known.in_force.clone())),
            _ => {}
        }
    }
    let volumes = &plan.conditions.disks.volumes;
    let volume = volumes.iter().find(|volume| volume.name == of_outlook.name)?;
    let record = records.get(&*volume.name);
    let widening = record.map_or([1.0; 3], ForecastRecord::widening);
    volume_forecast(plan, volume, histories, (&of_outlook.freed, widening), now)
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
        "{key}: {node} is not in this cluster ({}); correct `{key}`, or set --recliner.url to the recliner that serves {node}",
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
    use crate::{
        model::forecast::{FreedCourse, FullRange},
        what_if::{VolumeForecasts, VolumeOutlook},
    };

    #[test]
    fn standard_outlooks_use_the_full_dates_of_the_advice() {
        let of = |day: u64| Forecast {
            full: FullRange { median: Some(Moment::from_unix(day)), ..FullRange::default() },
            ..Forecast::default()
        };
        let known = VolumeForecasts { uncompacted: of(1), smoosh: of(2), in_force: of(3) };
        let by_volume = Arc::new([("a".into(), Ok(known))].into());
        let forecasts = Arc::new(ForecastView { by_volume, ..ForecastView::default() });
        let mut advice = AdviceView::default();
        advice.forecasts = forecasts;
        let full = |name: &str| {
            let volume = VolumeOutlook {
                name: "a".into(),
                nodes: Vec::new(),
                free_bytes: Vec::new(),
                freed: FreedCourse::default(),
            };
            let outlook =
                Outlook { name: name.to_owned(), volumes: vec![volume], ..Outlook::default() };
            let forecast = forecast_of(&Plan::default(), &advice, &outlook, 0, Moment::default());
            forecast.and_then(|forecast| forecast.ok()?.full.median).map(Moment::unix)
        };
        assert_eq!([NOTHING, SMOOSH, IN_FORCE].map(full), [Some(1), Some(2), Some(3)]);
        assert_eq!(full(PROPOSED), None, "it has a forecast of its own");
    }

    #[test]
    fn only_a_far_too_slow_simulation_is_given_up_early() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert!(is_hopeless(171, 171, minutes(3)));
        assert!(is_hopeless(171, 161, minutes(3)));
        assert!(!is_hopeless(171, 150, minutes(3)));
        // The first check, before anything is known, and the end of the least that is to be done.
        assert!(!is_hopeless(i64::MAX, 171, minutes(3)));
        assert!(!is_hopeless(0, -5, minutes(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn stuck_simulation_is_given_up_before_the_time_limit() {
        let begun = Instant::now();
        until_too_late(&AtomicI64::new(171)).await;
        assert_eq!(begun.elapsed(), 2 * CHECK);
        let (samples_left, begun) = (AtomicI64::new(171), Instant::now());
        let works = async {
            loop {
                time::sleep(Duration::from_secs(2)).await;
                samples_left.fetch_sub(1, Ordering::Relaxed);
            }
        };
        tokio::select! {
            () = until_too_late(&samples_left) => {}
            () = works => {}
        }
        assert_eq!(begun.elapsed(), MAX_WORK);
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
                "{key}: couchdb@x is not in this cluster (couchdb@a, couchdb@b); correct `{key}`, or set --recliner.url to the recliner that serves couchdb@x"
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
