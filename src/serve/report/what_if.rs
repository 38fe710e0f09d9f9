//! The API's forecast under several sets of rules, days ahead.

use super::{
    FullDates,
    columns::{Cell, Table, rest},
    vocabulary,
    vocabulary::Word,
};
use crate::{
    model::{
        channel::Channels,
        forecast::{Forecast, Withheld},
        rounding::to_bytes,
        target::TargetKind,
    },
    plan::disk::volume_title,
    text::{Label, duration, grouped, size},
    what_if::{Answer, Evidence, KeptHorizon, Outlook, SAMPLES, Undone, VolumeOutlook, WasteFit},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The maximum number of days to look ahead.
pub const MAX_DAYS: u32 = 366;

/// What to forecast.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WhatIfQuestion {
    /// Number of days to look ahead; default 7.
    #[schemars(range(min = 1, max = MAX_DAYS))]
    pub days: Option<u32>,
    /// Propose a ready list of channels, or channels by rent that keep the mean waste of the cluster's smoosh,
    /// with everything else as in `config` or as in force.
    #[schemars(with = "Option<ListName>")]
    pub channels: Option<String>,
    /// Propose the rules of a `recliner.yml`: only `nodes`, `mode`, `channels`, `ignore`, `limits`, `headroom`,
    /// `rent` and `views` count, and the names of nodes in `couchdb.nodes`.
    pub config: Option<String>,
}

/// The name of a list of channels.
#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
#[expect(dead_code, reason = "only its schema is used")]
enum ListName {
    Smoosh,
    Rent,
    SmooshAsRent,
}

/// Forecasts under several sets of rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    /// When the forecasts begin: now.
    pub from: String,
    /// Length of the forecasts, in seconds.
    pub seconds: u64,
    /// Seconds between two values of a list over time.
    pub step_seconds: f64,
    /// Bytes of files whose growth is known.
    pub watched_bytes: u64,
    /// Bytes of shards and views; unused files do not grow.
    pub file_bytes: u64,
    /// How long files were watched, in seconds: the mean, weighted by their bytes.
    pub watched_seconds: u64,
    /// The settings that the forecast for smoosh uses.
    pub smoosh: SmooshRules,
    /// One forecast for each set of rules: `nothing`, `smoosh`, `in force`, and `proposed` if rules were
    /// proposed.
    pub outlooks: Vec<OutlookLine>,
    /// The proposed channels by rent; null unless `channels` is `smoosh-as-rent`.
    pub as_rent: Option<RentProposal>,
}

/// The settings that the forecast for CouchDB's smoosh uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SmooshRules {
    /// Whether these are the cluster's settings, or CouchDB's defaults.
    #[schemars(with = "vocabulary::SmooshSettings")]
    pub settings: Word,
    /// The nodes that have these settings.
    pub nodes: Vec<String>,
    /// Nodes with other settings, which the forecast does not use.
    pub other_nodes: Vec<String>,
    /// What is used and why, as a sentence.
    pub says: String,
}

/// Channels by rent that leave as much waste as smoosh does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RentProposal {
    /// The horizon of each channel by rent.
    pub horizons: Vec<ProposedHorizon>,
    /// Properties of smoosh's channels that could not be kept, in sentences.
    pub findings: Vec<String>,
    /// The channels in the form of a `recliner.yml`: `channels`, and `ignore` if smoosh ignores anything.
    pub config: String,
}

/// The horizon of a proposed channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProposedHorizon {
    /// The channel.
    pub channel: String,
    /// The kind of target that the channel takes.
    #[schemars(with = "vocabulary::Kind")]
    pub kind: Word,
    /// The horizon, in seconds.
    pub horizon_seconds: u64,
    /// Mean of the bytes that smoosh leaves wasted in targets of this kind.
    pub smoosh_waste_bytes: u64,
    /// Mean of the bytes that this horizon leaves wasted in targets of this kind.
    pub waste_bytes: u64,
    /// How the two means compare.
    #[schemars(with = "vocabulary::WasteFit")]
    pub fit: Word,
    /// The comparison as a sentence.
    pub says: String,
}

impl WhatIf {
    /// The rules side by side.
    pub(crate) fn rules(&self) -> Table<&OutlookLine> {
        let wait = |it: &OutlookLine| it.longest_wait_seconds.map(|wait| wait as f64);
        Table::of(&self.outlooks)
            .text("rules", |it| Cell::rules(it.title(), &it.name))
            .number("mean waste", |it| Cell::bytes(it.mean_waste_bytes))
            .number(rest("peak waste"), |it| Cell::bytes(it.peak_waste_bytes))
            .number("rewritten a day", |it| Cell::bytes(to_bytes(it.rewritten_bytes_per_day)))
            .number(rest("compactions a day"), |it| match it.compactions_per_day {
                few @ ..10.0 => Cell::words(format!("{few:.1}")),
                many => Cell::words(format!("{many:.0}")),
            })
            .number(rest("longest wait"), |it| wait(it).map_or_else(Cell::none, Cell::seconds))
            .number("waiting at the end", OutlookLine::waiting)
    }

    /// Why targets still wait at the end, starting with the reason that holds back the most bytes.
    pub(crate) fn undone(&self) -> Table<(bool, &OutlookLine, &UndoneLine)> {
        let lines = self.outlooks.iter().flat_map(|outlook| {
            outlook.undone.iter().enumerate().map(move |(at, line)| (at == 0, outlook, line))
        });
        Table::of(lines)
            .text("rules", |(is_first, outlook, _)| match is_first {
                true => Cell::rules(outlook.title(), &outlook.name),
                false => Cell::none(),
            })
            .number("targets", |(.., line)| Cell::count(line.targets))
            .number("reclaimable", |(.., line)| Cell::bytes(line.reclaimable_bytes))
            .says("because", |(.., line)| Cell::words(&line.says))
    }

    /// The free space of each volume under each set of rules.
    pub(crate) fn volumes(&self) -> Table<(bool, &OutlookLine, &VolumeOutlookLine)> {
        let first = self.outlooks.first().map_or(0, |outlook| outlook.volumes.len());
        let lines = (0..first).flat_map(|volume| {
            let lines = self.outlooks.iter().enumerate();
            lines.filter_map(move |(at, it)| Some((at == 0, it, it.volumes.get(volume)?)))
        });
        Table::of(lines)
            .text("volume", |(is_first, _, line)| match is_first {
                true => Cell::from(line.title()),
                false => Cell::none(),
            })
            .text("rules", |(_, outlook, _)| Cell::rules(outlook.title(), &outlook.name))
            .number("free now", |(.., line)| Cell::bytes(line.free_bytes.first().copied()))
            .number("free at the end", |(.., line)| match line.free_ahead(self.seconds).last() {
                Some(free) => Cell::bytes(Some(*free)),
                None => Cell::words("not known"),
            })
            .text("full", |(.., line)| match &line.full.full_at {
                Some(at) => Cell::date(at),
                None => Cell::words(line.not_full_in_words()),
            })
    }
}

impl WhatIf {
    /// Why the free space of a volume ahead is not known, as sentences.
    pub(crate) fn withheld(&self) -> Vec<String> {
        let volumes = self.outlooks.first().map_or(&[][..], |outlook| &outlook.volumes);
        let says = |it: &VolumeOutlookLine| {
            let (title, why) = (it.title(), it.forecast_withheld.as_ref()?);
            Some(format!("The free space ahead of {title} is not known: {why}."))
        };
        volumes.iter().filter_map(says).collect()
    }
}

impl OutlookLine {
    fn waiting(&self) -> Cell {
        let (waste, targets) = (self.waste_bytes.last().copied(), self.undone_targets);
        match (&*self.name, targets) {
            ("nothing", _) => Cell::bytes(waste).explained(Some("nothing is compacted")),
            (_, 0) => Cell::words("nothing"),
            _ => {
                Cell::bytes(self.undone_bytes).and(Cell::words(format!(" in {}", grouped(targets))))
            }
        }
    }

    /// The name of the rules, for people.
    pub fn title(&self) -> &str {
        if self.name == "in force" { "current rules" } else { &self.name }
    }
}

/// The forecast under one set of rules. Lists over time have equal steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutlookLine {
    /// The name of the rules.
    pub name: String,
    /// Mean of the bytes that compactions would free.
    pub mean_waste_bytes: u64,
    /// Maximum of the bytes that compactions would free.
    pub peak_waste_bytes: u64,
    /// Bytes that compactions write per day.
    pub rewritten_bytes_per_day: f64,
    /// Total bytes that compactions free.
    pub freed_bytes: u64,
    /// Number of compactions per day.
    pub compactions_per_day: f64,
    /// Longest time that a target waits in a queue, in seconds; null if none waits.
    pub longest_wait_seconds: Option<u64>,
    /// Number of targets that still wait at the end.
    pub undone_targets: u64,
    /// Bytes that compacting these would free.
    pub undone_bytes: u64,
    /// Why these targets wait, the reason with the most bytes first.
    pub undone: Vec<UndoneLine>,
    /// Whether there were so many compactions that they were decided in batches.
    pub coarse: bool,
    /// Bytes that compactions would free, over time.
    pub waste_bytes: Vec<u64>,
    /// Bytes of all files, over time.
    pub file_bytes: Vec<u64>,
    /// The volumes with known free space.
    pub volumes: Vec<VolumeOutlookLine>,
}

/// The targets that wait at the end for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoneLine {
    /// Why the targets do not start.
    #[schemars(with = "vocabulary::RefusalReason")]
    pub reason: Word,
    /// The reason in words.
    pub says: String,
    /// Number of targets.
    pub targets: u64,
    /// Bytes that compacting them would free.
    pub reclaimable_bytes: u64,
}

/// The forecast of a volume's free space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeOutlookLine {
    /// The volume's name.
    pub name: String,
    /// The nodes with files on the volume.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Free bytes, over time: the median of the forecast if it reaches as far, or what the simulation says.
    pub free_bytes: Vec<u64>,
    /// When the volume is full, within `forecast_seconds`.
    #[serde(flatten)]
    pub full: FullDates,
    /// How far the forecast reaches, in seconds; null if growth was not watched for long enough for one.
    pub forecast_seconds: Option<u64>,
    /// Why there is no forecast, so that `free_bytes` is only simulated; null if there is one.
    #[serde(default)]
    pub forecast_withheld: Option<String>,
}

impl WhatIf {
    /// How far to trust the forecast, as a sentence.
    pub fn trust(&self) -> String {
        let part = size::format_part(self.watched_bytes, self.file_bytes);
        let watched = duration::in_words(Duration::from_secs(self.watched_seconds));
        let short = match self.seconds.checked_div(self.watched_seconds) {
            _ if self.watched_seconds >= self.seconds => "",
            Some(..=4) => " That is shorter than the forecast, so treat it as an estimate.",
            None | Some(_) => {
                " That is far shorter than the forecast, so treat it as a first estimate."
            }
        };
        format!("Growth rates are known for {part}, measured over {watched} on average.{short}")
    }
}

impl WhatIf {
    /// How the real smoosh differs from the forecast, as a sentence.
    pub const SMOOSH_AT_ITS_BEST: &str = "The real smoosh does less: it checks a file only after a write, and then ignores it for [smoosh] staleness (5 minutes by default). As shown here, it ignores free space";

    /// The outlook with this name.
    pub fn outlook(&self, name: &str) -> Option<&OutlookLine> {
        self.outlooks.iter().find(|outlook| outlook.name == name)
    }

    /// Builds the response, with the forecast of each volume of an outlook; `smoosh` are the settings under which
    /// smoosh is shown.
    pub fn new(
        answer: &Answer,
        forecast: impl Fn(&Outlook, usize) -> Option<Result<Forecast, Withheld>>,
        smoosh: SmooshRules,
        as_rent: Option<RentProposal>,
    ) -> Self {
        let Answer { from, span, evidence, outlooks } = answer;
        let Evidence { watched_bytes, file_bytes, watched } = *evidence;
        Self {
            from: from.rfc3339(),
            seconds: span.as_secs(),
            step_seconds: span.as_secs_f64() / (SAMPLES - 1) as f64,
            watched_bytes,
            file_bytes,
            watched_seconds: watched.as_secs(),
            smoosh,
            outlooks: outlooks
                .iter()
                .map(|outlook| OutlookLine::of(outlook, |at| forecast(outlook, at), *span))
                .collect(),
            as_rent,
        }
    }
}

impl ProposedHorizon {
    /// A line for each channel by rent.
    pub fn all(channels: &Channels, kept: &[KeptHorizon]) -> Vec<Self> {
        let of = |name: &str, kind| {
            kept.iter().find(|kept| kept.kind == kind).map(|kept| Self::of(name, kept))
        };
        channels.by_rent().filter_map(|channel| of(&channel.name, channel.kind)).collect()
    }

    fn of(channel: &str, kept: &KeptHorizon) -> Self {
        Self {
            channel: channel.to_owned(),
            kind: kept.kind.label().into(),
            horizon_seconds: kept.horizon.as_secs(),
            smoosh_waste_bytes: kept.wanted_bytes,
            waste_bytes: kept.waste_bytes,
            fit: kept.fit.label().into(),
            says: says(kept),
        }
    }
}

/// The effect of a horizon, in a sentence.
fn says(kept: &KeptHorizon) -> String {
    let what = if kept.kind == TargetKind::View { "views" } else { "databases" };
    let (before, after) =
        (size::format_size(kept.wanted_bytes), size::format_size(kept.waste_bytes));
    let horizon = duration::format_exact(kept.horizon);
    match kept.fit {
        WasteFit::Near => {
            format!(
                "{what} waste {before} on average under smoosh, and {after} with a horizon of {horizon}"
            )
        }
        WasteFit::Rough => format!(
            "{what} waste {before} on average under smoosh; the nearest found is {after}, with a horizon of {horizon}"
        ),
        WasteFit::More => {
            let views = if kept.kind == TargetKind::View { ", views.enforce" } else { "" };
            format!(
                "{what} waste {before} on average under smoosh; no horizon keeps that: windows, limits{views} or the need for free space leave {after} even with {horizon}"
            )
        }
        WasteFit::Longer => format!(
            "{what} waste {before} on average under smoosh, which compacts almost none of them in this time: every horizon of {horizon} or longer leaves the same waste, so compare over more days"
        ),
        WasteFit::Little => format!(
            "{what} waste almost nothing under smoosh ({before}), so their horizon is the default, {horizon}"
        ),
    }
}

impl OutlookLine {
    fn of(
        outlook: &Outlook,
        forecast: impl Fn(usize) -> Option<Result<Forecast, Withheld>>,
        span: Duration,
    ) -> Self {
        let days = span.as_secs_f64() / 86_400.0;
        Self {
            name: outlook.name.clone(),
            mean_waste_bytes: outlook.mean_waste(),
            peak_waste_bytes: outlook.peak_waste(),
            rewritten_bytes_per_day: outlook.rewritten_bytes as f64 / days,
            freed_bytes: outlook.freed_bytes,
            compactions_per_day: outlook.compactions as f64 / days,
            longest_wait_seconds: outlook.longest_wait.map(|wait| wait.as_secs()),
            undone_targets: outlook.undone_targets(),
            undone_bytes: outlook.undone_bytes(),
            undone: outlook.undone.iter().map(UndoneLine::from).collect(),
            coarse: outlook.is_coarse,
            waste_bytes: outlook.samples.iter().map(|sample| sample.waste_bytes).collect(),
            file_bytes: outlook.samples.iter().map(|sample| sample.file_bytes).collect(),
            volumes: outlook
                .volumes
                .iter()
                .enumerate()
                .map(|(at, volume)| VolumeOutlookLine::of(volume, forecast(at), span))
                .collect(),
        }
    }
}

impl From<&Undone> for UndoneLine {
    fn from(&Undone { reason, excluding_key, targets, bytes }: &Undone) -> Self {
        let meaning = || reason.meaning().to_owned();
        Self {
            reason: reason.label().into(),
            says: excluding_key.map_or_else(meaning, |key| format!("{key} excludes it")),
            targets,
            reclaimable_bytes: bytes,
        }
    }
}

impl VolumeOutlookLine {
    fn of(
        volume: &VolumeOutlook,
        forecast: Option<Result<Forecast, Withheld>>,
        span: Duration,
    ) -> Self {
        let withheld = forecast.as_ref().and_then(|it| it.as_ref().err()).map(ToString::to_string);
        let forecast = forecast.and_then(Result::ok);
        let time = |at: usize| span.mul_f64(at as f64 / (SAMPLES - 1) as f64);
        let medians = forecast.as_ref().and_then(|forecast| {
            // Nothing is written to a full volume, so it stays full beyond the reach too.
            let full = forecast.full.median.map(|_| 0);
            let free = |at| forecast.median_after(time(at)).or(full);
            (0..volume.free_bytes.len()).map(free).collect()
        });
        Self {
            name: volume.name.to_string(),
            nodes: volume.nodes.iter().map(ToString::to_string).collect(),
            free_bytes: medians.unwrap_or_else(|| volume.free_bytes.clone()),
            full: FullDates::of(forecast.as_ref()),
            forecast_seconds: forecast.map(|forecast| forecast.reach().as_secs()),
            forecast_withheld: withheld,
        }
    }

    /// Its name for people.
    fn title(&self) -> String {
        volume_title(&self.name, &self.nodes)
    }

    /// Free bytes over this time by the forecast; none if it does not reach as far. The simulation alone continues the
    /// growth of the last minutes for days, and says nothing about when a volume is full.
    pub(crate) fn free_ahead(&self, seconds: u64) -> &[u64] {
        let reaches = self.forecast_seconds.is_some_and(|reach| reach >= seconds);
        if reaches || self.full.full_at.is_some() { &self.free_bytes } else { &[] }
    }

    /// Until when it is not full, for people.
    fn not_full_in_words(&self) -> String {
        let reach = self.forecast_seconds.map(Duration::from_secs).map(duration::format_rounded);
        reach.map_or_else(|| "not known".to_owned(), |reach| format!("not within {reach}"))
    }
}
