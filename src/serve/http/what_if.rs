//! `GET /api/v1/what-if`: what would happen under several rules, days ahead.
//!
//! It works on a thread of its own, one request at a time: a million targets take many seconds.

use super::{
    AppState,
    api::{ApiError, ValidQuery, in_turn, success},
    guard::ConcurrencyLimit,
};
use crate::{
    config::{self, File},
    model::channel::{ChannelPreset, Channels},
    plan::Plan,
    serve::report::{Conflict, WhatIf},
    table::NodeIx,
    what_if::{Policy, Present, Proposal, outlooks},
};
use axum::{
    Extension, extract,
    response::{IntoResponse as _, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{path::Path, sync::Arc, time::Duration};

/// The days that are looked ahead, unless asked otherwise, and at most.
const DAYS: u32 = 7;
const MAX_DAYS: u32 = 366;

/// What to look ahead for.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WhatIfQuery {
    /// Days to look ahead; default 7.
    #[schemars(range(min = 1, max = MAX_DAYS))]
    days: Option<u32>,
    /// Propose one of the ready lists of channels, with everything else as `config` has it, or as it is in
    /// force.
    #[schemars(with = "Option<PresetName>")]
    channels: Option<String>,
    /// Propose the rules of a configuration: a `recliner.yml`, of which only `nodes`, `mode`, `channels`,
    /// `ignore`, `limits`, `headroom`, `rent` and `views` count.
    config: Option<String>,
}

/// The name of a ready list of channels.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
enum PresetName {
    Smoosh,
    Rent,
}

/// The one turn of this route.
#[derive(Clone, Debug)]
pub(super) struct Turns(ConcurrencyLimit);

impl Default for Turns {
    fn default() -> Self {
        Self(ConcurrencyLimit::new(1))
    }
}

/// What would happen if nothing were compacted, under smoosh's rules, under those in force, and under
/// the proposed ones.
pub(super) async fn what_if(
    extract::State(state): extract::State<AppState>,
    Extension(Turns(turns)): Extension<Turns>,
    ValidQuery(query): ValidQuery<WhatIfQuery>,
) -> Response {
    // A wrong query is refused at once, not when its turn comes.
    let plan = Arc::clone(&state.plan.borrow());
    if let Err(refused) = query.span().and_then(|_| query.proposals(&plan)) {
        return refused.into_response();
    }
    drop(plan);
    let clock = state.clock;
    let work = move |plan: Arc<Plan>| {
        let (snapshot, conditions) = (Arc::clone(&plan.snapshot), plan.conditions.clone());
        let present = Present { snapshot, conditions, now: clock.now() };
        let answer = outlooks(&present, &query.proposals(&plan)?, query.span()?);
        answer
            .map(|answer| WhatIf::from(&answer))
            .map_err(|early| ApiError::conflict(early, Conflict::Plain {}))
    };
    match in_turn(&state, &turns, work).await {
        Ok(answer) => success(&answer),
        Err(refused) => refused,
    }
}

impl WhatIfQuery {
    fn span(&self) -> Result<Duration, ApiError> {
        let days = self.days.unwrap_or(DAYS);
        if days == 0 || days > MAX_DAYS {
            return Err(ApiError::bad(format!("days is {days}; it must be 1 to {MAX_DAYS}")));
        }
        Ok(Duration::from_secs(u64::from(days) * 86_400))
    }

    fn proposals(&self, plan: &Plan) -> Result<Vec<Proposal>, ApiError> {
        let in_force =
            Policy { channels: Arc::clone(&plan.channels), rules: (*plan.rules).clone() };
        let configured =
            self.config.as_deref().map(|text| configured(text, plan, &in_force)).transpose()?;
        let proposed = match self.channels.as_deref() {
            None => configured,
            Some(word) => Some(preset(word, configured.as_ref().unwrap_or(&in_force))?),
        };
        let named = [
            ("nothing", Some(None)),
            ("smoosh", Some(Some(Policy::smoosh()))),
            ("in force", Some(Some(in_force))),
            ("proposed", proposed.map(Some)),
        ];
        let named = named.into_iter().filter_map(|(name, policy)| Some((name, policy?)));
        Ok(named.map(|(name, policy)| Proposal { name: name.to_owned(), policy }).collect())
    }
}

/// These rules with one of the ready lists of channels.
fn preset(word: &str, rules: &Policy) -> Result<Policy, ApiError> {
    let Some(preset) = ChannelPreset::from_label(word) else {
        let words = ChannelPreset::ALL.map(ChannelPreset::label).join(" or ");
        return Err(ApiError::bad(format!("channels is {word:?}; it must be {words}")));
    };
    let channels = Channels { list: preset.channels(), ignore: rules.channels.ignore.clone() };
    Ok(Policy { channels: Arc::new(channels), ..rules.clone() })
}

/// The rules of a proposed configuration, which must be for nodes that are known here.
fn configured(text: &str, plan: &Plan, in_force: &Policy) -> Result<Policy, ApiError> {
    let file = File { name: Path::new("config"), bytes: text.as_bytes() };
    let proposed = config::load_policy(file).map_err(ApiError::bad)?;
    let known = |name: &str| plan.snapshot.nodes().iter().skip(1).any(|node| *node.name == *name);
    if let Some(stranger) = proposed.nodes.names().find(|name| !known(name)) {
        let cluster = NodeIx::CLUSTER.as_usize();
        let names: Vec<&str> =
            plan.snapshot.nodes().iter().skip(cluster + 1).map(|node| &*node.name).collect();
        return Err(ApiError::bad(format!(
            "the configuration is for the node {stranger}, and this recliner knows {}; ask one that reads it",
            names.join(", ")
        )));
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
