//! A cluster as it appears among others, and several recliners together.

use super::{
    HourLine,
    columns::{Cell, Table, Value, day, rest, wide},
    vocabulary::{self, Word},
};
use crate::{
    advice::{AdviceView, rules},
    fleet::{Attention, Fleet, LastNight, Member, MemberState, OpenAdvice, Overview, WorstAdvice},
    plan::Plan,
    table::Waste,
    text::{Label as _, capital, counted, listed},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// Number of hours that count as last night.
pub const NIGHT: usize = 12;

/// An overview of a plan's cluster; `hours` are those of last night, if they could be read.
pub fn overview(
    plan: &Plan,
    advice: &AdviceView,
    hours: Option<&[HourLine]>,
    now: Moment,
) -> Overview {
    let waste = Waste::of(&plan.snapshot);
    let forecasts = || advice.forecasts.by_volume.iter();
    let known =
        || forecasts().filter_map(|(name, known)| Some((name, &known.as_ref().ok()?.in_force)));
    let full = known().filter_map(|(name, forecast)| Some((forecast.full.median?, name))).min();
    let disks = &plan.conditions.disks;
    let mut members = plan.snapshot.members();
    let is_measured =
        members.all(|(_, node)| disks.of_node(&node.name).any(|it| it.space.is_some()));
    let ends = known().map(|(_, forecast)| forecast.made_at.plus(forecast.reach()));
    let is_whole = full.is_none() && is_measured && known().count() == forecasts().count();
    Overview {
        file_bytes: waste.file_bytes(),
        waste_bytes: waste.wasted_bytes(),
        reclaimable_bytes: waste.reclaimable_bytes(),
        unmeasured: Some(waste.unmeasured()),
        unread_directories: Some(waste.unread_directories()),
        full_volume: full.map(|(_, name)| name.to_string()),
        full_at: full.map(|(at, _)| at.rfc3339()),
        not_full_until: ends.min().filter(|_| is_whole).map(Moment::rfc3339),
        last_night: hours.map(|hours| {
            let HourLine { compactions, freed_bytes, rewritten_bytes, failed, .. } =
                HourLine::sum(hours);
            LastNight { compactions, freed_bytes, rewritten_bytes, failed }
        }),
        problems: Vec::new(),
        warnings: Vec::new(),
        advice: advice.checked_at.map(|_| open_advice(advice, now)),
    }
}

fn open_advice(advice: &AdviceView, now: Moment) -> OpenAdvice {
    let open = rules().map(|rule| advice.open_of(rule.code, now).0.iter().sum::<u64>());
    let pieces = advice.pieces(now);
    let worst = pieces.iter().find(|piece| piece.muted.is_none()).map(|piece| WorstAdvice {
        severity: piece.finding.severity.label().to_owned(),
        code: piece.result.rule.code.to_owned(),
        says: piece.finding.says.clone(),
    });
    OpenAdvice { open: open.sum(), worst }
}

/// Other recliners, each for its own cluster, those that need a person first. Unknown is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetAnswer {
    /// How many need a person, in a sentence.
    pub says: String,
    /// The recliners, the most urgent first; then by the date on which a volume is full, then by waste.
    pub members: Vec<MemberLine>,
    /// What could not be read from the lists that name recliners; their last content is used.
    pub problems: Vec<String>,
}

/// A recliner and its last answer about its cluster. Without an answer, all of that is null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberLine {
    /// The name that a list gives it, otherwise its host and port.
    pub name: String,
    /// The URL of its API and console.
    pub url: String,
    /// Why it needs a person.
    #[schemars(with = "vocabulary::Attention")]
    pub attention: Word,
    /// The reason as a sentence; empty if nothing needs a person and nothing is advised.
    pub says: String,
    /// Since when it has not answered: its last answer, otherwise the first request; null if it answered.
    pub silent_since: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Its mode.
    pub mode: Option<String>,
    /// What is suspended, in sentences.
    pub suspended: Option<Vec<String>>,
    /// Its overview of its cluster.
    #[serde(flatten)]
    pub overview: Overview,
}

impl FleetAnswer {
    /// The members, the most urgent first.
    pub fn of(fleet: &Fleet, now: Moment) -> Self {
        let members = fleet.members.iter().map(AsRef::as_ref);
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        members.clone().for_each(|member| *named.entry(member.name()).or_default() += 1);
        let line = |(attention, member): &(Attention, &Member)| {
            let name = match named.get(member.name()) {
                Some(2..) => format!("{} ({})", member.name(), member.address.authority()),
                Some(_) | None => member.name().to_owned(),
            };
            MemberLine::of(name, *attention, member)
        };
        let sorted = Attention::sorted(members, now);
        Self {
            says: says_of(fleet, &sorted),
            members: sorted.iter().map(line).collect(),
            problems: fleet.problems.clone(),
        }
    }
}

/// How many members there are, how many need a person, and why.
fn says_of(fleet: &Fleet, sorted: &[(Attention, &Member)]) -> String {
    if !fleet.is_configured {
        return "No other recliners are configured; list them under fleet.urls, fleet.file_sd or fleet.http_sd."
            .to_owned();
    }
    let all = counted(sorted.len() as u64, "recliner", "recliners");
    let mut parts = Vec::new();
    for attention in Attention::each().filter(|it| it.needs_a_person()) {
        let count = sorted.iter().filter(|(it, _)| *it == attention).count();
        if count > 0 {
            parts.push(format!("{count} {}", attention.words()));
        }
    }
    match parts.len() {
        0 if !fleet.problems.is_empty() => {
            format!(
                "{all}; {} could not be read.",
                counted(fleet.problems.len() as u64, "list", "lists")
            )
        }
        0 => format!("{all}; none is known to need attention."),
        _ => format!("{all}: {}.", listed(&parts)),
    }
}

impl FleetAnswer {
    /// The recliners; in the console, each name links to that recliner's console.
    pub(crate) fn table(&self) -> Table<&MemberLine> {
        let attention = |it: &MemberLine| {
            let words = it.attention.replace('_', " ");
            let is_suspended = it.suspended.as_ref().is_some_and(|all| !all.is_empty());
            let is_said = *it.attention == *Attention::Suspended.label();
            let more = if is_suspended && !is_said { ", suspended" } else { "" };
            Cell::words(format!("{words}{more}")).styled(it.class())
        };
        Table::of(&self.members)
            .text("recliner", |it| Cell::from(&*it.name).leading(it.url.clone()))
            .number("on disk", |it| it.sum(it.overview.file_bytes, 0))
            .number("waste", |it| {
                it.sum(it.overview.waste_bytes, it.overview.unread_directories.unwrap_or_default())
            })
            .number(wide("reclaimable"), |it| it.sum(it.overview.reclaimable_bytes, 0))
            .text(rest("full"), MemberLine::full)
            .text(wide("last night"), MemberLine::night)
            .number(wide("advice"), |it| it.overview.advice.as_ref().map(|it| Cell::count(it.open)))
            .text(wide("mode"), |it| it.mode.as_deref())
            .text(wide("version"), |it| it.version.as_deref())
            .text("attention", attention)
    }

    /// Why each needs a person, in a sentence.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = String> {
        let needy = self.members.iter().filter(|it| it.attention != "nothing");
        needy.filter(|it| !it.says.is_empty()).map(
            |MemberLine { name, says, silent_since, .. }| {
                let since = silent_since.as_ref().map(|since| format!("silent since {since}: "));
                format!("{name}: {}{says}", since.unwrap_or_default())
            },
        )
    }
}

impl MemberLine {
    /// A sum, marked if it is a lower bound.
    fn sum(&self, sum: Option<u64>, unread: u64) -> Cell {
        let unmeasured = self.overview.unmeasured.unwrap_or_default();
        Cell::bounded(sum, unmeasured.saturating_add(unread), 0)
    }

    fn full(&self) -> Cell {
        match (&self.overview.full_at, &self.overview.not_full_until) {
            (Some(at), _) => Cell::date(at),
            (None, Some(until)) => Cell::words("not before ").and(Cell::date(until)).quiet(),
            (None, None) => Value::Unknown.into(),
        }
    }

    fn night(&self) -> Cell {
        let Some(night) = &self.overview.last_night else { return Value::Unknown.into() };
        if night.compactions == 0 {
            return Cell::words("nothing").quiet();
        }
        let failed = (night.failed > 0).then(|| format!(", {} failed", night.failed));
        Cell::bytes(night.freed_bytes)
            .and(Cell::words(format!(" freed by {}", counted(night.compactions, "job", "jobs"))))
            .and(Cell::words(failed.unwrap_or_default()).styled("bad"))
    }

    fn class(&self) -> &'static str {
        match &*self.attention {
            "silent" | "refused" | "problem" | "critical_advice" => "bad",
            "nothing" | "unknown" => "quiet",
            _ => "warn",
        }
    }

    fn of(name: String, attention: Attention, member: &Member) -> Self {
        let answer = member.answer();
        let silent_since = match &member.state {
            MemberState::Silent(silence) => Some(silence.since.rfc3339()),
            MemberState::Unasked | MemberState::Answered(_) => None,
        };
        let suspended = answer.and_then(|it| it.suspended());
        Self {
            name,
            url: member.address.to_string(),
            attention: attention.label().into(),
            says: says(attention, member),
            silent_since,
            version: answer.map(|it| it.version.clone()),
            mode: answer.and_then(|it| it.mode.clone()),
            suspended: suspended.map(|all| all.into_iter().map(str::to_owned).collect()),
            overview: answer.map(|it| it.overview.clone()).unwrap_or_default(),
        }
    }
}

/// Why a member needs a person, in a sentence.
fn says(attention: Attention, member: &Member) -> String {
    let answer = match &member.state {
        MemberState::Unasked => return "not asked yet".to_owned(),
        MemberState::Silent(silence) => return silence.why.clone(),
        MemberState::Answered(answer) => answer,
    };
    let overview = &answer.overview;
    let worst = overview.advice.as_ref().and_then(|advice| advice.worst.as_ref());
    let worst = || worst.map(|it| it.says.clone());
    let says = match attention {
        Attention::Problem => answer.any_problem().map(str::to_owned),
        Attention::FullSoon => overview.full_at.as_ref().map(|at| {
            let day = day(at);
            match &overview.full_volume {
                Some(volume) => {
                    format!("{volume} will be full on {day}, even if compaction keeps up")
                }
                None => format!("a volume will be full on {day}, even if compaction keeps up"),
            }
        }),
        Attention::Suspended => answer.suspended().map(|all| capital(&all.join("; "))),
        Attention::Unknown if overview == &Overview::default() => {
            Some(format!("version {} reports no more than this", answer.version))
        }
        Attention::Unknown => Some("it has not evaluated its advice yet".to_owned()),
        Attention::Silent | Attention::Refused | Attention::CriticalAdvice | Attention::Nothing => {
            worst()
        }
        Attention::Warning => overview.warnings.first().cloned().or_else(worst),
    };
    says.unwrap_or_default()
}
